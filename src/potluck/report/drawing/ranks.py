"""The critical-difference plot: methods by average rank; a thick bar joins those that the test does not tell apart."""

from __future__ import annotations

from collections.abc import Sequence

from potluck.report.drawing.sketch import LETTER, Dot, Part, Sketch, Stroke, Words, short
from potluck.report.figures.ranks import Ranks
from potluck.units import listed, plural

WIDTH, STEP, BAR = 540.0, 22.0, 11.0
NOTE = "A thick bar joins methods whose average ranks do not differ (Nemenyi's test at 5 %)."
AXIS = 62.0  # from the top, below the bar that shows the critical difference


def rank_plot(found: Ranks) -> Sketch:
    """The best on the left. Works for average ranks over seeds and over datasets."""
    names = list(found.average)
    half = (len(names) + 1) // 2
    margin = min(max(len(_label(name, found)) for name in names) * LETTER + 26, 250.0)
    left, right = margin, WIDTH - margin

    def x(rank: float) -> float:
        return left + (rank - 1) / max(1, len(names) - 1) * (right - left)

    parts = _axis(x(1.0), [x(rank) for rank in range(1, len(names) + 1)])
    if found.critical_difference is not None:
        parts += _critical(left, x(1.0 + found.critical_difference) - left, found.critical_difference)
    below = AXIS + 14
    for i, group in enumerate(found.alike):
        y = below + i * BAR
        parts.append(Stroke(x(found.average[group[0]]) - 4, y, x(found.average[group[-1]]) + 4, y, "alike"))
    first = below + len(found.alike) * BAR + 14
    for i, name in enumerate(names):
        on_left = i < half
        y = first + (i if on_left else len(names) - 1 - i) * STEP
        parts += _method(name, _label(name, found), x(found.average[name]), y, left if on_left else right, on_left)
    height = first + max(half - 1, 0) * STEP + 16
    title = f"Average rank over {plural(len(found.blocks), found.over)} (1 is best)"
    note = NOTE if found.critical_difference is not None else found.caution
    return Sketch(WIDTH, height, title, note, _in_words(found), tuple(parts))


def _label(name: str, found: Ranks) -> str:
    return f"{short(name)} {found.average[name]:.1f}"


def _axis(start: float, ticks: Sequence[float]) -> list[Part]:
    parts: list[Part] = [Stroke(start, AXIS, ticks[-1], AXIS, "tick")]
    for rank, at in enumerate(ticks, 1):
        parts += [Stroke(at, AXIS - 5, at, AXIS, "tick"), Words(at, AXIS - 10, str(rank), "middle")]
    return parts


def _critical(left: float, long: float, gap: float) -> list[Part]:
    y = 30.0
    ends = [Stroke(at, y - 4, at, y + 4, "tick") for at in (left, left + long)]
    words = Words(left, y - 12, f"critical difference {gap:.1f}", kind="name")
    return [Stroke(left, y, left + long, y, "tick"), *ends, words]


def _method(name: str, label: str, at: float, y: float, edge: float, on_left: bool) -> list[Part]:
    out = -8.0 if on_left else 8.0
    return [
        Stroke(at, AXIS, at, y, "leader", name),
        Stroke(at, y, edge + out, y, "leader", name),
        Dot(at, AXIS, f"{name}: average rank {label.rpartition(' ')[2]}", name, r=4.5),
        Words(edge + 1.6 * out, y + 4, label, "end" if on_left else "start", "name", name),
    ]


def _in_words(found: Ranks) -> str:
    text = ", ".join(f"{name} {rank:.1f}" for name, rank in found.average.items())
    groups = " ".join(f"Not told apart: {listed(group)}." for group in found.alike)
    return f"{text}. {groups}".strip()
