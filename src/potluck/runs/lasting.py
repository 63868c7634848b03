"""What lasts as long as a run is left out of the search for garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def lasting() -> Iterator[None]:
    """Keep what is there now out of Python's search for cycles in this block.

    After set-up there are 300,000 objects, most of which live to the end: modules, kernels, data. Each full search
    through them takes as long as ten rounds of a small fleet.
    """
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
