"""The section `[fleet]`: the clients' devices, links, pace and hours."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from potluck.devices import Hours, hours_of
from potluck.engines.local.pace import Rules


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, allow_inf_nan=False)


class FleetSection(Section):
    """The clients' devices and links."""

    devices: str | dict[str, int | float] | list[str] = Field(
        "mixed",
        description="a preset, a device, shares or counts by device (or device@link), or a list with one per client",
    )
    link: str | None = Field(None, description="puts all clients on this link; by default each device has its own")
    access_point: str | None = Field(
        None,
        description="gives every client a partner of this device (or device@link), for methods that pair clients; "
        "none: no partners",
    )
    file: str | None = Field(None, description="a TOML file with devices and links of your own")
    seed: int | None = Field(
        None, ge=0, description="deals out the devices; default: run.seed, or a comparison's first"
    )
    chance: int | None = Field(
        None, ge=0, description="seed of what differs from task to task: speed, transfers, losses; default: run.seed"
    )
    certificate: str | None = Field(
        None, description="a certificate of `potluck calibrate`; the run's notes and reports say its errors"
    )
    floor_mbps: float = Field(
        0.0, ge=0, description="cuts off clients whose uplink is slower than this, until it recovers, Mbit/s"
    )
    joins: dict[str, float] = Field(default_factory=dict, description="client -> second at which it joins")
    boards: dict[str, str] = Field(
        default_factory=dict,
        description="client -> microcontroller that trains for it: tcp:HOST:PORT, serial:DEVICE@BAUD or qemu:BOARD",
    )
    leaves: dict[str, float] = Field(default_factory=dict, description="client -> second at which it leaves for good")
    duty: float = Field(
        1.0, gt=0, le=1, description="share of the time that a device may train; it rests after each task"
    )
    rows_per_hour: float = Field(
        0.0, ge=0, description="labelled rows that arrive at a client in an hour; 0: all are there from the start"
    )
    passes: float = Field(
        0.0, ge=0, description="most visits of each row that has arrived, over the whole run; 0: no limit"
    )
    at_once: int = Field(
        0, ge=0, description="most clients at work at the same time, drawn from the idle ones; 0: any number"
    )
    rest: Literal["awake", "sleep"] = Field(
        "awake", description="what a device does while it has no task; it decides the energy of waiting"
    )
    train_when: Literal["always", "night", "charging"] = Field(
        "always",
        description="when devices with a battery take tasks; charging: their energy then comes from the charger",
    )
    hours: list[Annotated[float, Field(ge=0, lt=24)]] = Field(
        [23.0, 6.0],
        min_length=2,
        max_length=2,
        description="of the night, or of charging, from and to; hours of the day",
    )
    begins: float = Field(20.0, ge=0, lt=24, description="hour of the day at which the run begins")

    @property
    def windows(self) -> Hours | None:
        """When devices with a battery take tasks; None for any time."""
        return hours_of(self.train_when, (self.hours[0], self.hours[1]), self.begins)

    @property
    def pace(self) -> Rules:
        return Rules(self.duty, self.rows_per_hour, self.passes)

    @property
    def partner(self) -> str | None:
        """The device of the access points; None if there are none."""
        return None if self.access_point == "none" else self.access_point
