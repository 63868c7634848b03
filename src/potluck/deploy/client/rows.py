"""The samples a client has on its own machine, split by the run's rules. They never leave it."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from potluck.data import Federation, PartitionSpec, federate, files
from potluck.data.dataset import Dataset
from potluck.data.federation import Part
from potluck.data.load import load
from potluck.errors import BadInput, Code, no_file
from potluck.files import write_bytes
from potluck.fleet import ClientId, Data
from potluck.runs.evaluate import stacked
from potluck.runs.sections import DataSection
from potluck.wire.codec import walk

RULES = (
    "split",
    "test_share",
    "valid_share",
    "gap",
)  # settings of the partition for one client's split
READING = ("columns", "missing", "window", "kind")  # settings of [data] that say how a file is read
DEALT = "dealt"  # an array that marks a file of `write_rows`


@dataclass(frozen=True)
class LocalRows:
    """One client's samples, split into train, test and validation rows.

    On a real machine the federation holds this client alone. In a simulation it holds all clients.
    """

    federation: Federation
    index: int | None  # of this client in the federation; None for an access point, which has no samples
    order: tuple[int, ...] | None = None  # this client's label numbers -> the run's; None where they are the same

    @property
    def dataset(self) -> Dataset:
        return self.federation.dataset

    def count(self, part: Part) -> int:
        return 0 if self.index is None else int(self.federation.counts(part)[self.index])

    def rows(self, part: Part, capacity: int) -> Data:
        """The samples as a stack of one client, padded to `capacity`."""
        if self.index is None:  # an access point needs the shapes only
            like = stacked(self.federation, [0], "train", int(self.federation.sizes[0]))
            nothing: Data = walk(like, lambda t: t.new_zeros(1, capacity, *t.shape[2:]))
            return nothing
        data = stacked(self.federation, [self.index], part, capacity)
        if self.order is None:
            return data
        return Data(data.x, torch.tensor(self.order)[data.y], data.weight, data.t, data.length)

    def order_in(self, labels: Sequence[str]) -> tuple[int, ...] | None:
        """This client's label numbers as a run with these labels counts them. Labels are matched by name."""
        own = self.dataset.class_names
        return None if list(own) == list(labels) else tuple(labels.index(name) for name in own)

    def scale(self) -> tuple[Tensor, Tensor] | None:
        """Mean and factor that the inputs were standardised with."""
        found = None if self.index is None else self.federation.scale(self.index)
        return None if found is None else (torch.as_tensor(found[0]), torch.as_tensor(found[1]))


def read(source: str, reading: Mapping[str, Any] | None = None) -> Dataset:
    """Read one client's samples. They may all be of one class, so the file should name all labels (`class_names`).

    `reading` has the settings of [data] that say how: columns, missing, window, kind. A file that `write_rows` made
    holds samples as a run wants them, so nothing is left to say.
    """
    path = Path(source).expanduser()
    if path.suffix in files.SUFFIXES and not path.is_file():
        raise no_file(Code.DATA_FILE, "data", path, " on this machine")
    intake = None if _is_dealt(path) else DataSection(**(reading or {})).intake()
    if path.suffix in files.SUFFIXES or path.is_dir():
        return files.read(path, intake, least=1)
    return load(source, intake)


def check_file(source: str, reading: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Raise BadInput for a file that cannot be read at all; say what else is wrong, which a run's settings may mend."""
    try:
        read(source, reading)
    except BadInput as error:
        if error.code in (Code.DATA_FILE, Code.DATA_UNKNOWN, Code.DATA_ABSENT):
            raise
        say(f"data: a run must say how to read it. As it is: {error}")


def _is_dealt(path: Path) -> bool:
    """Whether `write_rows` wrote the file."""
    if path.suffix != ".npz" or not zipfile.is_zipfile(path):
        return False
    with zipfile.ZipFile(path) as archive:
        return f"{DEALT}.npy" in archive.namelist()


def split_rows(dataset: Dataset, rules: dict[str, Any]) -> LocalRows:
    """Split the samples by the run's rules, or as the file itself says."""
    if rules.get("standardise") == "global":
        raise BadInput(
            Code.DEPLOY_SETTINGS,
            "data.standardise: must be 'client' or 'none' in a deployment, got 'global', which needs the samples of "
            "all clients on one machine.",
        )
    if dataset.target is not None:
        raise BadInput(
            Code.METHOD_TASK,
            f"data: a deployment learns classes, but the labels of {dataset.name} are for {dataset.asks}.",
        )
    asked = {name: rules["partition"][name] for name in RULES if name in rules["partition"]}
    if dataset.split is not None:
        asked["split"] = "given"
    elif asked.get("split") == "given":
        asked["split"] = "auto"
    spec = PartitionSpec(kind="iid", clients=1, seed=int(rules["seed"]), **asked)
    return LocalRows(federate(dataset, spec, str(rules["standardise"])), 0)


def rows_of(federation: Federation) -> dict[ClientId, int]:
    """How many rows each client has, of training, test and validation together."""
    counts = sum(federation.counts(part) for part in ("train", "test", "valid"))
    return dict(zip(federation.names, np.asarray(counts).tolist(), strict=True))


def write_rows(federation: Federation, index: int, path: Path) -> None:
    """Write one client's samples to a file, with the side of the split that each is on."""
    found = [federation.train_rows(index), federation.test_rows(index), federation.valid_rows(index)]
    rows = np.sort(np.concatenate(found))
    side = np.empty(len(rows), dtype=np.int64)
    for code, own in enumerate(found):  # 0 train, 1 test, 2 validation, as a file's `split` has them
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
    if data.missing:
        arrays["missing"] = "mean"  # NaN is meant: what was not measured
    held = io.BytesIO()
    np.savez(held, kind=data.kind, **{DEALT: True}, **arrays)
    write_bytes(path, held.getvalue(), private=True)
