"""Plan the runs of a comparison: the same fleet, split, seeds and budget for every method.

All seeds have one deal of the devices (`fleet.seed`), so that the spread over seeds is not that of the deals.
Without a budget and without a `[stop]` section every method gets the same local passes. Then its devices also have a
pace, so that virtual time means something: rows arrive, and each is visited a limited number of times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from potluck import methods
from potluck.errors import BadInput, Code, must_be, unknown
from potluck.methods import Method, short_name
from potluck.runs import needs
from potluck.runs.build import config_of
from potluck.runs.experiment import OWN, Experiment, as_toml, is_own, override
from potluck.runs.rosters import deal_seed
from potluck.settings import moved_to
from potluck.units import number

PASSES = 20.0  # local passes of every method, where the user says nothing about the end of the runs
ROWS_PER_HOUR = 3600.0  # one labelled row each second


@dataclass(frozen=True)
class Planned:
    """One run of a comparison."""

    method: str
    seed: int
    experiment: Experiment

    @property
    def name(self) -> str:
        return f"{short_name(self.method)}-s{self.seed}"


@dataclass(frozen=True)
class Plan:
    runs: tuple[Planned, ...]  # seed by seed, so that an interrupted comparison is complete for fewer seeds
    notes: tuple[str, ...] = ()


def plan(values: Mapping[str, Any], names: Sequence[str], seeds: int, settings: Sequence[str] = ()) -> Plan:
    """Plan and check the runs of a comparison: `seeds` per method, from run.seed on.

    `settings` are `section.key=value`. A setting with a method's name and a colon in front (`fedprox:method.mu=0.1`)
    is for that method only. Other method settings go to the methods that have them; a note names the methods that
    do not.
    """
    if len(set(names)) < len(names):
        raise must_be(Code.COMPARISON, "compare", "different methods", shown=", ".join(names))
    if not names:
        raise must_be(Code.NOT_SAID, "compare", "one method or more", shown="none")
    if seeds < 1:
        raise must_be(Code.FLAG_VALUE, "--seeds", "1 or more", seeds)
    for_all, own = _sorted_out(settings, names)
    known = {name: methods.load(name) for name in names}
    everything, notes = equal(override(values, for_all))
    _known_to_some(everything, known)
    given = {}
    for name in names:
        kept, left_out = known[name].suited(_section(everything))
        if left_out:
            lacking = ", ".join(f"method.{key}" for key in left_out)
            notes.append(f"{name} runs without {lacking}, which it does not have.")
        given[name] = Experiment.of(override({**everything, "method": {"name": name, **kept}}, own.get(name, [])))
        config_of(given[name], known[name])
    runs = []
    shared = needs.common(given.values())  # what one method needs of data and server, all get
    for name, mine in given.items():
        mine = needs.filled(needs.with_values(mine, shared))
        mine = needs.with_values(mine, _short_enough(mine, known[name]))
        notes += needs.lacks(mine)
        first, deal = mine.run.seed, {"seed": deal_seed(mine)}  # one deal of the devices for all seeds
        runs += [
            Planned(name, seed, mine.with_(run={"seed": seed}, fleet=deal)) for seed in range(first, first + seeds)
        ]
    runs.sort(key=lambda planned: planned.seed)
    return Plan(tuple(runs), (*notes, *needs.chosen_in([run.experiment for run in runs], shared)))


def of_file(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str], list[str]]:
    """Read a comparison's file: the experiment, the methods, and the settings of single methods.

    `[compare]` names the methods in their order, each with its settings: `fedprox = { "method.mu" = 0.1 }`.
    """
    rest = {name: part for name, part in values.items() if name != "compare"}
    section = values.get("compare", {})
    if not isinstance(section, Mapping) or not all(isinstance(own, Mapping) for own in section.values()):
        form = 'NAME = { "section.key" = value } for every method'
        raise BadInput(Code.COMPARISON, f"compare: the section of that name must hold {form}.")
    own = [f"{name}:{key}={as_toml(value)}" for name, part in section.items() for key, value in part.items()]
    return rest, list(section), own


def _section(values: Mapping[str, Any]) -> dict[str, Any]:
    section = values.get("method", {})
    if not isinstance(section, Mapping):
        raise must_be(Code.EXPERIMENT_FILE, "method", "a section of settings", section)
    return {key: value for key, value in section.items() if key != "name"}


def _known_to_some(values: Mapping[str, Any], known: Mapping[str, Method]) -> None:
    """Raise BadInput for a setting that no method has, unless it belongs to the method the file was written for."""
    loaded = list(known.values())
    written_for = values.get("method", {}).get("name")
    if written_for is not None:
        loaded.append(methods.load(str(written_for)))
    section = _section(values)
    unknown_to_all = set.intersection(*(set(method.suited(section)[1]) for method in loaded))
    for key in unknown_to_all:
        # The first method that has a new name for it says so; else the nearest name of any method is proposed.
        for method in loaded:
            if new := moved_to(method.config, key):
                raise BadInput(Code.UNKNOWN_SETTING, f"method.{key}: is now called method.{new}.")
        every = {name for method in loaded for name in method.settings}
        raise unknown(Code.UNKNOWN_SETTING, f"method.{key}", key, every)


def _sorted_out(settings: Sequence[str], names: Sequence[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Separate settings for all methods from those for one method."""
    for_all: list[str] = []
    own: dict[str, list[str]] = {}
    short = {short_name(name): name for name in names}
    for setting in settings:
        left, equals, value = setting.partition("=")
        name, colon, key = left.rpartition(":")
        name = short.get(name, name)  # `mine:method.mu=1` for mine.py
        if not colon:
            for_all.append(setting)
        elif name not in names:
            raise unknown(Code.METHOD_UNKNOWN, "--set: method", name, names)
        elif not is_own(key):
            allowed = ", ".join(own if "." in own else f"{own}.*" for own in OWN)
            fix = "All methods share the other settings."
            raise must_be(Code.SET_FORM, f"--set {name}:", f"one of {allowed}", setting, fix=fix)
        else:
            own.setdefault(name, []).append(f"{key}{equals}{value}")
    return for_all, own


def _short_enough(experiment: Experiment, method: Method) -> dict[str, Any]:
    """Fewer epochs, where a round visits the rows more often than the pace allows: no client could take part."""
    most = int(experiment.fleet.passes)
    recipe = getattr(config_of(experiment, method), "recipe", None)
    return {"method.recipe.epochs": most} if recipe is not None and 1 <= most < recipe.epochs else {}


def equal(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The settings with a budget and a pace for all methods, and what was chosen, in words.

    A budget of the user stays as it is. A `[stop]` section without a budget keeps its meaning, and there is no pace.
    """
    budget, stop, fleet = (dict(values.get(name) or {}) for name in ("budget", "stop", "fleet"))
    if (stop and not budget) or values.get("run", {}).get("engine", "local") != "local":
        return dict(values), []
    notes = []
    if not budget:
        budget = {"local_passes": PASSES}
        notes.append(
            f"every method gets {number(PASSES)} local passes, which are epochs over a client's samples (change with "
            "--budget or --rounds)."
        )
    if not fleet.keys() & {"duty", "rows_per_hour", "passes"}:
        passes = float(budget.get("local_passes", PASSES))
        fleet |= {"rows_per_hour": ROWS_PER_HOUR, "passes": passes}
        notes.append(
            f"{number(ROWS_PER_HOUR)} labelled rows arrive at each client in an hour, and each is visited at most "
            f"{number(passes)} times (change with --set fleet.rows_per_hour and fleet.passes)."
        )
    return {**values, "budget": budget, "fleet": fleet}, notes
