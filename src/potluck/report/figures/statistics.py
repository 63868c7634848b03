"""The statistics of a comparison together, and what they say in at most three sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from potluck.metrics import ACCURACY, alike, distance, unit
from potluck.report.figures.gains import Gains, all_gains
from potluck.report.figures.pairs import FAIR, Pair, all_pairs
from potluck.report.figures.power import EQUAL, MORE, MOST, SeedsNeeded, seeds_needed
from potluck.report.figures.ranks import Ranks, ranks
from potluck.report.figures.scores import AT_THE_END, Scores
from potluck.units import listed, plural

MOST_NAMED = 3  # methods in the sentence about seeds


@dataclass(frozen=True)
class Statistics:
    """What the seeds and the clients say about the differences between methods."""

    what: str = AT_THE_END.format(ACCURACY.words)  # what the accuracies are
    pairs: tuple[Pair, ...] = ()  # every pair of methods
    per_client: tuple[Gains, ...] = ()  # the best with each other method, then each other method with local training
    ranks: Ranks | None = None
    seeds_needed: tuple[SeedsNeeded, ...] = ()  # of every pair


def statistics(scores: Scores, order: Sequence[str], best: str | None, alone: str | None = None) -> Statistics:
    """`order` lists the methods, the best first; `alone` is the label of local training only, if it took part."""
    if best is None:
        return Statistics(scores.what)
    known = [name for name in order if scores.means.get(name)]
    found = all_pairs(scores.means, known, best)
    asked = [(best, name) for name in known if name != best]
    if alone in known and alone != best:
        asked += [(name, alone) for name in known if name not in (best, alone)]
    clients = all_gains(scores, asked)
    return Statistics(
        scores.what,
        tuple(found),
        tuple(one if one.method == best else replace(one, differences={}, outcomes={}) for one in clients),
        ranks({name: scores.means[name] for name in known}),
        tuple(seeds_needed(one) for one in found),
    )


def with_best(found: Statistics, best: str | None) -> list[Pair]:
    """The pairs of the best method, in the order of the other methods."""
    return [one for one in found.pairs if one.method == best]


def gains_of(found: Statistics, method: str | None) -> list[Gains]:
    """The comparisons client by client of this method with others."""
    return [one for one in found.per_client if one.method == method]


def in_words(found: Statistics, best: str | None, names: Mapping[str, str], alone: str) -> list[str]:
    """One sentence on the clients, one on the seeds that are missing; `names` are the methods of the labels."""
    return [*_clients(found, best, names, alone), *_seeds(found, best)]


def _clients(found: Statistics, best: str | None, names: Mapping[str, str], alone: str) -> list[str]:
    """The best method against local training, or against the next best."""
    rivals = gains_of(found, best)
    if not rivals:
        return []
    shown = next((one for one in rivals if names.get(one.other) == alone), rivals[0])
    loss = f"the largest loss is {distance(shown.largest_loss, signed=False)}{unit()}" if shown.largest_loss < 0 else ""
    text = (
        f"Client by client, {shown.method} instead of {shown.other}: {_counts(shown)}; the median difference is "
        f"{distance(shown.median)}{unit()}"
    )
    return [f"{text} and {loss} (client {shown.worst})." if loss else f"{text}, and no client loses."]


def _counts(one: Gains) -> str:
    gain, lose, tie = (
        f"{verb}{'s' if n == 1 else ''}" for verb, n in (("gain", one.gain), ("lose", one.lose), ("tie", one.tie))
    )
    return f"{one.gain} of {plural(one.clients, 'client')} {gain}, {one.lose} {lose} and {one.tie} {tie} ({alike()})"


def _seeds(found: Statistics, best: str | None) -> list[str]:
    mine = [one for one in found.seeds_needed if one.method == best]
    missing = [one for one in mine if one.verdict == MORE]
    equal = [one.other for one in mine if one.verdict == EQUAL]
    pairs = [one for one in found.pairs if one.method == best and one.other in equal and one.t is not None]
    parts = []
    if missing:
        each = [f"about {one.more} from {one.other}" for one in missing[1:MOST_NAMED]]
        each += [f"more from {plural(len(missing) - MOST_NAMED, 'other method')}"] if len(missing) > MOST_NAMED else []
        first = f"about {plural(missing[0].more or 0, 'more seed')} to tell {best} from {missing[0].other}"
        parts.append(f"You need {listed([first, *each])}")
    if pairs:
        start = "treat" if parts else "Treat"
        now = " for now" if min(len(one.seeds) for one in pairs) < FAIR else ""
        seen = max(abs(one.mean or 0.0) for one in pairs)
        room = max(max(abs(one.t.low), abs(one.t.high)) for one in pairs if one.t)
        parts.append(
            f"{start} {best} and {listed(equal)} as equal{now}, because a difference of "
            f"{distance(seen, signed=False)}{unit()} takes more than {MOST} seeds to tell (these seeds rule out "
            f"more than {distance(room, signed=False)})"
        )
    return [f"{'; '.join(parts)}."] if parts else []
