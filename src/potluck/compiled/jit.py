"""How kernels are compiled: once, for float32, kept on disk, and without the interpreter's lock.

Numba names a cached kernel by the file it is in, not by the files that this one imports. So a kernel and what it calls
stand in one file, or the cache must be removed by hand after a change.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, TypeVar, cast

import numba
from llvmlite import ir
from numba import types as nb
from numba.core.caching import FunctionCache
from numba.core.runtime import rtsys
from numba.extending import intrinsic

F = TypeVar("F", bound=Callable[..., Any])

ROW, ROWS, CUBE = "float32[::1]", "float32[:, ::1]", "float32[:, :, ::1]"
PLACES, TABLE, STEPS = "int64[::1]", "int64[:, ::1]", "int64[:, :, ::1]"
MEMORY = "CPointer(float32)"  # scratch memory, read and written by offsets
INT, FLOAT, FLAG = "int64", "float32", "boolean"
# Sums may be added in another order, which is what lets a loop use vectors. The order is fixed when it is compiled:
# the same input gives the same bits. Infinities and NaN keep their meaning: the check of every update looks for them.
FAST = {"contract", "reassoc", "nsz", "arcp"}


def kernel(*types: str) -> Callable[[F], F]:
    """Compile a function for arguments of these types only: a second variant would double the time to compile it."""
    return _compiled(FAST, types)


def pointwise(*types: str) -> Callable[[F], F]:
    """A kernel whose arithmetic keeps its order: a function of each value needs no sums, and must not lose digits."""
    return _compiled({"contract"}, types)


def exact(*types: str) -> Callable[[F], F]:
    """A kernel that rounds after each operation, as separate operations of PyTorch do."""
    return _compiled(set(), types)


def inlined(*types: str) -> Callable[[F], F]:
    """A pointwise function of few numbers that becomes a part of the loop that calls it."""
    return _compiled({"contract"}, types, forceinline=True)


def _compiled(fast: set[str], types: tuple[str, ...], forceinline: bool = False) -> Callable[[F], F]:
    options = {"nogil": True, "cache": True, "fastmath": fast, "error_model": "numpy", "forceinline": forceinline}

    if not QUICK:
        return cast(Callable[[F], F], numba.njit(f"({', '.join(types)},)", **options))

    def wrapped(function: F) -> F:
        made = numba.njit(**options)(function)
        made._cache = _OnDisk(function)
        made.declared, usual = f"({', '.join(types)},)", made.get_call_template

        def template(args: Any, kws: Any) -> Any:
            compile_now(made)
            return usual(args, kws)

        made.get_call_template = template  # how a kernel that is being compiled asks for those that it calls
        return cast(F, made)

    return wrapped


# What `_OnDisk` goes by is not of numba's interface. Where a version lacks it, kernels are read as numba reads them.
QUICK = all(hasattr(FunctionCache, name) for name in ("_load_overload", "_guard_against_spurious_io_errors"))


class _OnDisk(FunctionCache):  # type: ignore[misc]
    """Kernels on disk, read without the compiler's tables: to fill these takes longer than to read all kernels.

    numba fills them before it looks on the disk. It does so again before it compiles, so a kernel that is not there is
    compiled as usual.
    """

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        rtsys.initialize(target_context)  # for memory that a kernel asks for
        with self._guard_against_spurious_io_errors():
            return self._load_overload(sig, target_context)


def compile_now(made: Any) -> None:
    """Compile a kernel for the types that it was declared with, or read it from the disk, unless that is done."""
    if not made.signatures:
        made.compile(made.declared)
        made.disable_compile()


def entries(module: ModuleType) -> None:
    """Compile the kernels of a module that others call.

    What only kernels call is compiled with these. Those that are on disk have it in them already, and to read it once
    more would take as long again.
    """
    for name, one in vars(module).items():
        if hasattr(one, "declared") and not name.startswith("_") and one.__module__ == module.__name__:
            compile_now(one)


@intrinsic  # type: ignore[untyped-decorator]
def pointer(_context: Any, address: Any) -> Any:
    """An address as a pointer to float32: layers of any number reach one compiled kernel."""

    def code(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.FloatType().as_pointer())

    return nb.CPointer(nb.float32)(nb.int64), code


@intrinsic  # type: ignore[untyped-decorator]
def octets(_context: Any, address: Any) -> Any:
    """An address as a pointer to bytes."""

    def code(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.inttoptr(args[0], ir.IntType(8).as_pointer())

    return nb.CPointer(nb.uint8)(nb.int64), code


@intrinsic  # type: ignore[untyped-decorator]
def as_float(_context: Any, bits: Any) -> Any:
    """The float32 with these 32 bits."""

    def code(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.bitcast(args[0], ir.FloatType())

    return nb.float32(nb.int32), code


@intrinsic  # type: ignore[untyped-decorator]
def fused(_context: Any, by: Any, value: Any, total: Any) -> Any:
    """by value + total, rounded once."""

    def code(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.fma(*args)

    return nb.float32(nb.float32, nb.float32, nb.float32), code
