"""Split rows into training, test and validation rows, by default without overlapping windows on two sides.

The rules work on whole columns at once. A cell is one class of one client, and each rule is arithmetic on the rank of a
row (or of a group of rows) within its cell.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from potluck.data.dataset import Array, Ints

TRAIN, TEST, VALID, UNUSED = 0, 1, 2, 3
Sides = npt.NDArray[np.int8]


@dataclass(frozen=True)
class Leak:
    """Groups that a split leaves on both sides."""

    groups: int  # groups in use
    both_sides: int  # of those, groups with training and test rows
    touching: int  # of those, groups in which a training row lies next to a test row, close enough to overlap


def ids(column: Array) -> Ints:
    """Number any names or numbers from 0 on."""
    return np.unique(column, return_inverse=True)[1].astype(np.int64).reshape(-1)


def ranks(*keys: Ints) -> tuple[Ints, Ints, Ints]:
    """Sort rows by keys (last key first); return the order, and each row's rank in its cell and the cell's size.

    Rows of one cell agree in all keys but the first, which only orders them.
    """
    order = np.lexsort(keys)
    if not len(order):
        return order, order, order
    new = np.zeros(len(order), dtype=bool)
    new[0] = True
    for cell_key in keys[1:]:
        ordered = cell_key[order]
        new[1:] |= ordered[1:] != ordered[:-1]
    starts = np.flatnonzero(new)
    sizes = np.diff(starts, append=len(order))
    cell = np.cumsum(new) - 1
    return order, np.arange(len(order)) - starts[cell], sizes[cell]


def at_random(y: Ints, client: Ints, share: float, rng: np.random.Generator) -> Sides:
    """Take a share of each client's rows, spread evenly over its classes; of two rows each side gets one."""
    shuffled = rng.permutation(len(y))
    by_class = np.empty(len(y), dtype=np.int64)
    by_class[np.lexsort((shuffled, y))] = np.arange(len(y))
    order, rank, n = ranks(by_class, client)
    test = np.clip(np.rint(share * n).astype(np.int64), 1, np.maximum(n - 1, 0))
    # Systematic sampling: of n ranks exactly `test` are hit, whatever the offset.
    offset = rng.integers(0, 1 << 62, size=int(client.max(initial=-1)) + 1)[client[order]] % n
    hit = ((rank + 1) * test + offset) // n > (rank * test + offset) // n
    side = np.zeros(len(y), dtype=np.int8)
    side[order[hit]] = TEST
    return side


def by_tail(group: Ints, share: float, gap: int) -> Sides:
    """Take the last rows of each group and leave out `gap` rows before them; short groups are for training."""
    order, rank, n = ranks(np.arange(len(group)), group)
    first = n - np.maximum(1, np.rint(share * n).astype(np.int64))
    long_enough = first - gap >= 1
    side = np.zeros(len(group), dtype=np.int8)
    side[order[long_enough & (rank >= first)]] = TEST
    side[order[long_enough & (rank < first) & (rank >= first - gap)]] = UNUSED
    return side


def by_stretch(group: Ints, share: float, gap: int, rng: np.random.Generator) -> Sides:
    """Take one stretch of each group, and leave out `gap` rows on both sides; short groups are for training.

    The stretches lie evenly over the groups: the next group is tested in the next part of its time. So every part of a
    life is trained on somewhere.
    """
    order, rank, n = ranks(np.arange(len(group)), group)
    size = np.maximum(1, np.rint(share * n).astype(np.int64))
    places = max(2, round(1 / share))
    place = (group[order] + int(rng.integers(places))) % places
    first = np.rint(place / (places - 1) * (n - size)).astype(np.int64)
    left = np.maximum(first - gap, 0) + np.maximum(n - first - size - gap, 0)
    inside = (rank >= first) & (rank < first + size)
    beside = (rank >= first - gap) & (rank < first + size + gap) & ~inside
    side = np.zeros(len(group), dtype=np.int8)
    side[order[(left >= 1) & inside]] = TEST
    side[order[(left >= 1) & beside]] = UNUSED
    return side


def by_group(
    y: Ints, client: Ints, group: Ints, share: float, rng: np.random.Generator
) -> tuple[Sides, npt.NDArray[np.bool_]]:
    """Take whole groups, at random in each client and class; also return which rows are in a cell of one group."""
    _, first, member, size = np.unique(group, return_index=True, return_inverse=True, return_counts=True)
    label, owner = y[first].copy(), client[first]
    label[member[y != label[member]]] = -1  # a group of several classes counts for its client as a whole
    shuffled = rng.permutation(len(first))
    order, rank, groups = ranks(shuffled, label, owner)
    start = np.arange(len(order)) - rank
    ends = np.cumsum(size[order])
    begin = (ends - size[order])[start]
    total = ends[start + groups - 1] - begin
    middle = ends - size[order] / 2 - begin
    test = (groups > 1) & (rank > 0) & ((middle > (1 - share) * total) | (rank == groups - 1))
    chosen = np.zeros(len(first), dtype=bool)
    chosen[order[test]] = True
    lonely = np.zeros(len(first), dtype=bool)
    lonely[order[groups == 1]] = True
    return np.where(chosen[member], TEST, TRAIN).astype(np.int8), lonely[member]


def sides(
    method: str, y: Ints, client: Ints, group: Ints | None, share: float, gap: int, rng: np.random.Generator
) -> Sides:
    """Split by one rule; `auto` takes whole groups, or the tail of a group that is alone in its cell."""
    if method == "random" or (group is None and method not in ("tail", "stretch")):
        return at_random(y, client, share, rng)
    if method == "stretch":
        return by_stretch(ids(client) if group is None else group, share, gap, rng)
    if group is None:  # rows of one client and class count as one recording
        return by_tail(client * (int(y.max(initial=0)) + 1) + y, share, gap)
    if method == "tail":
        return by_tail(group, share, gap)
    side, lonely = by_group(y, client, group, share, rng)
    if method == "auto":
        side[lonely] = by_tail(group[lonely], share, max(1, gap))
    return side


def leak(group: Ints, side: Sides, overlap: int) -> Leak:
    """Count the groups on both sides, and those in which a training row could overlap a test row."""
    used = side != UNUSED
    member = ids(group)
    count = int(member.max(initial=-1)) + 1
    has = np.zeros((2, count), dtype=bool)
    has[0, member[used & (side != TEST)]] = True
    has[1, member[side == TEST]] = True
    order = np.argsort(member, kind="stable")
    g, s = member[order], side[order]
    touching = np.zeros(count, dtype=bool)
    for step in range(1, max(1, overlap) + 1):
        pair = (g[step:] == g[:-step]) & (s[step:] != UNUSED) & (s[:-step] != UNUSED)
        pair &= (s[step:] == TEST) != (s[:-step] == TEST)
        touching[g[step:][pair]] = True
    return Leak(int(has.any(axis=0).sum()), int(has.all(axis=0).sum()), int(touching.sum()))


def crossing_twins(twin: Ints, side: Sides) -> int:
    """Count the test rows that equal a training row byte for byte."""
    trained = np.zeros(len(twin), dtype=bool)
    trained[twin[(side == TRAIN) | (side == VALID)]] = True
    return int((trained[twin] & (side == TEST)).sum())
