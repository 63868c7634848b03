"""Read public traces of networks, of radio power and of availability, and write them as links of a devices file.

The formats are those of public data sets; docs/devices.md names them. The files themselves do not come with Potluck.
"""

from potluck.devices.imports.availability import Habits, fedscale, flash, habits
from potluck.devices.imports.power import Power, power_5g
from potluck.devices.imports.rates import Rates, guess, lumos5g, mahimahi, ucc5g
from potluck.devices.imports.speeds import Speeds, flash_speed

__all__ = [
    "Habits",
    "Power",
    "Rates",
    "Speeds",
    "fedscale",
    "flash",
    "flash_speed",
    "guess",
    "habits",
    "lumos5g",
    "mahimahi",
    "power_5g",
    "ucc5g",
]
