"""Dry runs: a run without training. Its bytes, times, joules and memory are those of the run that trains.

An engine prices every task before it runs, and the price fixes when the answer arrives. So only the values of the
updates are missing in a run that trains nothing. `Answers` stands where the executor's worker processes would be. It
runs each kind of task twice on blank data, once with one mini-batch and once with two, as pricing does. It answers all
tasks of that kind with the result, in the client's own number of rows. The server program, the clock, the budget
and the record are those of a real run.

What a method decides by the values of updates may differ: which clusters it finds, which client it asks next, how many
samples a selection keeps. `docs/plan.md` has the differences that were measured.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from potluck import compiled, keys
from potluck.engines.chunks import Job
from potluck.engines.price import batch_of, blank
from potluck.engines.programs import call
from potluck.engines.results import Result
from potluck.fleet import ClientProgram, Data, Done, Local
from potluck.learn import Recipe, plain
from potluck.models import Model
from potluck.runs import drive, needs
from potluck.runs.build import assembled, build, config_of, with_cohort
from potluck.runs.experiment import Experiment
from potluck.runs.local_session import LocalSession
from potluck.runs.protection import protection_of
from potluck.runs.results import Run
from potluck.runs.rosters import roster_of
from potluck.runs.watcher import Silent
from potluck.wire.codec import flatten, kinds_of, rebuild
from potluck.wire.gate import inspect

UNLIKE = 1e-3  # standard deviation of what makes the answers of two clients unlike: no two devices train alike
VARIANTS = 8  # how many unlike answers there are to one kind of task


@dataclass(frozen=True)
class _Template:
    """What a kind of task returns: for one mini-batch of rows and for two."""

    anchor: int
    first: Done
    second: Done
    answers: dict[tuple[int, int, int, bool], Result] = field(default_factory=dict)  # by rows, counted ones, variant
    _varied: dict[tuple[str, int, int], Tensor] = field(default_factory=dict)

    @cached_property
    def parts(self) -> dict[str, tuple[str, list[Tensor]]]:
        return {one.name: flatten(getattr(self.first, one.name)) for one in fields(Done)}

    def unlike(self, part: str, i: int, variant: int) -> Tensor:
        """The i-th tensor of a part, a little different for each variant; -1 for as it is."""
        tensor = self.parts[part][1][i]
        if variant < 0 or not tensor.is_floating_point() or tensor.dim() == 0:
            return tensor
        key = (part, i, variant)
        if key not in self._varied:
            draw = torch.from_numpy(keys.rng("dry", *key).standard_normal(tuple(tensor.shape))).to(tensor.dtype)
            self._varied[key] = tensor + UNLIKE * draw
        return self._varied[key]


class Answers:
    """Answers tasks without training (the protocol `Workers` of the executor)."""

    def __init__(self, session: LocalSession) -> None:
        self._model: Model = session.model
        self._programs = session.method.programs
        self._classes = session.method.classes | {"Data": Data}
        self._like = session.fleet.home.data
        self._has_valid = session.fleet.home.valid is not None
        self._known: dict[tuple[Any, ...], _Template] = {}

    def run(self, chunks: Sequence[Sequence[Job]]) -> list[list[Result]]:
        return [self._answers(chunk) for chunk in chunks]

    def news(self) -> list[str]:
        return []

    def close(self) -> None:
        """Other sessions may use the answers, so they stay."""

    def _answers(self, chunk: Sequence[Job]) -> list[Result]:
        """Jobs of a chunk have the same program and shapes, so they have one template."""
        kind = _kind(chunk[0])
        if kind not in self._known:
            self._known[kind] = self._template(chunk[0])
        return [self._answer(job, self._known[kind]) for job in chunk]

    def _answer(self, job: Job, template: _Template) -> Result:
        trains_on_parcel = isinstance(job.parcel, Data) and not job.samples
        if template.first.handoff is not None and job.samples:
            done = self._hands_over(job)
        else:
            rows = len(job.parcel.y) if trains_on_parcel else job.samples
            counted = int(job.parcel.weight.sum()) if trains_on_parcel else rows
            kind = (rows, counted, job.client % VARIANTS, job.own)
            if kind not in template.answers:
                done = Done(**{one.name: self._grown(template, one.name, *kind[:3]) for one in fields(Done)})
                done = done if job.own else replace(done, own=None)
                template.answers[kind] = Result(done, inspect(done.update))
            return template.answers[kind]
        done = done if job.own else replace(done, own=None)
        return Result(done, inspect(done.update))

    def _hands_over(self, job: Job) -> Done:
        """How many rows a device hands over depends on the task and on chance: run it, on noise."""
        return self._ran(self._programs[type(job.task)], job, job.samples, noise=True)

    def _template(self, job: Job) -> _Template:
        program, anchor = self._programs[type(job.task)], batch_of(job.task)
        return _Template(anchor, self._ran(program, job, anchor), self._ran(program, job, 2 * anchor))

    @torch.no_grad()
    def _ran(self, program: ClientProgram, job: Job, rows: int, noise: bool = False) -> Done:
        data = self._noise(rows, job.key) if noise else blank(self._like, rows)
        valid = blank(self._like, rows) if self._has_valid else None
        parcel = job.parcel
        if isinstance(parcel, Data):
            parcel = blank(parcel, rows)
            data = data if job.samples else blank(self._like, 0)
        local = Local(self._model, data, job.mine, keys.key(job.key), job.carry, job.mail, parcel, valid)
        with plain():
            return call(program, job.task if noise else _shorter(job.task), local)

    def _noise(self, rows: int, key: int) -> Data:
        """Rows on which a selection has something to select by."""
        data, draw = blank(self._like, rows), keys.rng("dry rows", key)
        x = torch.from_numpy(draw.standard_normal(tuple(data.x.shape), dtype="float32")).to(data.x.dtype)
        classes = draw.integers(0, max(1, self._model.classes), tuple(data.y.shape))
        return replace(data, x=x, y=data.y if data.y.is_floating_point() else torch.from_numpy(classes))

    def _grown(self, template: _Template, part: str, rows: int, counted: int, variant: int) -> Any:
        """One part of the answer, for so many rows."""
        one, two = getattr(template.first, part), getattr(template.second, part)
        if one is None:
            return None
        skeleton, first = template.parts[part]
        variant = variant if part == "update" else -1
        tensors = [
            template.unlike(part, i, variant) if a.shape == b.shape else _resized(a, b, rows)
            for i, (a, b) in enumerate(zip(first, flatten(two)[1], strict=True))
        ]
        value = rebuild(skeleton, tensors, self._classes)
        return _counted(value, one, two, template.anchor, counted) if is_dataclass(value) else value


def _shorter(task: Any) -> Any:
    """The task with one epoch: more of them give no other shapes."""
    recipe = getattr(task, "recipe", None)
    return replace(task, recipe=replace(recipe, epochs=1)) if isinstance(recipe, Recipe) and recipe.epochs > 1 else task


def _kind(job: Job) -> tuple[Any, ...]:
    parcel = blank(job.parcel, 0) if isinstance(job.parcel, Data) else job.parcel
    skeleton, tensors = flatten((job.mine, job.carry, job.mail, parcel))
    shape, own = flatten(job.task)
    recipe = str(getattr(job.task, "recipe", ""))
    return type(job.task), recipe, _form(shape), kinds_of(own), _form(skeleton), kinds_of(tensors)


def _form(skeleton: str) -> str:
    """A skeleton without its numbers: rounds and rates differ from task to task."""
    return "".join(" " if sign in "0123456789.+-e" else sign for sign in skeleton).replace(" ", "")


def _resized(one: Tensor, two: Tensor, rows: int) -> Tensor:
    """A tensor that grows with the rows, at so many rows: the rows of `one`, repeated."""
    for axis, (a, b) in enumerate(zip(one.shape, two.shape, strict=True)):
        if a != b:
            length = max(0, a + (b - a) * (rows - a) // max(1, b - a))
            places = torch.arange(length) % max(1, a)
            return one.index_select(axis, places)
    return one


def _counted(value: Any, one: Any, two: Any, anchor: int, rows: int) -> Any:
    """The same with `examples` for so many rows: they follow the rows."""
    if not hasattr(value, "examples"):
        return value
    a, b = one.examples, two.examples
    grown = a + (b - a) * ((rows - anchor) / anchor)
    if isinstance(grown, Tensor):
        grown = grown.clamp_min(0).to(a.dtype)
        total = float(grown.sum())
        grown = grown * (rows / total) if total > rows > 0 else grown
    else:
        grown = type(a)(min(rows, max(0, grown)))
    return replace(value, examples=grown)


class DrySession(LocalSession):
    """A session whose clients do not train and are not evaluated."""

    def evaluate(self, state: Any) -> Any:
        return None

    def save_models(self, folder: Path, state: Any) -> None:
        """There is nothing to save."""

    @property
    def checkpoint_seconds(self) -> float:
        return float("inf")


def dry_session(experiment: Experiment, like: LocalSession | None = None) -> DrySession:
    """The session of an experiment, with `Answers` instead of training.

    `like` is one with another seed but the same split: its data, prices and answers are used again.
    """
    session = build(experiment) if like is None else _again(experiment, like)
    session.fleet.kept.nobody()
    session.executor.workers = Answers(session) if like is None else like.executor.workers
    session.fleet.prices = session.fleet.prices if like is None else like.fleet.prices
    return DrySession(**{one.name: getattr(session, one.name) for one in fields(LocalSession)})


def _again(experiment: Experiment, like: LocalSession) -> LocalSession:
    """The same clients with another seed."""
    method, model = like.method, like.model
    config = with_cohort(experiment, config_of(experiment, method), len(like.federation.names))
    roster = roster_of(experiment, like.federation)
    protection = protection_of(experiment, method, config, model)
    return assembled(experiment, method, config, model, like.weights, like.federation, like.servers, roster, protection)


@contextmanager
def dry_run(
    experiment: Experiment,
    share: float | None = None,
    tasks: int | None = None,
    like: LocalSession | None = None,
) -> Iterator[tuple[Run, DrySession]]:
    """Run an experiment dry in a folder that is removed afterwards.

    `share` is how much of the run, by its budget or its rounds; `tasks` is about how many tasks at most. A run that
    only accuracy or patience would end has no end here. `like` is as for `dry_session`.
    """
    experiment = without_goals(needs.filled(experiment))
    with tempfile.TemporaryDirectory(prefix="potluck-plan-") as place:
        folder = Path(place) / "run"
        folder.mkdir()
        session = dry_session(experiment, like)
        share = _share_of(session, tasks) if share is None and tasks is not None else share
        (folder / "experiment.toml").write_text(experiment.toml(), encoding="utf-8")
        with compiled.off():  # so few steps are not worth loading kernels
            run = drive.carry_out(folder, session, Silent(), share)
        yield run, session


def _share_of(session: LocalSession, tasks: int) -> float | None:
    """The share of a run that has about so many tasks; None for all of it."""
    experiment, recipe = session.experiment, getattr(session.config, "recipe", None)
    rounds = experiment.stop.rounds or experiment.budget.rounds
    if experiment.budget.local_passes is not None and recipe is not None:
        rounds = max(1.0, experiment.budget.local_passes / recipe.epochs)
    if rounds is None:
        return None
    a_round = getattr(session.config, "cohort", 0) or len(session.fleet.clients)
    return None if rounds * a_round <= tasks else max(2.0 / rounds, tasks / (rounds * a_round))


def without_goals(experiment: Experiment) -> Experiment:
    """Nothing is evaluated, and nothing is clipped: both cost time and change neither bytes nor virtual time."""
    stop = {"accuracy": None, "score": None, "patience": None}
    return experiment.with_(stop=stop, wire={"clip": 0.0}, newcomers={"share": 0.0}, run={"workers": 1})
