"""A card for every device: its gain over local training, its costs, the clients it learned from, what would help it.

Advice follows from the records by plain rules, each with the figure it is based on. If none applies, the card says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from potluck.metrics import distance, margin, metric, score, unit
from potluck.report.figures.sentence import ALONE
from potluck.report.reading import client_facts
from potluck.report.reading.client_facts import Classes, Clusters, Work
from potluck.report.reading.groups import Group
from potluck.report.reading.run_figures import RunFigures
from potluck.units import number, plural, quantity

NOTABLE = 0.03  # a difference in accuracy that is worth a sentence
OFTEN = 0.15  # share of updates that did not count which is worth a sentence
SLOW = 3.0  # times the median time of a task
MOST_ADVICE = 2
ALONE_TOO = (ALONE, "standalone")

_IDLE = Work(0, 0, 0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0, {})


@dataclass(frozen=True)
class WorstClass:
    name: str
    right: int
    test: int
    held: int  # for training
    of: int  # all training samples of the client


@dataclass(frozen=True)
class Card:
    """One client under the method the cards are about.

    Accuracies and classes are over all seeds. Device, costs and neighbours are those of the first run, because every
    seed assigns the devices anew.
    """

    client: str
    device: str
    link: str
    train: int
    test: int
    accuracy: float | None
    alone: float | None  # its accuracy under Local, over the seeds both have
    gain: float | None
    others: dict[str, float]  # accuracy under the other methods
    work: Work
    friends: list[str]  # the other clients of its cluster, if the method has clusters
    learned_from: str  # the same in words
    worst_class: WorstClass | None
    help: list[str]
    epsilon: float | None = None  # what it was charged, where the run has privacy


@dataclass(frozen=True)
class _Fleet:
    """Medians of the fleet, to compare a client with."""

    train: float
    seconds: float | None
    accuracy: float


def cards(groups: Sequence[Group], label: str) -> list[Card]:
    """The cards of one method, the worst client first."""
    shown = next(one for one in groups if one.label == label)
    runs = shown.counted
    if not runs:
        return []
    alone = next((one for one in groups if one.method == ALONE and one.counted), None)
    works = client_facts.work(runs[0])
    classes = [each for one in runs if (each := client_facts.classes(one)) is not None]
    clusters = client_facts.clusters(runs[0])
    answered = {name for name, done in works.items() if done.counted}
    fleet = _fleet(runs[0], works)
    own, base = _by_seed(shown), _by_seed(alone) if alone and alone is not shown else {}
    rest = {one.label: _means(_by_seed(one)) for one in groups if one is not shown and one.counted}
    reasons = client_facts.unfit(runs[0])
    spent = None if runs[0].privacy is None else runs[0].privacy.get("per_client", {})
    found = []
    for client in runs[0].clients:
        mine = works.get(client.name, _IDLE)
        common = [seed for seed in own if client.name in own[seed] and client.name in base.get(seed, {})]
        known = [own[seed][client.name] for seed in own if client.name in own[seed]]
        accuracy = float(np.mean(known)) if known else None
        before = float(np.mean([base[seed][client.name] for seed in common])) if common else None
        gain = float(np.mean([own[s][client.name] - base[s][client.name] for s in common])) if common else None
        friends, said = _friends(client.name, shown.method, clusters, answered, len(runs[0].clients))
        card = Card(
            client=client.name,
            device=client.device,
            link=client.link,
            train=client.train,
            test=client.test,
            accuracy=accuracy,
            alone=before,
            gain=gain,
            others={name: values[client.name] for name, values in rest.items() if client.name in values},
            work=mine,
            friends=friends,
            learned_from=said,
            worst_class=_worst_class(client.name, classes),
            help=[],
            epsilon=None if spent is None else spent.get(client.name, 0.0),
        )
        card.help.extend(advice(card, fleet, reasons.get(client.name))[:MOST_ADVICE])
        found.append(card)
    return sorted(found, key=lambda card: (np.inf if card.accuracy is None else card.accuracy, card.client))


def advice(card: Card, fleet: _Fleet, unfit: str | None) -> list[str]:
    """What would help, the most important first."""
    found, work = [], card.work
    if unfit is not None:
        why_not = unfit.removeprefix("does not fit: ")
        found.append(f"It could not train: {why_not} A smaller model or sub-models may fit.")
    elif not work.tasks:
        found.append("It never received a task: a larger cohort would include it.")
    elif (missing := work.tasks - work.counted) / work.tasks >= OFTEN:
        reason = next((f" ({name})" for name in work.troubles), "")  # the most frequent comes first
        found.append(f"{missing} of {plural(work.tasks, 'update')} did not count{reason}.")
    if card.others and card.accuracy is not None:
        name, best = max(card.others.items(), key=lambda item: item[1])
        # One more correct sample is no reason to change the method.
        if best - card.accuracy >= _notable(card):
            more = distance(best - card.accuracy, signed=False)
            found.append(
                f"{name} reaches {score(best, 0)} here, {more}{unit()} {'less' if metric().lower else 'more'}."
            )
    found += _more_rows(card, fleet)
    seconds = work.seconds
    if seconds and fleet.seconds and seconds >= SLOW * fleet.seconds:
        spent = {"receiving": work.receiving, "training": work.training, "sending": work.sending}
        most_of = max(spent, key=lambda kind: spent[kind])
        cure = "a faster device or a smaller model" if most_of == "training" else "a faster link or smaller messages"
        times = number(seconds / fleet.seconds, 2)
        found.append(f"A task takes {times} times the median time, mostly {most_of}: {cure} would help.")
    if not found and card.accuracy is not None:
        found.append(
            "Nothing stands out: it does about as well as most clients."
            if card.accuracy >= fleet.accuracy - margin(NOTABLE, fleet.accuracy)
            else "The records do not explain it: its data may differ from that of the others."
        )
    return found


def _notable(card: Card) -> float:
    """The least difference that is worth a sentence; one more right sample is not."""
    return max(margin(NOTABLE, card.accuracy or 0.0), 1.5 / max(1, card.test) if metric().share else 0.0)


def _more_rows(card: Card, fleet: _Fleet) -> list[str]:
    found = []
    worst = card.worst_class
    if worst is not None and worst.right < worst.test and worst.held * 4 < max(1, worst.of / 2):
        found.append(f"More samples of “{worst.name}”: it holds {worst.held} of {worst.of:,}.")
    if card.train * 2 < fleet.train:
        found.append(f"More samples: it holds {card.train:,}, the median client {fleet.train:,.0f}.")
    return found


def _by_seed(one: Group) -> dict[int, dict[str, float]]:
    return {run.seed: {c.name: c.accuracy for c in run.clients if c.accuracy is not None} for run in one.counted}


def _means(by_seed: Mapping[int, Mapping[str, float]]) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for found in by_seed.values():
        for name, accuracy in found.items():
            values.setdefault(name, []).append(accuracy)
    return {name: float(np.mean(found)) for name, found in values.items()}


def _fleet(run: RunFigures, works: Mapping[str, Work]) -> _Fleet:
    times = [one.seconds for one in works.values() if one.seconds is not None]
    accuracies = [c.accuracy for c in run.clients if c.accuracy is not None]
    return _Fleet(
        float(np.median([c.train for c in run.clients])) if run.clients else 0.0,
        float(np.median(times)) if times else None,
        float(np.median(accuracies)) if accuracies else 0.0,
    )


def _friends(
    name: str, method: str, clusters: Clusters | None, answered: set[str], clients: int
) -> tuple[list[str], str]:
    """Its cluster at the end if the method has clusters; all clients whose updates counted if it has one model."""
    if clusters is not None:
        mine = clusters.of.get(name, [None])[-1]
        if mine is None:
            return [], "no other client yet: it is in no cluster"
        friends = [other for other, history in clusters.of.items() if history[-1] == mine and other != name]
        if not friends:
            return [], f"no other client: it is alone in cluster {mine}"
        return friends, f"cluster {mine}: {_named(friends)}"
    if method in ALONE_TOO:
        return [], "no other client: local training only"
    others = len(answered - {name})
    share = "all" if others >= clients - 1 else f"{others:,} of"
    return [], f"{share} {clients - 1:,} other clients, aggregated into one model"


def _named(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown} and {len(names) - 3:,} more"


def _worst_class(name: str, found: Sequence[Classes]) -> WorstClass | None:
    """The class with the lowest accuracy over all seeds; of equals, the one with more test rows."""
    known = [one for one in found if name in one.test]
    if not known:
        return None
    test = np.sum([one.test[name] for one in known], axis=0)
    right = np.sum([one.right[name] for one in known], axis=0)
    tested = [k for k in range(len(test)) if test[k]]
    if not tested:
        return None
    k = min(tested, key=lambda k: (right[k] / test[k], -test[k]))
    held = known[0].train[name]
    return WorstClass(known[0].names[k], int(right[k]), int(test[k]), held[k], sum(held))


def costs(card: Card) -> str:
    """The costs of a client in a few words."""
    work = card.work
    if not work.joules and not work.bytes_up + work.bytes_down:
        return "nothing"
    parts = [quantity(work.joules, "J")] if work.joules else []
    parts.append(quantity(work.bytes_up + work.bytes_down, "B"))
    if work.seconds is not None:
        parts.append(f"{quantity(work.seconds, 's')} per task")
    if work.memory:
        parts.append(f"{quantity(work.memory, 'B')} of memory")
    return ", ".join(parts)
