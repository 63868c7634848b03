"""A run on real machines as the driver sees it: built from what the clients say of themselves, judged where they are.

The server never holds a client's rows or its private state. A personal model is evaluated on its client's machine and
kept there; the server sends what its own state adds to that model, and nothing else of it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from potluck import devices, files, keys, methods
from potluck.deploy.holding import RULES
from potluck.engines.flower.crowd import Crowd, Sizes
from potluck.engines.flower.fleet import FlowerFleet
from potluck.engines.flower.words import Envelope
from potluck.engines.price import Prices
from potluck.errors import BadInput, Code
from potluck.fleet import ClientId, Data, FleetEmpty, Local, Params
from potluck.methods import Method
from potluck.models import Model
from potluck.runs.build import config_of, model_for, own_rows, weights_of
from potluck.runs.evaluate import Evaluation
from potluck.runs.experiment import Experiment
from potluck.runs.model_files import about_of, save
from potluck.runs.pairing import AP
from potluck.runs.session import ClientRow
from potluck.wire.codec import encode

LOOK_WAIT = 600.0  # seconds that clients have to say how good their models are; who leaves is not waited for


@contextmanager
def enough(remedy: str) -> Iterator[None]:
    """While clients are waited for: too few of them, or none that could join, is told with what to do about it."""
    try:
        yield
    except FleetEmpty as error:
        raise BadInput(Code.TOO_FEW, f"{error}; {remedy}.") from None


@dataclass
class FlowerStage:
    experiment: Experiment
    method: Method
    config: Any
    model: Model
    weights: Params
    fleet: FlowerFleet
    crowd: Crowd
    private: Any
    notes: Sequence[str] = ("real clients: time is the clock's, and every step is saved",)
    checkpoint_seconds: float = 0.0  # every step: what a real client did is not to be asked for again
    _fields: set[str] = field(default_factory=set)  # of the state, that personal models are made from

    def new_notes(self) -> list[str]:
        return []

    def client_rows(self) -> Iterator[ClientRow]:
        for name, member in self.crowd.members.items():
            profile = member.profile
            yield (
                name, profile.device, profile.link, profile.kind, profile.partner,
                member.sizes.train, member.sizes.test,
            )  # fmt: skip

    def evaluate(self, state: Any) -> Evaluation | None:
        answers = self._look(state, keep=False)
        told = {client: head for client, head in answers.items() if _plausible(head, self._tests(client))}
        if not told:
            return None
        samples = np.array([self._tests(client) for client in told])
        right, loss = (np.array([float(told[client][what]) for client in told]) for what in ("right", "loss"))
        shared = [told[client]["shared"] for client in told]
        whole = None if any(one is None for one in shared) else float(np.sum(shared) / samples.sum())
        return Evaluation(list(told), right / samples, loss / samples, samples, whole)

    def save_models(self, folder: Path, state: Any) -> None:
        """The shared model here; personal ones on their own machines, and a list that says where."""
        target = folder / "models"
        target.mkdir(parents=True, exist_ok=True)
        shared = self.method.shared(state)
        if shared is not None:
            save(target / "global.safetensors", shared, about_of(self.model))
        kept = {client: head.get("kept") for client, head in self._look(state, keep=True).items()}
        files.write_json(target / "elsewhere.json", kept)

    def costs(self, busy: Sequence[tuple[ClientId, float, int]], joules: float) -> dict[str, float | None]:
        """Energy is known where every device is one whose power is; a stack is always one client."""
        known = all(profile.device in devices.catalogue() for profile in self.crowd.values())
        return {"energy_joules": joules if known else None, "idle_joules": None, "mean_stack": 1.0}

    def close(self) -> None: ...

    def _tests(self, client: ClientId) -> int:
        return self.crowd.members[client].sizes.test

    def _look(self, state: Any, keep: bool) -> dict[ClientId, dict[str, Any]]:
        """Everybody's answer; where a personal model needs more of the state, that is sent and asked for again."""
        shared = self.method.shared(state)
        clients = [name for name, profile in self.crowd.items() if profile.kind != AP and self._tests(name)]
        if self.private is not None and clients:
            self._fields |= _read(self.method, state, clients[0], self.private)
        answers: dict[ClientId, dict[str, Any]] = {}
        for _ in range(1 + len(vars(state))):
            asks = {client: self._ask(state, client, shared, keep) for client in clients if client not in answers}
            found = self.fleet.look(asks, LOOK_WAIT)
            lacking = {str(e.head["lacks"]) for e in found.values() if "lacks" in e.head}
            answers |= {client: e.head for client, e in found.items() if "lacks" not in e.head}
            fresh = (lacking & set(vars(state))) - self._fields
            if not fresh:
                break
            self._fields |= fresh
        return answers

    def _ask(self, state: Any, client: ClientId, shared: Params | None, keep: bool) -> Envelope:
        weights, parts = None, {}
        if self.private is None:  # nothing of the client's own goes into its model
            weights = self.method.personal(state, client, None)
        else:
            parts = {name: getattr(state, name) for name in sorted(self._fields)}
        body = encode({"weights": weights, "state": parts, "shared": shared})
        return Envelope({"kind": "look", "keep": keep}, body)


class _Watched:
    """A state that remembers what of it was read."""

    def __init__(self, state: Any, read: set[str]) -> None:
        self._state, self._read = state, read

    def __getattr__(self, name: str) -> Any:
        self._read.add(name)
        return getattr(self._state, name)


