"""Client training compiled to machine code, where the extra `fast` is installed.

Small networks spend most of their time between operations: starting them, and moving values through memory. A compiled
kernel trains one client after another, and its weights never leave the cache. `ready()` says whether kernels can be
used. Where they cannot, stacked tensors do the same, to rounding.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from types import ModuleType
from typing import Any

Noted = tuple[Any, Any]  # a tensor that a kernel made, and the squared norm of each of its rows, or a bound of it
_OFF: ContextVar[bool] = ContextVar("off", default=False)
_TOLD: ContextVar[Callable[[str], None] | None] = ContextVar("told", default=None)
_NOTED: ContextVar[dict[int, Noted] | None] = ContextVar("noted", default=None)
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
    """Whether kernels may be used: numba is installed, and neither `off()` nor POTLUCK_COMPILED=0 forbids it.

    An arrival of an asynchronous run asks several times, so the variable is read once, at the first question.
    """
    return not _OFF.get() and _installed()


@contextmanager
def telling(hear: Callable[[str], None]) -> Iterator[None]:
    """Call `hear` in this block when kernels must be loaded, which takes half a minute where they must be compiled."""
    token = _TOLD.set(hear)
    try:
        yield
    finally:
        _TOLD.reset(token)


@cache
def kernels(name: str) -> Any:
    """The module of kernels with this name. The first time compiles them, or reads them from the disk."""
    hear = _TOLD.get()
    if hear is not None:
        hear("preparing kernels; the first time takes up to half a minute")
    with _blas_later():
        module = import_module(f"potluck.compiled.{name}")
        import_module("potluck.compiled.jit").entries(module)
        return module


@contextmanager
def _blas_later() -> Iterator[None]:
    """Let numba find SciPy's BLAS without importing it.

    numba imports all of `scipy.linalg`, a tenth of a second, to see that it is there. It imports it again where a
    kernel uses BLAS, and ours do not.
    """
    wanted = "scipy.linalg.cython_blas"
    if wanted in sys.modules or "numba.np.arraymath" in sys.modules or find_spec("scipy") is None:
        yield
        return
    sys.modules[wanted] = stand_in = ModuleType(wanted)
    try:
        yield
    finally:
        if sys.modules.get(wanted) is stand_in:
            del sys.modules[wanted]


@cache
def _installed() -> bool:
    if os.environ.get("POTLUCK_COMPILED") == "0":
        return False
    try:
        import numba  # noqa: F401  # not at the top: it takes a fifth of a second
    except ImportError:  # also raised by a numba that does not know the installed NumPy
        return False
    return True


@contextmanager
def noting() -> Iterator[dict[int, Noted]]:
    """Collect what kernels note in this block, by the address of the tensor: it is in cache while they make it."""
    found: dict[int, Noted] = {}
    token = _NOTED.set(found)
    try:
        yield found
    finally:
        _NOTED.reset(token)


def note(value: Any, squares: Any) -> None:
    """Note the squared norm of each row of a tensor. It is kept alive, so that no other has its address."""
    noted = _NOTED.get()
    if noted is not None:
        noted[value.data_ptr()] = value, squares


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
    others = [given[0].submit(run, a, b) for a, b in pairwise(cuts[1:])]
    run(0, cuts[1])  # this thread takes a part as well: to wake another one takes as long as a small part
    for done in others:
        done.result()
