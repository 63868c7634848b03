"""Which samples to discard, which to train on here, and which to hand to a stronger partner.

Mo et al., "Enhancing Efficiency in Multidevice Federated Learning through Data Selection" (Centaur), section 4.2. A
sample's loss, and on request the norm of its last-layer gradient, has a CDF value u in the distribution of those seen.
Eqs. (2) and (3) turn u into probabilities. Each function is written for one client and also runs on a stack of them:
sets of samples are 0/1 weights over fixed shapes, and each distribution is sorted once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.methods.parts import checks
from potluck.tasks import Task

SAME = 1e-12  # losses within this range are equal: each gets the middle rank


@dataclass(frozen=True)
class Rule:
    """How selective to be. An exponent of 0 switches its rule off."""

    alpha: float = 5.0  # of discarding, Eq. (2)
    beta: float = 3.0  # of handing over, Eq. (2)
    gamma: float = 0.0  # of handing over by gradient norm, Eq. (3)
    form: Literal["coded", "printed"] = "coded"  # of P_N: (1 - u)^alpha | 1 - u^alpha
    by: Literal["loss", "random"] = "loss"  # random: the same shares, by the losses of other samples
    outliers: float = 0.0  # share of the highest losses set aside before anything is chosen
    queue: int = 0  # losses kept for the distribution; 0: those of all samples gathered
    hand_over: Literal["first", "any", "all"] = "first"  # what: D_M of the round's first choice | of any epoch's | all
    redraw: bool = False  # access points draw by P_M again at every epoch, among what was handed over
    encode: Literal["all", "kept"] = "all"  # kept: choose once a round by losses of earlier rounds, encode only D_C

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "gamma", "queue"):
            checks.at_least(self, name, 0)
        checks.one_of(self, "form", ("coded", "printed"))
        checks.one_of(self, "by", ("loss", "random"))
        checks.one_of(self, "hand_over", ("first", "any", "all"))
        checks.one_of(self, "encode", ("all", "kept"))
        if not 0.0 <= self.outliers < 1.0:
            raise BadInput(Code.SETTING_VALUE, f"outliers: must be at least 0 and below 1, got {self.outliers}.")
        for name in ("gamma", "queue"):
            if self.encode == "kept" and getattr(self, name):
                shown = getattr(self, name)
                raise BadInput(Code.SETTINGS_CLASH, f"{name}: must be 0 where encode is 'kept', got {shown}.")

    @property
    def selects(self) -> bool:
        return bool(self.alpha or self.beta or self.gamma or self.outliers)

    @property
    def remembers(self) -> bool:
        """Whether a device chooses before it encodes anything, by the losses that it remembers."""
        return self.selects and self.encode == "kept"


EVERYTHING = Rule(alpha=0.0, beta=0.0)  # discards nothing and hands nothing over


@dataclass(frozen=True)
class Chosen:
    """Three sets that partition the samples, as 0/1 weights."""

    discard: Tensor  # D_N
    keep: Tensor  # D_C
    send: Tensor  # D_M


def everything(weight: Tensor) -> Chosen:
    """The choice to train on all samples."""
    return Chosen(weight * 0, weight, weight * 0)


@dataclass(frozen=True)
class Queue:
    """The losses seen last; `weight` is 0 where the queue is not filled yet."""

    losses: Tensor
    weight: Tensor


def cdf(values: Tensor, weight: Tensor, queue: Queue | None = None) -> Tensor:
    """Each value's u in (0, 1] in the empirical distribution: rank / n, where ties share the lowest rank.

    The distribution is that of the values themselves, or of a queue. NaN counts as the highest value. Equal values all
    get the middle rank. An empty distribution gives NaN.
    """
    values = torch.where(torch.isnan(values), torch.inf, values)
    seen = values if queue is None else torch.where(torch.isnan(queue.losses), torch.inf, queue.losses)
    counts = weight if queue is None else queue.weight
    n, total = len(values), counts.sum()
    # One sort of values and distribution together. Values outside the distribution do not count, they get a rank.
    together = values if queue is None else torch.cat([seen, values])
    member = counts if queue is None else torch.cat([counts, torch.zeros_like(values)])
    ordered, order = torch.sort(together, stable=True)
    below = torch.cumsum(member[order], 0) - member[order]
    first = torch.cat([torch.ones_like(below[:1]), (ordered[1:] != ordered[:-1]).to(below.dtype)])
    below = torch.cummax(below * first, 0).values  # ties share the count of the first of them
    rank = torch.zeros_like(below).scatter(0, order, below)[-n:] + 1.0
    low = torch.where(counts > 0, seen, torch.inf).min()
    high = torch.where(counts > 0, seen, -torch.inf).max()
    flat = ~(high - low >= SAME) & (low < torch.inf)
    u = (torch.where(flat, (total + 1.0) / 2.0, rank) / total.clamp_min(1.0)).clamp_max(1.0)
    u = torch.where(torch.isinf(values), 1.0, u)
    return torch.where(total > 0, u, torch.nan)


def no_losses(size: int) -> Queue | None:
    """An empty queue of this size; None for size 0."""
    return Queue(torch.zeros(size), torch.zeros(size)) if size else None


def enqueue(queue: Queue, losses: Tensor, weight: Tensor) -> Queue:
    """The queue after these losses: it keeps the newest."""
    every, real = torch.cat([queue.losses, losses]), torch.cat([queue.weight, weight])
    order = torch.argsort((real > 0).to(torch.int8), stable=True)[-len(queue.losses) :]  # real ones last
    return Queue(every[order], real[order])


def remembered(queue: Queue | None, *met: tuple[Tensor, Tensor]) -> Queue | None:
    """The queue after several rows of losses, each with its weights, in this order; none stays none."""
    for losses, weight in met:
        queue = None if queue is None else enqueue(queue, losses, weight)
    return queue


def probabilities(rule: Rule, u: Tensor) -> tuple[Tensor, Tensor]:
    """P_N and P_M of Eq. (2)."""
    off = torch.zeros_like(u)
    discard = (1.0 - u) ** rule.alpha if rule.form == "coded" else 1.0 - u**rule.alpha
    return discard if rule.alpha else off, u**rule.beta if rule.beta else off


def select(
    rule: Rule,
    losses: Tensor,
    weight: Tensor,
    key: Tensor,
    *,
    queue: Queue | None = None,
    norms: Callable[[], Tensor] | None = None,
    lots: Tensor | None = None,
    sent: Tensor | None = None,
) -> Chosen:
    """Partition the samples by their losses; `norms` gives their gradient norms, called only where gamma is above 0.

    With `sent`, D_M is known already, and only D_N and D_C are drawn. A random rule judges each sample by the loss and
    the norm of another one, drawn by the key `lots` (default: `key`). With the same lots in every epoch, several draws
    choose as many samples as the samples' own losses would.
    """
    other = _others(weight, key if lots is None else lots) if rule.by == "random" else None
    u = cdf(losses if other is None else losses[other], weight, queue)
    blind = torch.isnan(u)  # an empty queue: keep everything
    n = weight.sum().clamp_min(1.0)
    aside = torch.zeros_like(u)
    if rule.outliers:
        inside = 1.0 - torch.floor(rule.outliers * n) / n
        aside = (u > inside).to(u.dtype)
        u = (u / inside).clamp_max(1.0)  # the others use the whole range again
    p_discard, p_send = probabilities(rule, u)
    discard = keys.bernoulli(keys.fold(key, "discard"), torch.where(blind, 0.0, p_discard))
    open_to = weight * (1.0 - aside)
    if sent is not None:
        keep = (1.0 - discard) * (1.0 - sent) * open_to
        return Chosen(weight - keep - sent, keep, sent)
    send = keys.bernoulli(keys.fold(key, "send"), torch.where(blind, 0.0, p_send))
    send = send * open_to
    keep = (1.0 - discard) * (1.0 - send) * open_to
    if rule.gamma and norms is not None:
        # Eq. (3): of the samples that would be kept, those with large gradients go to the partner.
        w = torch.nan_to_num(cdf(norms() if other is None else norms()[other], keep))
        moved = keys.bernoulli(keys.fold(key, "norm"), w**rule.gamma) * keep
        send, keep = send + moved, keep - moved
    return Chosen(weight - keep - send, keep, send)


def _others(weight: Tensor, lots: Tensor) -> Tensor:
    """For every sample the index of another one: the real samples in another order, each once."""
    real = torch.argsort((weight > 0).to(torch.int8), descending=True, stable=True)
    drawn = keys.permutation(keys.fold(lots, "lots"), len(weight), weight)
    return torch.zeros_like(drawn).scatter(0, real, drawn)


def remembered_ranks(known: Tensor, weight: Tensor, key: Tensor) -> Tensor:
    """Ranks in (0, 1] of the losses known from earlier rounds, to choose by; a negative one is not known.

    A sample without a known loss gets a rank by lot, so that as many of these are chosen as of the others.
    """
    there = (known >= 0.0).to(weight.dtype) * weight
    return torch.where(there > 0, cdf(known, there), keys.uniform(key, known.shape))


def gradient_norm(task: Task, logits: Tensor, y: Tensor, a: Tensor) -> Tensor:
    """Norm of the loss's gradient by the last linear layer's weights, whose input is `a`: ||p - y|| ||a|| of classes.

    The gradient is the outer product of the two vectors, so its norm is the product of theirs: no backward pass.
    """
    wrong: Tensor = torch.linalg.vector_norm(task.slopes(logits, y), dim=-1)
    length: Tensor = torch.linalg.vector_norm(a, dim=-1)
    return wrong * length


def newest(stamps: Tensor, room: int, key: Tensor) -> Tensor:
    """Row numbers of at most `room` marked samples: the newest first, in random order among equals, unmarked (0) last.

    `stamps` says when each was marked, from 1 on.
    """
    luck = keys.uniform(key, stamps.shape)
    return torch.argsort(torch.where(stamps > 0, stamps + luck, luck - 1.0), descending=True, stable=True)[:room]


@lru_cache(maxsize=256)
def expected_shares(rule: Rule, points: int = 20_000) -> tuple[float, float, float]:
    """Expected shares of D_N, D_C and D_M when no two losses are equal: the integrals over u of the rules above."""
    u = (torch.arange(points, dtype=torch.float64) + 0.5) / points
    p_discard, p_send = probabilities(rule, u)
    send, keep = float(p_send.mean()), float(((1.0 - p_discard) * (1.0 - p_send)).mean())
    if rule.gamma:
        moved = keep / (rule.gamma + 1.0)
        send, keep = send + moved, keep - moved
    send, keep = send * (1.0 - rule.outliers), keep * (1.0 - rule.outliers)
    return 1.0 - send - keep, keep, send


@lru_cache(maxsize=256)
def expected_sent(rule: Rule, draws: int, points: int = 20_000) -> float:
    """Expected share of samples that are handed over in a round of so many draws, while ranks stay as they are."""
    if rule.hand_over == "all" or draws < 1:
        return float(rule.hand_over == "all")
    u = (torch.arange(points, dtype=torch.float64) + 0.5) / points
    p_discard, p_send = probabilities(rule, u)
    moved = (1.0 - p_discard) * (1.0 - p_send) / (rule.gamma + 1.0) if rule.gamma else 0.0
    times = draws if rule.hand_over == "any" and not rule.remembers else 1
    return float((1.0 - (1.0 - p_send - moved) ** times).mean()) * (1.0 - rule.outliers)


@lru_cache(maxsize=256)
def expected_trained(rule: Rule, draws: int, points: int = 20_000) -> float:
    """Expected size of D_C, summed over the draws of a round, as a share of the samples gathered.

    Where D_M is that of the first draw, a sample that gamma moved then is out of all later ones, too.
    """
    keep = expected_shares(rule)[1]
    if draws < 2 or rule.hand_over != "first" or not rule.gamma:
        return keep * draws
    u = (torch.arange(points, dtype=torch.float64) + 0.5) / points
    p_discard, p_send = probabilities(rule, u)
    stays = (1.0 - p_send) * (1.0 - (1.0 - p_discard) / (rule.gamma + 1.0))
    later = float(((1.0 - p_discard) * stays).mean()) * (1.0 - rule.outliers)
    return keep + (draws - 1) * later
