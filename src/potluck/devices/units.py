"""Format figures for people: three digits and a prefix."""

from __future__ import annotations

_LARGE = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
_SMALL = ((1.0, ""), (1e-3, "m"), (1e-6, "µ"))


def _scaled(value: float, steps: tuple[tuple[float, str], ...], unit: str) -> str:
    size, prefix = next((step for step in steps if value >= step[0] * 0.9995), steps[-1])
    return f"{value / size:.3g} {prefix}{unit}"


def macs(value: float) -> str:
    return _scaled(value, _LARGE, "MAC/s")


def nbytes(value: float) -> str:
    return _scaled(value, _LARGE, "B")


def bits(value: float) -> str:
    return _scaled(value, _LARGE, "bit/s")


def watts(value: float) -> str:
    return _scaled(value, _SMALL, "W")


def seconds(value: float) -> str:
    return _scaled(value, _SMALL, "s")


def joules(value: float) -> str:
    return _scaled(value, _LARGE, "J")
