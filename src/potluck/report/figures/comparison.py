"""The numbers of a comparison: means over seeds, and how far each method is behind the best.

Runs of one seed share their fleet, split and first weights, so methods are compared seed by seed. A difference is the
mean over common seeds of (method - best), and its interval is that of the paired t-test. The intervals are not widened
for the number of methods (`noise` says what a correction leaves), and the best was picked from the same data. So they
caution against small differences; they do not prove large ones. `statistics` looks at every pair of methods, at each
client, at ranks, and at the number of seeds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from potluck.metrics import ACCURACY, Metric, score, scored_by, words
from potluck.report.figures import scores
from potluck.report.figures.budgets import Limit, accuracy_at, area, basis, limit_of
from potluck.report.figures.gains import Gains, all_gains
from potluck.report.figures.inference import Inference, better_own, inference, trained_mean
from potluck.report.figures.inference import in_words as untrained_in_words
from potluck.report.figures.newcomers import Newcomers, newcomers
from potluck.report.figures.noise import noise
from potluck.report.figures.pairs import Pair, chosen_pairs, interval, pair
from potluck.report.figures.power import SeedsNeeded
from potluck.report.figures.ranks import Ranks
from potluck.report.figures.resources import resource_lead, resources_of
from potluck.report.figures.sentence import ALONE, CLEAR, NOISE, TOO_FEW, sentence
from potluck.report.figures.statistics import Statistics, in_words, statistics
from potluck.report.reading.groups import Group, Grouped, group
from potluck.report.reading.infers import with_own_models
from potluck.report.reading.left_out import left_out
from potluck.report.reading.run_figures import RunFigures
from potluck.runs.results import Run
from potluck.units import plural


@dataclass(frozen=True)
class Spread:
    """Mean over seeds, and the standard deviation (n - 1) if there are two or more; then also its 95 % t interval."""

    mean: float
    std: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Difference:
    """The difference in mean accuracy to the best method, over the seeds that both finished."""

    to: str
    seeds: list[int]
    mean: float | None  # below 0 when behind; None without a common seed
    low: float | None
    high: float | None
    verdict: str  # NOISE, CLEAR or TOO_FEW
    by_seed: list[float]  # in the order of the seeds


@dataclass(frozen=True)
class Row:
    """One method. Accuracies are shares of 1, and scores of other metrics are merits: an error is negative.

    Costs are those of a whole run, all clients together.
    """

    method: str
    name: str  # the method's name, without the settings that `method` may add
    seeds: list[int]  # of the runs that count
    finished: bool  # whether the figures come from finished runs
    unfinished: list[int]  # seeds of runs that are not finished
    best: bool
    rounds: Spread | None
    accuracy: Spread | None
    at_time: Spread | None  # accuracy at equal virtual time
    at_passes: Spread | None  # accuracy at equal local passes
    area: Spread | None  # mean accuracy on the way to that time
    local_passes: Spread | None
    able_accuracy: Spread | None  # of the clients that trained
    worst_tenth: Spread | None
    worst_client: Spread | None
    bytes_up: Spread | None
    bytes_down: Spread | None
    virtual_seconds: Spread | None
    joules: Spread | None  # training and sending
    idle_joules: Spread | None  # waiting, awake
    all_joules: Spread | None  # all that the devices drew over the run; None where waiting is not known
    idle_share: Spread | None  # of all_joules, idle or asleep
    macs: Spread | None
    refused: Spread | None  # updates
    lost: Spread | None  # tasks without an update, not counting unfit clients
    unfit: Spread | None  # clients whose device has too little memory to train
    difference: Difference | None  # to the best; None for the best itself
    able_difference: Difference | None  # the same among the clients that trained
    beside: dict[str, Spread] = field(default_factory=dict)  # what the method wants beside its accuracy, by its words


@dataclass(frozen=True)
class Comparison:
    data: str
    clients: int  # evaluated
    rows: list[Row]  # best first; those without a finished run last
    best: str | None  # None with one method only, or when nothing finished
    sentence: str
    notes: list[str]
    basis: str = ""  # what the methods have in common: a budget; the first line of a comparison
    time: Limit | None = None  # of the column at equal virtual time
    passes: Limit | None = None  # of the column at equal local passes
    figures: str = scores.AT_THE_END.format(ACCURACY.words)  # what the accuracies of the next four are
    pairs: tuple[Pair, ...] = ()  # every pair of methods, seed by seed
    per_client: tuple[Gains, ...] = ()  # client by client: the best with each method, each method with local training
    ranks: Ranks | None = None  # average ranks over seeds
    seeds_needed: tuple[SeedsNeeded, ...] = ()  # to tell two methods apart, for every pair
    resources: dict[str, list[str]] = field(default_factory=dict)  # method -> what it has beyond the clients' rows
    own: tuple[Row, ...] = ()  # "fedavg, own": methods read with the models as training left them
    own_pairs: tuple[Pair, ...] = ()  # own models minus received ones, for each method that has both
    own_clients: tuple[Gains, ...] = ()  # the same client by client
    infers_with: tuple[Inference, ...] = ()  # what the clients of each method could infer with
    newcomers: tuple[Newcomers, ...] = ()  # what clients get that took no part in training
    metric: Metric = ACCURACY  # what the scores are

    @property
    def lines(self) -> list[Row]:
        """The rows, each followed by the same method read with own models."""
        own = {row.method: row for row in self.own}
        pairs = [(row, own.get(f"{row.method}, own")) for row in self.rows]
        return [row for pair in pairs for row in pair if row is not None]

    def _repr_html_(self) -> str:
        from potluck.report.html.notebook import comparison_html  # it reads this module

        with scored_by(self.metric):
            return comparison_html(self)


def compare(runs: Sequence[Run]) -> Comparison:
    """Compare the methods of these runs."""
    return compare_groups(group(runs))


def compare_groups(grouped: Grouped) -> Comparison:
    with scored_by(grouped.metric):
        return _compared(grouped)


def _compared(grouped: Grouped) -> Comparison:
    groups, notes = grouped.groups, list(grouped.notes)
    best = _best(groups)
    time, passes = limit_of(groups, "virtual_seconds"), limit_of(groups, "local_passes")
    rows = [_row(one, best, time, passes) for one in groups]
    rows.sort(key=lambda row: (not row.finished, not row.best, -row.accuracy.mean if row.accuracy else np.inf))
    clients = max((len(one.clients) for each in groups for one in each.runs), default=0)
    data = groups[0].runs[0].experiment.data.source
    label = best.label if best else None
    by_label = {one.label: resources_of(one) for one in groups}
    resources = {row.method: by_label[row.method] for row in rows}
    found = _statistics(groups, rows, label)
    names = {row.method: row.name for row in rows}
    missing = left_out(each.folder for one in groups for each in one.runs)
    told = [*missing, *noise(rows, label), *in_words(found, label, names, ALONE)]
    lines = inference(groups, [row.method for row in rows])
    told += better_own(lines)
    notes = [*told, *resource_lead(rows, resources), *notes, *_cautions(groups, rows, clients, lines)]
    variants = [variant for one in groups if (variant := with_own_models(one)) is not None]
    comparison = Comparison(
        data,
        clients,
        rows,
        label,
        "",
        notes,
        basis(groups),
        time,
        passes,
        found.what,
        found.pairs,
        found.per_client,
        found.ranks,
        found.seeds_needed,
        resources,
        tuple(_row(one, best, time, passes) for one in variants),
        *own_models(groups, variants),
        tuple(lines),
        tuple(newcomers(groups, [row.method for row in rows])),
        grouped.metric,
    )
    return replace(comparison, sentence=sentence(comparison))


def _statistics(groups: Sequence[Group], rows: Sequence[Row], best: str | None) -> Statistics:
    alone = next((row.method for row in rows if row.name == ALONE), None)
    return statistics(scores.of_groups(groups), [row.method for row in rows], best, alone)


def own_models(groups: Sequence[Group], variants: Sequence[Group]) -> tuple[tuple[Pair, ...], tuple[Gains, ...]]:
    """Each method read with own models against the same runs read with received ones."""
    known = scores.of_groups([*groups, *variants])
    asked = [(one.label, each.label) for one in variants for each in groups if one.label == f"{each.label}, own"]
    clients = [replace(one, differences={}, outcomes={}) for one in all_gains(known, asked)]
    return tuple(chosen_pairs(known.means, asked)), tuple(clients)


def spread(values: Sequence[float]) -> Spread | None:
    if not values:
        return None
    if len(values) == 1:
        return Spread(float(values[0]), None)
    found = interval(np.array(values, dtype=float))
    return Spread(float(np.mean(values)), float(np.std(values, ddof=1)), found.low, found.high)


def difference(to: str, mine: dict[int, float], best: dict[int, float]) -> Difference:
    """The accuracies of a method minus those of the best, by seed."""
    found = pair("", to, mine, best)
    if found.mean is None or found.t is None:
        return Difference(to, found.seeds, found.mean, None, None, TOO_FEW, found.by_seed)
    verdict = NOISE if found.t.low <= 0.0 <= found.t.high else CLEAR
    return Difference(to, found.seeds, found.mean, found.t.low, found.t.high, verdict, found.by_seed)


def _by_seed(one: Group, figure: Callable[[RunFigures], float | None]) -> dict[int, float]:
    """A figure of each finished run by seed; unfinished runs cannot be compared with finished ones."""
    found = {each.seed: figure(each) for each in one.runs if each.finished}
    return {seed: value for seed, value in found.items() if value is not None}


def _best(groups: Sequence[Group]) -> Group | None:
    """The highest mean accuracy over the seeds that all methods finished; over each method's own if there are none."""
    by_seed = {one.label: _by_seed(one, scores.mean_of) for one in groups}
    able = [one for one in groups if by_seed[one.label]]
    if len(groups) < 2 or not able:
        return None
    common = set.intersection(*(set(by_seed[one.label]) for one in able))

    def merit(one: Group) -> float:
        mine = by_seed[one.label]
        return float(np.mean([mine[seed] for seed in sorted(common or mine)]))

    return max(able, key=merit)


