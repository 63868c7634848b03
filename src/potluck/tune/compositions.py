"""Search among compositions: which parts suit a data set and a fleet, by successive halving on validation rows.

The candidates are all legal combinations of the parts asked for, each as one text (`method.parts`), with the learning
rate. What the experiment cannot serve is left out: parts that tune on server rows where the server has none, and parts
for access points where there are none.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from potluck.errors import BadInput, Code, unknown
from potluck.methods.parts.compose.choice import AXES, PARTS, Fact, legal
from potluck.runs.experiment import Experiment

# Left out unless asked for: their one setting, a number of seconds, has no value that suits every fleet.
BY_SECONDS = ("deadline", "points")


def beside(experiment: Experiment) -> list[Fact]:
    """What the server and the fleet of an experiment give."""
    found: list[Fact] = []
    if experiment.server.share > 0:
        found.append("server rows")
    if experiment.fleet.access_point:
        found.append("access points")
    return found


def only(asked: Sequence[str]) -> dict[str, list[str]]:
    """The parts to search among, by axis, from texts such as `pace=rounds,arrivals`; all others without one."""
    chosen = {axis: [name for name in PARTS[axis] if name not in BY_SECONDS] for axis in AXES}
    for one in asked:
        axis, equals, names = one.partition("=")
        if axis not in PARTS or not equals:
            raise unknown(Code.SET_FORM, "--among", axis, list(AXES))
        chosen[axis] = names.split(",")
        for name in chosen[axis]:
            if name not in PARTS[axis]:
                raise unknown(Code.SETTING_VALUE, f"--among: {axis}", name, list(PARTS[axis]))
    return chosen


def combinations(facts: Sequence[Fact], among: Mapping[str, Sequence[str]]) -> list[str]:
    """The legal combinations of these parts, each as one text."""
    found = ["/".join(one.values()) for one in legal(facts) if all(one[axis] in among[axis] for axis in AXES)]
    if len(found) < 2:
        raise BadInput(Code.SETTINGS_CLASH, f"--among: must leave two or more legal combinations, got {len(found)}.")
    return found


def space_of(experiment: Experiment, asked: Sequence[str]) -> str:
    """The space of `method.parts`, as `potluck tune --space` takes it."""
    return "method.parts=" + ",".join(combinations(beside(experiment), only(asked)))


def by_part(found: Mapping[str, Any]) -> dict[str, dict[str, tuple[float, float, int]]]:
    """The map of a search: of every part the best and the mean score at the first rung, and how often it was tried."""
    scores: dict[str, dict[str, list[float]]] = {axis: defaultdict(list) for axis in AXES}
    for one in found["candidates"]:
        parts = one["settings"].get("parts") or "rounds/one/one/all/all/mean"
        for axis, name in zip(AXES, parts.split("/"), strict=True):
            scores[axis][name].append(next(score for score in one["scores"] if score is not None))
    return {
        axis: {name: (max(all_), sum(all_) / len(all_), len(all_)) for name, all_ in sorted(of.items())}
        for axis, of in scores.items()
    }
