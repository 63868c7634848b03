"""Tree noise (`privacy.correlation = "tree"`): releases whose noise is correlated, so that it hardly adds up.

Dwork et al., "Differential Privacy under Continual Observation", STOC 2010; used for learning by Kairouz et al., ICML
2021 (DP-FTRL). Where clients cannot be sampled at random, as in buffered and asynchronous methods, there is no
amplification to lose. The sum of the first t releases gets the noise of the nodes that cover 1..t in a binary tree:
at most log2(t) + 1 draws, where independent noise has t. Release t itself gets the difference of two such sums. Each
tree has 2^height leaves, then a new one begins.

A device that takes part in some releases adds to every node above their leaves. Its sensitivity in one tree is the
root of the sum of squares of how often it is below each node. That is one Gaussian release, adaptively chosen models
included (Denisov et al., NeurIPS 2022), as long as the times at which a device takes part do not depend on its samples.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from potluck import keys


def sensitivities(releases: Iterable[int], height: int) -> list[int]:
    """For each tree that a device took part in: its squared sensitivity, in units of the clipping bound."""
    counts: dict[int, Counter[tuple[int, int]]] = {}
    for release in releases:
        which, leaf = divmod(release, 1 << height)
        nodes = counts.setdefault(which, Counter())
        for level in range(height + 1):
            nodes[level, leaf >> level] += 1
    return [sum(often * often for often in nodes.values()) for _, nodes in sorted(counts.items())]


def noise(key: Tensor, release: int, height: int, size: int) -> Tensor:
    """Standard noise of one release: the noise of the sum up to it, less that of the sum before it."""
    which, leaf = divmod(release, 1 << height)
    own = keys.fold(key, which)
    return _prefix(own, leaf + 1, height, size) - _prefix(own, leaf, height, size)


def _prefix(key: Tensor, count: int, height: int, size: int) -> Tensor:
    """The noise of the sum of the first `count` leaves: one draw for each node of its binary cover."""
    total, begin = torch.zeros(size), 0
    for level in range(height, -1, -1):
        if count >> level & 1:
            total = total + keys.normal(keys.fold(key, level, begin >> level), (size,))
            begin += 1 << level
    return total
