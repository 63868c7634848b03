"""Who is like whom: a soft cluster indicator learned from what models answer, and what can be read off it.

After Ouyang et al., "ClusterFL", ACM TOSN 18(4), 2022, section 5.3. Everything is a product of whole matrices: M
clients, N probe inputs, J classes. F_MM has as many columns ("clusters") as clients: nobody knows their number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from scipy.sparse import csr_matrix
from scipy.sparse.csgraph import connected_components
from torch import Tensor
from torch.func import vmap

from potluck.errors import BadInput, Code
from potluck.fleet import ClientId, Data, Params
from potluck.models import Model

NOTHING = 1e-12  # a column of similarities below this holds no information
ALIKE = 0.5  # rows of F that correlate more than this share a cluster; the paper does not say how it reads clusters
FORWARD = 1 << 24  # numbers of stacked activations in one piece of the probe's forward pass


def answers(model: Model, weights: Params, probe: Data) -> Tensor:
    """Logits (M, N, J) of a stack of M models on one probe set, all models in one pass (in pieces that fit memory)."""
    if tuple(probe.x.shape[1:]) != tuple(model.shape):
        raise BadInput(
            Code.METHOD_NEEDS,
            f"probe: samples of shape {tuple(probe.x.shape[1:])} given, the model takes {tuple(model.shape)}.",
        )
    piece = max(1, FORWARD // max(1, probe.x.numel()))
    extra = {name: value for name, value in (("t", probe.t), ("length", probe.length)) if value is not None}
    with torch.no_grad():
        return vmap(lambda w: model.logits(w, probe.x, **extra), chunk_size=piece)(weights)


def divergence(logits: Tensor, tau: float) -> Tensor:
    """KL_ij = 1/N sum_r KL(softmax(L_i(r)/tau) || softmax(L_j(r)/tau)), all pairs by one matrix product.

    The clients' mean log-probability is taken off first: it cancels in every KL, and with it goes most of the rounding.
    """
    log_p = torch.log_softmax(logits / tau, -1)
    p = log_p.exp().flatten(1)
    log_p = (log_p - log_p.mean(0)).flatten(1)
    kl = ((p * log_p).sum(1, keepdim=True) - p @ log_p.T) / logits.shape[1]
    return kl.clamp_min(0.0).fill_diagonal_(0.0)


def indicator(rows: Tensor) -> Tensor:
    """F from one row of features per client: columns of the clipped Gram matrix, each summing to 1.

    The paper prints the principal directions, Q Q^T = I - 11^T/M for any data, and the square root of the column sum,
    for which F F^T has the eigenvalue M_k on a cluster of M_k. The scores X X^T carry the information, and with
    the sum itself F F^T is that of the ideal indicator of section 5.1 (test_block_indicator).
    """
    x = rows - rows.mean(0)
    return normalised((x @ x.T).clamp_min(0.0))


def normalised(similarity: Tensor) -> Tensor:
    """Columns divided by their sums; a column without any similarity is its client alone; one client has nobody."""
    count = len(similarity)
    if count < 2:
        return torch.zeros_like(similarity)
    total = similarity.sum(0)
    empty = total < NOTHING
    return torch.where(empty, torch.eye(count, dtype=similarity.dtype), similarity / torch.where(empty, 1.0, total))


def given(names: Sequence[ClientId], groups: Mapping[ClientId, int]) -> Tensor:
    """F of known groups; a client without one is alone."""
    label = torch.tensor([groups.get(name, -1 - i) for i, name in enumerate(names)])
    return normalised((label[:, None] == label).float())


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
