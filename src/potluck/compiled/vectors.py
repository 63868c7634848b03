"""Sixteen float32 numbers as one value within a kernel; eight where the processor's vectors are shorter.

A loop over plain numbers must prove that its arrays do not overlap before it may use vectors, and keeps its sums in
memory. For rows of sixteen numbers that takes longer than the sums.
"""

from __future__ import annotations

from typing import Any

from llvmlite import binding, ir
from numba import types
from numba.core import cgutils, config
from numba.core.datamodel import models, register_default
from numba.extending import intrinsic

# 512-bit vectors, and twice as many registers for them; a compiler that was told of another processor has neither.
LONG = bool(binding.get_host_cpu_features().get("avx512f")) and config.CPU_NAME is None
WIDTH = 16 if LONG else 8
VECTOR, BITS = ir.VectorType(ir.FloatType(), WIDTH), ir.VectorType(ir.IntType(1), WIDTH)
_FAST = ("contract", "reassoc", "nsz")


class Vector(types.Type):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="Vector")


vector = Vector()


@register_default(Vector)
class _Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, VECTOR)


def splat(builder: Any, value: Any, kind: Any) -> Any:
    """A number in all places."""
    one = builder.insert_element(ir.Constant(ir.VectorType(kind, WIDTH), ir.Undefined), value, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(one, one, zeros)


def mask(builder: Any, count: Any) -> Any:
    """1 for the first `count` places."""
    kind = ir.IntType(64)
    places = ir.Constant(ir.VectorType(kind, WIDTH), list(range(WIDTH)))
    return builder.icmp_signed("<", places, splat(builder, count, kind))


def function(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


def address(builder: Any, memory: Any, place: Any) -> Any:
    """The address of a vector."""
    return builder.bitcast(builder.gep(memory, [place]), VECTOR.as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def load(_context: Any, memory: Any, at: Any, count: Any) -> Any:
    """The `count` numbers from `at`, and 0 in the other places."""

    def code(_: Any, builder: Any, __: Any, args: Any) -> Any:
        kinds = (VECTOR.as_pointer(), ir.IntType(32), BITS, VECTOR)
        called = function(builder, f"llvm.masked.load.v{WIDTH}f32.p0", VECTOR, *kinds)
        zero = ir.Constant(VECTOR, [0.0] * WIDTH)
        return builder.call(
            called, (address(builder, args[0], args[1]), ir.IntType(32)(4), mask(builder, args[2]), zero)
        )

    return vector(types.CPointer(types.float32), types.int64, types.int64), code


@intrinsic  # type: ignore[untyped-decorator]
def store(_context: Any, memory: Any, at: Any, count: Any, value: Any) -> Any:
    """Write the first `count` numbers to `at`."""

    def code(context: Any, builder: Any, __: Any, args: Any) -> Any:
        kinds = (VECTOR, VECTOR.as_pointer(), ir.IntType(32), BITS)
        called = function(builder, f"llvm.masked.store.v{WIDTH}f32.p0", ir.VoidType(), *kinds)
        builder.call(called, (args[3], address(builder, args[0], args[1]), ir.IntType(32)(4), mask(builder, args[2])))
        return context.get_dummy_value()

    return types.void(types.CPointer(types.float32), types.int64, types.int64, vector), code


@intrinsic  # type: ignore[untyped-decorator]
def load_all(_context: Any, memory: Any, at: Any) -> Any:
    """The numbers from `at`, one in each place."""

    def code(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.load(address(builder, args[0], args[1]), align=4)

    return vector(types.CPointer(types.float32), types.int64), code


@intrinsic  # type: ignore[untyped-decorator]
def nothing(_context: Any) -> Any:
    """Zeros."""

    def code(_: Any, __: Any, ___: Any, ____: Any) -> Any:
        return ir.Constant(VECTOR, [0.0] * WIDTH)

    return vector(), code


@intrinsic  # type: ignore[untyped-decorator]
def plus(_context: Any, total: Any, other: Any) -> Any:
    """total + other."""

    def code(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.fadd(args[0], args[1], flags=_FAST)

    return vector(vector, vector), code


@intrinsic  # type: ignore[untyped-decorator]
def more(_context: Any, total: Any, by: Any, other: Any) -> Any:
    """total + by other, where `by` is a number."""

    def code(_: Any, builder: Any, __: Any, args: Any) -> Any:
        product = builder.fmul(splat(builder, args[1], ir.FloatType()), args[2], flags=_FAST)
        return builder.fadd(args[0], product, flags=_FAST)

    return vector(vector, types.float32, vector), code
