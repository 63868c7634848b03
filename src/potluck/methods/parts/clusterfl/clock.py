"""The time that the server's own work takes on the clock of the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from torch.utils.flop_counter import FlopCounterMode

from potluck.fleet import Fleet


@contextmanager
def charged(fleet: Fleet, macs_per_second: float) -> Iterator[None]:
    """Count the matrix products done inside and spend the time that a machine of this speed needs for them."""
    with FlopCounterMode(display=False) as counter:
        yield
    fleet.spend(counter.get_total_flops() / 2.0 / macs_per_second)
