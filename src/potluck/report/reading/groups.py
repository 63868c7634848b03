"""Group runs: one group per method with its settings, one run per seed in it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from potluck.errors import BadInput, Code
from potluck.metrics import ACCURACY, Metric
from potluck.report.reading.run_figures import RunFigures, run_figures
from potluck.runs.experiment import Experiment, is_own
from potluck.runs.results import Run

LONGEST = 40  # characters of a setting's value in a label
MOST_SHOWN = 2  # settings in a label


@dataclass(frozen=True)
class Group:
    label: str  # the method's name; if it occurs more than once, with the settings that differ
    method: str
    runs: list[RunFigures]  # one per seed, in their order

    @property
    def finished(self) -> bool:
        """Whether the figures come from finished runs."""
        return any(one.finished for one in self.runs)

    @property
    def counted(self) -> list[RunFigures]:
        """The runs whose figures count: the finished ones; if there are none, those that were evaluated."""
        done = [one for one in self.runs if one.finished and one.last]
        return done or [one for one in self.runs if one.last]

    @property
    def metered(self) -> bool:
        """Whether the energy of all runs that count is known."""
        return all(one.metered for one in self.counted)


@dataclass(frozen=True)
class Grouped:
    groups: list[Group]  # in the order of their first runs
    notes: list[str]  # what a reader must know about the grouping
    metric: Metric = ACCURACY  # what the scores of all runs are


def group(runs: Sequence[Run], until: float | None = None) -> Grouped:
    """Group runs by method, up to a moment of virtual time or as they are.

    Runs on different data raise BadInput, because their accuracies cannot be compared.
    """
    if not runs:
        raise BadInput(Code.NOT_SAID, "runs: must be at least one, got none.")
    accounts = [run_figures(run, until) for run in runs]
    sources = sorted({one.experiment.data.source for one in accounts})
    if len(sources) > 1:
        raise BadInput(
            Code.COMPARISON,
            f"runs: must be on the same data to be compared, got {', '.join(sources)}. Choose runs of one dataset.",
        )
    metrics = {one.metric.name: one.metric for one in accounts}
    if len(metrics) > 1:
        raise BadInput(
            Code.COMPARISON,
            f"runs: must be ranked by the same metric to be compared, got {', '.join(sorted(metrics))}.",
        )
    alike: dict[str, list[RunFigures]] = {}
    for one in accounts:
        alike.setdefault(json.dumps(flat(one.experiment), sort_keys=True, default=str), []).append(one)
    notes: list[str] = []
    settings = [flat(members[0].experiment) for members in alike.values()]
    named, around = labels(settings)
    unequal = [name for name in around if not is_own(name)]
    if unequal:
        notes.append(f"The runs also differ in {', '.join(unequal)}, which may explain differences between methods.")
    notes += _of_their_own(named, settings, [name for name in around if is_own(name)])
    groups = []
    for label, chosen, members in zip(named, settings, alike.values(), strict=True):
        groups.append(Group(label, str(chosen["method.name"]), _one_per_seed(label, members, notes)))
    return Grouped(groups, notes, accounts[0].metric)


def flat(experiment: Experiment) -> dict[str, Any]:
    """The settings that decide the result of an experiment, by dotted name; not how and where it ran."""
    values = experiment.model_dump(exclude_none=True, exclude={"run"})
    values["run"] = {"evaluate_clients": experiment.run.evaluate_clients}
    values["method"] = _dotted(values["method"])
    return {f"{section}.{name}": value for section, part in values.items() for name, value in part.items()}


def _dotted(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings in groups by their dotted names: {"recipe": {"lr": 0.1}} becomes {"recipe.lr": 0.1}."""
    found: dict[str, Any] = {}
    for name, value in settings.items():
        inner = {f"{name}.{key}": item for key, item in _dotted(value).items()} if isinstance(value, Mapping) else None
        found |= {name: value} if inner is None else inner
    return found


def labels(settings: Sequence[Mapping[str, Any]]) -> tuple[list[str], list[str]]:
    """A label for each, and the settings outside the method that are not the same for all.

    Groups of the same method show the settings of the method that differ; of other settings only those that are unlike
    most groups'. A method's own model or stopping rule is in the label only if it distinguishes two such groups.
    """
    around = [name for name in _unlike(settings) if not name.startswith("method.")]
    usual = _usual(settings, around)
    found: list[str] = []
    for mine in settings:
        namesakes = [other for other in settings if other["method.name"] == mine["method.name"]]
        unlike = _unlike(namesakes)
        telling = [name for name in unlike if name.startswith("method.")]
        shown = [name for name in around if not is_own(name) or name in unlike]
        telling += [name for name in shown if _short(mine.get(name)) != usual[name]]
        details = [f"{name.removeprefix('method.')}={_short(mine.get(name))}" for name in telling[:MOST_SHOWN]]
        details += [f"{len(telling) - MOST_SHOWN} more"] if len(telling) > MOST_SHOWN else []
        label = str(mine["method.name"]) + (f" ({', '.join(details)})" if details else "")
        again = sum(other == label or other.startswith(f"{label} #") for other in found)
        found.append(f"{label} #{again + 1}" if again else label)
    return found, around


def _usual(settings: Sequence[Mapping[str, Any]], names: Sequence[str]) -> dict[str, str]:
    """The most common value of each of these settings."""
    return {name: Counter(_short(one.get(name)) for one in settings).most_common(1)[0][0] for name in names}


def _of_their_own(labels: Sequence[str], settings: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[str]:
    """Note which method runs with its own model or its own number of rounds."""
    usual = _usual(settings, names)
    told = []
    for label, mine in zip(labels, settings, strict=True):
        own = [f"{name} = {_short(mine.get(name))}" for name in names if _short(mine.get(name)) != usual[name]]
        if own:
            told.append(f"{label} with {', '.join(own)}")
    return [f"Settings that differ besides the method: {'; '.join(told)}."] if told else []


def _unlike(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    names = dict.fromkeys(name for one in settings for name in one)
    return [name for name in names if any(one.get(name) != settings[0].get(name) for one in settings)]


def _short(value: Any) -> str:
    if value is None:
        return "default"
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"


def _one_per_seed(label: str, members: Sequence[RunFigures], notes: list[str]) -> list[RunFigures]:
    """Of several runs with one seed only the one that got furthest counts: two would not be independent."""
    chosen: dict[int, RunFigures] = {}
    for one in members:
        before = chosen.get(one.seed)
        if before is None:
            chosen[one.seed] = one
            continue
        best, other = (one, before) if _progress(one) > _progress(before) else (before, one)
        chosen[one.seed] = best
        notes.append(f"{label}, seed {one.seed}: several runs; {best.name} counts, {other.name} does not.")
    return [chosen[seed] for seed in sorted(chosen)]


def _progress(one: RunFigures) -> tuple[bool, int]:
    return one.finished, one.rounds
