"""Say in one sentence which differences are larger than the noise.

Runs of one seed share fleet, split and first weights, so a difference to the best method is taken seed by seed. It is
larger than the noise if 0 lies outside its 95 % paired t interval. Many comparisons find something by chance, so the
sentence also names the methods that remain different under Holm's correction, which keeps the chance of one mistake
among all of them below 5 %. No correction changes that the best was picked from the same data.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from potluck.report.figures.holm import RISK, adjusted
from potluck.report.figures.pairs import chance
from potluck.report.figures.sentence import CLEAR, NOISE
from potluck.units import listed

if TYPE_CHECKING:
    from potluck.report.figures.comparison import Difference, Row

CHANGES, SAME = "ahead with one seed and not with the other", "equal with both seeds"


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
    kept = holm({name: chance(gap.by_seed) for name, gap in judged.items()})
    correction = f"with Holm's correction for {len(judged)} comparisons" if len(judged) > 1 else ""
    if correction and kept == clear:
        rule, correction = f"{rule[:-1]}, also {correction})", ""
    text = f"Against {best}, seed by seed: {listed(clear)} {_be(clear)} behind by more than the noise {rule}"
    text += f"; {listed(within)} {_be(within)} not" if within else ""
    if correction:
        text += f"; {correction}, {f'only {listed(kept)} {_be(kept)}' if kept else 'none is'}"
    return f"{text}."


def _be(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"


def _with_two(best: str | None, pairs: Mapping[str, Sequence[float]]) -> str:
    kinds: dict[str, list[str]] = {}
    for name, gaps in pairs.items():
        kinds.setdefault(_kind(min(gaps), max(gaps)), []).append(name)
    parts = [f"{listed(names)} {_be(names)} {kind}" for kind, names in kinds.items()]
    if CHANGES in kinds:
        those = "those differences are" if len(kinds[CHANGES]) > 1 else "that difference is"
        parts = [f"{part}, so {those} noise" if part.endswith(CHANGES) else part for part in parts]
    more = " Use three seeds or more to see how much of that is noise." if kinds.keys() - {CHANGES, SAME} else ""
    return f"Two seeds are too few for an interval. Against {best}, {'; '.join(parts)}.{more}"


def _kind(low: float, high: float) -> str:
    """How a method stands to the best with two seeds; the best has the higher mean, so no other leads with both."""
    if low == high == 0.0:
        return SAME
    if high > 0.0:
        return CHANGES
    return "equal with one seed and behind with the other" if high == 0.0 else "behind with both seeds"


def holm(chances: Mapping[str, float]) -> list[str]:
    """The names that remain different."""
    return [name for name, value in adjusted(chances).items() if value <= RISK]
