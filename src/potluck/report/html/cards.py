"""The section with a card for every device: the worst are shown, the others are folded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from potluck.metrics import distance, margin, metric, score, unit
from potluck.report.drawing.axes import along
from potluck.report.drawing.styles import Style
from potluck.report.figures.cards import ALONE_TOO, Card, cards, costs
from potluck.report.figures.sentence import POOLED
from potluck.report.html.parts import section
from potluck.report.markup import Html, named, tag
from potluck.report.reading.groups import Group
from potluck.units import NOTHING, plural

FEWEST, MOST = 6, 24  # cards in full view
MOST_PRINTED = 24


def device_cards(groups: Sequence[Group], order: Sequence[str], best: str | None, styles: Mapping[str, Style]) -> Html:
    """The section on the best federated method; on a baseline only if there is no other."""
    by_label = {one.label: one for one in groups}
    able = [label for label in order if by_label[label].counted]
    together = [label for label in able if by_label[label].method not in (*ALONE_TOO, POOLED)]
    shown = best if best in together else next(iter([*together, *able]), None)
    found = cards(groups, shown) if shown else []
    if not found or shown is None:
        return section("cards", "All devices", tag("p", "No client has been evaluated yet."))
    seed = by_label[shown].counted[0].seed
    among = " (the most accurate federated method)"
    whose = shown if best is None or shown == best else f"{shown}{among}"
    first = max(FEWEST, -(-len(found) // 10))  # the worst tenth
    compared = "local" in order or any(card.gain is not None for card in found)
    alone = "" if compared else " To see the gain over local training, add a run of the method local."
    about = tag(
        "p",
        f"{plural(len(found), 'device')} with {whose}, the worst first. Scores are means over seeds; devices, "
        f"costs and clusters are those of one run (seed {seed}). “What would help” follows from the records by simple "
        f"rules; it was not tried.{alone}",
        class_="about",
    )
    seen = min(first, MOST)
    front = tag(
        "div", [card_of(card, shown, styles, i >= MOST_PRINTED) for i, card in enumerate(found[:seen])], class_="cards"
    )
    parts = [front]
    for some, words in ((found[seen:first], "The rest of the worst tenth, {}"), (found[first:], "The other {}")):
        if some:
            folded = tag("div", [card_of(card, shown, styles, True) for card in some], class_="cards")
            head = tag("summary", words.format(plural(len(some), "device")))
            parts.append(tag("details", head, folded, class_="rest"))
    return section("cards", "All devices", about, tag("div", parts, id="device-cards"))


def card_of(card: Card, method: str, styles: Mapping[str, Style], beyond: bool = False) -> Html:
    shown = {method: card.accuracy, **card.others}
    place = along([value for value in shown.values() if value is not None])
    dots = [
        tag(
            "i",
            class_=f"d {styles[label].css}{' own' if label == method else ''}",
            style=f"left:{100 * place(value):.1f}%",
            title=f"{label}: {score(value)}",
        )
        for label, value in reversed(shown.items())
        if value is not None
    ]
    facts = [
        ("Costs", costs(card)),
        ("Learned from", card.learned_from),
        ("Worst class", _worst(card)),
        *([("Privacy", f"epsilon {card.epsilon:.3g}")] if card.epsilon is not None else []),
    ]
    return tag(
        "article",
        tag("header", tag("h4", named(card.client)), tag("b", score(card.accuracy, 0), class_="big")),
        tag("p", named(f"{card.device} on {card.link}" if card.device else "device unknown"), class_="device"),
        tag("div", dots, class_="strip", aria_hidden="true"),
        _gain(card),
        tag("dl", [tag("div", tag("dt", name), tag("dd", named(value))) for name, value in facts]),
        tag("p", tag("b", "What would help"), " ", named(" ".join(card.help) or NOTHING), class_="help"),
        class_="card beyond" if beyond else "card",
    )


def _gain(card: Card) -> Html:
    if card.gain is None or card.alone is None:
        return tag("p", f"{plural(card.train, 'training sample')}, {card.test:,} to test on", class_="gain")
    least = margin(0.0005, card.alone)
    css = "good" if card.gain > least else "warn" if card.gain < -least else None
    below = card.gain < -least
    worse, better = ("worse than", "better than") if metric().lower else ("below", "above")
    words = f"{distance(card.gain, signed=not below)}{unit()} {worse if below else better} local training"
    return tag(
        "p",
        tag("b", words, class_=css),
        f" ({score(card.alone, 0)} with its own {card.train:,} samples only)",
        class_="gain",
    )


def _worst(card: Card) -> str:
    worst = card.worst_class
    if worst is None:
        return "not recorded"
    if worst.right == worst.test:
        return f"none: all {worst.test:,} test samples are correct"
    return f"“{worst.name}”, {worst.right:,} of {worst.test:,} correct; {plural(worst.held, 'sample')} to train on"
