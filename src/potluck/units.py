"""Numbers as people read them: three significant digits, a unit, a real minus sign."""

from __future__ import annotations

import math
from collections.abc import Sequence

NARROW = "\N{NO-BREAK SPACE}"  # between a number and its unit: they stay on one line
NOTHING = "–"  # for a figure that is not there

_STEPS: dict[str, tuple[tuple[float, float, str], ...]] = {  # from this value on, divide by, unit
    "B": ((0, 1, "B"), (1e3, 1e3, "kB"), (1e6, 1e6, "MB"), (1e9, 1e9, "GB"), (1e12, 1e12, "TB")),
    "J": ((0, 1e-3, "mJ"), (1, 1, "J"), (1e3, 1e3, "kJ"), (1e6, 1e6, "MJ"), (1e9, 1e9, "GJ")),
    "s": ((0, 1e-3, "ms"), (1, 1, "s"), (600, 60, "min"), (3 * 3600, 3600, "h"), (3 * 86400, 86400, "d")),
    "MAC": ((0, 1, "MAC"), (1e3, 1e3, "kMAC"), (1e6, 1e6, "MMAC"), (1e9, 1e9, "GMAC"), (1e12, 1e12, "TMAC")),
    "": ((0, 1, ""),),
}


def scale(kind: str, largest: float) -> tuple[float, str]:
    """What to divide by, and the unit, so that the largest of some values reads well."""
    if largest == 0 and kind in ("J", "s"):
        return 1, kind
    divisor, symbol = 1.0, ""
    for start, by, unit in _STEPS[kind]:
        if largest >= start:
            divisor, symbol = by, unit
    return divisor, symbol


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers from low to high, in steps of 1, 2 or 5 times a power of ten."""
    span = high - low
    if span <= 0:
        return [low]
    raw = span / most
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * by for by in (1, 2, 5, 10) if power * by >= raw * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) for i in range(first, last + 1)]


def number(value: float, digits: int = 3) -> str:
    """With so many significant digits, whole numbers whole, thousands apart; what is left of rounding is 0."""
    if abs(value) < 1e-12:
        return "0"
    places = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{abs(value):,.{min(places, 12)}f}"
    if "." in text and float(text.replace(",", "")).is_integer() and float(value).is_integer():
        text = text.partition(".")[0]
    return f"−{text}" if value < 0 else text


def quantity(value: float | None, kind: str) -> str:
    if value is None:
        return NOTHING
    divisor, symbol = scale(kind, abs(value))
    text = number(value / divisor)
    return f"{text}{NARROW}{symbol}" if symbol else text


def percent(share: float | None, digits: int = 1) -> str:
    return NOTHING if share is None else f"{100 * share:.{digits}f}{NARROW}%"


def points(difference: float, signed: bool = True) -> str:
    """A difference of two shares, in percentage points."""
    text = f"{abs(100 * difference):.1f}"
    sign = "" if not signed or text == "0.0" else "−" if difference < 0 else "+"
    return f"{sign}{text}"


def count(value: float | None) -> str:
    """How many; a mean of counts keeps one decimal where it needs it."""
    if value is None:
        return NOTHING
    return f"{round(value):,}" if abs(value - round(value)) < 0.05 else f"{value:,.1f}"


def listed(names: Sequence[str]) -> str:
    """a, b and c."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def plural(n: int, word: str) -> str:
    return f"{n:,} {word}" if n == 1 else f"{n:,} {word}s"
