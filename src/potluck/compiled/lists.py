"""Sums over lists as LLVM code: what the gradient of a convolution needs behind a pooling, where most of it is zero.

An entry of a list is a number and a place, side by side. As in `tiles`, the sums stay in registers.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from potluck.compiled.vectors import BITS, LONG, VECTOR, WIDTH, address, function, mask, splat

_FUSED = ("contract",)  # a product and its sum are one operation, and the order of the sums is as written
_I32, _I64 = ir.IntType(32), ir.IntType(64)
HALF = WIDTH // 2


MOST = 12  # sums of a walk: where vectors are short there are sixteen registers
SHAPES = [(rows, vectors) for rows in (1, 2, 3) for vectors in range(1, MOST // rows + 1)]


@intrinsic  # type: ignore[untyped-decorator]
def walk(
    _context: Any, memory: Any, rows: Any, vectors: Any, out: Any, by_out: Any, right: Any, by_right: Any, entries: Any,
    count: Any,
) -> Any:  # fmt: skip
    """out[g, n] += the sum over a list of number right[place + g by_right + n], for so many rows of so many vectors.

    Arguments: memory, rows and vectors (one of SHAPES, or nothing is done), out, by_out, right, by_right, the list and
    its length.
    """

    def code(context: Any, builder: Any, _: Any, args: Any) -> Any:
        memory, rows, vectors, *rest = args
        after = builder.append_basic_block("walked")
        which = builder.add(builder.mul(rows, _I64(MOST + 1)), vectors)
        switch = builder.switch(which, after)
        for shape in SHAPES:
            with builder.goto_block(builder.append_basic_block("walk")):
                switch.add_case(_I64(shape[0] * (MOST + 1) + shape[1]), builder.block)
                _walk(builder, memory, *shape, *rest)
                builder.branch(after)
        builder.position_at_end(after)
        return context.get_dummy_value()

    return types.void(types.CPointer(types.float32), *(types.int64,) * 8), code


def _walk(
    builder: Any, memory: Any, rows: int, vectors: int, out: Any, by_out: Any, right: Any, by_right: Any, entries: Any,
    count: Any,
) -> None:  # fmt: skip
    def places(place: Any, by: Any) -> list[Any]:
        found = []
        for _row in range(rows):
            found += [builder.add(place, _I64(v * WIDTH)) for v in range(vectors)]
            place = builder.add(place, by)
        return [address(builder, memory, one) for one in found]

    sums = []
    for place in places(out, by_out):
        sums.append(cgutils.alloca_once(builder, VECTOR))
        builder.store(builder.load(place, align=4), sums[-1])
    with cgutils.for_range(builder, count) as loop:
        entry = builder.gep(memory, [builder.add(entries, builder.shl(loop.index, _I64(1)))])
        by = splat(builder, builder.load(entry), ir.FloatType())
        place = builder.load(builder.bitcast(builder.gep(entry, [_I64(1)]), _I32.as_pointer()))
        for one, column in zip(sums, places(builder.add(right, builder.sext(place, _I64)), by_right), strict=True):
            product = builder.fmul(by, builder.load(column, align=4), flags=_FUSED)
            builder.store(builder.fadd(builder.load(one), product, flags=_FUSED), one)
    for place, one in zip(places(out, by_out), sums, strict=True):
        builder.store(builder.load(one), place, align=4)


def _moved(builder: Any, memory: Any, some: Any) -> tuple[Any, Any]:
    """How to read and write a vector, or the places of it that `some` names."""

    def read(place: Any) -> Any:
        if some is None:
            return builder.load(address(builder, memory, place), align=4)
        kinds = (VECTOR.as_pointer(), _I32, BITS, VECTOR)
        called = function(builder, f"llvm.masked.load.v{WIDTH}f32.p0", VECTOR, *kinds)
        return builder.call(
            called, (address(builder, memory, place), _I32(4), some, ir.Constant(VECTOR, [0.0] * WIDTH))
        )

    def write(place: Any, value: Any) -> None:
        if some is None:
            builder.store(value, address(builder, memory, place), align=4)
            return
        kinds = (VECTOR, VECTOR.as_pointer(), _I32, BITS)
        called = function(builder, f"llvm.masked.store.v{WIDTH}f32.p0", ir.VoidType(), *kinds)
        builder.call(called, (value, address(builder, memory, place), _I32(4), some))

    return read, write


def pooled(y: int, x: int) -> Any:
    """The largest of y x x vectors, number by number, and the code of its place; of equal ones the first, or a NaN.

    Arguments: memory, out, where the codes go, the first vector, how far the next row and the next column are, what
    the code grows by with them, and how many numbers of the vector count.
    """

    def code(context: Any, builder: Any, _: Any, args: Any) -> Any:
        memory, out, best, source, by_row, by_column, code_row, code_column, wide = args
        read, write = _moved(builder, memory, mask(builder, wide))
        top = number = None
        for j in range(y):
            place, own = source, builder.mul(code_row, _I64(j))
            for i in range(x):
                value = read(place)
                label = builder.add(own, builder.mul(code_column, _I64(i)))
                label = splat(builder, builder.sitofp(label, ir.FloatType()), ir.FloatType())
                if top is None:
                    top, number = value, label
                else:
                    larger = builder.fcmp_ordered(">", value, top)
                    larger = builder.or_(larger, builder.fcmp_unordered("uno", value, value))
                    top, number = builder.select(larger, value, top), builder.select(larger, label, number)
                place = builder.add(place, by_column)
            source = builder.add(source, by_row)
        write(out, top)
        write(best, number)
        return context.get_dummy_value()

    # fmt: off
    def typed(
        _context: Any, memory: Any, out: Any, best: Any, source: Any, by_row: Any, by_column: Any, code_row: Any,
        code_column: Any, wide: Any,
    ) -> Any:
        return types.void(types.CPointer(types.float32), *(types.int64,) * 8), code
    # fmt: on

    typed.__name__ = f"pooled_{y}_{x}"
    return intrinsic(typed)


def pick(taps: int, vectors: int, masked: bool) -> Any:
    """out[t, o] += the sum over all windows of a pooling of slope[o] x[place of o's winner + t], for so many taps.

    A vector has HALF numbers of the image from the window's first row, and as many from its second one: the code of a
    winner is its place there. Arguments: memory, out, by_out, the image, how far the second row is, how far the next
    row and the next column of windows are, slopes and how far their next row is, codes, channels, rows and columns of
    windows, and how many numbers of its one vector a `masked` one has.
    """

    def code(context: Any, builder: Any, _: Any, args: Any) -> Any:
        if not LONG:
            return context.get_dummy_value()
        memory, out, by_out, image, below, by_row, by_column, slope, by_slope, best, apart, rows, columns, wide = args
        read, write = _moved(builder, memory, mask(builder, wide) if masked else None)
        kind, half = ir.VectorType(_I32, WIDTH), ir.VectorType(ir.FloatType(), HALF)
        permute = function(builder, "llvm.x86.avx512.permvar.sf.512", VECTOR, VECTOR, kind)
        both = ir.Constant(kind, list(range(WIDTH)))
        sums = [[cgutils.alloca_once(builder, VECTOR) for _ in range(vectors)] for _ in range(taps)]
        place = out
        for row in sums:
            for v, one in enumerate(row):
                builder.store(read(builder.add(place, _I64(v * WIDTH))), one)
            place = builder.add(place, by_out)
        codes = cgutils.alloca_once_value(builder, best)
        with cgutils.for_range(builder, rows) as outside:
            start = builder.add(image, builder.mul(outside.index, by_row))
            slopes = builder.add(slope, builder.mul(outside.index, by_slope))
            with cgutils.for_range(builder, columns) as inside:
                own, at = builder.load(codes), builder.add(slopes, builder.mul(inside.index, apart))
                builder.store(builder.add(own, apart), codes)
                places = [builder.add(own, _I64(v * WIDTH)) for v in range(vectors)]
                winners = [builder.fptosi(read(one), kind) for one in places]
                ds = [read(builder.add(at, _I64(v * WIDTH))) for v in range(vectors)]
                first = builder.add(start, builder.mul(inside.index, by_column))
                for t, row in enumerate(sums):
                    here = builder.add(first, _I64(t))
                    two = []
                    for one in (here, builder.add(here, below)):
                        halves = builder.bitcast(builder.gep(memory, [one]), half.as_pointer())
                        two.append(builder.load(halves, align=4))
                    patch = builder.shuffle_vector(two[0], two[1], both)
                    for one, d, winner in zip(row, ds, winners, strict=True):
                        x = builder.call(permute, (patch, winner))
                        product = builder.fmul(d, x, flags=_FUSED)
                        builder.store(builder.fadd(builder.load(one), product, flags=_FUSED), one)
        place = out
        for row in sums:
            for v, one in enumerate(row):
                write(builder.add(place, _I64(v * WIDTH)), builder.load(one))
            place = builder.add(place, by_out)
        return context.get_dummy_value()

    # fmt: off
    def typed(
        _context: Any, memory: Any, out: Any, by_out: Any, image: Any, below: Any, by_row: Any, by_column: Any,
        slope: Any, by_slope: Any, best: Any, apart: Any, rows: Any, columns: Any, wide: Any,
    ) -> Any:
        return types.void(types.CPointer(types.float32), *(types.int64,) * 13), code
    # fmt: on

    typed.__name__ = f"pick_{taps}_{vectors}_{'masked' if masked else 'full'}"
    return intrinsic(typed)
