"""Fill in what a method's system needs and the user left out, and say what was chosen and what is missing.

The experiment that is written to a run's folder holds the filled values, and `run.filled` their names. So a resumed or
a repeated run is explicit. Nothing is filled in when a run is resumed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from potluck import methods
from potluck.data.dataset import Dataset
from potluck.data.intake.spec import Intake
from potluck.data.load import load as load_data
from potluck.data.pose import posed
from potluck.errors import BadInput, Code
from potluck.fleet import Profile
from potluck.methods import Method
from potluck.metrics import METRICS, Metric
from potluck.needs import Need, Situation
from potluck.runs.experiment import Experiment, as_toml
from potluck.settings import flat, nested
from potluck.tasks import KINDS
from potluck.tasks.spec import TaskSpec

# What a comparison gives to all methods alike as soon as one of them needs it.
COMMON = ("data", "partition", "server")
# A deployment's clients bring their own devices and rows.
DEPLOYED = ("model", "method")


def filled(experiment: Experiment, sections: Sequence[str] | None = None) -> Experiment:
    """The experiment with the settings that its method needs; `sections` limits what is filled in."""
    method = methods.load(str(experiment.method["name"]))
    if "fleet.access_point" in method.needs and "access_point" in experiment.fleet.model_fields_set:
        named = experiment.fleet.access_point or "none"  # written out, because TOML has no null
        experiment = experiment.with_(fleet={"access_point": named})
    return with_values(experiment, {**_open(experiment, method, sections), **_one_pretraining(experiment, method)})


def common(experiments: Iterable[Experiment]) -> dict[str, Any]:
    """What the methods of a comparison need of data and server: the first need of a setting counts for all."""
    found: dict[str, Any] = {}
    for experiment in experiments:
        method = methods.load(str(experiment.method["name"]))
        for name, value in _open(experiment, method, COMMON).items():
            found.setdefault(name, value)
    return found


def with_values(experiment: Experiment, values: Mapping[str, Any]) -> Experiment:
    """The experiment with these settings filled in where the user left them out."""
    values = {name: value for name, value in values.items() if not said(experiment, name)}
    if not values:
        return experiment
    changes: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, _, key = name.partition(".")
        changes.setdefault(section, {})[key] = value
    if "method" in changes:
        own = methods.load(str(experiment.method["name"])).config
        changes["method"] = nested({**flat(own, experiment.method), **changes["method"]})
    names = [*experiment.run.filled, *(name for name in values if name not in experiment.run.filled)]
    return experiment.with_(**changes, run={"filled": names})


def _open(experiment: Experiment, method: Method, sections: Sequence[str] | None) -> dict[str, Any]:
    """The values of the needs that the user left open."""
    known: list[Situation] = []

    def situation() -> Situation:
        if not known:
            known.append(Situation() if sections == DEPLOYED else situation_of(experiment))
        return known[0]

    found = {}
    for name, need in method.needs.items():
        inside = sections is None or name.partition(".")[0] in sections
        if not inside or not _due(experiment, need) or any(said(experiment, other) for other in (name, *need.unless)):
            continue
        value = need.resolved(situation)
        if value is not None:
            found[name] = value
    return found


def _due(experiment: Experiment, need: Need) -> bool:
    """Whether the user set what makes it a need."""
    return all(_value(experiment, name) == value for name, value in need.when.items())


def _one_pretraining(experiment: Experiment, method: Method) -> dict[str, Any]:
    """Switch off a method's own pre-training where `server.pretrain` does it for all."""
    own = method.pretrains
    if own is None or not experiment.server.pretrain:
        return {}
    name = f"method.{own}"
    if not said(experiment, name):
        return {name: 0}
    if flat(method.config, experiment.method)[own]:
        raise BadInput(
            Code.SETTINGS_CLASH,
            f"server.pretrain: {method.name} would be pre-trained twice. Leave out server.pretrain or {name}.",
        )
    return {}


def said(experiment: Experiment, name: str) -> bool:
    """Whether the user set this setting."""
    section, _, key = name.partition(".")
    if name == "server.share" and "source" in experiment.server.model_fields_set:
        return True
    if section == "method":
        config = methods.load(str(experiment.method["name"])).config
        return key in flat(config, experiment.method)
    part = getattr(experiment, section)
    return key in (part if isinstance(part, dict) else part.model_fields_set)


def situation_of(experiment: Experiment) -> Situation:
    source = experiment.data.source
    path = Path(source)
    return _situation(
        source, path.stat().st_mtime_ns if path.is_file() else 0, experiment.intake(), experiment.task.spec()
    )


def metric_of(experiment: Experiment) -> Metric:
    """The metric that will rank the models of this experiment: by its settings, and by what its labels ask for."""
    spec = experiment.task.spec()
    if spec.metric:
        return METRICS[spec.metric]
    asks = situation_of(experiment).asks if spec.name == "auto" else spec.name
    return KINDS[asks or "classification"].offers[0]


@lru_cache(maxsize=4)  # the methods of a comparison ask for the same data
def _situation(source: str, changed: int, intake: Intake, task: TaskSpec) -> Situation:
    dataset = posed(load_data(source, intake), task)
    return Situation(dataset.sample_shape, dataset.classes, interval_of(dataset), dataset.asks)


