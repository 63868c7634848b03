"""The shapes of convolutions, and which form their gradient takes in kernels.

A rule counts what each form has to do; `benchmarks/windows.py` holds it against the clock.
"""

from __future__ import annotations

from typing import NamedTuple

from potluck.compiled.blocks import DENSE, LISTS, PICKS

Pair = tuple[int, int]
MOST = 12  # sums of a walk (`lists`)


class Block(NamedTuple):
    """A convolution and the pooling behind it; pairs are (y, x)."""

    channels: int
    height: int
    width: int
    outputs: int
    kernel_y: int
    kernel_x: int
    stride: Pair
    padding: Pair
    pool: Pair

    @property
    def out(self) -> Pair:
        """Rows and columns of outputs before pooling."""
        y = (self.height + 2 * self.padding[0] - self.kernel_y) // self.stride[0] + 1
        return y, (self.width + 2 * self.padding[1] - self.kernel_x) // self.stride[1] + 1

    @property
    def pooled(self) -> Pair:
        return self.out[0] // self.pool[0], self.out[1] // self.pool[1]

    @property
    def row(self) -> int:
        """Columns that there is room for: tiles have four or eight rows."""
        return -(-self.out[1] // 4) * 4

    @property
    def size(self) -> int:
        """Numbers of an image within its borders."""
        return (self.height + 2 * self.padding[0]) * (self.width + 2 * self.padding[1]) * self.channels

    @property
    def slack(self) -> int:
        """How far the products of the columns without an output may read beyond an image."""
        return (self.row * self.stride[1] + self.kernel_x) * self.channels

    @property
    def area(self) -> int:
        return self.pool[0] * self.pool[1]


class Form(NamedTuple):
    kind: int
    code: Pair  # of a winner one row, or one column, further on
    span: int = 0  # numbers of a channel's window
    across: int = 0  # of a row of it: whole vectors
    vectors: int = 0  # of that row that are summed at once
    rows: int = 0  # the same of rows, for the weights
    rows_back: int = 0  # and for the image


def form_of(block: Block, first: bool, width: int) -> Form:
    """The form of a convolution's gradient; the first one needs none of its image. Vectors have `width` numbers."""
    step = block.stride[1] * block.channels
    if first and width == 16 and block.pool[0] <= 2 and (block.pool[1] - 1) * step < width // 2 and block.area > 1:
        return Form(PICKS, (width // 2, step))
    if block.area == 1:
        return Form(DENSE, (block.pool[1], 1))
    row = -(-block.kernel_x * block.channels // width)
    pieces = -(-row // MOST)
    vectors = -(-row // pieces)
    across = pieces * vectors * width
    rows = min(3, block.kernel_y, MOST // vectors)
    cached = 40960 // (4 * block.outputs * vectors * width)
    return Form(LISTS, (block.pool[1], 1), block.kernel_y * across, across, vectors, rows, max(1, min(rows, cached)))
