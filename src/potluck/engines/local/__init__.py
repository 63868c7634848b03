"""The local engine: one process, virtual time, thousands of clients trained in stacks."""

from potluck.engines.local.conditions import Conditions
from potluck.engines.local.faults import Faults
from potluck.engines.local.fleet import LocalFleet
from potluck.engines.local.roster import Roster

__all__ = ["Conditions", "Faults", "LocalFleet", "Roster"]
