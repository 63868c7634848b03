"""What a tuning found: tuning.json, and chosen.toml, which `potluck compare --experiment` reads."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from potluck import files
from potluck.methods import load
from potluck.metrics import ACCURACY, Metric
from potluck.runs.compare import Plan, Planned
from potluck.runs.experiment import Experiment, is_own, to_toml
from potluck.runs.needs import metric_of
from potluck.settings import flat
from potluck.spaces import Choice, Dimension
from potluck.tune.candidates import Settings
from potluck.tune.request import as_text
from potluck.tune.search import Searched
from potluck.tune.tuning import Tuning, with_settings

FILE, CHOSEN = "tuning.json", "chosen.toml"
PLACE = "tuning"  # folder of the tuning in that of a comparison
THIRDS = ("lower third", "middle third", "upper third")


def written(tuning: Tuning, searched: Mapping[str, Searched], folder: Path) -> dict[str, Any]:
    """Write tuning.json and chosen.toml; return what tuning.json holds."""
    first = next(iter(tuning.bases.values()))
    metric = metric_of(first)
    found = {
        "data": first.data.source,
        "metric": metric.name,
        "trials": tuning.request.trials,
        "seeds": list(tuning.request.all_seeds),
        "sampler": tuning.request.sampler,
        "partition_seed": first.partition_spec().seed,
        "valid_share": tuning.valid_share(first),
        "methods": {method: _method(tuning.spaces[method], one, metric) for method, one in searched.items()},
    }
    files.write_json(folder / FILE, found)
    files.write_text(folder / CHOSEN, chosen_toml(tuning, searched))
    if tuning.request.sampler == "optuna":
        from potluck.tune.optuna_study import write_study

        write_study(searched, tuning.spaces, folder)
    return found


def _method(space: Mapping[str, Dimension], found: Searched, metric: Metric) -> dict[str, Any]:
    """Scores as people read them: an error is positive."""
    plain, last = metric.merit, found.rungs[-1]
    return {
        "space": as_text(space),
        "chosen": found.chosen.settings,
        "chosen_candidate": found.chosen.number,
        "default": found.candidates[0].settings,
        "default_accuracy": plain(last.scores[0]),
        "chosen_accuracy": plain(last.scores[found.chosen.number]),
        "passes": found.total,
        "rungs": [
            {
                "share": rung.share,
                "candidates": len(rung.scores),
                "best": plain(max(rung.scores.values())),
                "kept": rung.kept,
            }
            for rung in found.rungs
        ],
        "candidates": [
            {
                "number": one.number,
                "settings": one.settings,
                "scores": [_plain_score(rung.scores.get(one.number), metric) for rung in found.rungs],
                "passes": found.passes[one.number],
            }
            for one in found.candidates
        ],
        "sensitivity": sensitivity(space, found, metric),
    }


def sensitivity(space: Mapping[str, Dimension], found: Searched, metric: Metric = ACCURACY) -> dict[str, Any]:
    """How much the settings matter: the scores of the first rung, over all candidates and by setting.

    `by_setting` has the best score for each value, or for each third of a range. Its `spread` is the largest of these
    minus the smallest.
    """
    scores = found.rungs[0].scores
    by_setting: dict[str, Any] = {}
    for name, one in space.items():
        best: dict[str, float] = {}
        for candidate in found.candidates:
            if name in candidate.settings:
                place = place_of(one, candidate.settings[name])
                best[place] = max(scores[candidate.number], best.get(place, -math.inf))
        order = [place for place in places_of(one) if place in best]
        order += [place for place in best if place not in order]
        shown = {place: best[place] for place in order}
        by_setting[name] = {
            "best": {place: metric.merit(value) for place, value in shown.items()},
            "spread": max(shown.values()) - min(shown.values()) if shown else 0.0,
        }
    values = list(scores.values())
    ends = {"best": max(values), "median": median(values), "worst": min(values)}
    return {**{name: metric.merit(value) for name, value in ends.items()}, "by_setting": by_setting}


def _plain_score(merit: float | None, metric: Metric) -> float | None:
    return None if merit is None else metric.merit(merit)


def places_of(one: Dimension) -> list[str]:
    return [str(value) for value in one.values] if isinstance(one, Choice) else list(THIRDS)


def place_of(one: Dimension, value: Any) -> str:
    """The value itself, or the third of the range that holds it; the default settings may lie outside."""
    if isinstance(one, Choice) or isinstance(value, str | bool):
        return str(value)
    if not one.low <= value <= one.high:
        return f"{value:g}, outside"
    low, high, at = (math.log(x) for x in (one.low, one.high, value)) if one.log else (one.low, one.high, value)
    return THIRDS[min(2, int(3 * (at - low) / (high - low)))]


def with_chosen(planned: Plan, found: Mapping[str, Any]) -> Plan:
    """The runs of a report, each with the settings that were chosen for its method."""
    runs = [
        Planned(run.method, run.seed, with_settings(run.experiment, _new(found["methods"][run.method])))
        for run in planned.runs
    ]
    return Plan(tuple(runs), planned.notes)


def _new(found: Mapping[str, Any]) -> Settings:
    """The chosen settings; none where the default settings were chosen, which stay as they are."""
    chosen: Settings = {} if found["chosen_candidate"] == 0 else found["chosen"]
    return chosen


def chosen_toml(tuning: Tuning, searched: Mapping[str, Searched]) -> str:
    """An experiment file whose `[compare]` section has every method with its chosen settings."""
    dumps = {}
    for method, found in searched.items():
        settings = {} if found.chosen.default else found.chosen.settings
        dumps[method] = _plain(with_settings(tuning.bases[method], settings))
    own: dict[str, dict[str, Any]] = {method: {} for method in dumps}
    common: dict[str, dict[str, Any]] = {}
    for section in dict.fromkeys(name for dump in dumps.values() for name in dump):
        parts = {method: dump.get(section, {}) for method, dump in dumps.items()}
        for key in dict.fromkeys(key for part in parts.values() for key in part):
            values = [part.get(key) for part in parts.values()]
            if section != "method" and all(value == values[0] for value in values):
                common.setdefault(section, {})[key] = values[0]
            elif is_own(f"{section}.{key}"):
                for method, part in parts.items():
                    if key in part and (section, key) != ("method", "name"):
                        own[method][f"{section}.{key}"] = part[key]
    flat_own = {method: _flat_method(method, values) for method, values in own.items()}
    return to_toml({**common, "compare": flat_own})


def _plain(experiment: Experiment) -> dict[str, dict[str, Any]]:
    """The settings that differ from the defaults, without those of one run."""
    dump = experiment.model_dump(exclude_none=True, exclude_defaults=True)
    for name in ("name", "filled"):
        dump.get("run", {}).pop(name, None)
    if experiment.stop.rounds is None:
        dump.setdefault("stop", {})["rounds"] = 0
    return {section: part for section, part in dump.items() if part}


def _flat_method(method: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Write groups of settings by their dotted names: method.recipe.lr."""
    config = load(method).config
    section = {name.removeprefix("method."): value for name, value in values.items() if name.startswith("method.")}
    rest = {name: value for name, value in values.items() if not name.startswith("method.")}
    return {**{f"method.{name}": value for name, value in flat(config, section).items()}, **rest}


def command(folder: Path, extra: Sequence[str] = ()) -> str:
    """The command that compares the methods with the chosen settings."""
    return " ".join(["potluck compare --experiment", str(folder / CHOSEN), *extra])
