"""When a cluster broadcasts its model to its members, by the sizes of its changes (EchoPFL section 5.2).

After aggregation t, Delta_t = |v_t - v_(t-1)|_1 is how far the model moved, and A_t = |v_t - b|_1 is how far it is from
b, the model of the last broadcast. The paper's label in eq. 4: broadcast when A_t >= c_gain Delta_(t+1). That next
change is not known yet, so a predictor estimates it.

    rnn      the published predictor: a recurrent classifier, 2 x 128, says whether that inequality will hold
    ewma     the estimate of Delta_(t+1) is 0.7 of the last estimate and 0.3 of Delta_t
    text     the paper's sentence in 5.2.1, which has the inequality the other way round, with the estimate of ewma
    always, never, every:k
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Literal

import numpy as np
import torch

from potluck import keys
from potluck.errors import BadInput, Code, unknown
from potluck.fleet import Params
from potluck.methods.parts import checks
from potluck.methods.parts.echopfl import predictor as recurrent
from potluck.methods.parts.echopfl.predictor import Floats
from potluck.methods.parts.renewed import renewed
from potluck.tensors import each

RULES = ("rnn", "ewma", "text", "always", "never", "every")
KEPT = 10  # K: records a cluster keeps
UNITS = 128
STATES = 1200  # recorded states the recurrent predictor is trained on before the run
SMOOTH = 0.3
LESSONS = 50  # gradient steps of a predictor that learns from two others
STEP = 0.01  # length of the one gradient step after each aggregation
Records = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class BroadcastRules:
    """The settings of broadcasts."""

    predictor: str = "rnn"  # rnn | ewma | text | always | never | every:k
    c_gain: float = 1.0  # above 1: fewer broadcasts
    light: bool = False  # A as a sum of changes, an upper bound that needs no stored model
    unite: Literal["mean", "distil"] = "mean"  # how two predictors become one when their clusters merge
    on_arrival: Literal["rebase", "restart", "next"] = "rebase"  # what a client at work does with a broadcast
    query_every: float = 0.0  # seconds between two queries of a client at work for a newer model; 0: no queries

    def __post_init__(self) -> None:
        checks.above(self, "c_gain", 0.0)
        checks.at_least(self, "query_every", 0.0)
        check(self.predictor)


@dataclass(frozen=True)
class History:
    """What a cluster keeps of its own changes."""

    away: float = 0.0  # A
    changes: Records = ()  # the K newest (Delta, A), oldest first
    expected: float = 0.0  # the estimate of ewma
    since: int = 0  # aggregations since the last broadcast
    predictor: Params | None = None


def check(rule: str) -> None:
    name, _, count = rule.partition(":")
    if name not in RULES:
        raise unknown(Code.SETTING_VALUE, "predictor", name, RULES)
    if (name == "every") != bool(count) or (count and not (count.isdecimal() and int(count) >= 1)):
        raise BadInput(
            Code.SETTING_VALUE,
            f"predictor: must be every:k with a whole k of 1 or more to have a number, got {rule!r}.",
        )


def begin(rules: BroadcastRules, seed: int) -> History:
    """The history of a new cluster."""
    return History(predictor=pretrained(rules.c_gain, seed) if rules.predictor == "rnn" else None)


def noted(history: History, change: float, away: float, gain: float) -> History:
    """The history after an aggregation that moved the model by `change`, to `away` from the last broadcast."""
    changes = (*history.changes, (change, away))[-KEPT:]
    expected = change if not history.changes else (1 - SMOOTH) * history.expected + SMOOTH * change
    predictor = history.predictor
    if predictor is not None and len(changes) > 1:
        predictor = tuned(predictor, changes, gain)
    return renewed(
        history, away=away, changes=changes, expected=expected, since=history.since + 1, predictor=predictor
    )  # fmt: skip


def due(history: History, rules: BroadcastRules) -> bool:
    """Whether to broadcast now; never without a change."""
    if not history.changes or history.changes[-1][0] == 0.0 or history.away == 0.0:
        return False
    name, _, count = rules.predictor.partition(":")
    if name == "rnn":
        assert history.predictor is not None
        return probability(history.predictor, history.changes) >= 0.5
    if name == "ewma":
        return history.away >= rules.c_gain * history.expected
    if name == "text":
        return history.expected > history.away
    return name == "always" or (name == "every" and history.since >= int(count))


def sent(history: History) -> History:
    """The history after a broadcast."""
    return renewed(history, away=0.0, since=0)


def inherited(history: History) -> History:
    """The history of a cluster that splits off: empty, with the predictor of its parent."""
    return History(predictor=history.predictor)


def united(a: History, b: History, *key: int | str, unite: str = "mean") -> History:
    """The history of two clusters merged: K of their records, each parent's share by the variance of its record.

    The predictors become their mean, or, as in the paper, a student of both.
    """
    spread = [
        float(np.var([change for change, _ in history.changes])) if history.changes else 0.0 for history in (a, b)
    ]
    share = spread[0] / sum(spread) if sum(spread) > 0 else 0.5
    wanted = min(round(KEPT * share), len(a.changes))
    others = min(KEPT - wanted, len(b.changes))
    wanted = min(KEPT - others, len(a.changes))
    changes = _some(a.changes, wanted, *key, 0) + _some(b.changes, others, *key, 1)
    predictor = None
    if a.predictor is not None and b.predictor is not None:
        predictor = each(lambda p, q: (p + q) / 2, a.predictor, b.predictor)
        if unite == "distil":
            windows = [window for window in (changes, a.changes, b.changes) if window]
            predictor = distilled(predictor, (a.predictor, b.predictor), windows)
    return History(changes=changes, expected=(a.expected + b.expected) / 2, predictor=predictor)


def _some(changes: Records, count: int, *key: int | str) -> Records:
    if not count:
        return ()
    places = keys.rng(*key, "records").choice(len(changes), size=count, replace=False)
    return tuple(changes[int(i)] for i in sorted(places))


# The recurrent predictor. A sequence has K records. After each one the network says whether to broadcast.


def probability(predictor: Params, changes: Sequence[tuple[float, float]]) -> float:
    """Of "broadcast" after the newest record."""
    score = recurrent.last_score(predictor, _inputs(changes))
    return 1.0 / (1.0 + math.exp(min(700.0, -score)))


def tuned(predictor: Params, changes: Sequence[tuple[float, float]], gain: float) -> Params:
    """One gradient step on the last K states; whether each should have broadcast is known one aggregation later."""
    return recurrent.stepped(predictor, _inputs(changes), *_targets(changes, gain), STEP)


def distilled(student: Params, teachers: Sequence[Params], windows: Sequence[Sequence[tuple[float, float]]]) -> Params:
    """The student after LESSONS gradient steps towards the mean of what its teachers say after every record."""
    if not windows:
        return student
    inputs = np.stack([_inputs(window) for window in windows])
    known = np.stack([np.arange(KEPT) >= KEPT - len(window) for window in windows]).astype(np.float32)
    scores = [recurrent.forward(recurrent.arrays(teacher), inputs)[0] for teacher in teachers]
    target = np.mean([1.0 / (1.0 + np.exp(-score)) for score in scores], axis=0).astype(np.float32)
    net = dict(recurrent.arrays(student))
    for _ in range(LESSONS):
        found = recurrent.gradient(net, inputs, target, known)
        net = {name: value - np.float32(STEP) * found[name] for name, value in net.items()}
    return {name: torch.from_numpy(value) for name, value in net.items()}


def _inputs(changes: Sequence[tuple[float, float]]) -> Floats:
    """(K, 2): the records divided by their mean change, zeros in front where there are fewer."""
    return _prepared(tuple(changes))[1]


def _targets(changes: Sequence[tuple[float, float]], gain: float) -> tuple[Floats, Floats]:
    """(K): eq. 4, 1 where A_t >= c_gain Delta_(t+1); and which are known, for padding and the newest are not."""
    rows, _ = _prepared(tuple(changes))
    values = np.zeros(KEPT, dtype=np.float32)
    values[KEPT - len(rows) : -1] = rows[:-1, 1] >= gain * rows[1:, 0]
    return values, _known(len(rows))


@lru_cache(maxsize=8)  # for the lesson, and then for what is said after it
def _prepared(changes: Records) -> tuple[Floats, Floats]:
    """The records, and what the network reads."""
    rows, values = np.array(changes).reshape(-1, 2), np.zeros((KEPT, 2), dtype=np.float32)
    if changes:
        values[KEPT - len(rows) :] = rows / max(float(np.add.reduce(rows[:, 0])) / len(rows), 1e-30)
    return rows, values


@lru_cache(maxsize=KEPT)
def _known(count: int) -> Floats:
    known = np.zeros(KEPT, dtype=np.float32)
    known[KEPT - count : -1] = 1.0
    return known


@lru_cache(maxsize=16)
def pretrained(gain: float, seed: int, steps: int = 200, batch: int = 48) -> Params:
    """A predictor trained on the recorded states that come with the package: Adam, `steps` steps."""
    windows = recorded()
    inputs = np.stack([_inputs(window) for window in windows])
    target, known = (np.stack(part) for part in zip(*(_targets(window, gain) for window in windows), strict=True))
    net = recurrent.arrays(recurrent.fresh(2, UNITS, "predictor", seed))
    first, second = ({name: np.zeros_like(value) for name, value in net.items()} for _ in range(2))
    draw = keys.rng("pretraining", seed)
    for step in range(1, steps + 1):
        rows = draw.choice(len(windows), size=min(batch, len(windows)), replace=False)
        found = recurrent.gradient(net, inputs[rows], target[rows], known[rows])
        rate = np.float32(0.003 * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step))
        for name, slope in found.items():
            first[name] = np.float32(0.9) * first[name] + np.float32(0.1) * slope
            second[name] = np.float32(0.999) * second[name] + np.float32(0.001) * slope**2
            net[name] = net[name] - rate * first[name] / (np.sqrt(second[name]) + np.float32(1e-8))
    return {name: torch.from_numpy(value) for name, value in net.items()}


@lru_cache(maxsize=1)
def recorded() -> tuple[Records, ...]:
    """Windows of K successive states of one cluster, from the file `experiments/echopfl/record_states.py` writes."""
    text = resources.files(__package__).joinpath("recorded_states.csv").read_text(encoding="utf-8")
    clusters: dict[str, list[tuple[float, float]]] = {}
    for row in list(csv.DictReader(text.splitlines()))[:STATES]:
        clusters.setdefault(row["cluster"], []).append((float(row["change"]), float(row["away"])))
    return tuple(tuple(s[i : i + KEPT]) for s in clusters.values() for i in range(len(s) - KEPT + 1))
