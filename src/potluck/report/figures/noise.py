"""Say in one sentence which differences are larger than the noise.

Runs of one seed share fleet, split and first weights, so a difference to the best method is taken seed by seed. It is
larger than the noise if 0 lies outside its 95 % paired t interval. Many comparisons find something by chance, so the
sentence also names the methods that remain different under Holm's correction, which keeps the chance of one mistake
among all of them below 5 %. That the best was picked from the same data, no correction undoes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from scipy.special import stdtr

from potluck.report.figures.sentence import CLEAR, NOISE
from potluck.units import listed

if TYPE_CHECKING:
    from potluck.report.figures.comparison import Difference, Row

RISK = 0.05


def noise(rows: Sequence[Row], best: str | None) -> list[str]:
    """The sentence, or none if there is nothing to compare or only one seed. `rows` come best first."""
    gaps = {row.method: row.difference for row in rows if row.difference is not None}
    judged = {name: gap for name, gap in gaps.items() if gap.verdict in (NOISE, CLEAR)}
    if judged:
        return [_with_intervals(best, judged, max(len(gap.seeds) for gap in judged.values()))]
    pairs = {name: gap.by_seed for name, gap in gaps.items() if len(gap.by_seed) == 2}
    return [_with_two(best, pairs)] if pairs else []


def _with_intervals(best: str | None, judged: Mapping[str, Difference], seeds: int) -> str:
    clear = [name for name, gap in judged.items() if gap.verdict == CLEAR]
    within = [name for name in judged if name not in clear]
    rule = f"(95 % paired t interval over {seeds} seeds)"
    if not clear:
        return f"Against {best}, seed by seed: no method is behind by more than the noise {rule}."
    verb = "is" if len(clear) == 1 else "are"
    text = f"Against {best}, seed by seed: {listed(clear)} {verb} behind by more than the noise {rule}"
    text += f"; {listed(within)} {'is' if len(within) == 1 else 'are'} not" if within else ""
    if len(judged) == 1:
        return f"{text}."
    kept = holm({name: chance(gap.by_seed) for name, gap in judged.items()})
    if not kept:
        stays = "no method remains"
    elif len(kept) == len(judged):
        stays = "all of them remain"
    else:
        stays = f"only {listed(kept)} {'remains' if len(kept) == 1 else 'remain'}"
    return f"{text}. With Holm's correction for {len(judged)} comparisons, {stays} significantly different."


def _with_two(best: str | None, pairs: Mapping[str, Sequence[float]]) -> str:
    changing = [name for name, gaps in pairs.items() if max(gaps) > 0 > min(gaps) or 0.0 in gaps]
    steady = [name for name in pairs if name not in changing]
    parts = []
    if changing:
        many = len(changing) > 1
        parts.append(
            f"{listed(changing)} {'are' if many else 'is'} ahead with one seed and not with the other, so "
            f"{'those differences are' if many else 'that difference is'} noise"
        )
    if steady:
        parts.append(f"{listed(steady)} {'are' if len(steady) > 1 else 'is'} behind with both seeds")
    said = "; ".join(parts)
    rest = " Use three seeds or more to see how much of that is noise." if steady else ""
    return f"Two seeds are too few for an interval. Against {best}, {said}.{rest}"


def chance(gaps: Sequence[float]) -> float:
    """The two-sided p-value of the paired t-test."""
    count = len(gaps)
    mean = sum(gaps) / count
    spread = math.sqrt(sum((gap - mean) ** 2 for gap in gaps) / (count - 1) / count)
    if spread == 0.0:
        return 0.0 if mean else 1.0
    return float(2.0 * stdtr(count - 1, -abs(mean) / spread))


def holm(chances: Mapping[str, float]) -> list[str]:
    """The names that remain different; the k-th smallest chance of n must be at most RISK / (n - k + 1)."""
    kept = set()
    for left, name in zip(range(len(chances), 0, -1), sorted(chances, key=lambda name: chances[name]), strict=True):
        if chances[name] > RISK / left:
            break
        kept.add(name)
    return [name for name in chances if name in kept]
