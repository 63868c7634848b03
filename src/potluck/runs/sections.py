"""The sections of an experiment that have fixed keys, each with its types, ranges and defaults."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, field_validator

from potluck.data.drift import DriftSpec
from potluck.data.intake.spec import Columns, Intake, Window
from potluck.engines.local.faults import Faults
from potluck.engines.local.hostile import Hostile, chosen
from potluck.runs.fleet_section import Section
from potluck.tasks.spec import TaskSpec

CLIP = 1.5  # measured: docs/hostile.md


Names = str | list[str] | None


class ColumnsSection(Section):
    """Which array or column of your own file is what. Not set: by its name. "none": nothing is."""

    features: Names = Field(None, description="the inputs: names, as a list or with commas; default: all that is left")
    label: str | None = Field(None, description="the label")
    client: Names = Field(None, description="the client; several names together make one client")
    time: str | None = Field(None, description="the time of a row: numbers, or dates such as 2026-05-01 12:30:00")
    group: Names = Field(None, description="the recording, whose rows are never separated by a split")
    split: str | None = Field(None, description="the side of a row: train, test or valid")

    def columns(self) -> Columns:
        return Columns(**{role: _names(given) for role, given in self.model_dump().items()})


def _names(given: Names) -> tuple[str, ...] | None:
    listed = given.split(",") if isinstance(given, str) else given
    return None if listed is None else tuple(name.strip() for name in listed if name.strip()) or ("none",)


class WindowSection(Section):
    """How recordings (one row per reading) are cut into windows. Set `seconds` or `samples`."""

    seconds: float | None = Field(None, gt=0, le=1e6, description="length of a window; needs a time")
    samples: int | None = Field(None, ge=2, le=1_000_000, description="length of a window in readings")
    overlap: float = Field(0.5, ge=0, le=0.99, description="share of a window that the next one has too")
    rate: float | None = Field(None, gt=0, le=1e6, description="resample to so many readings per second first")
    label: str = Field(
        "same",
        pattern="^(same|majority|last)$",
        description="same: windows with two labels are left out; majority; last: that of the last reading",
    )
    gap: float | None = Field(
        None, gt=0, description="a longer pause breaks a recording, seconds; default: five usual intervals"
    )
    unit: str = Field(
        "auto", pattern="^(auto|s|ms|us|ns)$", description="of the time: auto goes by its name and size, else seconds"
    )


class DataSection(Section):
    """The data."""

    source: str = Field(
        "watch_exercises", description="a public set, a path to .npz/.csv/.parquet/folder, or package.module:function"
    )
    standardise: str = Field("client", description="client | global | none: statistics of the training rows only")
    columns: ColumnsSection | None = Field(None, description="which array or column is what, see below")
    missing: str = Field(
        "refuse", pattern="^(refuse|drop|mean|interpolate|mask)$",
        description="values that are missing in your file: refuse | drop | mean | interpolate | mask",
    )  # fmt: skip
    window: WindowSection | None = Field(None, description="cuts recordings into windows, see below")
    kind: str = Field(
        "auto", pattern="^(auto|features|series|image)$", description="of your samples; auto goes by the axes of x"
    )
    classes: list[str] | None = Field(
        None, description="the labels by name: a deployed client with another is refused; default: the clients' own"
    )

    def intake(self) -> Intake:
        """How a file of the user's is read."""
        columns = Columns() if self.columns is None else self.columns.columns()
        window = None if self.window is None else Window(**self.window.model_dump())
        return Intake(columns, self.missing, window, "" if self.kind == "auto" else self.kind)


class TaskSection(Section):
    """What is to be learned, and which metric ranks the models."""

    name: str = Field(
        "auto",
        pattern="^(auto|classification|regression|forecasting|ordinal|multilabel|anomaly)$",
        description="auto: regression for labels with a decimal point, several labels for a table of 0 and 1, "
        "else classification",
    )
    metric: str = Field("", description="the metric that ranks the models, such as balanced_accuracy; empty: the usual")
    balance: bool = Field(False, description="classification: rare classes count more in the loss, all classes alike")
    centre: float | list[float] | None = Field(
        None, description="regression: subtracted from the targets before training; default: their mean"
    )
    spread: float | list[float] | None = Field(
        None, description="regression: divides the targets before training; default: their standard deviation"
    )
    channel: str | int = Field("", description="forecasting: the channel, by name or position; default: the first")
    horizon: int = Field(1, ge=1, le=10_000, description="forecasting: steps at the end of a window to be predicted")
    normal: str | list[str] = Field("", description="anomaly: the classes that are normal; default: the first")
    labels: float = Field(1.0, gt=0, le=1, description="share of each client's training rows that keep their label")
    unlabelled: str = Field(
        "auto", pattern="^(auto|ignore|pseudo|consistency)$",
        description="how rows without a label are trained on; auto: ignore, and a file with such rows is refused",
    )  # fmt: skip
    threshold: float = Field(0.95, ge=0, le=1, description="from this probability a model's answer counts as a label")
    push: float = Field(1.0, ge=0, description="what the loss of rows without a label counts")
    noise: float = Field(0.5, ge=0, description="consistency: standard deviation of the noise added to a sample")

    def spec(self) -> TaskSpec:
        def several(value: Any) -> tuple[Any, ...]:
            return () if value in (None, "") else tuple(value) if isinstance(value, list) else (value,)

        given: dict[str, Any] = {key: several(getattr(self, key)) for key in ("centre", "spread", "normal")}
        same = ("name", "metric", "balance", "horizon", "labels", "unlabelled", "threshold", "push", "noise")
        given |= {key: getattr(self, key) for key in same}
        return TaskSpec(channel=str(self.channel), **given)


