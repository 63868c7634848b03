"""Read what a run left: models and figures, from Python."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from potluck import methods
from potluck.errors import BadInput, Code, Missing, install_extra, must_be, unknown
from potluck.fleet import ClientId, Params
from potluck.metrics import METRICS, Metric, headline
from potluck.models import Model, build
from potluck.runs import model_files, show
from potluck.runs.engines import ENGINES
from potluck.runs.experiment import Experiment
from potluck.runs.model_files import file_name
from potluck.runs.record import read
from potluck.tasks import of_plain

if TYPE_CHECKING:
    import pandas as pd

SHARED, RAW = "shared", "raw samples"

TABLES = (
    "clients", "steps", "evaluations", "accuracies", "tasks", "events", "clusters", "records", "classes", "held",
    "by_class", "infers_with", "inferred", "untrained", "task", "scores",
)  # fmt: skip


@dataclass(frozen=True)
class Personal:
    """The model of one client, ready to use on samples in the layout of the dataset."""

    client: ClientId
    model: Model
    weights: Params
    about: Mapping[str, Any]
    scale: tuple[Tensor, Tensor] | None
    unscaled: bool = False  # it takes standardised samples, because the statistics are not known here

    def prepared(self, x: Tensor) -> Tensor:
        """Return samples of the dataset's layout as the network takes them: channels first, scaled, standardised."""
        image = self.about["kind"] == "image"
        if image and x.dim() == 3:
            x = x[:, None]
        elif self.about["channels_last"]:
            x = x.movedim(-1, 1)
        if tuple(x.shape[1:]) != self.model.shape:
            wanted = f"samples of shape {self.model.shape}"
            raise must_be(Code.ARGUMENT, "x", wanted, shown=f"shape {tuple(x.shape[1:])}")
        if self.about["bytes"]:
            x = x / 255.0
        if self.scale is not None:
            mean, factor = (part[:, None, None] if image else part for part in self.scale)
            x = torch.nan_to_num((x - mean) * factor)
        return x.contiguous()

    def scores(self, x: Any, t: Any = None, length: Any = None) -> NDArray[np.float32]:
        """Return class probabilities (SVM: scores) of samples in the layout of the dataset, sample axis first.

        Of other tasks: the probabilities of levels or labels, numbers in the units of the data, the anomaly score.
        For series, `t` are their time stamps and `length` their true numbers of steps, where the dataset has them.
        """
        values = self.prepared(torch.from_numpy(np.asarray(x, dtype=np.float32)))
        times = None if t is None else torch.from_numpy(np.asarray(t, dtype=np.float64))
        steps = None if length is None else torch.from_numpy(np.asarray(length, dtype=np.int64))
        if steps is not None:
            values = values * (torch.arange(values.shape[1]) < steps[:, None]).unsqueeze(-1)
        with torch.no_grad():
            logits = self.model.logits(self.weights, values, t=times, length=steps)
            if not self.model.task.has_classes:
                return np.asarray(self.model.task.scores(logits.numpy()), dtype=np.float32)
            scores: NDArray[np.float32] = (logits if self.model.loss == "hinge" else logits.softmax(-1)).numpy()
        return scores

    def predict(self, x: Any, t: Any = None, length: Any = None) -> NDArray[Any]:
        """Return the class of each sample; of other tasks the level, the labels, the number or the anomaly score."""
        return np.asarray(self.model.task.predicted(self.scores(x, t, length)))

    def fitted_to(self, x: Any) -> Personal:
        """Return the model with the statistics of these samples, as a new client would use it."""
        plain = replace(self, scale=None).prepared(torch.from_numpy(np.asarray(x, dtype=np.float32))).double()
        axis = 1 if self.about["kind"] == "image" else plain.dim() - 1
        values = plain.movedim(axis, -1).reshape(-1, plain.shape[axis])
        mean = torch.nan_to_num(values.nanmean(0))
        spread = torch.nan_to_num((values - mean).square().nanmean(0)).sqrt()
        spread = torch.where(spread > 1e-7 * mean.abs(), spread, torch.ones_like(spread))
        return replace(self, scale=(mean.float(), (1.0 / spread).float()), unscaled=False)


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
    def clock(self) -> str:
        """What its seconds are: virtual or wall. A deployment that goes on counts as virtual until it has a summary."""
        if self.experiment.run.engine in ENGINES:
            return "wall"
        return str(self.summary.get("clock", "virtual")) if self.finished else "virtual"

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
    def metric(self) -> Metric:
        """The metric that ranks its models: accuracy for classes, unless `task.metric` says otherwise."""
        rows = {row["name"]: json.loads(row["value"]) for row in self.table("task")}
        return METRICS[rows["metric"]] if "metric" in rows else headline({})

    @property
    def clients(self) -> list[ClientId]:
        return [row["client"] for row in self.table("clients")]

    def table(self, name: str) -> list[dict[str, Any]]:
        """Read a table of run.db (see TABLES) as a list of dicts."""
        if name not in TABLES:
            raise unknown(Code.ARGUMENT, "table", name, TABLES)
        path = self.folder / "run.db"
        if name == "task" and not path.exists():
            return []
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
        return self._load(path, client, self.folder / "models" / "inputs.safetensors", on_clients.exists())

    @property
    def has_shared(self) -> bool:
        """Whether the run left one model for all clients."""
        return (self.folder / "models" / "global.safetensors").exists()

    @property
    def with_models(self) -> list[ClientId]:
        """The clients whose models are in the folder."""
        on_clients = self.folder / "models" / "on_clients.json"
        kept = json.loads(on_clients.read_text(encoding="utf-8")) if on_clients.exists() else {}
        personal = self.folder / "models" / "personal"
        here = [one for one in self.clients if self.has_shared or (personal / f"{file_name(one)}.safetensors").exists()]
        return [client for client in here if client not in kept]

    def shared(self, client: ClientId | None = None) -> Personal:
        """Load the one model for all clients, with the statistics of a client if one is named.

        Without a name it takes raw samples only if all clients standardise alike, or not at all. Otherwise it takes
        standardised samples; `fitted_to(x)` gives it the statistics of your own.
        """
        if not self.has_shared:
            raise BadInput(
                Code.ARGUMENT,
                f"shared: {self.name} has no model for all clients; `run.personal(client)` loads one of theirs.",
            )
        if client is not None and client not in self.clients:
            raise unknown(Code.UNKNOWN_CLIENT, "client", client, self.clients)
        path, inputs = self.folder / "models" / "global.safetensors", self.folder / "models" / "inputs.safetensors"
        if client is not None:
            return replace(self._load(path, client, inputs, False), client="")
        scales, _ = model_files.load(inputs)
        owners = [name.removesuffix(".mean") for name in scales if name.endswith(".mean")]
        first = owners[0] if owners else ""
        alike = all(
            torch.equal(scales[f"{one}.{part}"], scales[f"{first}.{part}"])
            for one in owners
            for part in ("mean", "factor")
        )
        deployed = (self.folder / "models" / "on_clients.json").exists()
        found = self._load(path, first, inputs, deployed)
        return replace(found, client="", scale=found.scale if alike else None, unscaled=deployed or not alike)

    def _load(self, path: Path, client: ClientId, inputs: Path, deployed: bool) -> Personal:
        """A model of this run, which may answer by the run's own method, also by a file of the user's."""
        return _load(path, client, inputs, deployed, self)

    def show(self) -> None:
        """Show the result: as a table with a curve in a notebook, as text elsewhere."""
        show.show(self)

    def _repr_html_(self) -> str:
        return show.html(self)

    def __iter__(self) -> Iterator[ClientId]:
        return iter(self.clients)


