"""The settings of `[privacy]`, checked against a method before anything runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from potluck.errors import BadInput, Code, must_be
from potluck.privacy import account
from potluck.privacy.account import Charge
from potluck.privacy.guard import Guard
from potluck.privacy.ledger import Ledger
from potluck.release import Release

COUNTED = 0.25  # what a client adds to the noisy count of its cluster, in units of the clipping bound


@dataclass(frozen=True)
class Plan:
    """How a run protects its clients (`unit` client), each of their samples (`unit` sample), or nobody (none)."""

    unit: str
    clip: float
    noise: float  # standard deviation, in units of `clip`
    delta: float
    epsilon: float | None = None  # the budget of each device
    rate: float = 1.0  # probability that a client is asked in a round
    noise_at: str = "sum"  # sum | client
    height: int = 0  # of the trees of correlated noise; 0: independent
    smallest: int = 1  # clients in the smallest sum that is released
    accountant: str = "pld"

    def ledger(self) -> Ledger:
        return Ledger(self.delta, self.epsilon, self.accountant, self.height, self.noise)

    def guard(self, releases: Mapping[type, Release]) -> Guard | None:
        """What clients do with their updates; nothing where each sample is protected in training."""
        if self.unit != "client":
            return None
        return Guard(releases, self.clip, self.noise if self.noise_at == "client" else 0.0)

    @property
    def for_clients(self) -> dict[str, Any] | None:
        """What a client machine must know to protect its own."""
        return (
            None
            if self.unit == "none"
            else {name: getattr(self, name) for name in ("unit", "clip", "noise", "noise_at")}
        )

    @property
    def about(self) -> dict[str, Any]:
        """For summary.json and the report."""
        found = {name: value for name, value in vars(self).items() if value is not None}
        return {**found, "relation": "zero-out", "noise": round(self.noise, 6)}


OPEN = Plan("none", float("inf"), 0.0, 1.0)  # no privacy


def check(plan: Plan, method: str, releases: Mapping[type, Release] | str, cohort: int) -> dict[type, Release]:
    """What the method releases. A method or setting for which epsilon would be wrong raises BadInput."""
    if isinstance(releases, str):
        raise BadInput(Code.PRIVACY, f"privacy.unit: must be none with {method}: {releases}.")
    for update, release in releases.items():
        forgotten = release.unnamed(update)
        if forgotten:
            raise BadInput(
                Code.PRIVACY,
                f"privacy.unit: must be none with {method}, whose {update.__name__}.{forgotten[0]} has no bound.",
            )
    if plan.unit == "sample":
        _sample(plan, method, releases)
    else:
        _client(plan, method, releases, cohort)
    account.library()
    _first(plan)
    return dict(releases)


def _sample(plan: Plan, method: str, releases: Mapping[type, Release]) -> None:
    other = [update for update, release in releases.items() if release.vectors and not release.by_fit]
    if other:
        raise BadInput(
            Code.PRIVACY,
            f"privacy.unit: must be client with {method}, got sample; not only `fit` makes its {other[0].__name__}.",
        )
    for field, given, only in (("rate", plan.rate, 1.0), ("correlation", plan.height, 0)):
        if given != only:
            raise BadInput(Code.PRIVACY, f"privacy.{field}: must be left out with unit = sample, which has its own.")


def _client(plan: Plan, method: str, releases: Mapping[type, Release], cohort: int) -> None:
    needs_each = [release for release in releases.values() if release.vectors and release.single]
    waits = any(release.together for release in releases.values())
    if plan.rate < 1.0:
        if needs_each or waits or plan.noise_at == "client" or plan.height:
            why = needs_each[0].single if needs_each else "sums over sampled clients alone are amplified by sampling"
            raise BadInput(Code.PRIVACY, f"privacy.rate: must be 1 here, got {plan.rate:g}; {why}.")
        if cohort:
            raise BadInput(
                Code.PRIVACY, f"method.cohort: must be 0 with privacy.rate, which draws the clients, got {cohort}."
            )
    if plan.height and plan.noise_at == "client":
        raise BadInput(Code.PRIVACY, "privacy.noise_at: must be sum with correlation = tree, got client.")


def _first(plan: Plan) -> None:
    """Raise BadInput where the budget does not allow a single release."""
    if plan.epsilon is None or plan.unit != "client":
        return
    noise = plan.noise / (plan.height + 1) ** 0.5
    least = account.epsilon([(Charge(noise, plan.rate), 1)], plan.delta, plan.accountant)
    if least > plan.epsilon:
        raise must_be(
            Code.PRIVACY, "privacy.epsilon", f"at least {least:.3g}, which one release costs", f"{plan.epsilon:g}"
        )