def _row(one: Group, best: Group | None, time: Limit | None, passes: Limit | None) -> Row:
    counted = one.counted

    def over(figure: Callable[[RunFigures], float | None]) -> Spread | None:
        values = [figure(each) for each in counted]
        return spread([value for value in values if value is not None])

    def gap(figure: Callable[[RunFigures], float | None]) -> Difference | None:
        if best is None or one is best or not one.finished:
            return None
        return difference(best.label, _by_seed(one, figure), _by_seed(best, figure))

    return Row(
        method=one.label,
        name=one.method,
        seeds=[each.seed for each in counted],
        finished=one.finished,
        unfinished=[each.seed for each in one.runs if not each.finished],
        best=one is best,
        rounds=over(lambda a: a.rounds),
        accuracy=over(scores.mean_of),
        at_time=over(lambda a: accuracy_at(a, time) if time else None),
        at_passes=over(lambda a: accuracy_at(a, passes) if passes else None),
        area=over(lambda a: area(a, time) if time else None),
        local_passes=over(lambda a: a.passes),
        able_accuracy=over(trained_mean),
        worst_tenth=over(lambda a: a.last.worst_tenth if a.last else None),
        worst_client=over(lambda a: a.last.worst if a.last else None),
        bytes_up=over(lambda a: a.bytes_up),
        bytes_down=over(lambda a: a.bytes_down),
        virtual_seconds=over(lambda a: a.virtual),
        joules=over(lambda a: a.joules if a.metered else None),
        idle_joules=over(lambda a: a.idle_joules),
        all_joules=over(lambda a: a.all_joules),
        idle_share=over(lambda a: a.idle_share),
        macs=over(lambda a: a.macs),
        refused=over(lambda a: a.refused),
        lost=over(lambda a: a.lost),
        unfit=over(lambda a: len(a.unfit)),
        difference=gap(scores.mean_of),
        able_difference=gap(trained_mean),
        beside=_beside(counted),
    )


