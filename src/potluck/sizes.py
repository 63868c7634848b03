"""Sizes that are checked before memory is asked for: a file or a setting may declare far more than there is."""

from __future__ import annotations

import os
from functools import cache

from potluck.errors import BadInput, Code
from potluck.units import quantity

SHARE = 0.5  # of the machine's memory that one array, archive or model may take: training needs the rest


@cache
def memory() -> int | None:
    """Bytes of memory of this machine; None where the system does not say."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # Windows has no sysconf
        return None


def check_fits(code: Code, what: str, nbytes: int, remedy: str = "") -> None:
    """Raise BadInput where so many bytes are more than half of this machine's memory."""
    there = memory()
    if there is not None and nbytes > SHARE * there:
        most = quantity(SHARE * there, "B")
        raise BadInput(
            code,
            f"{what}: must take at most {most}, half of this machine's memory, got {quantity(nbytes, 'B')}.{remedy}",
        )
