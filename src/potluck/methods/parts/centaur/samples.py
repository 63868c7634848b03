"""What became of the samples of all devices, as the devices count it themselves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from potluck.methods.parts.centaur.handover import HandedOver
from potluck.methods.parts.centaur.partial import Fitted

BESIDE = {"share_handed": "share handed over", "ap_steps": "steps of access points"}  # what an accuracy stands beside


class Counts(NamedTuple):
    """What one device counted in one round: tensors on the device, numbers on the server.

    They travel as one tensor: nine tensors would take ten times the bytes.
    """

    collected: Any  # samples gathered by then
    discarded: Any  # |D_N| of the first epoch
    kept: Any  # |D_C| of the first epoch
    chosen: Any  # |D_M| of the first epoch
    handed: Any  # samples given to the access point: those chosen now, and those that had waited
    stored: Any  # samples stored for the access point, handed over or not
    unreadable: Any  # losses that were not a number
    offline: Any  # units without a connection
    trained: Any  # sample-steps

    def packed(self) -> Tensor:
        return torch.stack(list(self))

    @staticmethod
    def unpacked(numbers: Tensor) -> Counts:
        return Counts(*numbers.tolist())


def counted(weight: Tensor, losses: Tensor, fitted: Fitted, handed: HandedOver, offline: int) -> Counts:
    """What a device with these samples (0/1 `weight`) and losses counts after its round."""
    return Counts(
        collected=weight.sum(),
        discarded=fitted.first.discard.sum(),
        kept=fitted.first.keep.sum(),
        chosen=fitted.first.send.sum(),
        handed=handed.parcel.weight.sum(),
        stored=handed.stored,
        unreadable=(torch.isnan(losses).to(losses.dtype) * weight).sum(),
        offline=weight.sum() * 0 + offline,
        trained=fitted.trained,
    )


def taken(
    unused: Mapping[str, bool], counts: Mapping[str, Counts], gathered: Callable[[int], float]
) -> tuple[dict[str, float], dict[str, bool]]:
    """After a round of devices: those whose access points train next, each with the share that it had gathered.

    And those whose last samples were of no use. One sample alone is nothing to train a network on: it is handed over
    again with the next ones.
    """
    waiting = {name: gathered(int(one.offline)) for name, one in counts.items() if one.handed >= 2}
    still = {name: True for name in unused if name not in counts}
    return waiting, still | {name: True for name, one in counts.items() if one.handed == 1}


@dataclass(frozen=True)
class Samples:
    """Sums over the devices of the last pair of rounds, and over the run so far."""

    collected: float = 0.0
    discarded: float = 0.0
    kept: float = 0.0
    chosen: float = 0.0
    handed: float = 0.0
    offline: float = 0.0
    devices: float = 0.0
    unreadable: float = 0.0
    most: float = 0.0  # samples that any device had to store for its access point at one time
    most_kb: float = 0.0  # storage they took
    steps: float = 0.0  # sample-steps of devices so far: one sample, forward and backward through C
    ap_steps: float = 0.0  # of access points so far, through E and C
    handed_so_far: float = 0.0
    collected_so_far: float = 0.0

    @property
    def share_handed(self) -> float:
        """Of the samples gathered in all rounds so far, the share that was handed over."""
        return self.handed_so_far / max(1.0, self.collected_so_far)


def added(before: Samples, counts: Sequence[Counts], sample: int) -> Samples:
    """The sums after a round of devices; `sample` is the size of one sample in bytes."""
    total = Counts(*(sum(column) for column in zip(*counts, strict=True))) if counts else Counts(*[0.0] * 9)
    most = max([before.most, *(one.stored for one in counts)])
    return Samples(
        collected=total.collected,
        discarded=total.discarded,
        kept=total.kept,
        chosen=total.chosen,
        handed=total.handed,
        offline=total.offline,
        devices=float(len(counts)),
        unreadable=total.unreadable,
        most=most,
        most_kb=most * sample / 1024,
        steps=before.steps + total.trained,
        ap_steps=before.ap_steps,
        handed_so_far=before.handed_so_far + total.handed,
        collected_so_far=before.collected_so_far + total.collected,
    )


def record(state: Any) -> dict[str, float]:
    """The counts of the last pair of rounds and the sums so far, for the run's database."""
    figures = {name: float(value) for name, value in asdict(state.samples).items()}
    return {**figures, "share_handed": state.samples.share_handed}
