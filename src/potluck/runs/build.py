"""Build what an experiment needs to run: data, model, method, fleet."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from potluck import devices, keys, methods, models
from potluck.data import Federation
from potluck.data.drift import Drift
from potluck.data.federation import Part
from potluck.data.newcomers import divide as divide_clients
from potluck.data.pose import task_of
from potluck.engines.execute import Executor
from potluck.engines.local import Conditions, LocalFleet, Roster
from potluck.engines.local.flight import View, unchanged
from potluck.engines.local.hostile import Hostile
from potluck.engines.local.kept import Kept
from potluck.engines.local.store import Store
from potluck.engines.local.workers import ProcessWorkers, RayWorkers, WorkerPool
from potluck.engines.price import Prices
from potluck.errors import BadInput, Code, must_be
from potluck.fleet import Data, Local, Params
from potluck.methods import Method
from potluck.models import Model, choice
from potluck.models.files import read_encoder
from potluck.runs import server_rows
from potluck.runs.boards import boards_of
from potluck.runs.common_start import pretrained
from potluck.runs.deal import dealt, split_seed
from potluck.runs.evaluate import Evaluator, stacked
from potluck.runs.experiment import Experiment
from potluck.runs.local_session import LocalSession
from potluck.runs.pairing import without_data
from potluck.runs.protection import Protection, guard_of, protection_of, step_noise_of
from potluck.runs.rosters import equipment, roster_of
from potluck.runs.saveable import first_state
from potluck.tasks import Classification, Task


def model_of(experiment: Experiment, federation: Federation) -> Model:
    task = task_of(federation, experiment.task.spec())
    return model_for(experiment, federation.dataset.sample_shape, task.outputs, task)


def model_for(experiment: Experiment, shape: Sequence[int], classes: int, task: Task | None = None) -> Model:
    """Build the model of the `[model]` section for a task; without one, for so many classes.

    `classifier = "smallest"` or `"largest"` picks a classifier that the smallest device of the fleet can train
    (Centaur's Eq. 1), or one for `memory_kb`. `encoder` is a file of weights to start with.
    """
    settings, shape = dict(experiment.model), tuple(shape)
    name = settings.pop("name", None) or models.default_for(shape)
    settings.pop("encoder", None)
    memory_kb = settings.pop("memory_kb", None)
    prefer = settings.get("classifier")
    if prefer not in choice.PREFERENCES:
        if memory_kb is not None:
            wanted = " or ".join(repr(one) for one in choice.PREFERENCES)
            raise BadInput(
                Code.SETTINGS_CLASH, f"model.memory_kb: works with model.classifier = {wanted} only, got {memory_kb}."
            )
        return models.build(name, shape, classes, settings, task)
    memory = int(memory_kb * 1024) if memory_kb is not None else min(d.memory for d, _ in equipment(experiment)[0])
    split = str(experiment.method.get("split", ""))
    return choice.fitting(name, shape, classes, settings, memory, prefer, split, task)


def weights_of(experiment: Experiment, model: Model, rows: Data | None = None) -> Params:
    """Return the first weights of a run: drawn from its seed; the encoder comes from a file if one is set.

    `server.pretrain` then trains them on the server's `rows`.
    """
    weights = model.init(experiment.run.seed)
    file = experiment.model.get("encoder")
    if file is not None:
        encoder = model.split(str(experiment.method.get("split", ""))).encoder
        weights = weights | read_encoder(Path(str(file)), weights, encoder)
    return pretrained(experiment, model, weights, rows)


def config_of(experiment: Experiment, method: Method) -> Any:
    """Make the method's Config; `seed` and `rounds` come from the experiment if the method has them."""
    settings = {name: value for name, value in experiment.method.items() if name != "name"}
    known = {field.name for field in dataclasses.fields(method.config)}
    if "seed" in known:
        settings.setdefault("seed", experiment.run.seed)
    if "rounds" in known and experiment.stop.rounds is not None:
        settings.setdefault("rounds", experiment.stop.rounds)
    return method.configure(settings)


def with_cohort(experiment: Experiment, config: Any, clients: int) -> Any:
    """Return the Config with a cohort that the fleet has: a default that is too large becomes all clients."""
    cohort = getattr(config, "cohort", 0)
    if cohort <= clients:
        return config
    if "cohort" in experiment.method:
        raise must_be(Code.COHORT, "method.cohort", f"at most {clients}, the number of clients", cohort)
    return dataclasses.replace(config, cohort=0)


def build(experiment: Experiment) -> LocalSession:
    """Everything that a run needs; newcomers take no part in it."""
    method = methods.load(str(experiment.method["name"]))
    config = config_of(experiment, method)
    everyone, servers = dealt(experiment)
    divided = divide_clients(everyone, experiment.newcomers.share, split_seed(experiment))
    federation = divided.training
    config = with_cohort(experiment, config, len(federation.names))
    if experiment.fleet.partner is not None and not method.pairs:
        raise BadInput(Code.PAIRS, f"fleet.access_point: {method.name} has no use for access points. Leave it out.")
    model = model_of(experiment, federation)
    method.learns(model.task, config)
    _check_task(experiment, model.task)
    protection = protection_of(experiment, method, config, model)
    weights = weights_of(experiment, model, servers)
    roster = roster_of(experiment, everyone, divided.here if len(divided.new) else None, federation.sizes)
    session = assembled(experiment, method, config, model, weights, federation, servers, roster, protection)
    return dataclasses.replace(session, divided=divided, servers=servers)


def assembled(
    experiment: Experiment,
    method: Method,
    config: Any,
    model: Model,
    weights: Params,
    federation: Federation,
    servers: Data | None,
    roster: Roster,
    protection: Protection | None = None,
    prices: Prices | None = None,
) -> LocalSession:
    """A session of these clients; `prices` are those of another session with the same programs and kinds of rows."""
    run = experiment.run
    drift = Drift(experiment.drift.spec(), federation.names, federation.dataset.classes, run.seed)
    classes = method.classes
    has_valid, count = bool(np.any(federation.valid_sizes > 0)), len(federation.names)
    nothing = _nothing_like(stacked(federation, [0], "train", int(federation.sizes[0])))
    boards = boards_of(experiment, federation, model, config, method.programs)
    hostile = experiment.faults.attackers(count, run.seed)
    executor = Executor(
        model,
        method.programs,
        classes,
        hostile.poisoned(
            without_data(lambda places, capacity: stacked(federation, places, "train", capacity), count, nothing)
        ),
        run.workers if isinstance(run.workers, int) else 1,
        run.stacking,
        without_data(lambda places, capacity: stacked(federation, places, "valid", capacity), count, nothing)
        if has_valid
        else None,
        np.concatenate([federation.valid_sizes, np.zeros(len(roster) - count, dtype=np.int64)])
        if len(roster) > count
        else federation.valid_sizes,
        step_noise_of(protection),
        len(roster),
    )
    if isinstance(run.workers, str):
        executor.workers = _workers(run.workers, experiment.toml(), classes)
    home = Local(model, servers or nothing, None, keys.key(run.seed, "server"), valid=nothing if has_valid else None)
    method.check(config, home)
    first = first_state(method, weights, config)  # raises BadInput for what cannot be saved, before there is a folder
    server_rows.check(experiment, method, config, first, home)
    private = method.private(weights, config)
    evaluator = Evaluator(
        method.answering(model), federation, run.evaluate_clients, run.seed, drift, part_of(experiment), hostile
    )
    fleet = LocalFleet(
        roster,
        executor,
        home,
        Kept(Store(classes, run.memory_mb << 20), Store(classes, run.memory_mb << 20), evaluator.places),
        prices
        or Prices(
            method.programs,
            method.work,
            private,
            method.memory,
            any(devices.needs_effort(device) for device, _ in roster.equipment),
        ),
        private,
        Conditions(
            run.seed,
            experiment.faults.faults(),
            experiment.wire.limit_bytes,
            experiment.wire.noise,
            floor=experiment.fleet.floor_mbps * 1e6,
            pace=experiment.fleet.pace,
            hours=experiment.fleet.windows,
            view=_views(drift, hostile, federation.dataset.classes),
            bound=experiment.wire.clip if protection is None else 0.0,
            hostile=hostile,
            guard=guard_of(protection),
            at_once=experiment.fleet.at_once,
            chance=experiment.fleet.chance,
        ),
        boards,
    )
    return LocalSession(
        experiment, method, config, model, weights, federation, fleet, evaluator, executor, protection=protection
    )


def _check_task(experiment: Experiment, task: Task) -> None:
    """Raise BadInput for settings that mean nothing to the task."""
    if experiment.stop.accuracy is not None and task.headline.name != "accuracy":
        raise BadInput(
            Code.TASK,
            f"stop.accuracy: must be left out, as models are ranked by {task.headline.words}; set stop.score instead.",
        )
    few = isinstance(task, Classification) and task.unlabelled
    if experiment.newcomers.share and (task.headline.name != "accuracy" or few):
        what = "rows without a label" if few else task.headline.words
        raise BadInput(Code.TASK, f"newcomers.share: must be 0 with {what}, got {experiment.newcomers.share}.")
    if experiment.drift.at and experiment.drift.kind == "labels" and few:
        raise BadInput(Code.TASK, "drift.kind: labels needs the label of every row; rows can drift.")
    if experiment.drift.at and experiment.drift.kind == "labels" and not task.has_classes:
        raise BadInput(Code.TASK, f"drift.kind: labels needs classes, got the task {task.kind}; rows can drift.")
    if (
        experiment.faults.hostile
        and experiment.faults.attack in ("labels", "backdoor")
        and task.kind != "classification"
    ):
        raise BadInput(Code.TASK, f"faults.attack: {experiment.faults.attack} needs classes, got the task {task.kind}.")


def _views(drift: Drift, hostile: Hostile, classes: int) -> View:
    """Whose samples a client trains on, and the number of each label, after a drift and an attack on labels."""
    if hostile.attack != "labels" or not hostile.places:
        return drift.view if drift.moments else unchanged

    def view(client: int, at: float) -> tuple[int, tuple[int, ...] | None]:
        index, labels = drift.view(client, at)
        return index, hostile.labels(client, labels, classes)

    return view


def part_of(experiment: Experiment) -> Part:
    """The rows that evaluate a run."""
    return "valid" if experiment.run.evaluate_on == "valid" else "test"


def _workers(workers: str, toml: str, classes: Mapping[str, type]) -> WorkerPool:
    """Make the processes that train stacks of clients instead of threads."""
    kind, _, count = workers.partition(":")
    maker = "potluck.runs.build:executor_for"
    return RayWorkers(maker, toml, classes) if kind == "ray" else ProcessWorkers(maker, toml, classes, int(count))


def executor_for(toml: str) -> tuple[Executor, dict[str, type]]:
    """Make the executor of an experiment (as TOML) in a process that trains some of its clients."""
    plain: dict[str, dict[str, Any]] = {
        "run": {"workers": 1},
        "fleet": {"boards": {}},
        "server": {"pretrain": 0},
    }  # tasks bring their weights
    experiment = Experiment.of(tomllib.loads(toml)).with_(**plain)
    session = build(experiment)
    return session.executor, session.method.classes


def _nothing_like(data: Data) -> Data:
    """Return no rows, in the right shapes: by default the server has no data."""

    def none(value: torch.Tensor | None) -> torch.Tensor | None:
        return None if value is None else value[0, :0]

    x, y, weight = none(data.x), none(data.y), none(data.weight)
    assert x is not None
    assert y is not None
    assert weight is not None
    return Data(x, y, weight, none(data.t), none(data.length))
