"""Client training compiled to machine code, where the extra `fast` is installed.

Small networks spend most of their time between operations: starting them, and moving values through memory. A compiled
kernel trains one client after another, and its weights never leave the cache. `ready()` says whether kernels can be
used. Where they cannot, stacked tensors do the same, to rounding.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from itertools import pairwise

_OFF: ContextVar[bool] = ContextVar("off", default=False)
_POOL: ContextVar[tuple[ThreadPoolExecutor, int] | None] = ContextVar("pool", default=None)


@contextmanager
def off() -> Iterator[None]:
    """Use no kernel in this block."""
    token = _OFF.set(True)
    try:
        yield
    finally:
        _OFF.reset(token)


def ready() -> bool:
    """Whether kernels may be used: numba is installed, and neither `off()` nor POTLUCK_COMPILED=0 forbids it."""
    return not _OFF.get() and os.environ.get("POTLUCK_COMPILED") != "0" and _installed()


@cache
def _installed() -> bool:
    try:
        import numba  # noqa: F401  # not at the top: it takes a fifth of a second
    except ImportError:  # also raised by a numba that does not know the installed NumPy
        return False
    return True


@contextmanager
def threads(pool: ThreadPoolExecutor, count: int) -> Iterator[None]:
    """Divide the clients of each kernel in this block among so many threads of a pool."""
    token = _POOL.set((pool, count))
    try:
        yield
    finally:
        _POOL.reset(token)


def spread(clients: int, run: Callable[[int, int], None]) -> None:
    """Call `run(begin, end)` for all clients, in parts if there are threads. Clients do not depend on each other."""
    given = _POOL.get()
    parts = 1 if given is None else min(given[1], clients)
    if given is None or parts == 1:
        run(0, clients)
        return
    cuts = [clients * i // parts for i in range(parts + 1)]
    for done in [given[0].submit(run, a, b) for a, b in pairwise(cuts)]:
        done.result()
