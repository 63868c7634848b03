"""Charts with a row per method and differences in points from left to right: over seeds, and over clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from potluck.metrics import alike, distance, metric, unit, words
from potluck.report.drawing.sketch import LETTER, Dot, Part, Sketch, Stroke, Words, short
from potluck.report.figures.gains import GAIN, LOSE, TIE, Gains
from potluck.report.figures.pairs import Pair
from potluck.units import nice_ticks

WIDTH, TOP, ROW, FOOT = 540.0, 8.0, 36.0, 46.0
SWARM = 46.0  # height of a row of clients
ASIDE = 126.0  # for the figures at the right
MANY = 150  # clients from which they are drawn as a histogram instead of dots
BIN = 4.0  # width of its columns
HALF = 0.005  # at least half a point to either side of 0, or this part of an error
SEEDS_NOTE = "Marker: mean. Line: 95 % t interval. Bar: 95 % bootstrap interval. Small dots: seeds."
CLIENTS_NOTE = "{}, mean over seeds. Green gains, red loses, grey ties ({}). Line: median."


@dataclass(frozen=True)
class _Frame:
    """The rows and the scale of a chart."""

    left: float
    right: float
    low: float
    high: float
    row: float
    rows: int

    def x(self, value: float) -> float:
        return self.left + (value - self.low) / (self.high - self.low) * (self.right - self.left)

    def y(self, row: int) -> float:
        return TOP + (row + 0.5) * self.row

    @property
    def bottom(self) -> float:
        return TOP + self.rows * self.row

    @property
    def height(self) -> float:
        return self.bottom + FOOT


def differences(pairs: Sequence[Pair]) -> Sketch | None:
    """The best method minus each other: seeds, mean, t interval and bootstrap interval; None without a common seed."""
    shown = [one for one in pairs if one.mean is not None]
    if not shown:
        return None
    ends = [value for one in shown for value in one.by_seed]
    ends += [value for one in shown if one.t for value in (one.t.low, one.t.high)]
    frame = _frame([one.other for one in shown], ends, ROW, aside=96.0)
    best = shown[0].method
    parts = _axis(frame, f"{_points('by which')} {short(best)} is ahead (behind, left of 0)")
    for i, one in enumerate(shown):
        parts += _difference(frame, i, one)
    said = " ".join(_in_words(one) for one in shown)
    return Sketch(
        WIDTH, frame.height, f"{short(best)} against each method, seed by seed", SEEDS_NOTE, said, tuple(parts)
    )


def _difference(frame: _Frame, i: int, one: Pair) -> list[Part]:
    assert one.mean is not None
    y, name = frame.y(i), one.other
    parts: list[Part] = [Words(frame.left - 10, y + 4, short(name), "end", "name", name)]
    if one.bootstrap is not None:
        parts.append(Stroke(frame.x(one.bootstrap.low), y, frame.x(one.bootstrap.high), y, "bar", name))
    if one.t is not None:
        a, b = frame.x(one.t.low), frame.x(one.t.high)
        parts += [Stroke(a, y, b, y, "whisker", name), Stroke(a, y - 5, a, y + 5, "whisker", name)]
        parts.append(Stroke(b, y - 5, b, y + 5, "whisker", name))
    for seed, value in zip(one.seeds, one.by_seed, strict=True):
        parts.append(Dot(frame.x(value), y + 11, f"{name}, seed {seed}: {distance(value)}{unit()}", name, "seed", 2.6))
    parts.append(Dot(frame.x(one.mean), y, _in_words(one), name))
    half = f" ± {distance((one.t.high - one.t.low) / 2, signed=False)}" if one.t else ""
    parts.append(Words(frame.right + 12, y + 4, f"{distance(one.mean)}{half}", kind="name", series=name))
    return parts


def _in_words(one: Pair) -> str:
    assert one.mean is not None
    text = f"{one.method} minus {one.other}: {distance(one.mean)}{unit()}"
    if one.t is None:
        return f"{text}; too few seeds for an interval."
    return f"{text}, t interval {distance(one.t.low)} to {distance(one.t.high)}."


def client_gains(found: Sequence[Gains]) -> Sketch | None:
    """A dot per client: what it gains with the best method instead of another; None without clients."""
    if not found:
        return None
    ends = [value for one in found for value in one.differences.values()]
    frame = _frame([one.other for one in found], ends, SWARM, ASIDE)
    best = short(found[0].method)
    parts = _axis(frame, f"{_points('that')} a client gains with {best} (loses, left of 0)")
    for i, one in enumerate(found):
        y = frame.y(i)
        parts.append(Words(frame.left - 10, y + 4, short(one.other), "end", "name", one.other))
        parts += _swarm(frame, y, one) if len(one.differences) <= MANY else _bins(frame, y, one)
        middle = frame.x(one.median)
        parts.append(Stroke(middle, y - 17, middle, y + 17, "median"))
        parts.append(Words(frame.right + 12, y - 2, f"{one.gain} gain, {one.lose} lose", kind="name"))
        parts.append(Words(frame.right + 12, y + 13, f"{one.tie} tie"))
    many = any(len(one.differences) > MANY for one in found)
    note = CLIENTS_NOTE.format("Numbers of clients" if many else "Dot: a client", alike().removesuffix(" apart"))
    said = " ".join(
        f"Instead of {one.other}: {one.gain} of {one.clients} gain, {one.lose} lose, {one.tie} tie; median "
        f"{distance(one.median)}{unit()}."
        for one in found
    )
    return Sketch(WIDTH, frame.height, f"Each client with {best} instead of each method", note, said, tuple(parts))


def _swarm(frame: _Frame, y: float, one: Gains) -> list[Part]:
    """Dots beside each other where they would cover each other."""
    r = 3.4 if len(one.differences) <= 60 else 2.4
    parts: list[Part] = []
    for column, clients in sorted(_columns(frame, one, 2 * r).items()):
        step = min(2 * r, (SWARM - 8 - 2 * r) / max(1, len(clients) - 1))
        for k, client in enumerate(clients):
            hint = f"{client}: {distance(one.differences[client])}{unit()} with {one.method} instead of {one.other}"
            at = y + (k - (len(clients) - 1) / 2) * step
            parts.append(Dot(2 * r * column, at, hint, kind=one.outcomes[client], r=r))
    return parts


def _bins(frame: _Frame, y: float, one: Gains) -> list[Part]:
    """A histogram around the middle of the row, for fleets with too many clients for dots."""
    columns = _columns(frame, one, BIN)
    unit = (SWARM - 8) / max(len(clients) for clients in columns.values())
    parts: list[Part] = []
    for column, clients in sorted(columns.items()):
        at = y + len(clients) * unit / 2
        for kind in (LOSE, TIE, GAIN):
            high = unit * sum(one.outcomes[client] == kind for client in clients)
            if high:
                parts.append(Stroke(BIN * column, at, BIN * column, at - high, kind))
                at -= high
    return parts


def _columns(frame: _Frame, one: Gains, wide: float) -> dict[int, list[str]]:
    """The clients by their place from left to right, in columns of this width."""
    found: dict[int, list[str]] = {}
    for client, value in sorted(one.differences.items(), key=lambda item: item[1]):
        found.setdefault(round(frame.x(value) / wide), []).append(client)
    return found


def _frame(names: Sequence[str], values: Sequence[float], row: float, aside: float) -> _Frame:
    left = min(max(len(short(name)) for name in names) * LETTER + 22, 210.0)
    half = HALF if metric().share else max([HALF * abs(value) for value in values if value] or [HALF])
    low, high = min([*values, -half]), max([*values, half])
    room = 0.04 * (high - low)
    return _Frame(left, WIDTH - aside, low - room, high + room, row, len(names))


def _points(first: str) -> str:
    """The unit of differences at the begin of a label."""
    return f"points {first}" if metric().share else f"{words()} {first}"


def _axis(frame: _Frame, label: str) -> list[Part]:
    parts: list[Part] = []
    by = 100 if metric().share else 1
    for tick in nice_ticks(by * frame.low, by * frame.high, 7):
        at = frame.x(tick / by)
        parts.append(Stroke(at, TOP, at, frame.bottom, "zero" if tick == 0 else "grid"))
        sign = "+" if tick > 0 else "−" if tick < 0 else ""
        parts.append(Words(at, frame.bottom + 17, f"{sign}{abs(tick):g}", "middle"))
    parts.append(Stroke(frame.left, frame.bottom, frame.right, frame.bottom, "tick"))
    parts.append(Words((frame.left + frame.right) / 2, frame.bottom + 37, label, "middle", "label"))
    return parts
