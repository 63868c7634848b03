"""What became of the samples of a fleet of pairs, as counted on the devices themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch


@dataclass(frozen=True)
class Tally:
    """Of the last pair of rounds, and so far."""

    collected: float = 0.0  # samples at hand, first epochs
    discarded: float = 0.0  # |D_N|
    kept: float = 0.0  # |D_C|
    chosen: float = 0.0  # |D_M|
    handed: float = 0.0  # samples given to access points: D_M of all epochs, and what had waited
    offline: float = 0.0  # units without a connection
    devices: float = 0.0
    unreadable: float = 0.0  # losses that were not a number
    most: float = 0.0  # samples any device had to store for its access point at one time
    most_kb: float = 0.0  # storage they took
    steps: float = 0.0  # sample-steps of devices so far: one sample, forward and backward through C
    ap_steps: float = 0.0  # of access points, through E and C
    handed_so_far: float = 0.0


def counted(before: Tally, came: Sequence[Any], sample: int) -> Tally:
    """After a round of devices; each update has `counts` (collected, discarded, chosen, handed, stored, unreadable),
    `examples` (kept), `offline` and `trained`. A sample has so many bytes."""
    sums = torch.stack([u.counts for u in came]).sum(0).tolist() if came else [0.0] * 6
    most = max([before.most, *(float(u.counts[4]) for u in came)])
    return Tally(
        collected=sums[0], discarded=sums[1], kept=sum(float(u.examples) for u in came),
        chosen=sums[2], handed=sums[3],
        offline=sum(float(u.offline) for u in came), devices=float(len(came)), unreadable=sums[5],
        most=most, most_kb=most * sample / 1024,
        steps=before.steps + sum(float(u.trained) for u in came),
        ap_steps=before.ap_steps, handed_so_far=before.handed_so_far + sums[3],
    )  # fmt: skip


def figures(tally: Tally) -> dict[str, float]:
    """For the run's database."""
    return {name: float(value) for name, value in asdict(tally).items()}
