"""Data of which only the sizes are known: noise of the right shapes, for runs that train nothing.

`source(shape, classes, rows)` is the name of such a data set, which `data.source` takes like any other:
`potluck.planner.sizes:rows_4000_classes_6_shape_128_9`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence

import numpy as np

from potluck.data import Dataset
from potluck.errors import Code, must_be
from potluck.keys import rng

MOST_ROWS, MOST_NUMBERS = 2_000_000, 1 << 28
_NAME = re.compile(r"rows_(\d+)_classes_(\d+)_shape_(\d+(?:_\d+){0,2})")


def source(shape: Sequence[int], classes: int, rows: int) -> str:
    """The name of a data set with so many rows of this shape and so many classes."""
    if not 1 <= len(shape) <= 3 or not all(1 <= side <= 100_000 for side in shape):
        raise must_be(Code.FLAG_VALUE, "--shape", "one to three sizes from 1 to 100000", "x".join(map(str, shape)))
    if not 2 <= classes <= 10_000:
        raise must_be(Code.FLAG_VALUE, "--classes", "2 to 10000", classes)
    if not classes <= rows <= MOST_ROWS or rows * math.prod(shape) > MOST_NUMBERS:
        wanted = f"at least one per class, at most {MOST_ROWS:,} rows and {MOST_NUMBERS:,} numbers in all"
        raise must_be(Code.FLAG_VALUE, "--rows", wanted, rows)
    return f"{__name__}:rows_{rows}_classes_{classes}_shape_{'_'.join(map(str, shape))}"


def __getattr__(name: str) -> Callable[[], Dataset]:
    found = _NAME.fullmatch(name)
    if found is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    rows, classes = int(found[1]), int(found[2])
    shape = tuple(map(int, found[3].split("_")))
    return lambda: _noise(rows, classes, shape)


def _noise(rows: int, classes: int, shape: tuple[int, ...]) -> Dataset:
    draw = rng("planner", "sizes", rows)
    few = min(rows, 64)  # values do not matter, so a few are repeated
    x = np.broadcast_to(draw.standard_normal((1, few, *shape), dtype=np.float32), (-(-rows // few), few, *shape))
    kind = {1: "features", 2: "series", 3: "image"}[len(shape)]
    return Dataset(
        name="sizes only",
        x=x.reshape(-1, *shape)[:rows],
        y=np.arange(rows, dtype=np.int64) % classes,
        classes=classes,
        class_names=tuple(f"class {k}" for k in range(classes)),
        kind=kind,
    )
