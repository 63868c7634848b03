"""Clients in pairs: a device that has the samples, and its access point."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.fleet import ClientId, Fleet, Params, Profile
from potluck.methods.parts.cohort import ready
from potluck.tensors import mean

AP = "access-point"
AMPLE = 1e15  # bytes: room for all samples; one number, so that unlike devices are trained in one stack


def devices(fleet: Fleet, cohort: int, *parts: int | str) -> list[ClientId]:
    """Draw `cohort` idle devices, in the order of the roster; all idle devices where cohort is 0."""
    clients = fleet.clients

    def rested(client: ClientId) -> bool:
        profile = clients[client]
        return profile.kind != AP and (profile.partner is None or profile.partner not in fleet.resting)

    if fleet.resting:
        ready(fleet, cohort, rested, waits=lambda client: True)
    idle = fleet.idle
    wanted = cohort or len(idle)
    found: list[int] = []
    for index in keys.rng(*parts, "cohort").permutation(len(idle)):
        if len(found) == wanted:
            break
        if rested(idle[int(index)]):
            found.append(int(index))
    return [idle[index] for index in sorted(found)]


def count(fleet: Fleet) -> int:
    """The number of pairs: half of the roster, where there are access points."""
    first = next(iter(fleet.clients), None)
    paired = first is not None and fleet.clients[first].partner is not None
    return max(1, len(fleet.clients) // 2 if paired else len(fleet.clients))


def check_storage(allowed_kb: float, fleet: Fleet) -> None:
    """Refuse an experiment in which no device has a storage that is known, and none is set."""
    known = (profile.storage is not None for profile in fleet.clients.values() if profile.kind != AP)
    if not allowed_kb and not any(known):
        device = next(profile.device for profile in fleet.clients.values() if profile.kind != AP)
        raise BadInput(
            Code.METHOD_NEEDS, f"method.storage_kb: must be above 0, got 0: the storage of {device} is not known."
        )


def storage(allowed_kb: float, device: Profile, sample: int) -> float:
    """Bytes that a device may use to store samples for its access point: what is allowed, at most what it has.

    Where all its samples fit (`sample` bytes each), more room makes no difference: the answer is AMPLE. A device that
    does not say what it has may use what is allowed, and nothing where nothing is set.
    """
    allowed = allowed_kb * 1024.0
    room = allowed if device.storage is None else min(allowed or AMPLE, device.storage)
    return AMPLE if room >= device.samples * sample else float(room)


def aggregated(came: Sequence[tuple[Params, Tensor]]) -> Params:
    """The mean weighted by samples; nothing where no client had any, so that the model stays as it was."""
    useful = [(model, weight) for model, weight in came if model and float(weight) > 0]
    return mean([model for model, _ in useful], [weight for _, weight in useful]) if useful else {}
