"""When a cluster tells its members: the sizes of its changes, and rules that look at them (EchoPFL section 5.2).

After aggregation t, Delta_t = |v_t - v_(t-1)|_1 is how far the model moved and A_t = |v_t - b|_1 how far it is from b, the
model its members were last told. The section-6 rule of the specification, which is the paper's label in eq. 4: tell
them when A_t >= c_gain Delta_(t+1), the next change, which a predictor has to guess.

    rnn      the published predictor: a recurrent classifier, 2 x 128, says whether that inequality will hold
    ewma     Delta_(t+1) is guessed as 0.7 of the last guess and 0.3 of Delta_t
    text     the paper's sentence in 5.2.1, which has the inequality the other way round, with the guess of ewma
    always, never, every:k
"""

from __future__ import annotations

import csv
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib import resources

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from potluck import keys
from potluck.errors import BadInput, unknown
from potluck.fleet import Params
from potluck.tensors import each

RULES = ("rnn", "ewma", "text", "always", "never", "every")
KEPT = 10  # K: records a cluster keeps
UNITS = 128
STATES = 1200  # recorded states the recurrent predictor is trained on before the run
SMOOTH = 0.3
STEP = 0.01  # of the one gradient step after each aggregation


@dataclass(frozen=True)
class Watch:
    """What a cluster remembers of its own changes."""

    told: Params | None  # b, the model its members were last told; None keeps the bound `away` alone
    away: float = 0.0  # A
    changes: tuple[tuple[float, float], ...] = ()  # the K newest (Delta, A), oldest first
    expected: float = 0.0  # the guess of ewma
    since: int = 0  # aggregations since the last broadcast
    predictor: Params | None = None


def check(rule: str) -> None:
    name, _, count = rule.partition(":")
    if name not in RULES:
        raise unknown("method.predictor", name, RULES)
    if (name == "every") != bool(count) or (count and not (count.isdecimal() and int(count) >= 1)):
        raise BadInput(f"method.predictor: {rule!r} given, only every:k with k of 1 or more has a number.")


def begin(rule: str, weights: Params, light: bool, gain: float, seed: int) -> Watch:
    """The watch of a new cluster that starts from these weights."""
    predictor = pretrained(gain, seed) if rule == "rnn" else None
    return Watch(None if light else weights, predictor=predictor)


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


def told(watch: Watch, weights: Params) -> Watch:
    """The watch after a broadcast of these weights."""
    return replace(watch, told=None if watch.told is None else weights, away=0.0, since=0)


def inherited(watch: Watch, weights: Params) -> Watch:
    """The watch of a cluster that splits off: no record of its own yet, the predictor of its parent."""
    return Watch(None if watch.told is None else weights, predictor=watch.predictor)


def united(a: Watch, b: Watch, weights: Params, *key: int | str) -> Watch:
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
    light = a.told is None
    return Watch(None if light else weights, changes=changes, expected=max(a.expected, b.expected), predictor=predictor)


def _some(changes: tuple[tuple[float, float], ...], count: int, *key: int | str) -> tuple[tuple[float, float], ...]:
    places = keys.rng(*key, "records").choice(len(changes), size=count, replace=False) if count else []
    return tuple(changes[int(i)] for i in sorted(places))


# The recurrent predictor. One sequence has K records; after each of them the network says whether to broadcast.


def probability(predictor: Params, changes: Sequence[tuple[float, float]]) -> float:
    """Of "broadcast" after the newest record."""
    with torch.no_grad():
        return float(torch.sigmoid(_logits(predictor, _inputs(changes)[None])[0, -1]))


def tuned(predictor: Params, changes: Sequence[tuple[float, float]], gain: float) -> Params:
    """One gradient step on the last K states; whether each should have broadcast is known one aggregation later."""
    used = torch.zeros(KEPT - 1)
    used[KEPT - len(changes) :] = 1.0  # zero padding teaches nothing
    loss, gradient = _gradient(predictor, _inputs(changes)[None], _targets(changes, gain)[None], used)
    del loss
    return {name: value - STEP * gradient[name] for name, value in predictor.items()}


def _gradient(predictor: Params, inputs: Tensor, targets: Tensor, used: Tensor) -> tuple[float, Params]:
    with torch.enable_grad():
        free = {name: value.detach().requires_grad_() for name, value in predictor.items()}
        losses = F.binary_cross_entropy_with_logits(_logits(free, inputs)[:, :-1], targets, reduction="none")
        loss = (losses * used).sum() / (used.sum() * len(inputs)).clamp_min(1.0)
        gradient = torch.autograd.grad(loss, list(free.values()))
    return float(loss), dict(zip(free, gradient, strict=True))


