"""Plan a federation: what each method would cost on a fleet, and with data what it would bring.

The runs are those that `potluck compare` would make. Every method runs dry (`dry.py`), so its costs are not modelled a
second time. A few dry runs with other seeds say how far jitter and availability move them. Where there is data, a short
look (`look.py`) and the archive's experience (`predict.py`) predict the accuracy.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from potluck.errors import BadInput
from potluck.methods import load, short_name
from potluck.planner import look as looks
from potluck.planner import shrink
from potluck.planner.archive import facts
from potluck.planner.costs import Figures, figures
from potluck.planner.day import Day, day_of
from potluck.planner.dry import DrySession, dry_run, dry_session, without_goals
from potluck.planner.interval import Interval
from potluck.planner.look import Glimpse
from potluck.planner.predict import Prediction, Seen, calibration
from potluck.planner.wish import Wish
from potluck.runs import compare_plan, needs
from potluck.runs.drive_state import NothingRan
from potluck.runs.experiment import Experiment
from potluck.unforeseen import unforeseen_in

if TYPE_CHECKING:
    from potluck.planner.words import Advice

WITHOUT_DATA = ("local", "fedavg", "ftl", "fedbuff")
WITH_DATA = ("local", "fedavg", "ftl", "ditto", "fedbuff", "clusterfl", "echopfl")
MOST_TASKS = 5_000  # of a dry run; a longer one is simulated in part and made longer by proportion
OTHER_SEED = 1000
NO_ARCHIVE = "there is no archive of runs to learn from"
Built = tuple[str, int, int, str]  # model, parameters, clients, data


@dataclass(frozen=True)
class MethodPlan:
    """One method on this fleet. Without figures it cannot run here, and `why_not` says why."""

    method: str
    why_not: str = ""
    figures: Figures | None = None
    seconds: Interval = Interval(0.0)
    joules: Interval = Interval(0.0)  # of all clients together, with idle
    bytes: Interval = Interval(0.0)
    day: Day | None = None
    hints: tuple[str, ...] = ()  # what to shrink, where devices are too small
    glimpse: Glimpse | None = None
    prediction: Prediction | None = None
    rough: str = ""  # what the costs depend on that no dry run knows; empty: they are those of the run with this seed

    @property
    def name(self) -> str:
        return short_name(self.method)

    @property
    def unfit(self) -> int:
        return 0 if self.figures is None else sum(one.unfit for one in self.figures.devices)


@dataclass(frozen=True)
class Plan:
    """What `potluck plan` found. `potluck.planner.words` says it in sentences, `page` draws it."""

    methods: tuple[MethodPlan, ...]
    wish: Wish
    data: str  # empty where only sizes are known
    clients: int
    model: str
    parameters: int
    notes: tuple[str, ...] = ()
    facts: Mapping[str, float] = field(default_factory=dict)
    lacks: str = ""  # why no accuracy is predicted

    @property
    def able(self) -> list[MethodPlan]:
        """The methods that can run here."""
        return [one for one in self.methods if one.figures is not None]

    @property
    def advice(self) -> Advice:
        """The recommendation in words."""
        from potluck.planner.words import advise

        return advise(self)

    def write(self, path: str | Path) -> Path:
        """Write the plan as one HTML page that needs no network."""
        from potluck.planner.page import write

        return write(self, self.advice, Path(path))

    def json(self) -> dict[str, Any]:
        """Everything the plan says, as plain values."""
        from potluck.planner.plain import plain

        return plain(self, self.advice)


@dataclass(frozen=True)
class Effort:
    """How much a plan may compute."""

    seeds: int = 3  # dry runs per method, the first with the run's own seed
    tasks: int = MOST_TASKS  # of each
    look: bool = True


NOTHING, USUAL = Wish(), Effort()


def plan(
    values: Mapping[str, Any],
    names: Sequence[str],
    wish: Wish = NOTHING,
    settings: Sequence[str] = (),
    effort: Effort = USUAL,
    only_sizes: bool = False,
    say: Callable[[str], None] = lambda what: None,
) -> Plan:
    """Plan these methods for an experiment, given as nested settings and `section.key=value`."""
    planned = compare_plan.plan(values, names, 1, settings)
    found: list[MethodPlan] = []
    first: Built | None = None
    refused: BadInput | None = None
    about: Mapping[str, float] = {}
    for run in planned.runs:
        say(f"{short_name(run.method)}: dry run")
        try:
            one, built = _costs(run.method, run.experiment, wish, effort, known=found)
        except NothingRan as error:
            one, built = _nobody(run.method, run.experiment, str(error))
            refused, first = refused or error, first or built
            found.append(one)
        except BadInput as error:
            refused = refused or error
            found.append(MethodPlan(run.method, why_not=str(error)))
        else:
            first = first or built
            found.append(one)
    if refused is not None and first is None:
        raise refused  # a mistake in what all methods share
    if effort.look and not only_sizes and any(one.figures for one in found):
        about = facts(planned.runs[0].experiment)
        experiments = {run.method: run.experiment for run in planned.runs}
        found = [_looked(one, experiments[one.method], say) for one in found]
    name, parameters, clients, data = first or ("", 0, 0, "")
    lacks = NO_ARCHIVE
    if about:
        found, lacks = _predicted(found, about, name)
    shown = "" if only_sizes else data
    return Plan(tuple(found), wish, shown, clients, name, parameters, planned.notes, about, lacks)


def _costs(
    method: str, experiment: Experiment, wish: Wish, effort: Effort, known: Sequence[MethodPlan]
) -> tuple[MethodPlan, Built]:
    usual, rough = foreseen(method, experiment)
    with dry_run(usual, tasks=effort.tasks) as (run, session):
        summary, own = run.summary, dict(session.model.settings)
        dry = figures(run, session)
        data = session.federation.dataset.name
    others = [_other(usual, seed, effort.tasks, session) for seed in range(1, effort.seeds)]
    extreme = None
    if usual is not experiment:
        with dry_run(experiment, tasks=effort.tasks) as (run, session):
            extreme = figures(run, session)
    one = MethodPlan(
        method,
        figures=dry,
        seconds=_around(dry, others, extreme, lambda f: f.seconds),
        joules=_around(dry, others, extreme, lambda f: f.joules.total),
        bytes=_around(dry, others, extreme, lambda f: float(f.bytes_up + f.bytes_down)),
        day=day_of(dry, wish),
        rough=rough,
    )
    if one.unfit:
        before = [other for other in known if other.unfit]
        same = next((other.hints for other in before if other.unfit == one.unfit), None)
        one = replace(one, hints=shrink.hints(experiment, one.unfit, own) if same is None else same)
    clients = sum(device.clients for device in dry.devices if device.kind != "access-point")
    return one, (str(summary["model"]), int(summary["parameters"]), clients, data)


def _nobody(method: str, experiment: Experiment, why: str) -> tuple[MethodPlan, Built]:
    """A method that runs on no device, and what to shrink so that it does."""
    session = dry_session(without_goals(needs.filled(experiment)))
    try:
        model, count = session.model, len(session.federation.names)
        size = sum(session.weights[name].numel() for name in model.trainable)
        built = (model.name, size, count, session.federation.dataset.name)
        return MethodPlan(method, why, hints=shrink.hints(experiment, count, dict(model.settings))), built
    finally:
        session.close()


def _other(experiment: Experiment, seed: int, tasks: int, like: DrySession) -> Figures:
    """The figures of another seed on the same deal of devices and the same split."""
    split, deal = experiment.partition_spec().seed, experiment.fleet.seed
    other = experiment.with_(run={"seed": OTHER_SEED + seed}, partition={"seed": split}, fleet={"seed": deal})
    with dry_run(other, tasks=tasks, like=like) as (run, session):
        return figures(run, session)


def foreseen(method: str, experiment: Experiment) -> tuple[Experiment, str]:
    """The experiment as it runs dry, and what no dry run knows of the method's costs; empty where it knows all."""
    lacks = unforeseen_in(load(method).module)
    if lacks is None:
        return experiment, ""
    dry = {name: value for name, value in lacks.dry.items() if experiment.method.get(name) != value}
    if lacks.dry and not dry:  # the experiment's own settings leave nothing open
        return experiment, ""
    return experiment.with_(method=dry) if dry else experiment, lacks.what


