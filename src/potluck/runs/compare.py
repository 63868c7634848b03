"""Compare methods on the same fleet, split and seeds, in one folder that can be resumed.

This file plans, checks and carries out the runs, and computes the time that each method took to reach a target. The
report computes the other figures.
"""

from __future__ import annotations

import fcntl
import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from potluck import methods
from potluck.errors import BadInput, Code, must_be, unknown
from potluck.methods import Method, short_name
from potluck.runs import drive, needs, parallel
from potluck.runs.build import build, config_of
from potluck.runs.experiment import OWN, Experiment, as_toml, is_own, override
from potluck.runs.record import read
from potluck.runs.results import Run
from potluck.runs.watcher import Watcher
from potluck.settings import moved_to

FILE = "comparison.json"
STEP = 0.05  # targets are whole multiples of it
# These settings do not change the figures of a run, so they may differ when a comparison is resumed.
_INDIFFERENT = ("name", "out", "workers", "checkpoint_seconds", "memory_mb", "filled")


class Interrupted(RuntimeError):
    """The user asked to stop; the comparison can be resumed."""

    def __init__(self, folder: Path) -> None:
        super().__init__(f"stopped in {folder}")
        self.folder = folder


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


class Watchers(Protocol):
    """Watches several runs."""

    def expect(self, runs: Sequence[tuple[str, str]]) -> None:
        """Receive name and method of every run, before the first one starts."""

    def next_run(self, name: str, number: int, of: int) -> parallel.RunWatcher:
        """Return the watcher of run `name`, the number-th."""


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
    everything = override(values, for_all)
    _known_to_some(everything, known)
    given, notes = {}, []
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
        notes += needs.lacks(mine)
        first = mine.run.seed
        runs += [Planned(name, seed, mine.with_(run={"seed": seed})) for seed in range(first, first + seeds)]
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


def check(planned: Plan) -> None:
    """Build one run of every method and discard it, so that mistakes show before anything runs."""
    first = planned.runs[0].seed
    for run in planned.runs:
        if run.seed == first:
            build(run.experiment).close()


def carry_out(planned: Plan, folder: Path, watchers: Watchers, take_up: bool = False, at_a_time: int = 1) -> list[Run]:
    """Carry out all runs in one folder, `at_a_time` in parallel; `take_up` keeps finished runs and continues others."""
    if take_up:
        for run in planned.runs:
            _same(run, folder / run.name)
    count = len(planned.runs)
    watchers.expect([(run.name, run.method) for run in planned.runs])
    jobs = [partial(_carried_out, run, folder, take_up) for run in planned.runs]
    done: list[Run | None] = []
    if at_a_time > 1:
        each = [watchers.next_run(run.name, number, count) for number, run in enumerate(planned.runs, start=1)]
        done += parallel.carry_out(jobs, each, at_a_time)
    else:
        for number, (run, job) in enumerate(zip(planned.runs, jobs, strict=True), start=1):
            watcher = watchers.next_run(run.name, number, count)
            done.append(job(watcher))
            watcher.close()
            if _interrupted(done[-1]):
                break
    if len(done) < count or any(_interrupted(run) for run in done):
        raise Interrupted(folder)
    return [run for run in done if run is not None]


def _interrupted(run: Run | None) -> bool:
    return run is None or run.summary["ended"] == "interrupted"


def _carried_out(planned: Planned, folder: Path, take_up: bool, watcher: Watcher) -> Run:
    run = Run(folder / planned.name)
    if take_up and run.folder.is_dir():
        if not (run.folder / "experiment.toml").exists():
            clear(run.folder)
        elif state_of(run) == "finished":
            return run
        else:
            return drive.resume(run.folder, watcher)
    return drive.start(planned.experiment.with_(run={"out": str(folder), "name": planned.name}), watcher)


def clear(folder: Path) -> None:
    """Remove the folder of a run that was killed before it wrote its experiment; never anything else."""
    if any(not path.name.startswith(".") for path in folder.iterdir()):
        raise BadInput(
            Code.OUTPUT_PLACE,
            f"compare: {str(folder)!r} is not a run. Move it or choose another --name.",
        )
    shutil.rmtree(folder)