def _read(method: Method, state: Any, client: ClientId, private: Any) -> set[str]:
    """The parts of the state that a client's model is made from, before its first task."""
    found: set[str] = set()
    method.personal(_Watched(state, found), client, private)
    return found & set(vars(state))


def _plausible(head: dict[str, Any], samples: int) -> bool:
    """Whether a client's word on its own model can be: anything else is left out."""
    right, loss, shared = head.get("right"), head.get("loss"), head.get("shared")
    numbers = [one for one in (right, loss, shared) if one is not None]
    good = all(isinstance(one, int | float) and np.isfinite(one) and one >= 0 for one in numbers)
    return bool(good and right is not None and loss is not None and max(right, shared or 0.0) <= samples)


def rules_of(experiment: Experiment) -> dict[str, Any]:
    """What a client must know to split its rows."""
    spec = experiment.partition_spec()
    partition = {name: getattr(spec, name) for name in RULES}
    seed = experiment.run.seed if spec.seed is None else spec.seed
    return {"standardise": experiment.data.standardise, "seed": seed, "partition": partition}


def check(experiment: Experiment) -> None:
    """Refuse what only a simulation can do."""
    for section, key in (("fleet", "joins"), ("fleet", "leaves"), ("fleet", "floor_mbps"), ("drift", "at")):
        given = getattr(getattr(experiment, section), key)
        if given:
            raise BadInput(
                Code.DEPLOY_SETTINGS,
                f"{section}.{key}: {given} given; real clients do that by themselves, leave it out.",
            )
    wrong = {kind: share for kind, share in experiment.faults.model_dump().items() if share and kind != "late_factor"}
    if wrong:
        raise BadInput(
            Code.DEPLOY_SETTINGS, f"faults: {wrong} given; faults are drawn in the simulation only, leave them out."
        )


def class_names(sizes: Sequence[Sizes]) -> tuple[str, ...]:
    """The labels of the run: those of the clients where they all say the same, otherwise all of theirs in order."""
    first = sizes[0].classes
    if all(one.classes == first for one in sizes):
        return first
    every = {name for one in sizes for name in one.classes}
    numeric = all(name.isdecimal() for name in every)
    return tuple(sorted(every, key=int) if numeric else sorted(every))


def stage(experiment: Experiment, crowd: Crowd, run: str, patience: float, known: Path | None = None) -> FlowerStage:
    """The parts of a run over the clients that have said hello; `known` is a file that says what a run began with."""
    check(experiment)
    method = methods.load(str(experiment.method["name"]))
    config = config_of(experiment, method)
    sizes = [member.sizes for member in crowd.members.values()]
    names, has_valid, count = _common(sizes, len(crowd), known)
    shape = sizes[0].shape
    for client, member in crowd.members.items():
        if (member.sizes.shape, member.sizes.times, member.sizes.lengths) != (shape, sizes[0].times, sizes[0].lengths):
            raise BadInput(
                Code.NOT_JOINED, f"data: {client} has samples of shape {member.sizes.shape}, others of {shape}."
            )
    cohort = getattr(config, "cohort", 0)
    if cohort > count:
        raise BadInput(Code.COHORT, f"method.cohort: {cohort} asked, the fleet has {count} clients.")
    paired = any(profile.partner for profile in crowd.values())
    if paired and not method.pairs:
        raise BadInput(
            Code.PAIRS, f"fleet: {method.name} works with devices alone; start the clients without --access-point."
        )
    model = model_for(experiment, shape, len(names))
    weights = weights_of(experiment, model)
    nothing = _nothing(sizes[0])
    own = own_rows(experiment, shape, len(names))
    home = Local(
        model, own or nothing, None, keys.key(experiment.run.seed, "server"), valid=nothing if has_valid else None
    )
    method.check(config, home)
    private = method.private(weights, config)
    fleet = FlowerFleet(
        crowd,
        home,
        Prices(method.programs, method.work, private, method.memory),
        method.classes,
        run,
        private,
        experiment.wire.limit_bytes,
        patience,
    )
    joining = {
        "kind": "join",
        "run": run,
        "method": str(experiment.method["name"]),
        "model": {"name": model.name, "settings": model.settings, "shape": list(shape)},
        "classes": list(names),
        "seed": experiment.run.seed,
        "rules": rules_of(experiment),
        "noise": experiment.wire.noise,
        "valid": has_valid,
    }
    fleet.join_all(Envelope(joining, encode({"private": private})), names)
    return FlowerStage(experiment, method, config, model, weights, fleet, crowd, private)


def _common(sizes: Sequence[Sizes], count: int, known: Path | None) -> tuple[tuple[str, ...], bool, int]:
    """Labels, whether there are validation rows, and how many clients: of those here, or as the run began with."""
    if known is not None and known.exists():
        told = json.loads(known.read_text(encoding="utf-8"))
        return tuple(told["classes"]), bool(told["valid"]), int(told["clients"])
    found = class_names(sizes), any(one.valid for one in sizes), count
    if known is not None:
        files.write_json(known, {"classes": list(found[0]), "valid": found[1], "clients": found[2]})
    return found


def _nothing(like: Sizes) -> Data:
    """No rows, of the right shapes."""
    steps = like.shape[0]
    return Data(
        torch.zeros(0, *like.shape),
        torch.zeros(0, dtype=torch.int64),
        torch.zeros(0),
        torch.zeros(0, steps) if like.times else None,
        torch.zeros(0, dtype=torch.int64) if like.lengths else None,
    )
