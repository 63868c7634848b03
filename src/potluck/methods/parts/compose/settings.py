"""The settings of parts that have none of their own elsewhere, one group for each part."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

from potluck.methods.parts import checks
from potluck.methods.parts.centaur.mobility import Connection
from potluck.methods.parts.centaur.partial import Encoding


@dataclass(frozen=True)
class Deadline:
    """Pace `deadline`."""

    seconds: float = 60.0  # from the start of a round to its end

    def __post_init__(self) -> None:
        checks.above(self, "seconds", 0.0)


@dataclass(frozen=True)
class Buffered:
    """Pace `buffered`."""

    size: int = 10  # K, uploads of a step

    def __post_init__(self) -> None:
        checks.at_least(self, "size", 1)


@dataclass(frozen=True)
class Points:
    """Pace `points`."""

    period: float = 60.0  # seconds between two synchronisation points

    def __post_init__(self) -> None:
        checks.above(self, "period", 0.0)


@dataclass(frozen=True)
class Given:
    """Grouping `given`."""

    by: Literal["device", "kind", "list"] = "device"  # what tells the group of a client
    groups: dict[str, int] = field(default_factory=dict)  # client -> group, with `by = "list"`; others are in group 0


@dataclass(frozen=True)
class Several:
    """Grouping `choice`."""

    count: int = 2  # models to choose from

    def __post_init__(self) -> None:
        checks.at_least(self, "count", 1)


@dataclass(frozen=True)
class Couple:
    """Grouping `relation`: how strongly a client is pulled to those alike."""

    coupling: float = 0.5  # share of the way to the mean of those alike that a round goes
    f_every: int = 5  # rounds between two updates of F
    lr_decay: float = 0.999  # factor on recipe.lr per 100 local steps

    def __post_init__(self) -> None:
        checks.within(self, "coupling", 0.0, 0.999)
        checks.at_least(self, "f_every", 1)
        checks.above(self, "lr_decay", 0.0)


@dataclass(frozen=True)
class HandOver:
    """Local `handover`."""

    storage_kb: float = 0.0  # most that a device stores for its access point; 0: all the storage it has
    connection: Connection = Connection()
    encoder: Encoding = Encoding()
    devices: tuple[str, ...] = ()  # devices that hand over, the others train on all samples; none: all devices

    def __post_init__(self) -> None:
        checks.at_least(self, "storage_kb", 0.0)


@dataclass(frozen=True)
class Proximal:
    """Local `proximal`."""

    mu: float = 0.01  # weight of mu/2 |w - sent|^2

    def __post_init__(self) -> None:
        checks.at_least(self, "mu", 0.0)


@dataclass(frozen=True)
class HeadFirst:
    """Local `head`."""

    epochs: int = 1  # on the client's own layers, before the shared ones

    def __post_init__(self) -> None:
        checks.at_least(self, "epochs", 1)


@dataclass(frozen=True)
class Distil:
    """Local `distil`."""

    weight: float = 0.5  # of the answers of the model that was sent, against the labels
    tau: float = 2.0  # temperature of both answers

    def __post_init__(self) -> None:
        checks.within(self, "weight", 0.0, 1.0)
        checks.above(self, "tau", 0.0)


@dataclass(frozen=True)
class Tuning:
    """Shape `fedconv`: how often the server tunes kernels."""

    every: int = 1  # rounds between two tunings of the same kernels; between them the known ones are used
    of: Literal["auto", "models", "changes"] = "auto"  # what is dilated; auto: models with merge learned, else changes
    # the classes that kernels are tuned to give: the server rows' own, or what the model says which they change
    labels: Literal["auto", "rows", "model"] = "auto"  # auto: rows with merge learned, else model

    def __post_init__(self) -> None:
        checks.at_least(self, "every", 1)

    def used(self, merge: str) -> Tuning:
        """With what "auto" stands for at this merge."""
        published = merge == "learned"
        of = self.of if self.of != "auto" else "models" if published else "changes"
        labels = self.labels if self.labels != "auto" else "rows" if published else "model"
        return replace(self, of=of, labels=labels)


@dataclass(frozen=True)
class Module:
    """Share `module`."""

    names: tuple[str, ...] = ()  # layers that are shared; the first one where none is named


@dataclass(frozen=True)
class Bound:
    """Share `gradient`: the terms of FedCFC's bound local updater."""

    lambda_d: float = 0.1  # of the angle between the gradient and the common direction
    lambda_m: float = 0.1  # of a gradient longer than the common length
    devices: tuple[str, ...] = ()  # devices that share a gradient, the others share all; none: all devices

    def __post_init__(self) -> None:
        checks.at_least(self, "lambda_d", 0.0)
        checks.at_least(self, "lambda_m", 0.0)


@dataclass(frozen=True)
class Mean:
    """Merge `mean`."""

    by: Literal["samples", "clients"] = "samples"  # what an upload counts: its samples, or 1


@dataclass(frozen=True)
class Stale:
    """Merge `stale`."""

    power: float = 0.5  # a change of some age counts (age + 1)^-power
    global_lr: float = 1.0  # eta_g

    def __post_init__(self) -> None:
        checks.at_least(self, "power", 0.0)
        checks.above(self, "global_lr", 0.0)
