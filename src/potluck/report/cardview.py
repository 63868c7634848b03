"""The cards of the devices as they are seen: the worst tenth in full view, the others a click away."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from potluck.report.cards import Card, cards, costs
from potluck.report.frame import section
from potluck.report.groups import Group
from potluck.report.looks import Look
from potluck.report.markup import Html, named, tag
from potluck.report.units import NOTHING, percent, plural, points

FEWEST, MOST = 6, 100  # cards in full view
MOST_PRINTED = 24


def device_cards(groups: Sequence[Group], order: Sequence[str], best: str | None, looks: Mapping[str, Look]) -> Html:
    """The section: of the best method, or of the only one."""
    able = [label for label in order if next(one for one in groups if one.label == label).counted]
    shown = best if best in able else able[0] if able else None
    found = cards(groups, shown) if shown else []
    if not found or shown is None:
        return section("cards", "Every device", tag("p", "No client has been evaluated yet."))
    seed = next(one for one in groups if one.label == shown).counted[0].seed
    first = min(MOST, max(FEWEST, -(-len(found) // 10)))
    alone = "" if any(card.gain is not None for card in found) else (
        " Gains over going alone need a run of local beside these." if "local" not in order else ""
    )  # fmt: skip
    about = tag(
        "p",
        f"How {plural(len(found), 'device')} fared with {shown}, the worst first. Accuracies are means over seeds; "
        f"devices, costs and friends are those of one run (seed {seed}). “What would help” is read off the records by "
        f"rules, not tried out.{alone}",
        class_="about",
    )
    front = tag(
        "div", [card_of(card, shown, looks, i >= MOST_PRINTED) for i, card in enumerate(found[:first])], class_="cards"
    )
    back = None
    if found[first:]:
        rest = tag("div", [card_of(card, shown, looks, True) for card in found[first:]], class_="cards")
        back = tag("details", tag("summary", f"The other {plural(len(found) - first, 'device')}"), rest, class_="rest")
    return section("cards", "Every device", about, tag("div", front, back, id="device-cards"))


def card_of(card: Card, method: str, looks: Mapping[str, Look], beyond: bool = False) -> Html:
    shown = {method: card.accuracy, **card.others}
    dots = [
        tag("i", class_=f"d {looks[label].css}{' own' if label == method else ''}", style=f"left:{100 * value:.1f}%",
            title=f"{label}: {percent(value)}")
        for label, value in reversed(shown.items()) if value is not None
    ]  # fmt: skip
    facts = [
        ("Costs", costs(card)),
        ("Learned from", card.learned_from),
        ("Worst class", _worst(card)),
    ]
    return tag(
        "article",
        tag("header", tag("h4", named(card.client)), tag("b", percent(card.accuracy, 0), class_="big")),
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
    css = "good" if card.gain > 0.0005 else "warn" if card.gain < -0.0005 else None
    words = f"{points(card.gain)} points over going alone"
    return tag(
        "p",
        tag("b", words, class_=css),
        f" ({percent(card.alone, 0)} on its own {card.train:,} samples)",
        class_="gain",
    )


def _worst(card: Card) -> str:
    worst = card.worst_class
    if worst is None:
        return "not recorded"
    if worst.right == worst.test:
        return f"none: all {worst.test:,} test samples are right"
    return f"“{worst.name}”, {worst.right:,} of {worst.test:,} right; it trains on {plural(worst.held, 'sample')} of it"