def interval_of(dataset: Dataset) -> float | None:
    """The usual time between two readings, of series with time stamps; rounded, as clocks are not exact."""
    if dataset.t is None or dataset.t.shape[1] < 2:
        return None
    steps = np.diff(np.asarray(dataset.t[:1000], dtype=np.float64), axis=1)
    steps = steps[np.isfinite(steps) & (steps > 0)]
    return float(f"{np.median(steps):.4g}") if len(steps) else None


def lacks(experiment: Experiment, clients: Mapping[Any, Profile] | None = None) -> list[str]:
    """The needs of the method that this experiment does not meet, in words; `clients` are those of its fleet."""
    method = methods.load(str(experiment.method["name"]))
    return [
        f"{method.name}: {need.without} ({name} = {as_toml(_value(experiment, name))})."
        for name, need in method.needs.items()
        if need.without and _due(experiment, need) and not _met(experiment, name, clients)
    ]


def _met(experiment: Experiment, name: str, clients: Mapping[Any, Profile] | None) -> bool:
    if name == "server.share":
        return bool(experiment.server.share or experiment.server.source)
    if name == "fleet.access_point":
        return paired(experiment, clients)
    return bool(_value(experiment, name))


def paired(experiment: Experiment, clients: Mapping[Any, Profile] | None = None) -> bool:
    """Whether clients have access points: by the experiment, or because a deployed fleet brought them."""
    return experiment.fleet.partner is not None or any(one.partner for one in (clients or {}).values())


def _value(experiment: Experiment, name: str) -> Any:
    section, _, key = name.partition(".")
    if section == "method":
        return flat(methods.load(str(experiment.method["name"])).config, experiment.method).get(key)
    part = getattr(experiment, section)
    value = part.get(key) if isinstance(part, dict) else getattr(part, key)
    return "none" if value is None else value


def chosen(experiment: Experiment) -> list[str]:
    """A line on what was filled in and how to change it, and one on what the other methods of a comparison need."""
    method = methods.load(str(experiment.method["name"]))
    own = [name for name in experiment.run.filled if name in method.needs or name.startswith("method.")]
    others = [name for name in experiment.run.filled if name not in own]
    return [*_line("all methods", experiment, others), *_line(method.name, experiment, own)]


def chosen_in(experiments: Iterable[Experiment], shared: Iterable[str]) -> list[str]:
    """The lines of a comparison, each once; `shared` are the settings that all methods got."""
    experiments = list(experiments)
    lines = [*_line("all methods", experiments[0], list(shared))]
    return list(dict.fromkeys([*lines, *(line for one in experiments for line in chosen(one))]))


def _line(who: str, experiment: Experiment, names: Sequence[str]) -> list[str]:
    if not names:
        return []
    first = next((name for name in names if not name.startswith("model.")), "model.name")
    return [f"{who}: {'; '.join(_phrases(experiment, names))}. Change with --set {first}=..."]


def _phrases(experiment: Experiment, names: Sequence[str]) -> list[str]:
    found = []
    if "fleet.access_point" in names:
        found.append(f"every client has a {experiment.fleet.access_point} as its access point (fleet.access_point)")
    if "server.share" in names:
        found.append(f"{100 * experiment.server.share:g} % of the rows are the server's (server.share)")
    model = [name.partition(".")[2] for name in names if name.startswith("model.")]
    if model:
        own = [f"{key} {_plain(experiment.model[key])}" for key in model if key != "name"]
        about = f" with {', '.join(own)}" if own else ""
        found.append(f"the model is {experiment.model.get('name', 'the default')}{about} (model.*)")
    told = ("fleet.access_point", "server.share")
    rest = [name for name in names if name not in told and not name.startswith("model.")]
    return found + [f"{name} is {_plain(_value(experiment, name))}" for name in rest]


def _plain(value: Any) -> str:
    return str(value) if isinstance(value, str) else as_toml(value)


def notes(experiment: Experiment, clients: Mapping[Any, Profile] | None = None) -> list[str]:
    """The first lines of a run: what is missing, then what was chosen."""
    return [*lacks(experiment, clients), *chosen(experiment), *uncounted(experiment, clients)]


def uncounted(experiment: Experiment, clients: Mapping[Any, Profile] | None) -> list[str]:
    """Say so if the fleet has another number of devices than there are clients."""
    asked = experiment.fleet.devices
    if clients is None or not isinstance(asked, Mapping) or not all(isinstance(one, int) for one in asked.values()):
        return []
    devices, there = sum(int(one) for one in asked.values()), len(clients)
    if experiment.fleet.access_point is not None:
        there //= 2  # each client has its access point beside it
    if devices == there:
        return []
    return [
        f"fleet.devices names {devices} devices, but the data has {there} clients: {there} run, with devices in that "
        "proportion (partition.kind and partition.clients make more or fewer)."
    ]


def described(method: Method) -> dict[str, str]:
    """The needs of a method for `potluck methods NAME`: setting -> value, or how it is found."""
    return {name: _described(need) for name, need in method.needs.items()}


def _described(need: Need) -> str:
    value = "depends on the data" if callable(need.value) else as_toml(need.value)
    conditions = " and ".join(f"{name} = {as_toml(wanted)}" for name, wanted in need.when.items())
    return f"{value} (with {conditions})" if conditions else value
