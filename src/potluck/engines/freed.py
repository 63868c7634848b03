"""What becomes of memory that a run frees: kept for its next step, and given back before the next run of a process.

Page faults would dominate short steps, so glibc keeps what is freed (docs/performance.md). Between runs the gaps around
what is left would add up: fifty tuned comparisons in one process grew to 12 GB, of which 0.6 GB were in use.
"""

from __future__ import annotations

import ctypes
import gc
import os
from contextlib import suppress
from pathlib import Path

__all__ = ["give_back", "keep", "resident"]

GROWTH = 1 << 30  # bytes that a process may grow before it is worth the time
_after = 0  # what was resident when memory was last given back


def keep() -> None:
    """Ask glibc to keep freed memory."""
    with suppress(OSError, AttributeError):  # another C library
        libc = ctypes.CDLL("libc.so.6")
        trim, top_pad, mmap_from = -1, -2, -3
        libc.mallopt(mmap_from, 1 << 30)
        libc.mallopt(trim, (1 << 31) - 1)
        libc.mallopt(top_pad, 1 << 26)


def give_back(growth: int = GROWTH) -> None:
    """Collect what earlier runs left, and give freed memory to the system, if the process has grown by so much."""
    global _after
    with suppress(OSError, AttributeError):
        if resident() < _after + growth:
            return
        gc.collect()  # sessions hold themselves in circles
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        _after = resident()


def resident() -> int:
    """Bytes of this process that are in memory."""
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")
