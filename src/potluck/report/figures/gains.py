"""Two methods client by client: how many clients gain, lose or tie, and by how much.

The same client under the same seed, with both methods; then the mean over seeds. A client ties if the two methods
differ by at most one of its test rows (mean over seeds), because that much one row decides; of an error, by at most
1 %. All of this is about the
clients of this fleet. They share models, so they are no independent draws, and the p-value does not speak of others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from potluck.metrics import tie
from potluck.report.figures.holm import adjusted
from potluck.report.figures.scores import Scores
from potluck.report.figures.signed_rank import FEWEST, signed_rank

GAIN, LOSE, TIE = "gain", "lose", "tie"
ROUNDING = 1e-9


@dataclass(frozen=True)
class Gains:
    """The clients of one pair: what a client gains with `method` instead of `other`, as merits."""

    method: str
    other: str
    seeds: list[int]
    clients: int
    gain: int
    lose: int
    tie: int  # see `tie`
    mean: float
    median: float
    largest_gain: float  # of one client; below 0 if all lose
    largest_loss: float  # of one client, as a difference: below 0 if any loses
    worst: str  # the client of `largest_loss`
    p: float | None  # Wilcoxon's signed-rank test over clients; None with too few clients
    p_holm: float | None = None  # with Holm's correction among the pairs listed
    # A comparison keeps the next two for the pairs of the best method only.
    differences: dict[str, float] = field(default_factory=dict)  # client -> mean over seeds
    outcomes: dict[str, str] = field(default_factory=dict)  # client -> GAIN, LOSE or TIE


def all_gains(scores: Scores, pairs: Sequence[tuple[str, str]]) -> list[Gains]:
    """The pairs that have a client and a seed in common."""
    found = {(a, b): one for a, b in pairs if (one := gains(scores, a, b)) is not None}
    corrected = adjusted({key: one.p for key, one in found.items() if one.p is not None})
    return [replace(one, p_holm=corrected.get(key)) for key, one in found.items()]


def gains(scores: Scores, method: str, other: str) -> Gains | None:
    """Compare two methods client by client; None without a client that both have under one seed."""
    mine, theirs = scores.clients.get(method, {}), scores.clients.get(other, {})
    seeds = [seed for seed in sorted(mine.keys() & theirs.keys()) if mine[seed].keys() & theirs[seed].keys()]
    gaps: dict[str, list[float]] = {}
    rows: dict[str, list[float]] = {}
    for seed in seeds:
        for client in sorted(mine[seed].keys() & theirs[seed].keys()):
            gaps.setdefault(client, []).append(mine[seed][client] - theirs[seed][client])
            both = mine[seed][client], theirs[seed][client]
            rows.setdefault(client, []).append(tie(scores.tested.get(seed, {}).get(client, 0), *both))
    if not gaps:
        return None
    differences = {client: float(np.mean(found)) for client, found in gaps.items()}
    outcomes = {client: outcome(value, float(np.mean(rows[client]))) for client, value in differences.items()}
    values = list(differences.values())
    counted = Counter(outcomes.values())
    worst = min(differences, key=lambda client: (differences[client], client))
    moved = [round(value, 12) for value in values]
    enough = sum(value != 0 for value in moved) >= FEWEST
    return Gains(
        method,
        other,
        seeds,
        len(values),
        gain=counted[GAIN],
        lose=counted[LOSE],
        tie=counted[TIE],
        mean=float(np.mean(values)),
        median=float(np.median(values)),
        largest_gain=max(values),
        largest_loss=differences[worst],
        worst=worst,
        p=signed_rank(moved) if enough else None,
        differences=differences,
        outcomes=outcomes,
    )


def outcome(difference: float, least: float) -> str:
    """Whether a client gains, loses or ties; up to `least` it ties, which is what one test row decides of a share."""
    if abs(difference) <= least + ROUNDING:
        return TIE
    return GAIN if difference > 0 else LOSE
