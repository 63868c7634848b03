"""The result of a comparison in one or two sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

from potluck.metrics import distance, metric, score, unit, words
from potluck.units import plural

if TYPE_CHECKING:
    from potluck.report.figures.comparison import Comparison, Difference, Row

NOISE, CLEAR, TOO_FEW = "not larger than the noise", "larger than the noise", "too few seeds to tell"
ALONE, POOLED = "local", "centralised"  # the baselines: local training only, and all data in one place


def sentence(comparison: Comparison) -> str:
    rows = comparison.rows
    if not any(row.accuracy for row in rows):
        return f"On {comparison.data} nothing has been evaluated yet: no run has finished its first round."
    if len(rows) == 1:
        return _one(comparison, rows[0])
    best = next((row for row in rows if row.best), None)
    if best is None:
        names = ", ".join(row.method for row in rows)
        return f"On {comparison.data} no run of {names} has finished yet; the figures are those so far."
    finished = [row for row in rows if row.finished and not row.best]
    if not finished:
        return f"On {comparison.data} only {best.method} has finished so far, with {_accuracy(best)}."
    return f"On {comparison.data} {_several(best, finished)}"


def _one(comparison: Comparison, row: Row) -> str:
    tenth = f"; the worst tenth of the clients has {score(row.worst_tenth.mean)}" if row.worst_tenth else ""
    so_far = "" if row.finished else "So far (the run is not finished), "
    clients = plural(comparison.clients, "client")
    return (
        f"{so_far}{row.method} on {comparison.data} has a mean {words()} of {_accuracy(row)} over {clients}, each with "
        f"its personal model on its own test samples{tenth}."
    )


def _several(best: Row, others: list[Row]) -> str:
    """`others` are finished, the better ones first."""
    highest = f"has the {'lowest' if metric().lower else 'highest'} mean {words()}, {_accuracy(best)}."
    if best.name == ALONE:
        rivals = [row for row in others if row.name not in (ALONE, POOLED)] or others
        alone = f"federated learning did not pay off: local training only ({best.method})"
        return f"{alone} {highest} {_nearest(rivals)}, {_behind(rivals[0])}."
    apart = [row for row in others if row.name != POOLED]
    if best.name == POOLED and apart:
        nearest = apart[0]
        lost = nearest.name == ALONE and len(apart) > 1
        return (
            f"training on the pooled data of all clients ({best.method}) {highest} Of the methods that leave the data "
            f"on the clients, {nearest.method} comes closest, {_behind(nearest)}"
            f"{'; no federated method beats local training only' if lost else ''}."
        )
    text = f"{best.method} {highest} {_nearest(others)}, {_behind(others[0])}."
    alone_row = next((row for row in others[1:] if row.name == ALONE), None)
    if alone_row is not None:
        text += f" Local training only ({alone_row.method}) is {_behind(alone_row)}."
    return text + _among_the_able(others)


def _among_the_able(rows: list[Row]) -> str:
    """Unfit clients lower the mean of methods that share no model; among the others another method may be ahead."""
    gaps = {row.method: row.able_difference for row in rows if row.unfit and row.unfit.mean}
    ahead = {name: gap for name, gap in gaps.items() if gap and gap.mean and gap.mean > 0 and gap.verdict != NOISE}
    if not ahead:
        return ""
    name, gap = max(ahead.items(), key=lambda item: item[1].mean or 0.0)
    return f" Among the clients that could train, however, {name} is {_apart(gap)}."


def _nearest(rows: list[Row]) -> str:
    row = rows[0]
    return f"{'The other method' if len(rows) == 1 else 'The next best'} is {row.method}"


def _accuracy(row: Row) -> str:
    assert row.accuracy is not None
    seeds = plural(len(row.seeds), "seed")
    if row.accuracy.std is None:
        return f"{score(row.accuracy.mean)} ({seeds})"
    return f"{score(row.accuracy.mean)} ± {distance(row.accuracy.std, signed=False)} ({seeds})"


def _behind(row: Row) -> str:
    """The distance to the best, and whether it is more than noise."""
    if row.difference is None or row.difference.mean is None:
        return "with no seed in common, so the two cannot be compared"
    return _apart(row.difference)


def _apart(gap: Difference) -> str:
    mean = gap.mean or 0.0
    far = f"{distance(mean, signed=False)}{unit()} {'ahead' if mean > 0 else 'behind'}"
    if gap.verdict == TOO_FEW:
        return f"{far}, with too few seeds to tell whether that is more than noise"
    return f"{far}, which is {gap.verdict}"
