"""One method under trial: small runs of it, made the public way, by an experiment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from potluck import methods
from potluck.engines.log import TaskRecord
from potluck.errors import BadInput
from potluck.fleet import ClientId, Params
from potluck.runs.build import build
from potluck.runs.experiment import Experiment
from potluck.runs.limits import Used, progress
from potluck.runs.local_session import LocalSession
from potluck.settings import nested
from potluck.testing import samples
from potluck.testing.watched import Watched

ROUNDS = 4
YIELDS = 2_000  # in a run of a few rounds; more means that `state.round` does not count
DEVICE = "pc-i7-9700"
# Models to try, in this order; the first that the method accepts is used. Steps through time have large gradients.
MODELS: tuple[tuple[dict[str, Any], float], ...] = (
    ({"name": "softmax"}, 0.1),
    ({"name": "mlp", "hidden": [8]}, 0.1),
    ({"name": "potluck.testing.samples:Deep"}, 0.1),
    ({"name": "cfc", "hidden": 4, "backbone": 6, "head": 4}, 0.02),
)
DEEP = {"name": MODELS[2][0]["name"]}
# Settings that make a run short, wherever a method has one of this name, in any group.
SHORT: dict[str, Any] = {"epochs": 2, "batch": 5, "cohort": 0, "rounds": ROUNDS}
SHORT |= {"head_epochs": 2, "inner": 2, "first_epochs": 2}  # repeated training of a part
SHORT |= {"pretrain_epochs": 1, "compress_epochs": 1, "dilate_epochs": 1, "public_epochs": 1}  # tuning on the server
SHORT |= {"connected": 1.0}  # pairs always in reach: all devices then have the same task, which is counted once

Models = dict[ClientId, Params]


@dataclass(frozen=True)
class Ended:
    """What a run left: the last state, each client's personal model, the tasks, and what the method asked for."""

    session: LocalSession
    state: Any
    models: Models
    tasks: list[TaskRecord]
    seen: Watched

    @property
    def shared(self) -> Params:
        return self.session.method.shared(self.state) or {}


class Trial:
    """A method by its name, file or import path, and the settings it is tried with (`method.*` only)."""

    def __init__(self, name: str, settings: Mapping[str, Any] | None = None) -> None:
        self.method = methods.load(name)
        self._given = dict(settings or {})

    @cached_property
    def model(self) -> dict[str, Any]:
        """The first of `MODELS` that the method accepts."""
        refused: BadInput | None = None
        for model, _ in MODELS:
            try:
                build(self.experiment(model=model)).close()
            except BadInput as error:
                refused = refused or error
            else:
                return model
        assert refused is not None
        raise refused

    @cached_property
    def plain(self) -> Ended:
        """The run that others are compared with."""
        return self.run()

    def experiment(self, model: Mapping[str, Any] | None = None, **sections: Mapping[str, Any]) -> Experiment:
        model = self.model if model is None else model
        lr = next((lr for known, lr in MODELS if known["name"] == model["name"]), MODELS[0][1])
        settings = settings_of(self.method, {**SHORT, "lr": lr}, self._given)
        values: dict[str, Any] = {
            "data": {"source": "potluck.testing.samples:few", "standardise": "none"},
            "partition": {"sizes": list(samples.SIZES)},
            "model": dict(model),
            "method": {"name": self.method.name, **_merged(settings, self._given)},
            "server": {"share": 0.2},
            "fleet": {"devices": DEVICE, **({"access_point": DEVICE} if paired(self.method, self._given) else {})},
            "stop": {"rounds": ROUNDS},
        }
        for section, changes in sections.items():
            values[section] = _merged(values.get(section, {}), changes)
        return Experiment.of(values)

    def session(self, **sections: Any) -> LocalSession:
        """All that a run is made of; `sections` change the experiment: `run={"seed": 1}`."""
        return build(self.experiment(**sections))

    def run(self, rounds: int = ROUNDS, **sections: Any) -> Ended:
        """So many rounds from the beginning."""
        session = self.session(**sections)
        try:
            return self.go_on(session, session.method.start(session.weights, session.config), rounds)
        finally:
            session.close()

    def go_on(self, session: LocalSession, state: Any, rounds: int) -> Ended:
        """So many rounds more from this state; a method that ends by itself ends sooner."""
        seen = Watched(session.fleet)
        end, steps = _round(state, 0) + rounds, 0
        program = session.method.server(seen, state, session.config)
        for state in program:
            seen.yielded()
            steps += 1
            note_progress(session, _round(state, steps))
            assert steps <= YIELDS, f"State.round: must reach {end}, got {_round(state, steps)} after {steps} yields."
            if _round(state, steps) >= end:
                break
        assert steps, "server: ended without yielding a state."
        tasks, _ = session.fleet.log.drain()
        return Ended(session, state, personal(session, state), tasks, seen)


def personal(session: LocalSession, state: Any) -> Models:
    """Each client's personal model; access points have none of their own."""
    return {name: session.personal(state, index, name) for index, name in enumerate(session.federation.names)}


def note_progress(session: LocalSession, rounds: int) -> None:
    """Tell the fleet how much of the run is over, as the driver does after every step."""
    session.fleet.progress = progress(session.experiment, Used(session.fleet.now, rounds=rounds))


def assert_same(a: Models, b: Models, what: str, tolerance: float = 0.0) -> None:
    """Two runs ended with the same models: bit by bit, or within a tolerance."""
    assert a.keys() == b.keys(), f"{what}: the clients are {sorted(a)} and {sorted(b)}."
    for client, weights in a.items():
        assert weights.keys() == b[client].keys(), f"{what}: {client} has other weights."
        for name, value in weights.items():
            other = b[client][name]
            same = torch.allclose(value, other, tolerance, tolerance) if tolerance else torch.equal(value, other)
            assert same, f"{what}: {client} differs in {name!r} by up to {_apart(value, other):.2g}."


def _apart(a: torch.Tensor, b: torch.Tensor) -> float:
    return float((a.double() - b.double()).abs().max()) if a.shape == b.shape else float("nan")


def _round(state: Any, steps: int) -> int:
    """As the driver counts: rounds where the state has them, yields otherwise."""
    return int(getattr(state, "round", steps))


def paired(method: methods.Method, given: Mapping[str, Any]) -> bool:
    """Whether its clients are devices with access points under these settings (`NEEDS` may say when)."""
    need = method.needs.get("fleet.access_point")
    when = {} if need is None else need.when
    return method.pairs and all(given.get(name.removeprefix("method.")) == value for name, value in when.items())


def settings_of(
    method: methods.Method, wanted: Mapping[str, Any], given: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Pick those of the wanted settings that a method has; a name counts in any group: `lr` is `recipe.lr`, too.

    `given` are settings that decide which others have a use.
    """
    last = {path: path.rpartition(".")[2] for path in method.useful(given or {})}
    return nested({path: wanted[name] for path, name in last.items() if name in wanted})


def _merged(values: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(values)
    for name, change in changes.items():
        inner = merged.get(name)
        both = isinstance(inner, Mapping) and isinstance(change, Mapping)
        merged[name] = _merged(inner, change) if both else change  # type: ignore[arg-type]
    return merged
