"""The shapes of convolutions, and which form their gradient takes in kernels.

A rule counts what each form has to do; `benchmarks/windows.py` holds it against the clock.
"""

from __future__ import annotations

from typing import NamedTuple

from potluck.compiled.blocks import DENSE, LISTS, PICKS

Pair = tuple[int, int]
MOST = 12  # sums of a walk (`lists`)
CACHED = 40960  # bytes of weights that stay in the nearest cache
# Measured with 512-bit vectors: a product within a pick and within a walk, an entry, and the start of a walk, all by
# the products of a dense tile that take as long; and the share of gradients that an activation does not make zero.
PICKING, WALKING, ENTERING, STARTING, UNPOOLING, ALIVE = 1.8, 1.3, 20.0, 30.0, 4.0, 0.75


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


def possible(block: Block, first: bool, width: int) -> list[Form]:
    """The forms that a convolution's gradient can take. Vectors have `width` numbers."""
    forms = [Form(DENSE, (block.pool[1], 1)), _lists(block, width)]
    step = block.stride[1] * block.channels
    # A vector has half its numbers from each of the window's two rows; the first convolution needs no image's gradient.
    if first and width == 16 and block.pool[0] <= 2 and (block.pool[1] - 1) * step < width // 2:
        forms.append(Form(PICKS, (width // 2, step)))
    return forms


def _lists(block: Block, width: int) -> Form:
    row = -(-block.kernel_x * block.channels // width)
    pieces = -(-row // MOST)
    vectors = -(-row // pieces)
    across = pieces * vectors * width
    rows = min(3, block.kernel_y, MOST // vectors)
    cached = CACHED // (4 * block.outputs * vectors * width)
    return Form(LISTS, (block.pool[1], 1), block.kernel_y * across, across, vectors, rows, max(1, min(rows, cached)))


def form_of(block: Block, first: bool, width: int) -> Form:
    """The cheapest form."""
    return min(possible(block, first, width), key=lambda form: work(block, form, first, width))


def work(block: Block, form: Form, first: bool, width: int) -> float:
    """Products of vectors that a form takes for one window of a pooling, with all else as so many of them."""
    groups, taps = -(-block.outputs // width), block.kernel_y * block.kernel_x
    if form.kind == PICKS:
        return groups * (PICKING * taps * block.channels)
    if form.kind == DENSE:
        back = 0 if first else taps * block.outputs * -(-block.channels // width)
        return block.area * (groups * (taps * block.channels + UNPOOLING) + back)
    vectors = form.span // width * (1 if first else 2)
    return ALIVE * block.outputs * (WALKING * vectors + ENTERING) + (0 if first else block.area * STARTING)