def _inputs(changes: Sequence[tuple[float, float]]) -> Tensor:
    """(K, 2): the records divided by their mean change, zeros in front where there are fewer."""
    values = np.zeros((KEPT, 2), dtype=np.float32)
    if changes:
        rows = np.asarray(changes, dtype=np.float64)
        values[KEPT - len(rows) :] = rows / max(float(rows[:, 0].mean()), 1e-30)
    return torch.from_numpy(values)


def _targets(changes: Sequence[tuple[float, float]], gain: float) -> Tensor:
    """(K - 1): eq. 4, 1 where A_t >= c_gain Delta_(t+1)."""
    values = np.zeros(KEPT - 1, dtype=np.float32)
    rows = np.asarray(changes, dtype=np.float64)
    values[KEPT - len(rows) :] = rows[:-1, 1] >= gain * rows[1:, 0]
    return torch.from_numpy(values)


def _logits(predictor: Params, inputs: Tensor) -> Tensor:
    """(B, K) from (B, K, 2): two layers of tanh units, read out after every record."""
    layers = [predictor[f"{part}_{layer}"] for layer in (0, 1) for part in ("w_in", "w_back", "b_in", "b_back")]
    zero = torch.zeros(2, len(inputs), UNITS)
    hidden, _ = torch.rnn_tanh(inputs, zero, layers, True, 2, 0.0, False, False, True)
    return (hidden @ predictor["w_out"] + predictor["b_out"]).squeeze(-1)


def fresh(seed: int) -> Params:
    made: Params = {}
    for layer, width in enumerate((2, UNITS)):
        key = keys.key("predictor", seed, layer)
        made[f"w_in_{layer}"] = keys.normal(keys.fold(key, "in"), (UNITS, width)) / width**0.5
        made[f"w_back_{layer}"] = keys.normal(keys.fold(key, "back"), (UNITS, UNITS)) * (0.5 / UNITS**0.5)
        made[f"b_in_{layer}"] = torch.zeros(UNITS)
        made[f"b_back_{layer}"] = torch.zeros(UNITS)
    made["w_out"] = keys.normal(keys.key("predictor", seed, "out"), (UNITS, 1)) / UNITS**0.5
    made["b_out"] = torch.zeros(1)
    return made


@lru_cache(maxsize=16)
def pretrained(gain: float, seed: int, steps: int = 150, batch: int = 48) -> Params:
    """A predictor trained on the recorded states that come with the package: Adam, `steps` steps."""
    windows = recorded()
    inputs = torch.stack([_inputs(window) for window in windows])
    targets = torch.stack([_targets(window, gain) for window in windows])
    predictor, used = fresh(seed), torch.ones(KEPT - 1)
    first, second = (each(torch.zeros_like, predictor) for _ in range(2))
    draw = keys.rng("pretraining", seed)
    for step in range(1, steps + 1):
        rows = torch.from_numpy(draw.choice(len(windows), size=min(batch, len(windows)), replace=False))
        _, gradient = _gradient(predictor, inputs[rows], targets[rows], used)
        first = each(lambda m, g: 0.9 * m + 0.1 * g, first, gradient)
        second = each(lambda s, g: 0.999 * s + 0.001 * g * g, second, gradient)
        rate = 0.003 * (1 - 0.999**step) ** 0.5 / (1 - 0.9**step)
        predictor = each(lambda w, m, s, rate=rate: w - rate * m / (s.sqrt() + 1e-8), predictor, first, second)
    return predictor


@lru_cache(maxsize=1)
def recorded() -> list[tuple[tuple[float, float], ...]]:
    """Windows of K successive states of one cluster, from the file `experiments/echopfl/record_states.py` writes."""
    text = resources.files(__package__).joinpath("recorded_states.csv").read_text(encoding="utf-8")
    clusters: dict[str, list[tuple[float, float]]] = {}
    for row in list(csv.DictReader(text.splitlines()))[:STATES]:
        clusters.setdefault(row["cluster"], []).append((float(row["change"]), float(row["away"])))
    return [
        tuple(states[i : i + KEPT]) for states in clusters.values() for i in range(len(states) - KEPT + 1)
    ]  # fmt: skip
