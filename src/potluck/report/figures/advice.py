"""A recommendation in plain words, from a finished comparison: which method, how sure, at what cost, and what would
change the answer.

The rule is short enough to argue with. Take the method with the best mean accuracy. Methods that are within `MARGIN` of
it, and that these seeds cannot tell from it, count as equal. Of these, take the one that sends the fewest bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from potluck.metrics import distance, margin, metric, score, scored_by, unit, words
from potluck.report.figures.comparison import Comparison, Row, Spread
from potluck.report.figures.pairs import Pair, pair
from potluck.report.figures.power import EQUAL, MORE, SeedsNeeded
from potluck.report.figures.sentence import ALONE, CLEAR, NOISE, POOLED, TOO_FEW
from potluck.units import count, listed, plural, quantity

MARGIN = 0.01  # of accuracy: what nobody notices
RISK = 0.05
RISING = 0.005  # of accuracy in the last quarter of the budget: a curve that still rises


@dataclass(frozen=True)
class Advice:
    """What to use, and the sentences that say why."""

    method: str
    equals: list[str]  # methods that count as equal
    use: str  # what, and because of which figures
    runner_up: list[str]  # what comes next, and how far behind
    cost: str
    fairness: list[str]  # where another method is better for the worst-off clients
    would_change: list[str]

    @property
    def sentences(self) -> list[str]:
        return [self.use, *self.runner_up, self.cost, *self.fairness]


@dataclass(frozen=True)
class Beyond:
    """What is known beyond the figures of the comparison."""

    clients: int  # of the fleet
    rising: Mapping[str, float]  # the gain of each method's curve over the last quarter of its budget
    rows: int = 0  # labelled rows of a client
    fewer: Sequence[Row] = ()  # a small comparison with half of the labelled rows, best first, if there was one
    tuned: bool = True  # whether the settings of all methods were chosen on validation rows


def advise(comparison: Comparison, known: Beyond) -> Advice | None:
    """Recommend a method that leaves the data on the clients; None if no two methods have finished."""
    with scored_by(comparison.metric):
        return _advice(comparison, known)


def _advice(comparison: Comparison, known: Beyond) -> Advice | None:
    able = [row for row in comparison.rows if row.accuracy is not None and row.finished and row.name != POOLED]
    if len(able) < 2:
        return None
    rows = {row.method: row for row in able}
    best = rows.get(comparison.best or "") or max(able, key=lambda row: _mean(row.accuracy))
    equals = _equals(comparison, best, rows)
    chosen = min(equals, key=_bytes)
    others = [row.method for row in equals if row is not chosen]
    return Advice(
        chosen.method,
        others,
        _use(chosen, next((row for row in able if row.name == ALONE), None), comparison),
        _sure(chosen, others, comparison, rows),
        _cost(chosen, known.clients),
        _worst(chosen, rows),
        [*_changes(chosen, comparison, known), *_cheaper(chosen, able)],
    )


def _equals(comparison: Comparison, best: Row, rows: Mapping[str, Row]) -> list[Row]:
    found = [best]
    for row in rows.values():
        if row is best or not row.finished:
            continue
        one = _between(comparison, best.method, row.method)
        near = _mean(best.accuracy) - _mean(row.accuracy) <= margin(MARGIN, _mean(best.accuracy))
        told_apart = one is not None and one.p_best is not None and one.p_best <= RISK
        if near and not told_apart:
            found.append(row)
    return found


def _between(comparison: Comparison, first: str, second: str) -> Pair | None:
    return next((one for one in comparison.pairs if {one.method, one.other} == {first, second}), None)


def _gap(comparison: Comparison, first: str, second: str) -> Pair | None:
    """`first` minus `second`, whichever way round the comparison has the pair."""
    one = _between(comparison, first, second)
    if one is None or one.method == first:
        return one
    values = dict(zip(one.seeds, one.by_seed, strict=True))
    return pair(first, second, {seed: -gap for seed, gap in values.items()}, dict.fromkeys(values, 0.0))


def _use(chosen: Row, alone: Row | None, comparison: Comparison) -> str:
    reached = f"Use {chosen.method}: {score(_mean(chosen.accuracy))} mean {words()} over {comparison.clients} clients"
    if alone is None or chosen is alone:
        tail = " Learning together does not pay here." if chosen is alone else ""
        return f"{reached}.{tail}"
    gap = _gap(comparison, chosen.method, alone.method)
    if gap is None or gap.mean is None:
        return f"{reached}."
    interval = "" if gap.t is None else f" (95 % interval {distance(gap.t.low)} to {distance(gap.t.high)})"
    if metric().lower:
        better = f"{distance(gap.mean, signed=False)} {'lower' if gap.mean > 0 else 'higher'} than with"
        return f"{reached}, {better} local training only{interval}."
    return f"{reached}, {distance(gap.mean)}{unit()} against local training only{interval}."


def _sure(chosen: Row, others: Sequence[str], comparison: Comparison, rows: Mapping[str, Row]) -> list[str]:
    if others:
        return [
            f"These runs cannot tell it from {listed(list(others))}; {chosen.method} sends the fewest bytes of them."
        ]
    rest = [row for row in rows.values() if row is not chosen]
    if not rest:
        return []
    second = max(rest, key=lambda row: _mean(row.accuracy))
    gap = _gap(comparison, chosen.method, second.method)
    if gap is None or gap.mean is None:
        return []
    p = gap.p_best if gap.p_best is not None else gap.p
    sure = TOO_FEW if p is None else CLEAR if p <= RISK else NOISE
    return [f"The next best, {second.method}, is {distance(abs(gap.mean), signed=False)}{unit()} behind, {sure}."]


def _cost(chosen: Row, fleet: int) -> str:
    clients = max(1, fleet)
    moved = (_mean(chosen.bytes_up) + _mean(chosen.bytes_down)) / clients
    work, whole, seconds = chosen.joules, chosen.all_joules, _mean(chosen.virtual_seconds)
    spent = "" if work is None else f" and {quantity(work.mean / clients, 'J')} for training and sending"
    if whole is not None:
        idle = "" if chosen.idle_share is None else f", {100 * chosen.idle_share.mean:.0f} % of it idle"
        spent = f" and {quantity(whole.mean / clients, 'J')}{idle},"
    return (
        f"It costs each client {quantity(moved, 'B')}{spent} on average. "
        f"A run takes {quantity(seconds, 's')} of virtual time."
    )


def _worst(chosen: Row, rows: Mapping[str, Row]) -> list[str]:
    fairest = max(rows.values(), key=lambda row: _mean(row.worst_tenth))
    mine, theirs = _mean(chosen.worst_tenth), _mean(fairest.worst_tenth)
    if fairest is chosen or theirs - mine < margin(MARGIN, mine):
        return []
    return [
        f"If the worst-off clients matter most, look at {fairest.method}: the worst tenth reaches {score(theirs)} "
        f"there, and {score(mine)} with {chosen.method}."
    ]


def _cheaper(chosen: Row, rows: Sequence[Row]) -> list[str]:
    """The most accurate method that sends less than half of the bytes."""
    less = [row for row in rows if row.bytes_up and _bytes(row) < 0.5 * _bytes(chosen)]
    if not less:
        return []
    other = max(less, key=lambda row: _mean(row.accuracy))
    gap = distance(_mean(chosen.accuracy) - _mean(other.accuracy), signed=False)
    sends = "nothing" if not _bytes(other) else f"{100 * _bytes(other) / _bytes(chosen):.2g} % of the bytes"
    return [f"Traffic: {other.method} sends {sends} and is {gap}{unit()} {'worse' if metric().lower else 'lower'}."]


def _changes(chosen: Row, comparison: Comparison, known: Beyond) -> list[str]:
    found = []
    rising, rises = ("falling", "falls") if metric().lower else ("rising", "rises")
    climbing = {name: gain for name, gain in known.rising.items() if gain >= margin(RISING, _level(comparison))}
    if climbing:
        named = listed(
            [f"{name} ({distance(gain)}{unit()})" for name, gain in sorted(climbing.items(), key=lambda i: -i[1])]
        )
        found.append(f"More passes: still {rising} in the last quarter of the budget: {named}.")
    elif known.rising:
        found.append(f"More passes: no curve {rises} any more, so they would hardly change the order.")
    if not known.tuned:
        found.append(
            "Tuning: this comparison did not tune. `--tune 20` chooses each method's settings on validation rows."
        )
    found += _with_fewer_rows(chosen, known.fewer, known.rows)
    found += _with_more_seeds(chosen.method, comparison.seeds_needed)
    unfit = _mean(chosen.unfit)
    if unfit >= 1:
        found.append(
            f"Other devices: {count(unfit)} of {plural(known.clients, 'client')} cannot hold its training"
            f"{_of_those_that_trained(chosen, comparison)}."
        )
    return found


def _of_those_that_trained(chosen: Row, comparison: Comparison) -> str:
    """Say which method would lead if every device could train, where it is another one."""
    able = [row for row in comparison.rows if row.able_accuracy and row.finished and row.name != POOLED]
    first = max(able, key=lambda row: _mean(row.able_accuracy), default=chosen)
    mine, best = _mean(chosen.able_accuracy), _mean(first.able_accuracy)
    if first is chosen or best - mine < margin(MARGIN, best):
        return ""
    return f"; of those that trained {first.method} leads ({score(best)}, {chosen.method} {score(mine)})"


def _with_fewer_rows(chosen: Row, fewer: Sequence[Row], rows: int) -> list[str]:
    if not fewer or fewer[0].accuracy is None:
        return []
    first, half = fewer[0], max(2, rows // 2)
    order = "still leads" if first.method == chosen.method else f"falls behind {first.method}"
    reached = listed([f"{row.method} {score(_mean(row.accuracy))}" for row in fewer])
    return [f"Fewer rows: with {half} labelled rows per client {chosen.method} {order} ({reached})."]


def _with_more_seeds(method: str, needed: Sequence[SeedsNeeded]) -> list[str]:
    open_pairs = [one for one in needed if method in (one.method, one.other) and one.verdict == MORE]
    alike = [one for one in needed if method in (one.method, one.other) and one.verdict == EQUAL]
    found = []
    if open_pairs:
        least = min(open_pairs, key=lambda one: one.more or 0)
        other = least.other if least.method == method else least.method
        found.append(f"More seeds: {plural(least.more or 1, 'more seed')} or so would tell it from {other}.")
    if alike:
        names = listed([one.other if one.method == method else one.method for one in alike])
        found.append(f"More seeds will not help with {names}: the difference is too small to matter.")
    return found


def _level(comparison: Comparison) -> float:
    return max((row.accuracy.mean for row in comparison.rows if row.accuracy), default=0.0)


def _bytes(row: Row) -> float:
    return _mean(row.bytes_up) + _mean(row.bytes_down)


def _mean(spread: Spread | None) -> float:
    return spread.mean if spread is not None else 0.0
