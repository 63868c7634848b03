"""The sections of an experiment that have fixed keys, each with its types, ranges and defaults."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, field_validator

from potluck.data.drift import DriftSpec
from potluck.engines.local.faults import Faults
from potluck.engines.local.pace import Rules


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=False)


class DataSection(Section):
    """The data."""

    source: str = Field(
        "watch_exercises", description="a public set, a path to .npz/.csv/.parquet/folder, or package.module:function"
    )
    standardise: str = Field("client", description="client | global | none: statistics of the training rows only")


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

    @property
    def pace(self) -> Rules:
        return Rules(self.duty, self.rows_per_hour, self.passes)

    @property
    def partner(self) -> str | None:
        """The device of the access points; None if there are none."""
        return None if self.access_point == "none" else self.access_point


class ServerSection(Section):
    """The server's own data: a share of the rows, taken before the clients get theirs, or another set."""

    share: float = Field(0.0, ge=0, lt=1, description="of all rows")
    source: str | None = Field(None, description="another dataset for the server, as data.source")
    pretrain: int = Field(0, ge=0, description="epochs on the server rows that train the first model of any method")
    pretrain_lr: float = Field(0.05, gt=0, description="learning rate of server.pretrain")
    pretrain_batch: int = Field(32, ge=1, description="samples per step of server.pretrain")


class StopSection(Section):
    """When the run ends: at the first of these limits."""

    rounds: int | None = Field(20, ge=0, description="0 for no limit")
    virtual_seconds: float | None = Field(None, gt=0)
    accuracy: float | None = Field(None, gt=0, le=1, description="mean personal accuracy to reach")
    patience: int | None = Field(None, ge=1, description="evaluations without a better mean accuracy")

    @field_validator("rounds")
    @classmethod
    def no_limit(cls, rounds: int | None) -> int | None:
        return rounds or None


class BudgetSection(Section):
    """What the run may use: it ends at the first step at or past one of these limits. Empty: no budget.

    With a budget, stop.rounds limits the run only where it is set.
    """

    virtual_seconds: float | None = Field(None, gt=0, description="of the fleet's clock; wall time on real machines")
    joules: float | None = Field(None, gt=0, description="of all clients together, for training and communication")
    bytes: int | None = Field(None, gt=0, description="up and down, of all clients together")
    local_passes: float | None = Field(
        None, gt=0, description="passes over a client's training samples, mean over the clients that hold some"
    )
    rounds: int | None = Field(None, gt=0, description="rounds; each method has its own idea of a round")

    @property
    def limits(self) -> dict[str, float]:
        """The limits that are set, by kind."""
        return self.model_dump(exclude_none=True)


class DriftSection(Section):
    """Data that changes during the run."""

    at: list[float] = Field(default_factory=list, description="virtual seconds at which the data changes; empty: never")
    kind: str = Field("labels", description="labels: each becomes the next; rows: clients pass their rows on")
    clients: float | list[str] = Field(0.2, description="clients that change: a share, chosen by the seed, or names")

    def spec(self) -> DriftSpec:
        who = self.clients if isinstance(self.clients, float) else tuple(self.clients)
        return DriftSpec(tuple(self.at), self.kind, who)


class FaultsSection(Section):
    """Faults, as probabilities per task."""

    dropout: float = Field(0.0, ge=0, le=1)
    late: float = Field(0.0, ge=0, le=1)
    duplicate: float = Field(0.0, ge=0, le=1)
    corrupt: float = Field(0.0, ge=0, le=1)
    nan: float = Field(0.0, ge=0, le=1)
    oversize: float = Field(0.0, ge=0, le=1)
    late_factor: float = Field(5.0, ge=1)

    def faults(self) -> Faults:
        return Faults(**self.model_dump())


class WireSection(Section):
    """Limits and noise of updates."""

    limit_bytes: int = Field(1 << 30, ge=1, description="a larger update is refused")
    noise: float = Field(0.0, ge=0, description="standard deviation of Gaussian noise on everything uploaded")


class RunSection(Section):
    """Name, seed, engine and output of the run."""

    name: str | None = Field(None, description="name of the run's folder (default: METHOD-DATA-sSEED)")
    out: str = Field("runs", description="folder that holds the runs")
    seed: int = Field(0, ge=0)
    engine: str = Field(
        "local",
        pattern="^(local|flower-sim)$",
        description="local: this process, in virtual time; flower-sim: Flower's simulation on Ray, in wall time",
    )
    workers: int | str = Field(
        1,
        description="N threads that train stacks of clients; processes:N, processes of this machine; "
        "ray, the cores of a Ray cluster",
    )
    stacking: str = Field("auto", pattern="^(auto|always|never)$", description="auto | always | never")
    evaluate_every: int = Field(
        1, ge=1, description="rounds between evaluations; an asynchronous round is as many updates as there are clients"
    )
    evaluate_clients: int = Field(
        1000, ge=1, description="at most so many clients are evaluated, the same ones every time"
    )
    evaluate_on: str = Field(
        "test",
        pattern="^(test|valid)$",
        description="test | valid: valid evaluates on the validation rows and reads no test row, as tuning does",
    )
    checkpoint_seconds: float = Field(20.0, ge=0, description="seconds between checkpoints; 0 for one at every round")
    memory_mb: int = Field(
        2048, ge=16, description="private state beyond this goes to a scratch file, and so do clients' own models"
    )
    filled: list[str] = Field(
        default_factory=list, description="written by Potluck: the settings that the method's needs filled in"
    )

    @field_validator("workers")
    @classmethod
    def few(cls, workers: int | str) -> int | str:
        if isinstance(workers, str) and workers.isdecimal():
            workers = int(workers)
        kind, _, count = workers.partition(":") if isinstance(workers, str) else ("threads", ":", str(workers))
        many = kind in ("threads", "processes") and count.isdecimal() and 1 <= int(count) <= 256
        if not many and workers != "ray":
            raise ValueError("must be 1 to 256 threads, 'processes:N' with N from 1 to 256, or 'ray'")
        return workers
