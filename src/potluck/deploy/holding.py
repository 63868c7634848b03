"""The rows a client holds on its own machine, split by the run's rules; nothing of them leaves it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck.data import Federation, PartitionSpec, federate
from potluck.data.check import dataset as checked
from potluck.data.dataset import Dataset
from potluck.data.federation import Part
from potluck.data.files import read_npz
from potluck.data.load import load
from potluck.errors import BadInput, Code, no_file
from potluck.fleet import Data
from potluck.runs.evaluate import stacked
from potluck.wire.codec import walk

RULES = ("split", "test_share", "valid_share", "gap")  # of the partition: how one client's rows are split


@dataclass(frozen=True)
class Holding:
    """A client's place in a federation: the only client of its own, or one of many in a simulation."""

    federation: Federation
    place: int | None  # None: an access point, which has no rows
    order: tuple[int, ...] | None = None  # this client's labels by the run's numbers; None: they are the same

    @property
    def dataset(self) -> Dataset:
        return self.federation.dataset

    def count(self, part: Part) -> int:
        return 0 if self.place is None else int(self.federation.counts(part)[self.place])

    def rows(self, part: Part, capacity: int) -> Data:
        """A stack of one client's rows."""
        where = 0 if self.place is None else self.place
        if self.place is None:  # shapes alone
            like = stacked(self.federation, [where], "train", int(self.federation.sizes[where]))
            nothing: Data = walk(like, lambda t: t.new_zeros(1, capacity, *t.shape[2:]))
            return nothing
        data = stacked(self.federation, [where], part, capacity)
        if self.order is None:
            return data
        return Data(data.x, torch.tensor(self.order)[data.y], data.weight, data.t, data.length)

    def scale(self) -> tuple[Tensor, Tensor] | None:
        found = None if self.place is None else self.federation.scale(self.place)
        return None if found is None else (torch.as_tensor(found[0]), torch.as_tensor(found[1]))


def read(source: str) -> Dataset:
    """One client's own rows. All of them may be of one class, so a file of labels' names helps: `class_names`."""
    path = Path(source).expanduser()
    if path.suffix == ".npz":
        if not path.is_file():
            raise no_file(Code.DATA_FILE, "data", path, " on this machine")
        return checked(str(path), read_npz(path), path.stem, least=1)
    return load(source)


def hold(dataset: Dataset, rules: dict[str, Any]) -> Holding:
    """The client's rows, split as the run says, or as the file itself says."""
    if rules.get("standardise") == "global":
        raise BadInput(
            Code.DEPLOY_SETTINGS,
            "data.standardise: 'global' needs everybody's rows on one machine; 'client' or 'none' does not.",
        )
    asked = {name: rules["partition"][name] for name in RULES if name in rules["partition"]}
    if dataset.split is not None:
        asked["split"] = "given"
    elif asked.get("split") == "given":
        asked["split"] = "auto"
    spec = PartitionSpec(kind="iid", clients=1, seed=int(rules["seed"]), **asked)
    return Holding(federate(dataset, spec, str(rules["standardise"])), 0)


def share(federation: Federation, place: int, path: Path) -> None:
    """Write one client's rows to a file of its own, with the side of the split that each is on."""
    parts = ("train", "test", "valid")
    found = [federation.train_rows(place), federation.test_rows(place), federation.valid_rows(place)]
    rows = np.sort(np.concatenate(found))
    side = np.empty(len(rows), dtype=np.int64)
    for code, (_, own) in enumerate(zip(parts, found, strict=True)):
        side[np.searchsorted(rows, own)] = code
    data = federation.dataset
    arrays: dict[str, Any] = {
        "x": data.x[rows],
        "y": data.y[rows],
        "split": side,
        "class_names": list(data.class_names),
    }
    for name in ("t", "length"):
        column = getattr(data, name)
        if column is not None:
            arrays[name] = np.asarray(column)[rows]
    np.savez(path, kind=data.kind, **arrays)
