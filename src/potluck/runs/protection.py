"""What stands between a run's clients and its method: the section `[privacy]`, checked and ready."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from potluck.errors import BadInput, Code, Missing, install_extra
from potluck.learn import StepNoise
from potluck.methods import Method
from potluck.models import Model
from potluck.privacy import account, plan
from potluck.privacy.guard import Guard
from potluck.privacy.plan import Plan
from potluck.release import Release
from potluck.runs.experiment import Experiment
from potluck.runs.sums import Adder, PlainAdder, SimulatedSecureAdder


@dataclass(frozen=True)
class Protection:
    """How the clients of a run are protected."""

    releases: Mapping[type, Release]
    adder: Adder
    seed: int
    plan: Plan
    secret: int = 0  # folded into the noise where the seed is known to others
    recipe: Any = None  # how clients train, where each step has noise


def plan_of(experiment: Experiment) -> Plan | None:
    """The settings of `[privacy]`, with the least noise for its epsilon where none is set; None without privacy."""
    given = experiment.privacy
    if given.unit == "none":
        default = type(given)()  # type: ignore[call-arg]
        unused = [name for name in type(given).model_fields if getattr(given, name) != getattr(default, name)]
        if unused:
            raise BadInput(Code.PRIVACY, f"privacy.{unused[0]}: needs privacy.unit, which must be client or sample.")
        return None
    noise = given.noise
    if noise is None:
        rounds, alike = experiment.stop.rounds, given.unit == "client" and given.correlation == "none"
        if given.epsilon is None or rounds is None or not alike:
            raise BadInput(
                Code.PRIVACY, "privacy.noise: missing; give it, or unit = client with an epsilon and stop.rounds."
            )
        noise = account.noise_for(given.epsilon, given.rate, rounds, given.delta, given.accountant)
    height = (given.leaves - 1).bit_length() if given.correlation == "tree" else 0
    return Plan(
        given.unit,
        given.clip,
        noise,
        given.delta,
        given.epsilon,
        given.rate,
        given.noise_at,
        height,
        given.smallest,
        given.accountant,
    )


def protection_of(
    experiment: Experiment, method: Method, config: Any, model: Model, secret: int = 0, adder: Adder | None = None
) -> Protection | None:
    """None for an experiment without privacy and secure sums. What cannot be kept raises BadInput.

    `adder` makes secure sums where clients are real.
    """
    chosen, secure = plan_of(experiment), experiment.secure
    hiding = (adder or SimulatedSecureAdder(secure)) if secure.sum else None
    if hiding is not None:
        _check_sums(method, config)
    if chosen is None:
        return None if hiding is None else _open(experiment, method, config, hiding)
    declared = plan.check(chosen, method.name, method.releases(config), int(getattr(config, "cohort", 0)))
    if experiment.privacy.noise is None and chosen.noise_at == "sum" and any(one.by for one in declared.values()):
        chosen = replace(chosen, noise=chosen.noise * (1.0 + plan.COUNTED**2) ** 0.5)  # sizes of clusters cost too
    recipe = getattr(config, "recipe", None)
    if chosen.unit == "sample" and recipe is None:
        raise BadInput(Code.PRIVACY, f"privacy.unit: must be client with {method.name}, which has no recipe.")
    for field, wrong, wanted in (
        ("wire.noise", experiment.wire.noise > 0, "0 with [privacy], which has noise of its own"),
        ("run.workers", chosen.unit == "sample" and isinstance(experiment.run.workers, str), "a number"),
        ("fleet.boards", bool(experiment.fleet.boards), "left out: boards do not clip their updates"),
    ):
        if wrong:
            raise BadInput(Code.PRIVACY, f"{field}: must be {wanted}.")
    buffers = [name for name, _ in model.module.named_buffers()]
    if buffers:
        raise BadInput(
            Code.PRIVACY,
            f"model.name: must be a model without batch statistics under privacy, which do not bound {buffers[0]!r}.",
        )
    clip = chosen.clip if chosen.unit == "client" else float("inf")
    return Protection(declared, hiding or PlainAdder(clip), experiment.run.seed, chosen, secret, recipe)


def _open(experiment: Experiment, method: Method, config: Any, adder: Adder) -> Protection:
    releases = method.releases(config)
    assert not isinstance(releases, str)
    return Protection(releases, adder, experiment.run.seed, plan.OPEN)


def _check_sums(method: Method, config: Any) -> None:
    """Raise BadInput for a method that needs more than sums, with the reason."""
    releases = method.releases(config)
    why = releases if isinstance(releases, str) else ""
    if not isinstance(releases, str):
        why = next((release.single for release in releases.values() if release.vectors and release.single), "")
        told = [field for kind, release in releases.items() for field in release.unnamed(kind)]
        why = why or (f"its {told[0]} would be seen" if told else "")
        why = why or ("" if any(one.vectors for one in releases.values()) else "its clients share nothing")
    if why:
        raise BadInput(Code.SECURE_SUM, f"secure.sum: must be false with {method.name}: {why}.")
    try:
        importlib.import_module("cryptography")
    except ImportError:
        raise Missing(Code.EXTRA, f"secure.sum: needs cryptography. Install it: `{install_extra('secure')}`.") from None


def guard_of(protection: Protection | None) -> Guard | None:
    """What clients do with their updates before they leave."""
    return None if protection is None else protection.plan.guard(protection.releases)


def step_noise_of(protection: Protection | None) -> StepNoise | None:
    """The noise on each step of training, where samples are protected."""
    if protection is None or protection.plan.unit != "sample":
        return None
    return StepNoise(protection.plan.clip, protection.plan.noise, protection.secret)
