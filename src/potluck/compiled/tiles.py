"""Tiles of a product as LLVM code: so many rows of so many vectors, whose sums stay in registers.

They are written out here because a kernel in Python can name sums, but not count them.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from potluck.compiled.vectors import BITS, VECTOR, WIDTH, address, function, mask, splat

_INTS = (types.int64,) * 13
_FUSED = ("contract",)  # a product and its sum are one operation, and the order of the sums is as written


def tile(rows: int, vectors: int, masked: bool) -> Any:
    """out[m, n] = begin[m, n] + the sum over o and j of left[o, j, m] right[o J + j, n] for one tile.

    Arguments: memory, out, by_out, begin, by_begin, left, by_o, by_j, by_m, right, by_right, O, J, and how many numbers
    of its one vector a `masked` tile has.
    """

    def code(context: Any, builder: Any, _: Any, args: Any) -> Any:
        memory, out, by_out, begin, by_begin, left, by_o, by_j, by_m, right, by_right, outer, inner, wide = args
        whole = ir.IntType(64)
        some = mask(builder, wide) if masked else None

        def shifted(place: Any, by: int) -> Any:
            return builder.add(place, ir.Constant(whole, by)) if by else place

        def read(place: Any) -> Any:
            if some is None:
                return builder.load(address(builder, memory, place), align=4)
            kinds = (VECTOR.as_pointer(), ir.IntType(32), BITS, VECTOR)
            load = function(builder, f"llvm.masked.load.v{WIDTH}f32.p0", VECTOR, *kinds)
            zero = ir.Constant(VECTOR, [0.0] * WIDTH)
            return builder.call(load, (address(builder, memory, place), ir.IntType(32)(4), some, zero))

        def write(place: Any, value: Any) -> None:
            if some is None:
                builder.store(value, address(builder, memory, place), align=4)
                return
            kinds = (VECTOR, VECTOR.as_pointer(), ir.IntType(32), BITS)
            store = function(builder, f"llvm.masked.store.v{WIDTH}f32.p0", ir.VoidType(), *kinds)
            builder.call(store, (value, address(builder, memory, place), ir.IntType(32)(4), some))

        sums = [[cgutils.alloca_once(builder, VECTOR) for _ in range(vectors)] for _ in range(rows)]
        place = begin
        for row in sums:
            for v, one in enumerate(row):
                builder.store(read(shifted(place, v * WIDTH)), one)
            place = builder.add(place, by_begin)
        below = cgutils.alloca_once_value(builder, right)
        with cgutils.for_range(builder, outer) as outside:
            start = builder.add(left, builder.mul(outside.index, by_o))
            with cgutils.for_range(builder, inner) as inside:
                source = builder.load(below)
                columns = [read(shifted(source, v * WIDTH)) for v in range(vectors)]
                builder.store(builder.add(source, by_right), below)
                place = builder.add(start, builder.mul(inside.index, by_j))
                for row in sums:
                    by = splat(builder, builder.load(builder.gep(memory, [place])), ir.FloatType())
                    for one, column in zip(row, columns, strict=True):
                        product = builder.fmul(by, column, flags=_FUSED)
                        builder.store(builder.fadd(builder.load(one), product, flags=_FUSED), one)
                    place = builder.add(place, by_m)
        place = out
        for row in sums:
            for v, one in enumerate(row):
                write(shifted(place, v * WIDTH), builder.load(one))
            place = builder.add(place, by_out)
        return context.get_dummy_value()

    # fmt: off
    def typed(
        _context: Any, memory: Any, out: Any, by_out: Any, begin: Any, by_begin: Any, left: Any, by_o: Any, by_j: Any,
        by_m: Any, right: Any, by_right: Any, outer: Any, inner: Any, wide: Any,
    ) -> Any:
        return types.void(types.CPointer(types.float32), *_INTS), code
    # fmt: on

    typed.__name__ = f"tile_{rows}_{vectors}_{'masked' if masked else 'full'}"
    return intrinsic(typed)


def slide(rows: int) -> Any:
    """out[m, n] += the sum over o and j of left[o, j] right[o, m, j + n], for so many rows of one vector.

    Arguments: out and a place there, by_out; right and a place there, by_o, by_m; left and a place there, by_left; O,
    J, and how many numbers of the vector count.
    """

    def code(context: Any, builder: Any, _: Any, args: Any) -> Any:
        out, to, by_out, right, source, by_o, by_m, left, at, by_left, outer, inner, wide = args
        some, zero, whole = mask(builder, wide), ir.Constant(VECTOR, [0.0] * WIDTH), ir.IntType(32)
        kinds = (VECTOR.as_pointer(), whole, BITS, VECTOR)
        load = function(builder, f"llvm.masked.load.v{WIDTH}f32.p0", VECTOR, *kinds)
        kinds = (VECTOR, VECTOR.as_pointer(), whole, BITS)
        store = function(builder, f"llvm.masked.store.v{WIDTH}f32.p0", ir.VoidType(), *kinds)

        def read(memory: Any, place: Any) -> Any:
            return builder.call(load, (address(builder, memory, place), whole(4), some, zero))

        sums = [cgutils.alloca_once(builder, VECTOR) for _ in range(rows)]
        place = to
        for one in sums:
            builder.store(read(out, place), one)
            place = builder.add(place, by_out)
        with cgutils.for_range(builder, outer) as outside:
            start = builder.add(source, builder.mul(outside.index, by_o))
            first = builder.add(at, builder.mul(outside.index, by_left))
            with cgutils.for_range(builder, inner) as inside:
                value = builder.load(builder.gep(left, [builder.add(first, inside.index)]))
                by, place = splat(builder, value, ir.FloatType()), builder.add(start, inside.index)
                for one in sums:
                    product = builder.fmul(by, read(right, place), flags=_FUSED)
                    builder.store(builder.fadd(builder.load(one), product, flags=_FUSED), one)
                    place = builder.add(place, by_m)
        place = to
        for one in sums:
            builder.call(store, (builder.load(one), address(builder, out, place), whole(4), some))
            place = builder.add(place, by_out)
        return context.get_dummy_value()

    # fmt: off
    def typed(
        _context: Any, out: Any, to: Any, by_out: Any, right: Any, source: Any, by_o: Any, by_m: Any, left: Any,
        at: Any, by_left: Any, outer: Any, inner: Any, wide: Any,
    ) -> Any:
        memory, place = types.CPointer(types.float32), types.int64
        given = memory, place, place, memory, place, place, place, memory, place, place, place, place, place
        return types.void(*given), code
    # fmt: on

    typed.__name__ = f"slide_{rows}"
    return intrinsic(typed)


@intrinsic  # type: ignore[untyped-decorator]
def turn(_context: Any, memory: Any, out: Any, by_out: Any, source: Any, by_source: Any) -> Any:
    """Write a square of WIDTH rows of WIDTH numbers as its transpose."""

    def code(context: Any, builder: Any, __: Any, args: Any) -> Any:
        memory, out, by_out, source, by_source = args
        rows = []
        for _row in range(WIDTH):
            rows.append(builder.load(address(builder, memory, source), align=4))
            source = builder.add(source, by_source)
        step = 1
        while step < WIDTH:  # exchange blocks of so many rows and columns across the diagonal
            upper = [lane if not lane & step else lane - step + WIDTH for lane in range(WIDTH)]
            lower = [lane + step if not lane & step else lane + WIDTH for lane in range(WIDTH)]
            orders = [ir.Constant(ir.VectorType(ir.IntType(32), WIDTH), order) for order in (upper, lower)]
            for i in (i for i in range(WIDTH) if not i & step):
                pair = rows[i], rows[i + step]
                rows[i], rows[i + step] = (builder.shuffle_vector(*pair, order) for order in orders)
            step *= 2
        for row in rows:
            builder.store(row, address(builder, memory, out), align=4)
            out = builder.add(out, by_out)
        return context.get_dummy_value()

    return types.void(types.CPointer(types.float32), *(types.int64,) * 4), code