class ServerSection(Section):
    """The server's own data: a share of the rows, taken before the clients get theirs, or another set."""

    share: float = Field(0.0, ge=0, lt=1, description="of all rows")
    source: str | None = Field(None, description="another dataset for the server, as data.source")
    pretrain: int = Field(0, ge=0, description="epochs on the server rows that train the first model of any method")
    pretrain_lr: float = Field(0.05, gt=0, description="learning rate of server.pretrain")
    pretrain_batch: int = Field(32, ge=1, description="samples per step of server.pretrain and server.epochs")
    epochs: int = Field(0, ge=0, description="epochs on the server rows after every round, for any method's models")
    epochs_lr: float = Field(0.01, gt=0, description="learning rate of server.epochs")
    optimiser: Literal["sgd", "adam"] = Field("sgd", description="sgd | adam: of server.pretrain and server.epochs")
    validate_share: float = Field(
        0.0, ge=0, lt=1, description="of the server rows, to choose the epoch by; 0: the last"
    )


class StopSection(Section):
    """When the run ends: at the first of these limits."""

    rounds: int | None = Field(20, ge=0, description="0 for no limit")
    virtual_seconds: float | None = Field(None, gt=0)
    accuracy: float | None = Field(None, gt=0, le=1, description="mean personal accuracy to reach")
    score: float | None = Field(
        None,
        gt=0,
        description="mean personal score to reach, in the units of the task's metric; an error: at most this",
    )
    patience: int | None = Field(None, ge=1, description="evaluations without a better mean score")

    @property
    def target(self) -> float | None:
        """The mean score that ends the run."""
        return self.score if self.accuracy is None else self.accuracy

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


class NewcomersSection(Section):
    """Clients that take no part in training. At the end the run measures what the method gives them."""

    share: float = Field(0.0, ge=0, lt=1, description="of the clients, chosen by the seed of the split; 0: none")
    rows: list[int] = Field(
        default_factory=lambda: [0, 1, 5],
        min_length=1,
        max_length=10,
        description="labelled training rows of each class that a newcomer has: one measurement for each number",
    )
    rounds: int = Field(
        10, ge=1, le=1000, description="rounds that a newcomer trains for itself; the server stays as it is"
    )

    @field_validator("rows")
    @classmethod
    def counts(cls, rows: list[int]) -> list[int]:
        if any(not 0 <= one <= 100_000 for one in rows):
            raise ValueError("must be numbers from 0 to 100000")
        return sorted(set(rows))


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
    hostile: float = Field(0.0, ge=0, lt=1, description="share of the clients that attack; at least one if above 0")
    attack: str = Field(
        "sign",
        pattern="^(sign|scale|noise|labels|backdoor|collude)$",
        description="sign | scale | noise | labels | backdoor | collude: what attackers do",
    )
    scale: float = Field(10.0, gt=0, le=1e6, description="how many times as large the change of an attacker is")

    def faults(self) -> Faults:
        return Faults(**self.model_dump(exclude={"hostile", "attack", "scale"}))

    def attackers(self, clients: int, seed: int) -> Hostile:
        return Hostile(chosen(self.hostile, clients, seed), self.attack, self.scale, seed)


class WireSection(Section):
    """Limits, noise and deadlines of updates."""

    clip: float = Field(CLIP, ge=0, description="largest change, by what four fifths stay below; 0: no limit")
    limit_bytes: int = Field(1 << 30, ge=1024, description="a larger update is refused")
    noise: float = Field(0.0, ge=0, description="standard deviation of noise on all uploads; it has no epsilon")
    task_seconds: float = Field(
        0.0, ge=0, description="on real machines: a client that takes longer over a task is lost; 0: by what tasks took"
    )
    look_seconds: float = Field(0.0, ge=0, description="on real machines: the same for an evaluation")


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
    evaluate_seconds: float = Field(
        0.0, ge=0, description="virtual seconds between evaluations instead; 0: run.evaluate_every counts"
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