def _load(path: Path, client: ClientId, inputs: Path, deployed: bool, run: Run | None = None) -> Personal:
    weights, about = model_files.load(path)
    scales, _ = model_files.load(inputs)
    scale = (scales[f"{client}.mean"], scales[f"{client}.factor"]) if f"{client}.mean" in scales else None
    return Personal(client, _built(about, run), weights, about, scale, unscaled=deployed and scale is None)


def _built(about: Mapping[str, Any], run: Run | None = None) -> Model:
    """Build the model of a file. It answers by the code of a method only if that is installed, or is that of `run`."""
    task = of_plain(about["task"]) if "task" in about else None
    model = build(about["model"], tuple(about["shape"]), about["classes"], about["settings"], task)
    by = about.get("answers_by")
    if by is None:
        return model
    if by not in methods.names() and (run is None or by != run.experiment.method["name"]):
        raise BadInput(
            Code.METHOD_UNKNOWN,
            f"model file: answers by the method {by!r}, which must be installed; a model file cannot name other code.",
        )
    return methods.load(by).answering(model)


def open_model(path: Path) -> Personal:
    """Open a model file: one that `potluck export --to safetensors` wrote, or one that a client of a deployment keeps.

    >>> potluck.open_model("export/fedavg-made-s0/s07.safetensors").predict(x)            # doctest: +SKIP
    """
    weights, about = model_files.load(path)
    if "export" not in about:  # the statistics are in a file beside it
        inputs = path.parent / "inputs.safetensors"
        return _load(path, unquote(path.stem), inputs if inputs.exists() else path, deployed=True)
    scale = (weights.pop("input.mean"), weights.pop("input.factor")) if "input.mean" in weights else None
    found = about["export"]
    client = "" if found["client"] == SHARED else found["client"]
    return Personal(client, _built(about), weights, about, scale, unscaled=found["takes"] != RAW)
