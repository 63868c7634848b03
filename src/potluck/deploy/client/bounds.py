"""What a client machine does for the privacy of its own clients, as the join message says."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from potluck.deploy.client.secure import SecureDoor
from potluck.errors import BadInput, Code
from potluck.fleet import ClientId
from potluck.learn import StepNoise
from potluck.methods import Method
from potluck.privacy.guard import Guard


@dataclass(frozen=True)
class Bounds:
    """The part of `[privacy]` that clients carry out."""

    unit: str
    clip: float
    noise: float
    noise_at: str


def privacy_of(said: Any) -> Bounds | None:
    """Read the field of a join message; None for a run without privacy."""
    if said is None:
        return None
    try:
        found = Bounds(str(said["unit"]), float(said["clip"]), float(said["noise"]), str(said["noise_at"]))
    except (KeyError, TypeError, ValueError, OverflowError):
        raise BadInput(Code.MESSAGE, "run: its privacy must have unit, clip, noise and noise_at.") from None
    sizes = all(math.isfinite(value) and value > 0 for value in (found.clip, found.noise))
    if not sizes or found.unit not in ("client", "sample") or found.noise_at not in ("sum", "client"):
        raise BadInput(Code.MESSAGE, "run: its privacy must have a unit, and a clip and noise above 0.")
    return found


def guard_here(bounds: Bounds | None, method: Method) -> Guard | None:
    """What happens to each update before it leaves this machine."""
    if bounds is None or bounds.unit != "client":
        return None
    releases = method.releases(method.config())
    if isinstance(releases, str):
        raise BadInput(Code.PRIVACY, f"privacy.unit: must be none with {method.name}: {releases}.")
    return Guard(releases, bounds.clip, bounds.noise if bounds.noise_at == "client" else 0.0)


def door_here(said: Any, method: Method, name: ClientId) -> SecureDoor | None:
    """Where updates wait for secure sums, in a run that has them."""
    if said is not True:
        return None
    releases = method.releases(method.config())
    if isinstance(releases, str):
        raise BadInput(Code.SECURE_SUM, f"secure.sum: must be false with {method.name}: {releases}.")
    return SecureDoor(name, releases)


def step_noise_here(bounds: Bounds | None, secret: int) -> StepNoise | None:
    """The noise on each step of training, where samples are protected."""
    return StepNoise(bounds.clip, bounds.noise, secret) if bounds is not None and bounds.unit == "sample" else None
