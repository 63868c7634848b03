"""The fault lab: random federations with faults, checked against what must hold whatever happens.

A scenario is plain data drawn from a number (`scenario.py`): a method, a fleet, and a list of faults. `simulate.py`
carries it out on the local engine, `wire.py` on the Flower engine with client machines in this process; `disk.py` is
the disk that fails, `lies.py` what a hostile client says. Each run is compared with one that had no such faults
(`holds.py`). `shrink.py` makes a failing scenario short, and `search.py` is the loop.
"""

from __future__ import annotations

from potluck.lab.scenario import Fault, Scenario, draw
from potluck.lab.search import Found, Lab
from potluck.lab.shrink import shrink

__all__ = ["Fault", "Found", "Lab", "Scenario", "draw", "shrink"]
