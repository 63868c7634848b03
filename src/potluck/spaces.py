"""Spaces of settings to choose from: a range of numbers, or a few values.

A method's file declares them beside its Config: `SPACE = {"recipe.lr": Range(0.005, 0.5, log=True)}`. `potluck tune`
draws candidates from them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from potluck.errors import BadInput, Code, must_be

DIGITS = 3  # of a drawn number: 0.0473 is as good as 0.047291 and easier to read
Value = bool | int | float | str


@dataclass(frozen=True)
class Range:
    """The numbers from `low` to `high`; `log` spreads candidates over the powers, `whole` takes whole numbers only."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
                raise must_be(Code.SETTING_VALUE, name, "a finite number", value)
            if self.whole and value != int(value):
                raise must_be(Code.SETTING_VALUE, name, "a whole number", value)
        if not self.low < self.high:
            raise must_be(Code.SETTING_VALUE, "high", f"above {self.low:g}, the low end", self.high)
        if self.log and self.low <= 0:
            raise must_be(Code.SETTING_VALUE, "low", "above 0 for a logarithmic range", self.low)

    def at(self, share: float) -> Value:
        """Return the number at this share of the range, 0 to 1."""
        if self.whole:
            low, high = (math.log(e) for e in (self.low, self.high + 1)) if self.log else (self.low, self.high + 1)
            place = low + share * (high - low)
            return int(min(self.high, max(self.low, math.floor(math.exp(place) if self.log else place))))
        if self.log:
            value = math.exp(math.log(self.low) + share * (math.log(self.high) - math.log(self.low)))
        else:
            value = self.low + share * (self.high - self.low)
        return min(float(self.high), max(float(self.low), float(f"{value:.{DIGITS}g}")))

    def __str__(self) -> str:
        kind = ":".join(word for word, on in (("log", self.log), ("whole", self.whole)) if on)
        return f"{self.low:g}..{self.high:g}" + (f":{kind}" if kind else "")


@dataclass(frozen=True, init=False)
class Choice:
    """One of a few values: `Choice("all", "last")`."""

    values: tuple[Value, ...]

    def __init__(self, *values: Value) -> None:
        for value in values:
            if not isinstance(value, bool | int | float | str):
                raise must_be(Code.SETTING_VALUE, "values", "numbers, texts, true or false", value)
        if len(values) < 2 or any(_same(a, b) for i, a in enumerate(values) for b in values[:i]):
            raise must_be(Code.SETTING_VALUE, "values", "two or more different values", shown=str(list(values)))
        object.__setattr__(self, "values", tuple(values))

    def at(self, share: float) -> Value:
        """Return the value at this share of the list, 0 to 1."""
        return self.values[min(len(self.values) - 1, int(share * len(self.values)))]

    def __str__(self) -> str:
        return ",".join(_shown(value) for value in self.values)


Dimension = Range | Choice
Space = Mapping[str, Dimension]  # by the dotted name of the setting, such as recipe.lr


def read(text: str, field: str) -> Dimension:
    """Read `0.01..0.5:log` or `0.1,0.2,0.4`, as flags and files have it; `field` names it in an error."""
    body, *marks = text.strip().split(":")
    try:
        if ".." not in body:
            return Choice(*(_value(part) for part in text.strip().split(",")))
        if unknown := [mark for mark in marks if mark not in ("log", "whole")]:
            raise must_be(Code.SETTING_VALUE, field, "a range that ends in :log or :whole", unknown[0])
        low, high = (_value(part) for part in body.split("..", 1))
        return Range(low, high, log="log" in marks, whole="whole" in marks)  # type: ignore[arg-type]
    except BadInput as error:
        if str(error).startswith(field):
            raise
        raise BadInput(error.code, f"{field}: {error} Write LOW..HIGH, LOW..HIGH:log or A,B,C.") from None


def _value(text: str) -> Value:
    text = text.strip()
    if text in ("true", "false"):
        return text == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _shown(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _same(a: Value, b: Value) -> bool:
    return a == b and isinstance(a, bool) == isinstance(b, bool)