def _around(
    dry: Figures, others: Sequence[Figures], extreme: Figures | None, read: Callable[[Figures], float]
) -> Interval:
    """The figure of the run's own seed, and where another seed may be, and the other extreme of what is not known."""
    found = Interval.of([read(dry), *map(read, others)])
    return found if extreme is None else found.reaching(read(extreme))


def _looked(one: MethodPlan, experiment: Experiment, say: Callable[[str], None]) -> MethodPlan:
    """Look at a method."""
    if one.figures is None or experiment.budget.local_passes is None:
        return one
    say(f"{one.name}: a short look")
    return replace(one, glimpse=looks.look(experiment))


def _predicted(found: Sequence[MethodPlan], about: Mapping[str, float], model: str) -> tuple[list[MethodPlan], str]:
    """The methods with what the archive predicts of them, and why it predicts nothing; empty where it does.

    Times to a target are not predicted: in the back-test they were no better than chance (`docs/plan.md`).
    """
    experience = calibration()
    if experience is None:
        return list(found), NO_ARCHIVE
    seen = Seen(about, {one.method: one.glimpse.scores for one in found if one.glimpse is not None})
    passes = max((one.figures.passes for one in found if one.figures is not None), default=0.0)
    lacks = experience.lacks(seen, model, passes)
    if lacks:
        return list(found), f"the archive has nothing like this: {lacks}"
    return [
        one
        if one.figures is None
        else replace(one, prediction=experience.predict(seen, one.method, None, one.figures.steps))
        for one in found
    ], ""
