"""Devices and links, and what work costs on them; docs/devices.md explains the figures."""

from potluck.devices.availability import Availability
from potluck.devices.catalogue import PRESETS, additions, catalogue, device, either, link, links, read_devices
from potluck.devices.cost import (
    RESTS,
    Effort,
    Spent,
    compute_seconds,
    does_not_hold,
    energy,
    needs_effort,
    rest_watts,
    spent,
    too_small,
)
from potluck.devices.hours import WHEN, Hours, hours_of
from potluck.devices.mix import Mix
from potluck.devices.profile import KINDS, Device, Link
from potluck.devices.reading import Fleet
from potluck.devices.show import details, table
from potluck.devices.trace import Trace

__all__ = [
    "KINDS",
    "PRESETS",
    "RESTS",
    "WHEN",
    "Availability",
    "Device",
    "Effort",
    "Fleet",
    "Hours",
    "Link",
    "Mix",
    "Spent",
    "Trace",
    "additions",
    "catalogue",
    "compute_seconds",
    "details",
    "device",
    "does_not_hold",
    "either",
    "energy",
    "hours_of",
    "link",
    "links",
    "needs_effort",
    "read_devices",
    "rest_watts",
    "spent",
    "table",
    "too_small",
]
