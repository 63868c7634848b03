"""Opens a session: checks the experiment against the clients, builds the fleet, and lets the clients join."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from potluck import devices, files, keys, methods
from potluck.deploy.client.rows import READING, RULES
from potluck.deploy.server.secure_adder import SecureAdder
from potluck.deploy.server.session import FlowerSession
from potluck.deploy.state_fields import check_visible
from potluck.engines.flower.protocol import Envelope, Transport
from potluck.engines.flower.server.deadlines import Deadlines
from potluck.engines.flower.server.fleet import FlowerFleet, Mishap
from potluck.engines.flower.server.members import Members, Sizes
from potluck.engines.price import Prices
from potluck.errors import BadInput, Code
from potluck.fleet import Data, FleetEmpty, Local
from potluck.models import Model
from potluck.runs import server_rows
from potluck.runs.build import config_of, model_for, weights_of, with_cohort
from potluck.runs.deal import own_rows
from potluck.runs.engines import ENGINES
from potluck.runs.experiment import Experiment
from potluck.runs.needs import situation_of
from potluck.runs.protection import Protection, protection_of
from potluck.runs.sections import TaskSection
from potluck.wire.codec import encode


@contextmanager
def enough(remedy: str) -> Iterator[None]:
    """Turn FleetEmpty while waiting for clients into BadInput with a remedy."""
    try:
        yield
    except FleetEmpty as error:
        raise BadInput(Code.TOO_FEW, f"{error}; {remedy}.") from None


def rules_of(experiment: Experiment) -> dict[str, Any]:
    """What a client must know to read and split its samples."""
    spec = experiment.partition_spec()
    partition = {name: getattr(spec, name) for name in RULES}
    seed = experiment.run.seed if spec.seed is None else spec.seed
    reading = experiment.data.model_dump(include=set(READING), exclude_none=True, exclude_defaults=True)
    return {"standardise": experiment.data.standardise, "seed": seed, "partition": partition, "reading": reading}


def members_of(experiment: Experiment, transport: Transport, **settings: Any) -> Members:
    """The clients of a run, as yet unknown: what each may say depends on the experiment."""
    pairs = methods.load(str(experiment.method["name"])).pairs
    labels = tuple(experiment.data.classes or ())
    return Members(transport, {"rules": rules_of(experiment)}, pairs=pairs, labels=labels, **settings)


def check(experiment: Experiment) -> None:
    """Raise BadInput for settings that only a simulation can honour."""
    paces = ("rows_per_hour", "passes")
    for section, key in (*(("fleet", one) for one in ("joins", "leaves", "floor_mbps", *paces)), ("drift", "at")):
        given = getattr(getattr(experiment, section), key)
        if given and experiment.run.engine in ENGINES:
            raise BadInput(
                Code.DEPLOY_SETTINGS,
                f"{section}.{key}: must be left out with run.engine = {experiment.run.engine}, got {given}; "
                "it needs virtual time, which the local engine has.",
            )
        if given:
            raise BadInput(
                Code.DEPLOY_SETTINGS,
                f"{section}.{key}: must be left out in a deployment, got {given}; real clients do that by themselves.",
            )
    if experiment.newcomers.share:
        raise BadInput(
            Code.DEPLOY_SETTINGS,
            f"newcomers.share: must be 0 in a deployment, got {experiment.newcomers.share:g}; measure newcomers in a "
            "simulation.",
        )
    if experiment.fleet.duty < 1:
        raise BadInput(
            Code.DEPLOY_SETTINGS,
            f"fleet.duty: must be 1 in a deployment, got {experiment.fleet.duty:g}; real machines keep their own pace.",
        )
    if experiment.fleet.at_once:
        raise BadInput(
            Code.DEPLOY_SETTINGS,
            f"fleet.at_once: must be 0 in a deployment, got {experiment.fleet.at_once}; all its clients take tasks.",
        )
    for key, real in (("rest", "awake"), ("train_when", "always")):
        given = getattr(experiment.fleet, key)
        if given != real:
            raise BadInput(
                Code.DEPLOY_SETTINGS,
                f"fleet.{key}: must be {real} in a deployment, got {given}; real machines decide that themselves.",
            )
    simulated = experiment.run.engine in ENGINES
    if experiment.task != TaskSection() or (simulated and situation_of(experiment).asks):  # type: ignore[call-arg]
        where = f"run.engine = {experiment.run.engine}" if simulated else "a deployment"
        raise BadInput(
            Code.METHOD_TASK,
            f"task: {where} learns classes ranked by accuracy, got other settings or labels; "
            "run.engine = local has all tasks.",
        )
    if experiment.run.evaluate_on != "test":
        raise BadInput(
            Code.DEPLOY_SETTINGS,
            f"run.evaluate_on: must be test in a deployment, got {experiment.run.evaluate_on}; tune in a simulation.",
        )
    drawn = {"late_factor", "attack", "scale"} | ({"dropout"} if simulated else set())
    wrong = {kind: share for kind, share in experiment.faults.model_dump().items() if share and kind not in drawn}
    if wrong:
        where = "with run.engine = flower-sim, except dropout" if simulated else "in a deployment"
        raise BadInput(
            Code.DEPLOY_SETTINGS, f"faults: must be left out {where}, got {wrong}; only a simulation has faults."
        )


def class_names(sizes: Sequence[Sizes]) -> tuple[str, ...]:
    """The labels of the run: the clients' own where all agree, otherwise the union of theirs in order."""
    first = sizes[0].classes
    if all(one.classes == first for one in sizes):
        return first
    every = {name for one in sizes for name in one.classes}
    numeric = all(name.isdecimal() for name in every)
    return tuple(sorted(every, key=int) if numeric else sorted(every))


