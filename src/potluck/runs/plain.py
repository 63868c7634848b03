"""Values from a TOML file or a flag: of bounded size, finite, and without characters that no file can hold."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from potluck.errors import BadInput, Code, must_be

LARGEST = 1 << 53  # the last whole number that every counter of the run, its database and its report hold exactly
LONGEST, DEEPEST = 10_000, 12  # characters of a text; tables and lists inside each other


def check_plain(value: Any, where: str = "", depth: int = 0) -> None:
    """Raise BadInput for the first value that no setting can have; `where` is its dotted name."""
    if depth > DEEPEST:
        raise BadInput(Code.SETTING_VALUE, f"{where}: must be at most {DEEPEST} tables and lists deep.")
    if isinstance(value, Mapping):
        for name, inner in value.items():
            check_text(str(name), where or "experiment")
            check_plain(inner, f"{where}.{name}" if where else str(name), depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            check_plain(inner, where, depth + 1)
    elif isinstance(value, bool):
        return
    elif isinstance(value, int) and abs(value) > LARGEST:
        raise must_be(Code.SETTING_VALUE, where, f"at most {LARGEST}", shown=f"a number of {len(str(value))} digits")
    elif isinstance(value, float) and not math.isfinite(value):
        raise must_be(Code.SETTING_VALUE, where, "a finite number", value)
    elif isinstance(value, str):
        check_text(value, where)


def check_text(text: str, where: str) -> None:
    """Raise BadInput for a text that is too long, or that cannot be written to a file."""
    if len(text) > LONGEST:
        raise must_be(Code.SETTING_VALUE, where[:100], f"at most {LONGEST} characters", shown=f"{len(text)} of them")
    if "\0" in text or any("\ud800" <= one <= "\udfff" for one in text):
        raise must_be(Code.SETTING_VALUE, where, "text without zero bytes and broken characters", text[:60])
