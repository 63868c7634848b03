"""When a cluster tells its members: the sizes of its changes, and rules that look at them (EchoPFL section 5.2).

After aggregation t, Delta_t = |v_t - v_(t-1)|_1 is how far the model moved and A_t = |v_t - b|_1 how far it is from b,
the model its members were last told. The section-6 rule of the specification, which is the paper's label in eq. 4: tell
them when A_t >= c_gain Delta_(t+1), the next change, which a predictor has to guess.

    rnn      the published predictor: a recurrent classifier, 2 x 128, says whether that inequality will hold
    ewma     Delta_(t+1) is guessed as 0.7 of the last guess and 0.3 of Delta_t
    text     the paper's sentence in 5.2.1, which has the inequality the other way round, with the guess of ewma
    always, never, every:k
"""

from __future__ import annotations

import csv
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources

import numpy as np
import torch

from potluck import keys
from potluck.errors import BadInput, Code, unknown
from potluck.fleet import Params
from potluck.methods.parts.echopfl import predictor as recurrent
from potluck.methods.parts.echopfl.predictor import Floats
from potluck.tensors import each

RULES = ("rnn", "ewma", "text", "always", "never", "every")
KEPT = 10  # K: records a cluster keeps
UNITS = 128
STATES = 1200  # recorded states the recurrent predictor is trained on before the run
SMOOTH = 0.3
STEP = 0.01  # length of the one gradient step after each aggregation


@dataclass(frozen=True)
class Watch:
    """What a cluster remembers of its own changes."""

    away: float = 0.0  # A
    changes: tuple[tuple[float, float], ...] = ()  # the K newest (Delta, A), oldest first
    expected: float = 0.0  # the guess of ewma
    since: int = 0  # aggregations since the last broadcast
    predictor: Params | None = None


def check(rule: str) -> None:
    name, _, count = rule.partition(":")
    if name not in RULES:
        raise unknown(Code.SETTING_VALUE, "method.predictor", name, RULES)
    if (name == "every") != bool(count) or (count and not (count.isdecimal() and int(count) >= 1)):
        raise BadInput(
            Code.SETTING_VALUE, f"method.predictor: {rule!r} given, only every:k with k of 1 or more has a number."
        )


def begin(rule: str, gain: float, seed: int) -> Watch:
    """The watch of a new cluster."""
    return Watch(predictor=pretrained(gain, seed) if rule == "rnn" else None)


def noted(watch: Watch, change: float, away: float, gain: float) -> Watch:
    """The watch after an aggregation that changed the model by `change` and left it `away` from what was told."""
    changes = (*watch.changes, (change, away))[-KEPT:]
    expected = change if not watch.changes else (1 - SMOOTH) * watch.expected + SMOOTH * change
    predictor = watch.predictor
    if predictor is not None and len(changes) > 1:
        predictor = tuned(predictor, changes, gain)
    return replace(
        watch, away=away, changes=changes, expected=expected, since=watch.since + 1, predictor=predictor
    )  # fmt: skip


def due(watch: Watch, rule: str, gain: float) -> bool:
    """Whether to broadcast now; never without a change."""
    if not watch.changes or watch.changes[-1][0] == 0.0 or watch.away == 0.0:
        return False
    name, _, count = rule.partition(":")
    if name == "rnn":
        assert watch.predictor is not None
        return probability(watch.predictor, watch.changes) >= 0.5
    if name == "ewma":
        return watch.away >= gain * watch.expected
    if name == "text":
        return watch.expected > watch.away
    return name == "always" or (name == "every" and watch.since >= int(count))


def told(watch: Watch) -> Watch:
    """The watch after a broadcast."""
    return replace(watch, away=0.0, since=0)


def inherited(watch: Watch) -> Watch:
    """The watch of a cluster that splits off: no record of its own yet, the predictor of its parent."""
    return Watch(predictor=watch.predictor)


def united(a: Watch, b: Watch, *key: int | str) -> Watch:
    """The watch of two clusters merged: K of their records, each parent's share by the variance of its record."""
    spread = [float(np.var([change for change, _ in watch.changes])) if watch.changes else 0.0 for watch in (a, b)]
    share = spread[0] / sum(spread) if sum(spread) > 0 else 0.5
    wanted = min(round(KEPT * share), len(a.changes))
    others = min(KEPT - wanted, len(b.changes))
    wanted = min(KEPT - others, len(a.changes))
    changes = _some(a.changes, wanted, *key, 0) + _some(b.changes, others, *key, 1)
    predictor = None
    if a.predictor is not None and b.predictor is not None:
        predictor = each(lambda p, q: (p + q) / 2, a.predictor, b.predictor)
    return Watch(changes=changes, expected=(a.expected + b.expected) / 2, predictor=predictor)


def _some(changes: tuple[tuple[float, float], ...], count: int, *key: int | str) -> tuple[tuple[float, float], ...]:
    if not count:
        return ()
    places = keys.rng(*key, "records").choice(len(changes), size=count, replace=False)
    return tuple(changes[int(i)] for i in sorted(places))


# The recurrent predictor. One sequence has K records; after each of them the network says whether to broadcast.


def probability(predictor: Params, changes: Sequence[tuple[float, float]]) -> float:
    """Of "broadcast" after the newest record."""
    scores, _ = recurrent.forward(recurrent.arrays(predictor), _inputs(changes)[None])
    return 1.0 / (1.0 + math.exp(-float(scores[0, -1])))


def tuned(predictor: Params, changes: Sequence[tuple[float, float]], gain: float) -> Params:
    """One gradient step on the last K states; whether each should have broadcast is known one aggregation later."""
    target, used = _targets(changes, gain)
    net = recurrent.arrays(predictor)
    found = recurrent.gradient(net, _inputs(changes)[None], target[None], used[None])
    for name, slope in found.items():  # net - STEP slope, in the slope's place
        slope *= np.float32(-STEP)
        slope += net[name]
    return {name: torch.from_numpy(found[name]) for name in net}


def _inputs(changes: Sequence[tuple[float, float]]) -> Floats:
    """(K, 2): the records divided by their mean change, zeros in front where there are fewer."""
    values = np.zeros((KEPT, 2), dtype=np.float32)
    if changes:
        rows = np.asarray(changes, dtype=np.float64)
        values[KEPT - len(rows) :] = rows / max(float(rows[:, 0].mean()), 1e-30)
    return values


def _targets(changes: Sequence[tuple[float, float]], gain: float) -> tuple[Floats, Floats]:
    """(K): eq. 4, 1 where A_t >= c_gain Delta_(t+1); and which are known, for padding and the newest are not."""
    values, known = np.zeros(KEPT, dtype=np.float32), np.zeros(KEPT, dtype=np.float32)
    rows = np.asarray(changes, dtype=np.float64)
    values[KEPT - len(rows) : -1] = rows[:-1, 1] >= gain * rows[1:, 0]
    known[KEPT - len(rows) : -1] = 1.0
    return values, known


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
def recorded() -> tuple[tuple[tuple[float, float], ...], ...]:
    """Windows of K successive states of one cluster, from the file `experiments/echopfl/record_states.py` writes."""
    text = resources.files(__package__).joinpath("recorded_states.csv").read_text(encoding="utf-8")
    clusters: dict[str, list[tuple[float, float]]] = {}
    for row in list(csv.DictReader(text.splitlines()))[:STATES]:
        clusters.setdefault(row["cluster"], []).append((float(row["change"]), float(row["away"])))
    return tuple(tuple(s[i : i + KEPT]) for s in clusters.values() for i in range(len(s) - KEPT + 1))
