"""What each module of a network is worth to a federation: frozen, trained alone, shared, or bound.

Dai and Tan, "FedCFC", federate f because it moves least. This study asks what there is to gain. In each arm the same
clients train on the same rows, and the accuracy is that of the personal models on the clients' own test rows. The
learning rate of each arm is the best of a few on validation rows of a seed that is in no table.

    alone     clients train by themselves; with `frozen` a module keeps its first weights, with `only` all others do
    shared    clients share the module and keep the rest (`fedbits` without rounding)
    bound     clients bind the gradient of f, g or h (`fedcfc`)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from potluck.errors import BadInput, Code, unknown
from potluck.models import Model
from potluck.models.cfc import HEADS
from potluck.runs.build import build
from potluck.runs.experiment import Experiment
from potluck.runs.local_session import LocalSession

RATES = (0.01, 0.03, 0.1)  # learning rates to try in each arm
TRIAL = 100  # seed of these trials
WHOLE = "network"  # the module of an arm that is about all of them


@dataclass(frozen=True)
class Arm:
    """One way to train. `resting` modules keep their first weights."""

    module: str
    how: str
    method: Mapping[str, Any]  # its name and settings; the recipe is the experiment's
    resting: tuple[str, ...] = ()


@dataclass(frozen=True)
class Row:
    """What came of an arm."""

    module: str
    how: str
    lr: float
    accuracy: list[float] = field(default_factory=list)  # the mean over clients, one per seed
    up: float = 0.0  # bytes of a client in a round
    down: float = 0.0


def modules_of(model: Model) -> list[str]:
    """The parts that hold a model's layers, such as backbone, f, g, h and fc."""
    return list(dict.fromkeys(layer.partition(".")[0] for layer in model.layers()))


def arms_of(model: Model, own: Mapping[str, Any] | None = None, bits: int = 7) -> list[Arm]:
    """All arms for a model; `own` is a method whose modules are frozen as well."""
    modules, local, cfc = modules_of(model), {"name": "local"}, model.name == "cfc"
    found = [Arm(WHOLE, "alone", local)]
    if cfc:
        found.append(Arm(WHOLE, "fBind on f", {"name": "fedcfc"}))
    if len(modules) > 1:
        found.append(Arm(WHOLE, "all but the read-out shared", {"name": "fedbits", "bits": 32}))
        found.append(Arm(WHOLE, f"the same in {bits} bits", {"name": "fedbits", "bits": bits}))
    found.append(Arm(WHOLE, "all shared", {"name": "fedavg"}))
    if own is not None and own["name"] not in {arm.method["name"] for arm in found}:
        found.append(Arm(WHOLE, str(own["name"]), own))
    for module in modules:
        others = tuple(other for other in modules if other != module)
        found.append(Arm(module, "frozen", local, (module,)))
        found.append(Arm(module, "only", local, others))
        found.append(Arm(module, "shared", {"name": "fedbits", "bits": 32, "bind": module}))
        if cfc and module in HEADS:
            found.append(Arm(module, "bound", {"name": "fedcfc", "federate": module, "lud": "task"}))
        if own is not None and found[-1].method != own and own["name"] not in ("local", "fedavg", "fedbits"):
            found.append(Arm(module, f"frozen, {own['name']}", own, (module,)))
    return found


def chosen(arms: Sequence[Arm], names: Sequence[str]) -> list[Arm]:
    """The arms of these modules, and going alone, which all are compared with; without names all arms."""
    known = list(dict.fromkeys(arm.module for arm in arms))
    for name in names:
        if name not in known:
            raise unknown(Code.FLAG_VALUE, "--only", name, known)
    return [arm for arm in arms if not names or arm.module in names or arm.how == "alone"]


def measure(
    experiment: Experiment,
    arms: Sequence[Arm],
    seeds: Sequence[int],
    rates: Sequence[float] = RATES,
    say: Callable[[str], None] = lambda what: None,
) -> list[Row]:
    """Run all arms. One rate is taken as it is; among several, validation rows choose."""
    if len(rates) > 1 and not experiment.partition_spec().valid_share:
        raise BadInput(Code.NOT_SAID, "partition.valid_share: must be above 0, or name one learning rate with --lr.")
    rows = []
    for number, arm in enumerate(arms, 1):
        say(f"{arm.module}, {arm.how}: {number} of {len(arms)}")
        lr = rates[0]
        if len(rates) > 1:
            known = {rate: score(experiment, arm, TRIAL, rate, "valid")[0] for rate in rates}
            lr = max(rates, key=lambda rate: known[rate])
        found = [score(experiment, arm, seed, lr, "test") for seed in seeds]
        rows.append(Row(arm.module, arm.how, lr, [one[0] for one in found], found[0][1], found[0][2]))
    return rows


def score(experiment: Experiment, arm: Arm, seed: int, lr: float, rows: str) -> tuple[float, float, float]:
    """Accuracy on test or validation rows, and the bytes of a client in the last round, up and down."""
    given = experiment.method.get("recipe", {})
    recipe = {**given, **arm.method.get("recipe", {}), "lr": lr}
    values = experiment.model_dump(exclude_unset=True)
    values["method"] = {**arm.method, "recipe": recipe}
    values["run"] = {**values.get("run", {}), "seed": seed, "evaluate_on": rows}
    session = build(Experiment.of(values))
    try:
        return _carried_out(session, arm)
    finally:
        session.close()


def _carried_out(session: LocalSession, arm: Arm) -> tuple[float, float, float]:
    rounds = session.experiment.stop.rounds or 0
    session.model.resting = frozenset(n for n in session.model.trainable if n.partition(".")[0] in arm.resting)
    first = session.method.start(session.weights, session.config)
    last: list[Any] = []
    for state in session.method.server(session.fleet, first, session.config):
        tasks, _ = session.fleet.log.drain()
        last = [task for task in tasks if task.outcome == "accepted"] or last
        if state.round >= rounds:
            break
    _check_rest(session, arm, session.personal(state, 0, session.federation.names[0]))
    down, up = (sum(getattr(task, way) for task in last) / max(1, len(last)) for way in ("bytes_down", "bytes_up"))
    return float(session.evaluate(state).accuracy.mean()), up, down


def _check_rest(session: LocalSession, arm: Arm, weights: Mapping[str, torch.Tensor]) -> None:
    """Refuse a method that trains by a loop of its own, which does not know what must rest."""
    if any(not torch.equal(weights[name], session.weights[name]) for name in session.model.resting):
        raise BadInput(
            Code.METHOD_NEEDS,
            f"study modules: {arm.method['name']} moved {' and '.join(arm.resting)}, which must rest: it trains by a "
            "loop of its own. Set method.name to one that trains by potluck.learn.",
        )


def gains(rows: Sequence[Row]) -> dict[tuple[str, str], list[float]]:
    """What each arm gains on going alone, seed by seed."""
    alone = next(row for row in rows if row.how == "alone").accuracy
    return {(row.module, row.how): [a - b for a, b in zip(row.accuracy, alone, strict=True)] for row in rows}
