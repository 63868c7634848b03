"""Devices and links, and what work costs on them; docs/devices.md explains the figures."""

from potluck.devices.availability import Availability
from potluck.devices.catalogue import PRESETS, additions, catalogue, device, either, link, links, read_devices
from potluck.devices.cost import compute_seconds, does_not_hold, energy, too_small
from potluck.devices.mix import Mix
from potluck.devices.profile import KINDS, Device, Link
from potluck.devices.reading import Fleet
from potluck.devices.show import details, table
from potluck.devices.trace import Trace

__all__ = [
    "KINDS",
    "PRESETS",
    "Availability",
    "Device",
    "Fleet",
    "Link",
    "Mix",
    "Trace",
    "additions",
    "catalogue",
    "compute_seconds",
    "details",
    "device",
    "does_not_hold",
    "either",
    "energy",
    "link",
    "links",
    "read_devices",
    "table",
    "too_small",
]
