"""The relation of clients: a soft cluster indicator F, learned from what the clients' models answer.

After Ouyang et al., "ClusterFL", ACM TOSN 18(4), 2022, section 5.3. Everything is a product of whole matrices: M
clients, N probe inputs, J classes. F_MM has as many columns ("clusters") as clients, because no one knows their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
import torch.nn.functional as nn_f
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch.func import vmap

from potluck._outputs import dense_outputs
from potluck.errors import BadInput, Code
from potluck.fleet import ClientId, Data, Fleet, Local, Params
from potluck.methods.parts import checks
from potluck.methods.parts.clusterfl import vectors
from potluck.methods.parts.clusterfl.clock import charged
from potluck.methods.parts.clusterfl.probe import Probe, contributed, inputs
from potluck.methods.parts.clusterfl.table import kept
from potluck.models import Model

if TYPE_CHECKING:
    from potluck.methods.clusterfl import Config, State

NOTHING = 1e-12  # a column of similarities below this carries no information
SCALINGS, EXACT = 2000, 1e-7  # steps of the scaling at most, and the error of a row sum at which it ends
ALIKE = 0.5  # rows of F that correlate more than this share a cluster; the paper does not say how it reads clusters
FORWARD = 1 << 24  # numbers of stacked activations in one piece of the probe's forward pass


@dataclass(frozen=True)
class Relation:
    """How the server compares clients."""

    similarity: Literal["kl", "weights", "one", "given"] = (
        "kl"  # kl: answers to the probe; one: one cluster of all; given: `groups`
    )
    groups: dict[str, int] = field(default_factory=dict)  # client -> known group, for the similarity given
    tau: float = 6.0  # temperature of the models' answers
    standardise: bool = True  # compare opinions, not confidence: give each client's answers one and the same spread
    scaling: Literal["sinkhorn", "columns"] = (
        "sinkhorn"  # sinkhorn: rows and columns of F sum to 1; columns: only those
    )
    hard: bool = False  # couple within the clusters read off F, as eq. (1) says, instead of by the soft F itself

    def __post_init__(self) -> None:
        checks.above(self, "tau", 0.0)


@dataclass(frozen=True)
class Structure:
    """The cluster structure that the server has learned, by the rows of its table."""

    F: Tensor
    cluster: tuple[int, ...] = ()
    learned: int = -1  # the round of this F; -1: not yet
    change: float = 0.0  # |F - F before|_1
    sigma: float = 0.0  # sigma_max(F), before it was scaled down


def learn(fleet: Fleet, state: State, cfg: Config) -> State:
    """F of the clients that are still asked, and its clusters. The rows of dropped clients leave the matrices here."""
    here = torch.tensor([i for i, name in enumerate(state.table.names) if name not in state.dropped], dtype=torch.int64)
    table, before = kept(state.table, here), state.structure.F[here][:, here]
    structure = replace(state.structure, F=before, cluster=())
    state = replace(state, table=table, structure=structure, omega=state.omega[here])
    if not table.names:
        return state
    if cfg.relation.similarity == "kl":
        state = replace(state, probe=contributed(fleet, cfg.probe, table.names, state.probe))
    with charged(fleet, cfg.server_macs_per_second):
        f = _compared(fleet.home, cfg.relation, cfg.probe, state)
        if not bool(torch.isfinite(f).all()):
            f = before  # models that diverged (guard off) say nothing about the relation of clients
        cluster = tuple(components(correlation(f)))
        if cfg.relation.hard:
            f = hardened(cluster)
        sigma = spread(f)
        bound = (state.alpha / (state.beta * sigma**2)) ** 0.5 if state.beta and sigma > 0 else 1.0
        if cfg.guard and bound < 1.0:  # alpha >= beta sigma_max(F)^2, or the objective has no lower bound
            f = f * bound
    change = float((f - before).abs().sum())
    return replace(state, structure=Structure(f, cluster, state.round, change, sigma))


def _compared(home: Local, relation: Relation, probe: Probe, state: State) -> Tensor:
    """F by the similarity that the settings name."""
    table, model = state.table, home.model
    if relation.similarity == "one":
        return normalised(torch.ones(len(table.names), len(table.names)))
    if relation.similarity == "given":
        return given(table.names, relation.groups)
    data = inputs(probe, home, state.probe, len(table.names)) if relation.similarity == "kl" else None
    if data is None or not len(data.x):  # without inputs, compare the weights
        return indicator(table.weights, relation.scaling)
    logits = answers(model, vectors.stacked(model, state.initial, table.weights, table.buffers), data)
    if relation.standardise:
        logits = standardised(logits)
    return indicator(divergence(logits, relation.tau), relation.scaling)


def answers(model: Model, weights: Params, probe: Data) -> Tensor:
    """Logits (M, N, J) of a stack of M models on one probe set, all models in one pass (in pieces that fit memory)."""
    if tuple(probe.x.shape[1:]) != tuple(model.shape):
        raise BadInput(
            Code.METHOD_NEEDS,
            f"probe: samples must have the shape {tuple(model.shape)}, got {tuple(probe.x.shape[1:])}.",
        )
    piece = max(1, FORWARD // max(1, probe.x.numel()))
    extra = {name: value for name, value in (("t", probe.t), ("length", probe.length)) if value is not None}
    with torch.no_grad():
        if len(next(iter(weights.values()))) == 1:
            alone = {name: value[0] for name, value in weights.items()}
            known = None if extra else dense_outputs(model, [alone], probe.x[None], torch.ones(1, len(probe.x)))
            if known is not None:
                return model.task.opinion(known)
            return model.task.opinion(model.logits(alone, probe.x, **extra))[None]
        return vmap(lambda w: model.task.opinion(model.logits(w, probe.x, **extra)), chunk_size=piece)(weights)


def standardised(logits: Tensor) -> Tensor:
    """Each client's logits with mean 0 over the classes and spread 1 over all its answers.

    A model that is three times as confident gives the same answers; raw, its KL to the others is as large as that of a
    model that disagrees. Logits that are all equal stay 0.
    """
    x = logits - logits.mean(-1, keepdim=True)
    size = x.square().mean((1, 2), keepdim=True).sqrt()
    return torch.where(size > NOTHING, x / size.clamp_min(NOTHING), 0.0)


def divergence(logits: Tensor, tau: float) -> Tensor:
    """KL_ij = 1/N sum_r KL(softmax(L_i(r)/tau) || softmax(L_j(r)/tau)), all pairs by one matrix product.

    The clients' mean log-probability is subtracted first. It cancels in every KL, and most rounding errors go with it.
    """
    log_p = torch.log_softmax(logits / tau, -1)
    p = log_p.exp().flatten(1)
    log_p = (log_p - log_p.mean(0)).flatten(1)
    kl = ((p * log_p).sum(1, keepdim=True) - p @ log_p.T) / logits.shape[1]
    return kl.clamp_min(0.0).fill_diagonal_(0.0)


def indicator(rows: Tensor, scaling: str = "sinkhorn") -> Tensor:
    """F from one row of features per client: their clipped Gram matrix, scaled.

    The paper prints the principal directions, Q Q^T = I - 11^T/M for any data, and the square root of the column sum,
    for which F F^T has the eigenvalue M_k on a cluster of M_k. The scores X X^T carry the information, and for
    equal similarities within clusters both scalings give the F F^T of section 5.1 (test_block_indicator).
    """
    x = rows - rows.mean(0)
    similarity = (x @ x.T).clamp_min(0.0)
    return balanced(similarity) if scaling == "sinkhorn" else normalised(similarity)


def balanced(similarity: Tensor) -> Tensor:
    """D G D with rows and columns that sum to 1: Sinkhorn's scaling of a symmetric matrix G.

    z_i = 2 beta sum_q (F F^T)_iq w_q is a mean of models only where the rows of F F^T sum to 1. Here they do, and
    sigma_max(F) = 1, so that alpha = beta is a pure pull towards that mean. With columns alone z_i is r_i times a mean,
    r_i from 0.1 to 1.8 for real clients: the pull then shrinks models. The scaling exists because the diagonal of G is
    positive; a client without any similarity stays alone. F of a single client is 0: it learns alone.
    """
    count = len(similarity)
    if count < 2:
        return torch.zeros_like(similarity)
    own = similarity.diagonal()
    alone = own < NOTHING
    unit = torch.where(alone, 0.0, own.clamp_min(NOTHING).rsqrt()).double()
    g = (similarity.double() * unit[:, None] * unit).masked_fill(torch.eye(count, dtype=torch.bool), 1.0)
    d = g.sum(1).rsqrt()
    for _ in range(SCALINGS):
        sums = d * (g @ d)
        if float((sums - 1.0).abs().max()) < EXACT:
            break
        d = d / sums.sqrt()
    return (g * d[:, None] * d).to(similarity.dtype)


def normalised(similarity: Tensor) -> Tensor:
    """Divide the columns by their sums, as the paper does.

    A column without any similarity becomes that of a client alone. F of a single client is 0: it learns alone.
    """
    count = len(similarity)
    if count < 2:
        return torch.zeros_like(similarity)
    total = similarity.sum(0)
    empty = total < NOTHING
    return torch.where(empty, torch.eye(count, dtype=similarity.dtype), similarity / torch.where(empty, 1.0, total))


def hardened(cluster: Sequence[int]) -> Tensor:
    """F of hard clusters (section 5.1): 1/M_k between the M_k members of a cluster."""
    label = torch.tensor(cluster)
    return normalised((label[:, None] == label).float())


def given(names: Sequence[ClientId], groups: Mapping[ClientId, int]) -> Tensor:
    """F of known groups; a client without a group is alone."""
    return hardened([groups.get(name, -1 - i) for i, name in enumerate(names)])


def correlation(f: Tensor) -> Tensor:
    """Pearson correlation of the rows of F: 0 for a constant row, 1 on the diagonal."""
    x = f - f.mean(1, keepdim=True)
    length = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    x = torch.where(length > NOTHING, x / length.clamp_min(NOTHING), 0.0)
    return (x @ x.T).clamp(-1.0, 1.0).fill_diagonal_(1.0)


def components(related: Tensor) -> list[int]:
    """Hard clusters: connected components of the correlations above ALIKE, numbered by their first member."""
    if not len(related):
        return []
    _, label = connected_components(csr_matrix((related > ALIKE).numpy()), directed=False)
    _, first, inverse = np.unique(label, return_index=True, return_inverse=True)
    return [int(k) for k in np.argsort(np.argsort(first))[inverse]]


def spread(f: Tensor) -> float:
    """sigma_max(F), the largest singular value."""
    return float(torch.linalg.matrix_norm(f, 2)) if f.numel() else 0.0


def grown(structure: Structure, new: int) -> Structure:
    """With so many new clients at the end, each alone in its cluster."""
    count = len(structure.cluster)
    cluster = structure.cluster + tuple(range(count, count + new))
    return replace(structure, F=nn_f.pad(structure.F, (0, new, 0, new)), cluster=cluster)
