"""What somebody wants of a federation, as a person writes it: "accuracy 0.85", "at most 2 MB per device and day"."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from potluck.errors import Code, must_be

_NUMBER = r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?)"
_SIZES = {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9}
_TIMES = {
    "second": 1.0,
    "s": 1.0,
    "minute": 60.0,
    "min": 60.0,
    "hour": 3600.0,
    "h": 3600.0,
    "day": 86400.0,
    "d": 86400.0,
}
_A_DAY = r"(?:(?:per|a|each) (?:device|client) )?(?:and |per |a |each )?day"
_FORMS = {
    "accuracy": re.compile(rf"accuracy(?: of)?(?: at least)? ?=? ?{_NUMBER} ?(%?)"),
    "bytes_a_day": re.compile(rf"(?:at most )?{_NUMBER} ?(k|m|g)?b(?:ytes)? {_A_DAY}"),
    "battery_a_day": re.compile(rf"(?:at most )?(?:battery )?{_NUMBER} ?%(?: of (?:the|its) battery)? {_A_DAY}"),
    "seconds": re.compile(rf"(?:at most |within |in ){_NUMBER} ?(seconds?|s|minutes?|min|hours?|h|days?|d)"),
}
EXAMPLES = "accuracy 0.85; at most 2 MB per device and day; battery 20 % a day; within 3 days"


@dataclass(frozen=True)
class Wish:
    """None where nothing is wished."""

    accuracy: float | None = None
    bytes_a_day: float | None = None  # up and down, of every device
    battery_a_day: float | None = None  # share of the battery of every device that has one
    seconds: float | None = None  # until training is over

    @classmethod
    def of(cls, texts: Iterable[str]) -> Wish:
        """Read wishes; several may stand in one text, with semicolons or commas between them."""
        found: dict[str, float] = {}
        for text in texts:
            for one in re.split(r"[;,]", text):
                if one.strip():
                    name, value = _read(one.strip())
                    if name in found:
                        raise must_be(Code.FLAG_VALUE, "--wish", "one of each kind", one.strip())
                    found[name] = value
        return cls(**found)


def _read(text: str) -> tuple[str, float]:
    plain = " ".join(text.lower().replace("\N{NO-BREAK SPACE}", " ").split())
    for name, form in _FORMS.items():
        match = form.fullmatch(plain)
        if match is None:
            continue
        value = float(match[1])
        if name == "accuracy" and (match[2] == "%" or value > 1):
            value /= 100
        if name == "bytes_a_day":
            value *= _SIZES[f"{match[2] or ''}b"]
        if name == "battery_a_day":
            value /= 100
        if name == "seconds":
            value *= _TIMES[match[2] if match[2] in _TIMES else match[2].rstrip("s")]
        if value > 0 and (name not in ("accuracy", "battery_a_day") or value <= 1):
            return name, value
    raise must_be(Code.FLAG_VALUE, "--wish", f"such as: {EXAMPLES}", text)
