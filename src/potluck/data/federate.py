"""Deal a dataset out to clients, and split the rows of each client.

Independent rows are dealt first, and then split within each client. Rows of recordings are split first, for the whole
dataset, and then training rows and test rows are dealt by the same plan. So one client never trains on a recording that
another client is tested on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from potluck.data import split as splits
from potluck.data.dataset import Dataset, Ints
from potluck.data.draw import Drawn
from potluck.data.federation import PARTS, Dealt, Federation, Numbered
from potluck.data.partition import NO_CLIENT, plan
from potluck.data.spec import DEFAULT_CLIENTS, PartitionSpec
from potluck.data.split import TEST, TRAIN, UNUSED, VALID, Sides
from potluck.errors import BadInput, Code, must_be
from potluck.keys import rng

__all__ = ["Federation", "PartitionSpec", "federate"]


def federate(dataset: Dataset, spec: PartitionSpec, standardise: str = "client", seed: int = 0) -> Federation:
    """Deal a dataset out to clients. `spec.seed`, if set, replaces the seed of the run."""
    nobody = []
    if spec.kind == "auto":
        natural = dataset.subject is not None and spec.samples is None
        spec = replace(spec, kind="subject" if natural else "sizes" if spec.sizes else "iid")
        if dataset.own and dataset.subject is None and spec.kind == "iid":
            nobody = ["Nothing says whose each row is, so rows go to clients at random (data.columns.client names it)."]
    seed = seed if spec.seed is None else spec.seed
    if spec.kind == "subject":
        return _by_subject(dataset, spec, seed, standardise)
    labelled = np.flatnonzero(dataset.y >= 0)
    if len(labelled) < len(dataset) and (spec.kind != "iid" or spec.samples is not None):
        wanted = "'subject' or 'iid', without partition.samples, where rows have no label"
        raise must_be(Code.PARTITION_ROWS, "partition.kind", wanted, spec.kind)
    method, notes = _method(dataset, spec, None)
    notes = nobody + notes
    if spec.samples is not None:
        return _drawn(dataset, spec, method, seed, standardise, notes)
    one_client = np.zeros(len(dataset), dtype=np.int64)
    if method == "random":
        whole = replace(spec, sizes=_with_test_rows(spec)) if spec.kind == "sizes" else spec
        dealer, more = plan(whole, dataset.y[labelled], dataset.classes, rng(seed, "plan"))
        client = np.full(len(dataset), NO_CLIENT, dtype=np.int64)
        client[labelled] = dealer.deal(dataset.y[labelled], rng(seed, "deal"))
        side = np.full(len(dataset), UNUSED, dtype=np.int8)
        used = np.flatnonzero(client != NO_CLIENT)
        side[used] = _sides(dataset, spec, method, used, client[used], seed)
    else:
        side = np.full(len(dataset), UNUSED, dtype=np.int8)
        side[labelled] = _sides(dataset, spec, method, labelled, one_client[labelled], seed)
        client = np.full(len(dataset), NO_CLIENT, dtype=np.int64)
        dealer, more = plan(spec, dataset.y[side == TRAIN], dataset.classes, rng(seed, "plan"))
        for part, code in PARTS.items():
            pool = np.flatnonzero(side == code)
            client[pool] = dealer.deal(dataset.y[pool], rng(seed, "deal", part))
    names = Numbered(dealer.clients)
    if len(labelled) < len(dataset):
        blank = rng(seed, "unlabelled").permutation(np.flatnonzero(dataset.y < 0))
        client[blank] = np.arange(len(blank)) % dealer.clients
    if spec.kind == "scenario" and spec.sizes is not None:
        _thin(side, client, spec.sizes, names, rng(seed, "thin"))
    _limit(side, client, spec, rng(seed, "most"))
    more += _train_without_labels(dataset, method, side, client)
    return _written(dataset, spec, names, client, side, standardise, [*notes, *more])


def _by_subject(dataset: Dataset, spec: PartitionSpec, seed: int, standardise: str) -> Federation:
    client, names = dataset.natural_clients()
    notes = []
    asked = spec.clients or (len(spec.sizes) if spec.sizes else len(names))
    if asked > len(names):
        wanted = f"at most {len(names)}, the subjects of {dataset.name}"
        raise must_be(Code.PARTITION_ROWS, "partition.clients", wanted, asked)
    if asked < len(names):
        chosen = np.sort(rng(seed, "subjects").choice(len(names), asked, replace=False))
        notes.append(f"{asked} of {len(names)} subjects take part, chosen by the seed.")
        place = np.full(len(names), NO_CLIENT, dtype=np.int64)
        place[chosen] = np.arange(asked)
        client, names = place[client], tuple(names[int(k)] for k in chosen)
    method, more = _method(dataset, spec, client)
    used = np.flatnonzero((client != NO_CLIENT) & (dataset.y >= 0))
    side = np.full(len(dataset), UNUSED, dtype=np.int8)
    side[used] = _sides(dataset, spec, method, used, client[used], seed)
    if spec.sizes is not None:
        _thin(side, client, spec.sizes, names, rng(seed, "thin"))
    _limit(side, client, spec, rng(seed, "most"))
    more += _train_without_labels(dataset, method, side, client)
    return _written(dataset, spec, names, client, side, standardise, [*notes, *more])


def _limit(side: Sides, client: Ints, spec: PartitionSpec, draw: np.random.Generator) -> None:
    """Keep at most `most_rows` labelled rows of each client, chosen at random; test rows stay.

    Training and validation rows share the limit in the proportion of `valid_share`.
    """
    if spec.most_rows is None:
        return
    valid = max(1, round(spec.most_rows * spec.valid_share)) if spec.valid_share else 0
    for code, most in ((TRAIN, spec.most_rows - valid), (VALID, valid)):
        rows = draw.permutation(np.flatnonzero((side == code) & (client != NO_CLIENT)))
        rows = rows[np.argsort(client[rows], kind="stable")]
        _, first, counts = np.unique(client[rows], return_index=True, return_counts=True)
        rank = np.arange(len(rows)) - np.repeat(first, counts)
        side[rows[rank >= most]] = UNUSED


def _thin(side: Sides, client: Ints, sizes: tuple[int, ...], names: Sequence[str], draw: np.random.Generator) -> None:
    """Keep `sizes` training rows of the clients, chosen at random; test rows stay."""
    for k, size in enumerate(sizes):
        rows = np.flatnonzero((client == k) & (side == TRAIN))
        if size > len(rows):
            raise BadInput(
                Code.PARTITION_ROWS,
                f"partition.sizes: must be at most {len(rows)} training rows for {names[k]}, got {size}.",
            )
        side[draw.permutation(rows)[size:]] = UNUSED


def _with_test_rows(spec: PartitionSpec) -> tuple[int, ...] | None:
    """Return how many rows each client needs in total, so that the wanted training rows are left after the split."""
    if spec.sizes is None:
        return None
    rest = [n + round(n * spec.valid_share / (1 - spec.valid_share)) for n in spec.sizes]
    return tuple(n + max(1, round(n * spec.test_share / (1 - spec.test_share))) for n in rest)


def _method(dataset: Dataset, spec: PartitionSpec, client: Ints | None) -> tuple[str, list[str]]:
    """Choose the split rule: the one that was set, or for `auto` the strictest that the data allows; with notes."""
    if spec.split == "given" and dataset.split is None:
        raise BadInput(Code.DATA_SUBJECTS, f"partition.split: 'given' needs a split, but {dataset.name} has none.")
    if spec.split == "group" and dataset.group is None:
        raise BadInput(Code.DATA_SUBJECTS, f"partition.split: 'group' needs groups, but {dataset.name} has none.")
    if spec.split != "auto":
        return spec.split, []
    if dataset.rule:
        return dataset.rule, []
    if dataset.split is None:
        return ("random", []) if dataset.group is None else ("auto", [])
    everyone = np.zeros(len(dataset), dtype=np.int64) if client is None and dataset.own else client
    if everyone is not None and _serves(dataset, everyone):
        return "given", ["Split: the one that comes with the data, which gives every client both sides."]
    if client is None and not dataset.own:
        why = "the clients are not its own"
    elif (
        dataset.group is not None and splits.leak(splits.ids(dataset.group), dataset.split, dataset.overlap).both_sides
    ):
        why = "it has recordings on both sides"
    else:
        why = "it leaves clients without training or test rows"
    counts = [int((np.asarray(dataset.split) == code).sum()) for code in (TRAIN, TEST)]
    notes = [
        f"Split: the one that comes with the data ({counts[0]} training rows, {counts[1]} test rows) is not used, "
        f"because {why} (partition.split = given uses it)."
    ]
    return ("random", notes) if dataset.group is None else ("auto", notes)


def _serves(dataset: Dataset, client: Ints) -> bool:
    """Whether the split of the data has both sides for every client and no group on both sides."""
    assert dataset.split is not None
    side = np.asarray(dataset.split, dtype=np.int8)
    for code in (TRAIN, TEST):
        if len(np.unique(client[(side == code) & (client >= 0)])) < len(np.unique(client[client >= 0])):
            return False
    return dataset.group is None or splits.leak(splits.ids(dataset.group), side, dataset.overlap).both_sides == 0


def _sides(dataset: Dataset, spec: PartitionSpec, method: str, rows: Ints, client: Ints, seed: int) -> Sides:
    """Split some rows into train, test and validation; validation rows come from training rows by the same rule."""
    y = dataset.y[rows]
    group = None if dataset.group is None else splits.ids(dataset.group[rows])
    gap = dataset.overlap if spec.gap is None else spec.gap
    if method == "given":
        assert dataset.split is not None
        side = np.asarray(dataset.split, dtype=np.int8)[rows]
        method = "random" if group is None else "auto"
    else:
        side = splits.sides(method, y, client, group, spec.test_share, gap, rng(seed, "test"))
    if spec.valid_share > 0 and not np.any(side == VALID):
        left = np.flatnonzero(side == TRAIN)
        again = splits.sides(
            method,
            y[left],
            client[left],
            None if group is None else group[left],
            spec.valid_share,
            gap,
            rng(seed, "valid"),
        )
        side[left] = np.where(again == TEST, VALID, again)
    if dataset.odd is not None:
        side[(side == TRAIN) & dataset.odd[rows]] = TEST
    return side


def _train_without_labels(dataset: Dataset, method: str, side: Sides, client: Ints) -> list[str]:
    """Put rows without a label on the training side, but none that a recording with test rows has; return notes."""
    blank = (dataset.y < 0) & (client != NO_CLIENT)
    if not blank.any():
        return []
    free = blank.copy()
    if method == "given" and dataset.split is not None:
        free &= np.asarray(dataset.split) == TRAIN
    if dataset.group is not None:
        group = splits.ids(dataset.group)
        free &= ~np.isin(group, group[(side == TEST) | (side == VALID)])
    side[free] = TRAIN
    known = int((side == TRAIN).sum() - free.sum())
    left = int(blank.sum() - free.sum())
    why = f"; {left} more are on the test side and are not used" if left else ""
    return [f"Labels: {known} training rows have one, {int(free.sum())} have none{why}."]


def _written(
    dataset: Dataset,
    spec: PartitionSpec,
    names: Sequence[str],
    client: Ints,
    side: Sides,
    standardise: str,
    notes: list[str],
) -> Federation:
    """Make the federation, without the clients that have too few rows."""
    used = client != NO_CLIENT
    side = np.where(used, side, UNUSED).astype(np.int8)
    parts = [np.bincount(client[used & (side == code)], minlength=len(names)) for code in PARTS.values()]
    keep = (parts[0] >= 1) & (parts[1] >= 1) & (sum(parts) >= spec.min_samples)
    if not keep.any():
        raise BadInput(
            Code.PARTITION_ROWS,
            f"partition: none of {len(names)} clients has a training row, a test row and at least "
            f"{spec.min_samples} rows in all. {dataset.name} has {len(dataset)} rows. Set fewer clients "
            f"or another split than {spec.split!r}.",
        )
    if not keep.all():
        notes.append(
            f"{int((~keep).sum())} of {len(names)} clients are left out: fewer than {spec.min_samples} rows, "
            "or none to train or to test on."
        )
        place = np.where(keep, np.cumsum(keep) - 1, NO_CLIENT)
        client = np.where(used, place[client], NO_CLIENT)
        names = [names[int(k)] for k in np.flatnonzero(keep)]
    idle = int((client == NO_CLIENT).sum())
    side = np.where(client == NO_CLIENT, UNUSED, side).astype(np.int8)
    if idle and spec.kind != "subject":
        notes.append(f"{idle} of {len(dataset)} rows belong to no client under this partition.")
    deal = Dealt(client, side, len(names))
    counts = {part: deal.counts(part) for part in PARTS}
    return Federation(dataset, spec, names, deal, counts, side, standardise, notes)


def _drawn(
    dataset: Dataset, spec: PartitionSpec, method: str, seed: int, standardise: str, notes: list[str]
) -> Federation:
    assert spec.samples is not None
    clients = spec.clients or DEFAULT_CLIENTS
    everyone = np.zeros(len(dataset), dtype=np.int64)
    side = _sides(dataset, spec, method, np.arange(len(dataset)), everyone, seed)
    rest = spec.samples / (1 - spec.valid_share)
    each = {
        "train": spec.samples,
        "test": max(1, round(rest * spec.test_share / (1 - spec.test_share))),
        "valid": round(spec.samples * spec.valid_share / (1 - spec.valid_share)),
    }
    pools = {part: np.flatnonzero(side == code) for part, code in PARTS.items()}
    deal = Drawn(spec, seed, dataset.classes, pools, each, dataset.y)
    counts = {part: np.broadcast_to(np.int64(n), (clients,)) for part, n in each.items()}
    notes.append(f"Clients share rows: each draws {spec.samples} of {len(pools['train'])} training rows for itself.")
    return Federation(dataset, spec, Numbered(clients), deal, counts, side, standardise, notes)
