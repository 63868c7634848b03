"""Read what a run left: models and figures, from Python."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck.errors import BadInput, Code, Missing, install_extra, must_be, unknown
from potluck.fleet import ClientId, Params
from potluck.models import Model, build
from potluck.runs import model_files
from potluck.runs.experiment import Experiment
from potluck.runs.model_files import file_name
from potluck.runs.record import read

if TYPE_CHECKING:
    import pandas as pd

TABLES = (
    "clients", "steps", "evaluations", "accuracies", "tasks", "events", "clusters", "records", "classes", "held",
    "by_class", "infers_with", "inferred", "untrained",
)  # fmt: skip


@dataclass(frozen=True)
class Personal:
    """The model of one client, ready to use on samples in the layout of the dataset."""

    client: ClientId
    model: Model
    weights: Params
    about: Mapping[str, Any]
    scale: tuple[Tensor, Tensor] | None

    def scores(self, x: Any) -> NDArray[np.float32]:
        """Return class probabilities (SVM: scores) of samples in the layout of the dataset, sample axis first."""
        image = self.about["kind"] == "image"
        values = torch.from_numpy(np.asarray(x, dtype=np.float32))
        if image and values.dim() == 3:
            values = values[:, None]
        elif self.about["channels_last"]:
            values = values.movedim(-1, 1)
        if tuple(values.shape[1:]) != self.model.shape:
            wanted = f"samples of shape {self.model.shape}"
            raise must_be(Code.ARGUMENT, "x", wanted, shown=f"shape {tuple(values.shape[1:])}")
        if self.about["bytes"]:
            values = values / 255.0
        if self.scale is not None:
            mean, factor = (part[:, None, None] if image else part for part in self.scale)
            values = torch.nan_to_num((values - mean) * factor)
        with torch.no_grad():
            logits = self.model.logits(self.weights, values.contiguous())
            scores: NDArray[np.float32] = (logits if self.model.loss == "hinge" else logits.softmax(-1)).numpy()
        return scores

    def predict(self, x: Any) -> NDArray[np.int64]:
        return np.asarray(self.scores(x).argmax(-1))


@dataclass(frozen=True)
class Run:
    """A run's folder, finished or not."""

    folder: Path

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def experiment(self) -> Experiment:
        return Experiment.read(self.folder / "experiment.toml")

    @property
    def finished(self) -> bool:
        return (self.folder / "summary.json").exists()

    @property
    def summary(self) -> dict[str, Any]:
        try:
            value: dict[str, Any] = json.loads((self.folder / "summary.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise BadInput(
                Code.RUN_STATE, f"run: {str(self.folder)!r} has no summary yet. `potluck resume` completes it."
            ) from None
        return value

    @property
    def clients(self) -> list[ClientId]:
        return [row["client"] for row in self.table("clients")]

    def table(self, name: str) -> list[dict[str, Any]]:
        """Read a table of run.db (see TABLES) as a list of dicts."""
        if name not in TABLES:
            raise unknown(Code.ARGUMENT, "table", name, TABLES)
        path = self.folder / "run.db"
        if not read(path, "SELECT 1 FROM sqlite_master WHERE name = ?", name):  # a run of an older version
            return []
        return read(path, f"SELECT * FROM {name}")

    def frame(self, name: str = "evaluations") -> pd.DataFrame:
        """Read a table as a pandas data frame."""
        try:
            import pandas
        except ImportError:
            raise Missing(Code.EXTRA, f"pandas: not installed; `{install_extra('frames')}` adds it.") from None
        return pandas.DataFrame(self.table(name))

    def personal(self, client: ClientId) -> Personal:
        """Load the model that this client uses. It takes raw samples and applies the client's own statistics.

        After a deployment, a client that was offline at the end has no such statistics here: they stay on its machine.
        Its model, where the server's state is enough to make it, takes samples that are already standardised.
        """
        on_clients = self.folder / "models" / "on_clients.json"  # after a deployment; null: it was offline at the end
        kept = json.loads(on_clients.read_text(encoding="utf-8")) if on_clients.exists() else {}
        if kept.get(client):
            raise BadInput(
                Code.ARGUMENT, f"client: the model of {client!r} stays on its own machine, in {kept[client]}."
            )
        if client in kept:
            raise BadInput(
                Code.ARGUMENT,
                f"client: the model of {client!r} is on its own machine, which was offline when the run ended.",
            )
        path = self.folder / "models" / "personal" / f"{file_name(client)}.safetensors"
        if not path.exists():
            path = self.folder / "models" / "global.safetensors"
        if client not in self.clients or not path.exists():
            raise unknown(Code.UNKNOWN_CLIENT, "client", client, self.clients)
        return _load(path, client, self.folder / "models" / "inputs.safetensors")

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.clients)


def _load(path: Path, client: ClientId, inputs: Path) -> Personal:
    weights, about = model_files.load(path)
    model = build(about["model"], tuple(about["shape"]), about["classes"], about["settings"])
    scales, _ = model_files.load(inputs)
    scale = (scales[f"{client}.mean"], scales[f"{client}.factor"]) if f"{client}.mean" in scales else None
    return Personal(client, model, weights, about, scale)