def _beside(counted: Sequence[RunFigures]) -> dict[str, Spread]:
    names = dict.fromkeys(name for each in counted for name in each.beside)
    found = {name: spread([each.beside[name] for each in counted if name in each.beside]) for name in names}
    return {name: value for name, value in found.items() if value is not None}


def fleet_of(runs: Sequence[RunFigures]) -> int:
    """The number of clients; the least of all runs, because methods with access points count those as well."""
    return min((each.fleet for each in runs if each.fleet), default=0)


def _cautions(groups: Sequence[Group], rows: Sequence[Row], clients: int, lines: Sequence[Inference] = ()) -> list[str]:
    notes = []
    for one in groups:
        for each in one.runs:
            if not each.finished:
                why = "it was interrupted" if each.state == "interrupted" else each.ended
                goal = each.experiment.stop.rounds
                done = f"{each.rounds} of {plural(goal, 'round')}" if goal else plural(each.rounds, "round")
                counts = "counts because there is no finished run" if each in one.counted else "does not count"
                notes.append(f"{one.label}, seed {each.seed}: not finished ({done} done; {why}); this run {counts}.")
    sets = {tuple(row.seeds) for row in rows if row.finished}
    if len(sets) > 1:
        notes.append(
            "The methods did not finish the same seeds. Differences are taken over the seeds that both finished."
        )
    unfit = {len(each.unfit) for one in groups for each in one.counted}
    if lines:
        notes += untrained_in_words(lines)
    elif max(unfit, default=0):  # runs of an older version
        fleet = max(clients, fleet_of([each for one in groups for each in one.counted]))
        most = f"{'' if len(unfit) == 1 else 'Up to '}{max(unfit)} of {plural(fleet, 'client')}"
        able = ", ".join(f"{row.method} {score(row.able_accuracy.mean)}" for row in rows if row.able_accuracy)
        notes.append(
            f"{most} had too little memory to train. They are scored with the last model they received, or with an "
            f"untrained model if the method sends none. Mean {words()} of the clients that could train: {able}."
        )
    return notes + sorted({each.certificate for one in groups for each in one.counted if each.certificate})
