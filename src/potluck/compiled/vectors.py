"""Sixteen float32 numbers as one value within a kernel.

A loop over plain numbers must prove that its arrays do not overlap before it may use vectors, and keeps its sums in
memory. For rows of sixteen numbers that takes longer than the sums. A processor with narrower vectors uses several.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models, register_default
from numba.extending import intrinsic

WIDTH = 16
_VECTOR, _BITS = ir.VectorType(ir.FloatType(), WIDTH), ir.VectorType(ir.IntType(1), WIDTH)
_FAST = ("contract", "reassoc", "nsz")


class Vector(types.Type):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__(name="Vector")


vector = Vector()


@register_default(Vector)
class _Model(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


def _splat(builder: Any, value: Any, kind: Any) -> Any:
    """A number in all places."""
    one = builder.insert_element(ir.Constant(ir.VectorType(kind, WIDTH), ir.Undefined), value, ir.IntType(32)(0))
    zeros = ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), [0] * WIDTH)
    return builder.shuffle_vector(one, one, zeros)


def _mask(builder: Any, count: Any) -> Any:
    """1 for the first `count` places."""
    kind = ir.IntType(64)
    places = ir.Constant(ir.VectorType(kind, WIDTH), list(range(WIDTH)))
    return builder.icmp_signed("<", places, _splat(builder, count, kind))


def _function(builder: Any, name: str, result: Any, *arguments: Any) -> Any:
    return cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, arguments), name)


def _at(builder: Any, args: Any) -> Any:
    return builder.bitcast(builder.gep(args[0], [args[1]]), _VECTOR.as_pointer())


@intrinsic  # type: ignore[untyped-decorator]
def load(_context: Any, memory: Any, at: Any, count: Any) -> Any:
    """The `count` numbers from `at`, and 0 in the other places."""

    def code(_: Any, builder: Any, __: Any, args: Any) -> Any:
        kinds = (_VECTOR.as_pointer(), ir.IntType(32), _BITS, _VECTOR)
        function = _function(builder, "llvm.masked.load.v16f32.p0", _VECTOR, *kinds)
        zero = ir.Constant(_VECTOR, [0.0] * WIDTH)
        return builder.call(function, (_at(builder, args), ir.IntType(32)(4), _mask(builder, args[2]), zero))

    return vector(types.CPointer(types.float32), types.int64, types.int64), code


@intrinsic  # type: ignore[untyped-decorator]
def store(_context: Any, memory: Any, at: Any, count: Any, value: Any) -> Any:
    """Write the first `count` numbers to `at`."""

    def code(context: Any, builder: Any, __: Any, args: Any) -> Any:
        kinds = (_VECTOR, _VECTOR.as_pointer(), ir.IntType(32), _BITS)
        function = _function(builder, "llvm.masked.store.v16f32.p0", ir.VoidType(), *kinds)
        builder.call(function, (args[3], _at(builder, args), ir.IntType(32)(4), _mask(builder, args[2])))
        return context.get_dummy_value()

    return types.void(types.CPointer(types.float32), types.int64, types.int64, vector), code


@intrinsic  # type: ignore[untyped-decorator]
def load_all(_context: Any, memory: Any, at: Any) -> Any:
    """The 16 numbers from `at`."""

    def code(_: Any, builder: Any, __: Any, args: Any) -> Any:
        return builder.load(_at(builder, args), align=4)

    return vector(types.CPointer(types.float32), types.int64), code


@intrinsic  # type: ignore[untyped-decorator]
def nothing(_context: Any) -> Any:
    """16 zeros."""

    def code(_: Any, __: Any, ___: Any, ____: Any) -> Any:
        return ir.Constant(_VECTOR, [0.0] * WIDTH)

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
        product = builder.fmul(_splat(builder, args[1], ir.FloatType()), args[2], flags=_FAST)
        return builder.fadd(args[0], product, flags=_FAST)

    return vector(vector, types.float32, vector), code
