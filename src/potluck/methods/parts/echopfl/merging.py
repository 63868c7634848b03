"""Clusters that form as models arrive: nearest centre, exact running means, splits and merges (EchoPFL section 4).

Each new model of a cluster is a version. `serial` numbers the versions of all clusters in the order they arose.
`depth` counts the versions of one cluster, on top of those of the cluster it split from. So the depths of two versions
of one cluster tell how many updates lie between them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck import compiled
from potluck.fleet import ClientId, Data, Params
from potluck.methods.parts import held
from potluck.methods.parts.echopfl.answers import Newest
from potluck.methods.parts.echopfl.broadcast import History
from potluck.methods.parts.shared_map import SharedMap, share
from potluck.models import Model
from potluck.rows import Form, blended, place_of
from potluck.tensors import each

Distance = Callable[[Params, Params], float]
Counts = NDArray[np.int64]


@dataclass(frozen=True)
class Cluster:
    """One cluster: its model and its members."""

    weights: Params  # v_c
    serial: int
    depth: int
    members: SharedMap[int]  # and the arrival with which each came
    examples: float  # N_c
    newest: Params  # the upload that came last
    broadcast: Params  # b_c, the model of the last broadcast; the first model before any broadcast
    history: History
    broadcast_serial: int = -1  # -1: no broadcast yet
    broadcast_depth: int = 0
    last_layer: bool = False  # members train the last layer only
    emptied: int = -1  # the refinement by which the last member had left; -1: it has members
    fits: bool = False  # half of the members or more, at the last refinement
    changed: int = 0  # members that it fitted before and does not fit at all now, since the last refinement
    mass: Params | None = None  # samples behind each entry, where members hold parts of the model; None: N_c

    def __post_init__(self) -> None:
        share(self, "members")


@dataclass(frozen=True)
class Member:
    """What the server keeps of a client that pushed."""

    cluster: int
    weights: Params | None  # u_i on record: its newest model, or its cluster's where one split or merged since
    examples: float  # n_i
    base: int  # serial of the version its newest model began from
    feedback: float | None  # g, None where it does not concern the present cluster
    seen: int  # the refinement before its newest push
    pushes: int = 1
    refused: tuple[int, ...] = ()  # clusters whose models do not fit it (trials.py)


@dataclass(frozen=True)
class Sent:
    """The model that a client was last sent."""

    weights: Params
    serial: int
    depth: int
    cluster: int  # -1: the first model, before any cluster
    epochs: int = 0  # to train for


@dataclass(frozen=True)
class Upload:
    """One model that came (`echopfl.Pushed`), with numbers in place of tensors."""

    weights: Params  # u_i
    examples: float  # n_i
    base: int  # serial of the version that it began from
    depth: int  # and its depth
    feedback: float  # g of the model that the client was sent


def l1(names: Collection[str]) -> Distance:
    """|a - b|_1 over these parameters (eq. 1); where a holds part of a model, over what it holds."""

    def distance(a: Params, b: Params) -> float:
        apart = _by_kernel(a, b, frozenset(names))
        if apart is None:
            part = {name: a[name] for name in names if name in a}
            other = {name: held.corner(b[name], value) for name, value in part.items()}
            apart = _by_kernel(part, other, frozenset(part))
            if apart is None:
                return sum(float((value - other[name]).abs_().sum()) for name, value in part.items())
        return apart

    return distance


def _by_kernel(a: Params, b: Params, names: frozenset[str]) -> float | None:
    """|a - b|_1 over these parameters, where both have one form."""
    here, there = (place_of(a), place_of(b)) if compiled.ready() else (None, None)
    if here is None or there is None or here[0] is not there[0]:
        return None
    return float(compiled.kernels("distances").l1(here[1], there[1], _counts(here[0], names)))


@lru_cache(maxsize=64)
def _counts(form: Form, names: frozenset[str]) -> Counts:
    """How many numbers each tensor of a model has, 0 for those that do not count."""
    return np.where([name in names for name in form.names], form.counts, 0)


def kl(model: Model, probe: Data) -> Distance:
    """Symmetric Kullback-Leibler divergence of two models' outputs on the server's own samples, a mean per sample."""

    def said(weights: Params) -> Tensor:
        with torch.no_grad():
            out = model.logits(weights, probe.x, t=probe.t, length=probe.length)
            return model.task.opinion(out).log_softmax(-1)

    kept = Newest(said)

    def distance(a: Params, b: Params) -> float:
        p, q = kept(a), kept(b)
        return float(((p.exp() - q.exp()) * (p - q)).sum(-1).mean())

    return distance


def turned(base: Params, a: Params, b: Params, names: Collection[str]) -> float:
    """How unlike the ways from the base to two models are: 1 minus the cosine, 1 where one of them stayed.

    Where a holds part of a model, over what it holds.
    """
    part = [name for name in names if name in a]
    one, two = (
        torch.cat([(held.corner(model[name], a[name]) - held.corner(base[name], a[name])).reshape(-1) for name in part])
        for model in (a, b)
    )
    return 1.0 - float(torch.nn.functional.cosine_similarity(one, two, dim=0))


def norm(names: Collection[str], weights: Params) -> float:
    return sum(float(weights[name].abs().sum()) for name in names if name in weights)


def nearest(
    clusters: Mapping[int, Cluster], weights: Params, present: int | None, hysteresis: float, distance: Distance
) -> tuple[int, float]:
    """Eq. 1: the cluster whose model is nearest, and its distance; a member moves only for a clear gain."""
    far = {number: distance(weights, cluster.weights) for number, cluster in clusters.items()}
    best = min(far, key=lambda number: (far[number], number))
    if present in far and best != present and not far[best] < hysteresis * far[present]:
        best = present
    return best, far[best]


def is_new(
    clusters: Mapping[int, Cluster], wanted: bool, weights: Params, nearest: int, names: Collection[str]
) -> bool:
    """Whether a first arrival opens a cluster: more centres are `wanted`, and its model is not one of them."""
    if nearest < 0 or not wanted:
        return nearest < 0
    return l1(names)(weights, clusters[nearest].weights) > 1e-6 * norm(names, weights)


def exchanged(
    centre: Params, total: float, out: tuple[Params, float] | None, into: tuple[Params, float] | None
) -> tuple[Params, float]:
    """A weighted mean and its total weight after one model left and another came: a rank-one change.

    v' = v + (n (u - v) - n_out (u_out - v)) / N', which is v + n/N (u - u_out) where a model replaces an older one.
    """
    gone, n_gone = (None, 0.0) if out is None else out
    came, n_came = (None, 0.0) if into is None else into
    after = total - n_gone + n_came
    if after <= 0.0:
        return centre, 0.0
    share_gone, share_came = n_gone / after, n_came / after
    keep, steps = 1.0 - share_came + share_gone, ((came, share_came), (gone, -share_gone))
    row = blended(centre, keep, [(model, share) for model, share in steps if model is not None])
    if row is not None:
        return row, after
    moved = {}
    for name, value in centre.items():
        if not value.is_floating_point():  # counters: the newest
            moved[name] = value if came is None else came[name]
            continue
        new = value * keep
        if came is not None:
            new.add_(came[name], alpha=share_came)
        if gone is not None:
            new.sub_(gone[name], alpha=share_gone)
        moved[name] = new
    return moved, after


def changed(
    centre: Params,
    total: float,
    mass: Params | None,
    out: tuple[Params, float] | None,
    into: tuple[Params, float] | None,
) -> tuple[Params, float, Params | None]:
    """`exchanged`, also for models that hold part of the centre; the last value is the samples behind each entry."""
    if mass is None and all(one is None or held.is_whole(one[0], centre) for one in (out, into)):
        return *exchanged(centre, total, out, into), None
    mass = held.uniform(centre, total) if mass is None else mass
    moved, mass = held.exchanged(centre, mass, out, into)
    return moved, max(0.0, total - (out[1] if out else 0.0) + (into[1] if into else 0.0)), mass


def mass_of(part: Params, like: Params, samples: float) -> Params:
    """The samples behind each entry of a centre that one model opened which holds part of it."""
    return held.exchanged(like, held.uniform(like, 0.0), None, (part, samples))[1]


def attention(toward: Params, tried: Params) -> Params:
    """kappa of Algorithm 1, line 5: where both directions agree, and how much; 0 to 1 in each parameter tensor."""

    def one(d: torch.Tensor, d_tried: torch.Tensor) -> torch.Tensor:
        agree = d * d_tried
        most = agree.max()
        return torch.where(most > 0, agree.clamp_min(0.0) / most.clamp_min(torch.finfo(agree.dtype).tiny), 0.0)

    return each(one, toward, tried)


def merged(main: Params, auxiliary: Params, upload: Params) -> Params:
    """Algorithm 1: the main model, moved towards the auxiliary one where the upload, too, would move it.

    Line 3 trains the main model on a member's data; the newest upload of the auxiliary cluster stands for the result,
    so that no client trains for it. Lines 2 and 4 print L1, but line 5 needs signs: we use the element-wise difference.
    """
    floats = {name: value for name, value in main.items() if value.is_floating_point()}
    kappa = attention(
        {name: auxiliary[name] - value for name, value in floats.items()},
        {name: upload[name] - value for name, value in floats.items()},
    )
    return {
        name: kappa[name] * auxiliary[name] + (1.0 - kappa[name]) * value if name in kappa else value
        for name, value in main.items()
    }


def misfits(feedback: Mapping[ClientId, float], share: float, least: int, floor: float = 1e-3) -> list[ClientId]:
    """Section 4.3.3: the worst `share` of the members by feedback, if the worst one is an outlier; otherwise none.

    An outlier is above twice the median and above the `floor`.
    """
    ranked = sorted(feedback, key=lambda client: (feedback[client], client))
    if len(ranked) < least:
        return []
    values = [feedback[client] for client in ranked]
    middle = (values[(len(values) - 1) // 2] + values[len(values) // 2]) / 2
    if not (values[-1] > 2.0 * middle and values[-1] > floor):
        return []
    return ranked[-math.ceil(share * len(ranked) - 1e-9) :]  # 0.2 x 35 is 7, not 7.000000000000001


def closest(clusters: Mapping[int, Cluster], distance: Distance) -> tuple[int, int]:
    """The two clusters whose models are nearest to each other."""
    numbers = sorted(clusters)
    pairs = [(a, b) for i, a in enumerate(numbers) for b in numbers[i + 1 :]]
    return min(pairs, key=lambda pair: (distance(clusters[pair[0]].weights, clusters[pair[1]].weights), pair))
