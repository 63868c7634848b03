"""Tune several methods in one folder: their trials in parallel, every decision repeatable from what is on disk."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from potluck import files, methods
from potluck.data.split import TEST, TRAIN, VALID
from potluck.errors import BadInput, Code, must_be
from potluck.methods import short_name
from potluck.runs import parallel
from potluck.runs.build import build, config_of
from potluck.runs.compare import Interrupted, Plan, Planned, Watchers
from potluck.runs.deal import federation_of
from potluck.runs.experiment import Experiment
from potluck.runs.interrupt import interruptible
from potluck.runs.manifest import figures_of
from potluck.runs.results import Run
from potluck.settings import flat, nested
from potluck.spaces import Dimension, Space
from potluck.tune.candidates import Candidate, Sampler, Settings, Spread
from potluck.tune.request import Request, as_text
from potluck.tune.search import Found, Search, Searched, Wanted, search, shares_of
from potluck.tune.trial import Trial, carry_on

ASKED = "asked.json"  # what a folder was made for
TRIALS = "trials"


@dataclass(frozen=True)
class Tuning:
    """What is to be tuned: one experiment per method, as it will be reported, and how."""

    request: Request
    bases: Mapping[str, Experiment]  # by the method's name
    spaces: Mapping[str, Mapping[str, Dimension]]

    def trial(self, folder: Path, method: str, wanted: Wanted, seed: int) -> Trial:
        name = f"{short_name(method)}-c{wanted.candidate.number:02d}-s{seed}"
        base = self.bases[method]
        place = folder / TRIALS
        changed = base if wanted.candidate.default else with_settings(base, wanted.candidate.settings)
        experiment = changed.with_(
            run={"seed": seed, "evaluate_on": "valid", "out": str(place), "name": name},
            partition={"valid_share": self.valid_share(base)},
        )
        return Trial(method, experiment, place / name, wanted.share)

    def valid_share(self, base: Experiment) -> float:
        return base.partition_spec().valid_share or self.request.valid_share

    def asked(self) -> dict[str, Any]:
        """Everything that decides what is chosen."""
        found = {f"tune.{name}": value for name, value in asdict(self.request).items()}
        for method, base in self.bases.items():
            found |= {f"{method}: {key}": value for key, value in figures_of(base).items()}
            found |= {f"{method}: space of {name}": text for name, text in as_text(self.spaces[method]).items()}
        return json.loads(json.dumps(found))  # type: ignore[no-any-return]


def prepared(request: Request, planned: Plan, spaces: Mapping[str, Mapping[str, Dimension]]) -> Tuning:
    """Check a tuning before anything runs, and fix the split, so that no trial reads a test row of the report.

    `planned` has the runs of the report. All of them, and all trials, get the same `partition.seed`.
    """
    used = sorted({run.seed for run in planned.runs} & set(request.all_seeds))
    if used:
        wanted = "other seeds than those of the report"
        raise must_be(Code.SETTINGS_CLASH, "tune.first_seed", wanted, shown=f"{used[0]} in both")
    bases: dict[str, Experiment] = {}
    for run in split_fixed(planned, request).runs:
        bases.setdefault(run.method, run.experiment)
    tuning = Tuning(request, bases, spaces)
    for method, base in tuning.bases.items():
        loaded = methods.load(method)
        if base.run.engine != "local":
            raise must_be(Code.SETTINGS_CLASH, "run.engine", "local for tuning", base.run.engine)
        for share in (0.0, 0.5, 1.0):  # a value that the method refuses shows here
            drawn = {name: one.at(share) for name, one in spaces[method].items()}
            config_of(with_settings(base, drawn), loaded)
    return tuning


def split_fixed(planned: Plan, request: Request) -> Plan:
    """Give all runs one split of the rows, that of the first seed, whatever their own seed is."""
    first = min(run.seed for run in planned.runs)

    def fixed(run: Planned) -> Planned:
        spec = run.experiment.partition
        changes: dict[str, Any] = {"seed": spec.get("seed", first)}
        if spec.get("sizes") is not None and not spec.get("valid_share"):
            changes["valid_share"] = request.valid_share  # with sizes, validation rows change who gets which rows
        return Planned(run.method, run.seed, run.experiment.with_(partition=changes))

    return Plan(tuple(fixed(run) for run in planned.runs), planned.notes)


def with_settings(base: Experiment, settings: Settings) -> Experiment:
    """The experiment with some settings of its method changed, given by dotted names."""
    config = methods.load(str(base.method["name"])).config
    section = {name: value for name, value in base.method.items() if name != "name"}
    values = base.model_dump()
    values["method"] = {"name": base.method["name"], **nested({**flat(config, section), **settings})}
    return Experiment.of(values)


def check(tuning: Tuning, folder: Path) -> None:
    """Build one trial of each method, so that mistakes show first; and see that trials read no test row."""
    seen: dict[str, None] = {}
    for method, base in tuning.bases.items():
        wanted = Wanted(Candidate(0, {}), 0, 1.0)
        trial = tuning.trial(folder, method, wanted, tuning.request.first_seed).experiment
        build(trial).close()
        if not trial.budget.limits and trial.stop.rounds is None and trial.stop.virtual_seconds is None:
            raise must_be(Code.NEVER_ENDS, "tune", "given a budget, such as --budget local_passes=20", shown="none")
        split = json.dumps([trial.data.model_dump(), trial.partition, trial.server.model_dump()], default=str)
        if split not in seen:
            seen[split] = None
            _no_test_row(trial, base)


def _no_test_row(trial: Experiment, base: Experiment) -> None:
    tried, reported = federation_of(trial).side, federation_of(base).side
    read = np.flatnonzero(((tried == TRAIN) | (tried == VALID)) & (reported == TEST))
    if len(read):
        raise BadInput(
            Code.PARTITION_ROWS,
            f"partition: tuning would read {len(read)} test rows of the report. Set partition.valid_share, which gives "
            "both the same split.",
        )


def carry_out(
    tuning: Tuning, folder: Path, watchers: Watchers, take_up: bool = False, at_a_time: int = 1,
    say: Callable[[str], None] = lambda sentence: None,
) -> dict[str, Searched]:  # fmt: skip
    """Tune all methods in a folder; with `take_up`, continue what is there."""
    folder.mkdir(parents=True, exist_ok=True)
    _same(tuning, folder / ASKED, take_up)
    searches = {method: _search(tuning, method) for method in tuning.bases}
    open_ones: dict[str, list[Wanted]] = {method: next(one) for method, one in searches.items()}
    done: dict[str, Searched] = {}
    while open_ones:
        _tell(open_ones, tuning, say)
        batch = {
            method: [[tuning.trial(folder, method, one, seed) for seed in tuning.request.all_seeds] for one in wanted]
            for method, wanted in open_ones.items()
        }
        _all_carried_on(
            [trial for rows in batch.values() for row in rows for trial in row], folder, watchers, at_a_time
        )
        for method, rows in batch.items():
            try:
                open_ones[method] = searches[method].send([_found(row) for row in rows])
            except StopIteration as end:
                done[method] = end.value
                del open_ones[method]
    return {method: done[method] for method in tuning.bases}


def _search(tuning: Tuning, method: str) -> Search:
    request, base = tuning.request, tuning.bases[method]
    default = defaults(base, tuning.spaces[method])
    return search(sampler_of(request, method, tuning.spaces[method], default), request.trials, request.keep, default)


def defaults(base: Experiment, space: Space) -> Settings:
    """The settings of the space as the experiment has them now."""
    config = config_of(base, methods.load(str(base.method["name"])))
    found: Settings = {}
    for name in space:
        value: Any = config
        for part in name.split("."):
            value = getattr(value, part)
        if value is not None:
            found[name] = value
    return found


def sampler_of(request: Request, method: str, space: Space, default: Settings) -> Sampler:
    if request.sampler == "optuna":
        from potluck.tune.optuna_sampler import Optuna

        return Optuna(space, default, request.first_seed, short_name(method))
    return Spread(space, default, request.first_seed, "tune", short_name(method))


def _tell(open_ones: Mapping[str, list[Wanted]], tuning: Tuning, say: Callable[[str], None]) -> None:
    rungs = len(shares_of(tuning.request.trials, tuning.request.keep))
    for rung in sorted({wanted[0].rung for wanted in open_ones.values()}):
        here = {method: wanted for method, wanted in open_ones.items() if wanted[0].rung == rung}
        count = sum(len(wanted) for wanted in here.values())
        share = max(wanted[0].share for wanted in here.values())
        names = ", ".join(short_name(method) for method in here)
        say(f"rung {rung + 1} of {rungs}, up to {100 * share:.0f} % of the budget: {count} candidates of {names}")


def _all_carried_on(trials: Sequence[Trial], folder: Path, watchers: Watchers, at_a_time: int) -> None:
    """Carry on the trials that have no score yet; raise Interrupted if the user asked to stop."""
    todo = [trial for trial in trials if trial.score is None]
    watchers.expect([(trial.folder.name, trial.method) for trial in todo])
    jobs = [partial(carry_on, trial) for trial in todo]
    with interruptible() as asked_to_stop:
        if at_a_time > 1 and len(todo) > 1:
            each = [watchers.next_run(one.folder.name, i, len(todo)) for i, one in enumerate(todo, start=1)]
            parallel.carry_out(jobs, each, at_a_time)
        else:
            for number, (trial, job) in enumerate(zip(todo, jobs, strict=True), start=1):
                watcher = watchers.next_run(trial.folder.name, number, len(todo))
                job(watcher)
                watcher.close()
                if asked_to_stop.is_set():
                    break
    if asked_to_stop.is_set() or any(trial.score is None for trial in trials):
        raise Interrupted(folder)


def _found(row: Sequence[Trial]) -> Found:
    scores = [score for trial in row if (score := trial.score) is not None]
    return Found(
        sum(one.accuracy for one in scores) / len(scores),
        min(one.share for one in scores),
        max(one.evaluations for one in scores),
        sum(one.passes for one in scores),
    )


def _same(tuning: Tuning, path: Path, take_up: bool) -> None:
    """Write what this folder is for, or see that it is for the same."""
    here = tuning.asked()
    if not path.exists():
        files.write_json(path, here)
        return
    there = json.loads(path.read_text(encoding="utf-8"))
    if not take_up:
        raise BadInput(Code.OUTPUT_PLACE, f"tune: {str(path.parent)!r} holds a tuning. Add --resume to continue it.")
    for key in sorted(there.keys() | here.keys()):
        if there.get(key) != here.get(key):
            raise BadInput(
                Code.COMPARISON,
                f"--resume: {str(path.parent)!r} was made with {key} = {there.get(key)!r}, got {here.get(key)!r} now. "
                "Choose another --name to start again.",
            )


def runs_of(folder: Path) -> list[Run]:
    """All trials of a tuning, as runs."""
    return [Run(path.parent) for path in sorted((folder / TRIALS).glob("*/experiment.toml"))]
