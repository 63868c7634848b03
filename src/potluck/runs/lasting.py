"""What lasts as long as a run is left out of the search for garbage, and the search is made rarer or put off."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

SEARCHED = 20_000  # new objects before the next search


@contextmanager
def lasting() -> Iterator[None]:
    """Keep what is there now out of Python's search for cycles in this block.

    After set-up there are 300,000 objects, most of which live to the end: modules, kernels, data. Each full search
    through them takes as long as ten rounds of a small fleet. A round makes thousands of objects in no cycle,
    so Python's own rule, a search for each 700 new ones, finds nothing most of the time.
    """
    usual = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(SEARCHED, *usual[1:])
    try:
        yield
    finally:
        gc.set_threshold(*usual)
        gc.unfreeze()


@contextmanager
def imports() -> Iterator[None]:
    """Do not search for cycles in this block, which imports modules that last: a tenth of a second, and none is found.

    What it made stays out of later searches until `lasting` ends.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
