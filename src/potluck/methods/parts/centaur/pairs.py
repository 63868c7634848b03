"""Clients in pairs: a device that has the data, and its access point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.fleet import ClientId, Fleet, Params, Profile
from potluck.methods.parts import checks
from potluck.methods.parts.centaur.tiers import MERGES
from potluck.tensors import mean

AP = "access-point"
AMPLE = 1e15  # bytes: room for all a device may choose; one number, so that unlike devices are trained in one stack


def check(cfg: Any) -> None:
    """The settings that Centaur and its baselines share."""
    for name in ("base", "step", "connected"):
        if not 0.0 <= getattr(cfg, name, 0.5) <= 1.0:
            raise BadInput(Code.SETTING_VALUE, f"method.{name}: {getattr(cfg, name)} given, allowed is 0 to 1.")
    checks.above(cfg, "base", 0.0)
    checks.above(cfg, "step", 0.0)
    checks.at_least(cfg, "storage_kb", 0.0)
    checks.at_least(cfg, "mu", 0.0)
    checks.at_least(cfg, "stream", 1)
    if cfg.mobility is not None and not 0.0 <= cfg.mobility[0] <= cfg.mobility[1] <= 1.0:
        raise BadInput(
            Code.SETTING_VALUE, f"method.mobility: {list(cfg.mobility)} given, allowed is [low, high] within 0 to 1."
        )
    for name in ("device_merge", "ap_merge"):
        if hasattr(cfg, name):
            checks.one_of(cfg, name, MERGES)


def devices(fleet: Fleet, cohort: int, *parts: int | str) -> list[ClientId]:
    """`cohort` idle devices without repetition, in the order of the roster; all of them when cohort is 0."""
    idle, clients = fleet.idle, fleet.clients
    wanted = cohort or len(idle)
    found: list[int] = []
    for place in keys.rng(*parts, "cohort").permutation(len(idle)):
        if len(found) == wanted:
            break
        if clients[idle[int(place)]].kind != AP:
            found.append(int(place))
    return [idle[place] for place in sorted(found)]


def count(fleet: Fleet) -> int:
    """How many pairs there are: where there are access points, half of the roster is."""
    first = next(iter(fleet.clients), None)
    paired = first is not None and fleet.clients[first].partner is not None
    return max(1, len(fleet.clients) // 2 if paired else len(fleet.clients))


def storage(allowed_kb: float, device: Profile, sample: int) -> float:
    """Bytes a device may use for samples of so many bytes to hand over: what it is allowed, and never more than it has.

    Where that is enough for all its samples, how much more there is makes no difference: AMPLE.
    """
    if device.storage is None and not allowed_kb:
        raise BadInput(
            Code.METHOD_NEEDS,
            f"method.storage_kb: 0 given, but nobody knows how much {device.device} can store; say how much.",
        )
    limits = [allowed_kb * 1024.0] * bool(allowed_kb) + [float(device.storage or 0)] * (device.storage is not None)
    room = min(limits)
    return AMPLE if room >= device.samples * sample else room


def merged(came: Sequence[tuple[Params, Tensor]]) -> Params:
    """The mean weighted by samples; nothing where nobody had any, so that what there was stays."""
    useful = [(model, weight) for model, weight in came if model and float(weight) > 0]
    return mean([model for model, _ in useful], [weight for _, weight in useful]) if useful else {}
