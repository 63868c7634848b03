"""The outcome in plain words, also when it is not the one that was hoped for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from potluck.report.units import percent, plural, points

if TYPE_CHECKING:
    from potluck.report.comparison import Comparison, Row

ALONE, POOLED = "local", "centralised"  # nobody learns together; everybody's data in one place


def sentence(comparison: Comparison) -> str:
    rows = comparison.rows
    if not any(row.accuracy for row in rows):
        return f"On {comparison.data} nothing has been evaluated yet: no run got to the end of its first round."
    if len(rows) == 1:
        return _one(comparison, rows[0])
    best = next((row for row in rows if row.best), None)
    if best is None:
        names = ", ".join(row.method for row in rows)
        return f"On {comparison.data} no run of {names} has finished yet; the figures below are as far as they got."
    finished = [row for row in rows if row.finished and not row.best]
    if not finished:
        return f"On {comparison.data} only {best.method} has finished so far, with {_accuracy(best)}."
    return f"On {comparison.data} {_several(best, finished)}"


def _one(comparison: Comparison, row: Row) -> str:
    tenth = f"; for the worst tenth of the clients, {percent(row.worst_tenth.mean)}" if row.worst_tenth else ""
    so_far = "" if row.finished else "So far, as the run is not finished: "
    return (
        f"{so_far}{row.method} on {comparison.data}: the models of {plural(comparison.clients, 'client')} are right on "
        f"{_accuracy(row)} of their own test samples on average{tenth}."
    )


def _several(best: Row, others: list[Row]) -> str:
    """`others` are finished, the better ones first."""
    if best.name == ALONE:
        rivals = [row for row in others if row.name not in (ALONE, POOLED)] or others
        return (
            f"learning together did not pay: everybody alone ({best.method}) has the highest mean accuracy, "
            f"{_accuracy(best)}. {_nearest(rivals)}, {_behind(rivals[0])}."
        )
    if best.name == POOLED:
        distributed = [row for row in others if row.name != POOLED]
        if not distributed:
            return f"{best.method} has the highest mean accuracy, {_accuracy(best)}. {_nearest(others)}, {_behind(others[0])}."
        nearest = distributed[0]
        alone = "; no federated method beats learning alone" if nearest.name == ALONE and len(distributed) > 1 else ""
        return (
            f"training on everybody's data in one place ({best.method}) has the highest mean accuracy, {_accuracy(best)}. "
            f"Of the methods that leave the data where they are, {nearest.method} comes closest, {_behind(nearest)}{alone}."
        )
    text = f"{best.method} has the highest mean accuracy, {_accuracy(best)}. {_nearest(others)}, {_behind(others[0])}."
    alone = next((row for row in others[1:] if row.name == ALONE), None)
    return text + (f" Learning alone ({alone.method}) is {_behind(alone)}." if alone else "")


def _nearest(rows: list[Row]) -> str:
    row = rows[0]
    return f"{'The other one' if len(rows) == 1 else 'The nearest other one'} is {row.method}"


def _accuracy(row: Row) -> str:
    assert row.accuracy is not None
    seeds = plural(len(row.seeds), "seed")
    if row.accuracy.std is None:
        return f"{percent(row.accuracy.mean)} ({seeds})"
    return f"{percent(row.accuracy.mean)} ± {points(row.accuracy.std, signed=False)} ({seeds})"


def _behind(row: Row) -> str:
    """How far from the best, and whether that means anything."""
    gap = row.difference
    if gap is None or gap.mean is None:
        return "which has no seed in common with it, so that nobody can tell how far apart they are"
    far = f"{points(gap.mean, signed=False)} points {'ahead' if gap.mean > 0 else 'behind'}"
    if gap.low is None:
        return f"{far}, with too few seeds to tell whether that is more than noise"
    return f"{far}, which is {gap.verdict}"