@dataclass(frozen=True)
class Start:
    """What a run started with. It is kept in a file, because other clients may be online when the run is resumed."""

    labels: tuple[str, ...]
    has_valid: bool  # whether clients have validation rows
    clients: int

    @classmethod
    def of(cls, members: Members, known: Path | None) -> Start:
        """Read the file `known`, or take it from the clients that are online and write the file."""
        if known is not None and known.exists():
            saved = json.loads(known.read_text(encoding="utf-8"))
            return cls(tuple(saved["classes"]), bool(saved["valid"]), int(saved["clients"]))
        sizes = [member.sizes for member in members.by_name.values()]
        found = cls(members.labels or class_names(sizes), any(one.valid for one in sizes), len(members))
        if known is not None:
            values = {"classes": list(found.labels), "valid": found.has_valid, "clients": found.clients}
            files.write_json(known, values)
        return found


def open_session(
    experiment: Experiment,
    members: Members,
    run: str,
    patience: float,
    known: Path | None = None,
    mishap: Mishap | None = None,
) -> FlowerSession:
    """Build the session of a run over the clients that said hello, and let them join.

    `known` is the file that says what a resumed run started with. `mishap` loses tasks, in a simulation.
    """
    check(experiment)
    _check_budget(experiment, members)
    method = methods.load(str(experiment.method["name"]))
    config = config_of(experiment, method)
    start = Start.of(members, known)
    config = with_cohort(experiment, config, start.clients)
    sizes = next(iter(members.by_name.values())).sizes
    model = model_for(experiment, sizes.shape, len(start.labels))
    rows = own_rows(experiment, sizes.shape, len(start.labels))
    adder = SecureAdder(experiment.secure) if experiment.secure.sum else None
    hidden = 0 if experiment.run.engine in ENGINES else secrets.randbits(62)
    protection = protection_of(experiment, method, config, model, hidden, adder)
    weights = weights_of(experiment, model, rows)
    nothing = _no_samples(sizes)
    home = Local(
        model,
        rows or nothing,
        None,
        keys.key(experiment.run.seed, "server"),
        valid=nothing if start.has_valid else None,
    )
    method.check(config, home)
    private = method.private(weights, config)
    server_rows.check(experiment, method, config, method.start(weights, config), home)
    check_visible(method, method.start(weights, config), next(iter(members)), private)
    fleet = FlowerFleet(
        members,
        home,
        Prices(method.programs, method.work, private, method.memory),
        method.classes,
        run,
        private,
        experiment.wire.limit_bytes,
        patience,
        mishap,
        Deadlines({"task": experiment.wire.task_seconds, "evaluate": experiment.wire.look_seconds}),
        experiment.wire.clip if protection is None else 0.0,
    )
    fleet.join_all(_join_message(experiment, run, model, start, private, protection), start.labels)
    return FlowerSession(experiment, method, config, model, weights, fleet, members, private, protection)


def _check_budget(experiment: Experiment, members: Members) -> None:
    """Raise BadInput for a budget of joules where the power of a device is not known."""
    if experiment.budget.joules is not None and experiment.run.engine in ENGINES:
        raise BadInput(Code.SETTINGS_CLASH, "budget.joules: must be left out with flower-sim, which counts no energy.")
    unknown = [name for name, profile in members.items() if profile.device not in devices.catalogue()]
    if experiment.budget.joules is not None and unknown:
        device = members[unknown[0]].device
        raise BadInput(
            Code.SETTINGS_CLASH, f"budget.joules: the power of {unknown[0]} ({device!r}) is not known. Leave it out."
        )


def _join_message(
    experiment: Experiment, run: str, model: Model, start: Start, private: Any, protection: Protection | None
) -> Envelope:
    head = {
        "kind": "join",
        "run": run,
        "method": str(experiment.method["name"]),
        "model": {"name": model.name, "settings": model.settings, "shape": list(model.shape)},
        "classes": list(start.labels),
        "seed": experiment.run.seed,
        "rules": rules_of(experiment),
        "noise": experiment.wire.noise,
        "privacy": None if protection is None else protection.plan.for_clients,
        "secure": experiment.secure.sum,
        "valid": start.has_valid,
    }
    return Envelope(head, encode({"private": private}))


def _no_samples(like: Sizes) -> Data:
    """Data of the right shapes without any sample."""
    steps = like.shape[0]
    return Data(
        torch.zeros(0, *like.shape),
        torch.zeros(0, dtype=torch.int64),
        torch.zeros(0),
        torch.zeros(0, steps) if like.times else None,
        torch.zeros(0, dtype=torch.int64) if like.lengths else None,
    )