def _same(planned: Planned, folder: Path) -> None:
    """Raise BadInput unless the folder holds a run of the same experiment."""
    if not (folder / "experiment.toml").exists():
        return
    there, here = (figures_of(experiment) for experiment in (Run(folder).experiment, planned.experiment))
    for key in sorted(there.keys() | here.keys()):
        if there.get(key) != here.get(key):
            raise BadInput(
                Code.COMPARISON,
                f"--resume: {str(folder)!r} was made with {key} = {there.get(key)!r}, got {here.get(key)!r} now. "
                "Choose another --name to start again.",
            )


def figures_of(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that decide a run's figures, by section.key."""
    return {
        f"{section}.{key}": value
        for section, part in experiment.model_dump(exclude_none=True).items()
        for key, value in part.items()
        if not (section == "run" and key in _INDIFFERENT)
    }


def new_folder(out: Path, name: str) -> Path:
    """Return the first unused folder: name, name-2, name-3 ..."""
    number = _last(out, name) + 1
    return out / (name if number == 1 else f"{name}-{number}")


def latest_folder(out: Path, name: str) -> Path:
    """Return the newest of these folders, or the first one if there is none yet."""
    number = _last(out, name)
    return out / (name if number <= 1 else f"{name}-{number}")


def _last(out: Path, name: str) -> int:
    number = 0
    while (out / (name if number == 0 else f"{name}-{number + 1}")).exists():
        number += 1
    return number


def state_of(run: Run) -> str:
    """Return finished, paused, interrupted (by Ctrl-C), killed (by anything else) or running."""
    lock = run.folder / ".lock"
    if lock.exists():
        with lock.open() as file:
            try:
                fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            except BlockingIOError:
                return "running"
    if not run.finished:
        return "killed"
    summary = run.summary
    if summary["ended"] in ("interrupted", drive.PAUSED):
        return str(summary["ended"])
    (row,) = read(run.folder / "run.db", "SELECT max(step) AS step FROM steps")
    # The run was made longer after the summary was written, and did not reach its new end.
    return "finished" if row["step"] == summary["steps"] else "killed"


@dataclass(frozen=True)
class Reached:
    """The virtual time at which the mean accuracy first reached a target, per method and seed; None if never."""

    target: float | None
    seconds: dict[str, list[float | None]]

    def mean(self, method: str) -> float | None:
        """Return None if one seed never reached the target: a mean over the others would flatter."""
        times = self.seconds[method]
        known = [seconds for seconds in times if seconds is not None]
        return sum(known) / len(known) if known and len(known) == len(times) else None


def time_to_target(runs: Sequence[Run], target: float | None = None) -> Reached:
    """Without a target, take the highest multiple of 5 % that more than half of the methods reached with every seed."""
    curves: dict[str, list[Curve]] = {}
    for run in sorted(runs, key=lambda run: run.experiment.run.seed):
        curves.setdefault(str(run.experiment.method["name"]), []).append(_curve(run))
    if target is None:
        target = common_target([min(_top(curve) for curve in group) for group in curves.values()])
    seconds = {
        method: [None if target is None else _first(curve, target) for curve in group]
        for method, group in curves.items()
    }
    return Reached(target, seconds)


def common_target(tops: Sequence[float]) -> float | None:
    """Find the target from the best accuracy of each method; None if more than half of them stay below 5 %."""
    reached = sorted(tops)[(len(tops) - 1) // 2]  # more than half of the methods reached this accuracy
    steps = math.floor(reached / STEP + 1e-9)
    return round(steps * STEP, 2) if steps else None


Curve = list[tuple[float, float]]  # virtual time, mean accuracy


def _curve(run: Run) -> Curve:
    sql = "SELECT virtual, mean FROM evaluations JOIN steps USING (step) ORDER BY step"
    return [(row["virtual"], row["mean"]) for row in read(run.folder / "run.db", sql)]


def _top(curve: Curve) -> float:
    return max((mean for _, mean in curve), default=0.0)


def _first(curve: Curve, target: float) -> float | None:
    return next((virtual for virtual, mean in curve if mean >= target), None)
