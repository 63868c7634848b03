"""Run fluke's own methods on an exported federation, in fluke's own environment.

`python benchmarks/against` calls this:

    FLUKE/bin/python benchmarks/against/run_fluke.py against/exported/uci-har/0 \\
        --methods ditto --rounds 20 --out against/results

Needs `pip install fluke-fl` (0.8.1 was used), and no Potluck. `--repaired` changes the lines that `reasons.py` names,
to show that they, and nothing else, make the difference.
"""

from __future__ import annotations

import importlib
import io
import os
from collections import OrderedDict
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib import metadata
from pathlib import Path
from typing import Any

import cases
import fluke
import network
import results
import torch
from fluke import DDict, FlukeENV
from fluke.comm import Message
from fluke.data import DataSplitter, DummyDataContainer, FastDataLoader
from fluke.evaluation import ClassificationEval
from fluke.nets import EncoderHeadNet
from results import Result
from torch.func import functional_call

FOLDER = "AGAINST_FOLDER"  # environment variables, because fluke makes some models by the name of a class
NETWORK = "AGAINST_NETWORK"


class Net(EncoderHeadNet):
    """The network of the export, with its first weights."""

    def __init__(self) -> None:
        super().__init__(*network.start(Path(os.environ[FOLDER]), os.environ[NETWORK]))


class Encoder(torch.nn.Sequential):
    """The encoder alone: what the server of FedPer and FedRep holds."""

    def __init__(self) -> None:
        encoder, _ = network.start(Path(os.environ[FOLDER]), os.environ[NETWORK])
        super().__init__(OrderedDict(encoder.named_children()))


def splitter(folder: Path, classes: int, batch: int) -> DataSplitter:
    """The clients of the export. A test batch holds all rows: fluke skips a last batch of one row."""
    train, test = [], []
    for rows in network.clients(folder):
        size = batch or len(rows["y"])
        train.append(FastDataLoader(rows["x"], rows["y"], num_labels=classes, batch_size=size, shuffle=True))
        test.append(FastDataLoader(rows["x_test"], rows["y_test"], num_labels=classes, batch_size=len(rows["y_test"])))
    container = DummyDataContainer(train, test, None, classes)
    return DataSplitter(container, distribution="iid")


def algorithm_of(folder: Path, case: str, name: str, seed: int) -> Any:
    about = results.about(folder)
    entry = cases.entry(case, name)
    os.environ[FOLDER] = str(folder)
    os.environ[NETWORK] = entry.network_of(about["networks"])
    env = FlukeENV()
    env.set_seed(seed)
    env.set_device("cpu")
    env.set_eval_cfg(pre_fit=False, post_fit=False, locals=False, server=False)
    env.set_evaluator(ClassificationEval(eval_every=1, n_classes=about["classes"]))
    client = {"local_epochs": entry.recipe.epochs, "batch_size": entry.recipe.batch, **entry.fluke["client"]}
    if client.pop("model", False):
        client["model"] = "run_fluke.Net"  # each client makes its own; a module would be one for all (fedrep.py:65)
    if name == "fedproto":
        client["n_protos"] = about["classes"]
    server = dict(entry.fluke["server"]) | ({"n_protos": about["classes"]} if name == "fedproto" else {})
    module, _, made = entry.fluke["class"].rpartition(".")
    algorithm = getattr(importlib.import_module(f"fluke.algorithms.{module}"), made)
    settings = {
        "client": {
            "loss": "CrossEntropyLoss",
            "optimizer": {"lr": entry.recipe.lr, **entry.fluke["optimizer"]},
            "scheduler": {"step_size": 1, "gamma": 1},
            **client,
        },
        "server": server,
        "model": "run_fluke.Encoder" if name in ("fedper", "fedrep") else "run_fluke.Net",
    }
    data = splitter(folder, about["classes"], entry.recipe.batch)
    return algorithm(len(data.data_container.clients_tr), data, DDict(**settings))


def scores(algorithm: Any) -> dict[str, list[float]]:
    """Accuracy of what fluke scores on the clients' test rows: `own` after training, `received` after the next model.

    fluke calls them post-fit and pre-fit. A client that fluke does not score counts as 0 (see `reasons.py`).
    """
    evaluator = FlukeENV().get_evaluator()

    def all_clients() -> list[float]:
        return [float(c.evaluate(evaluator, c.test_set).get("accuracy", 0.0)) for c in algorithm.clients]

    own = all_clients()
    algorithm.server.broadcast_model(algorithm.clients)
    for client in algorithm.clients:
        client.receive_model()
    return {"own": own, "received": all_clients()}


# What is compared with our headline. PFLClient scores its personal model in both places.
HEADLINE = {"ditto": "own", "apfl": "own", "pfedme": "own", "fedala": "own", "fedproto": "own"}


def run(folder: Path, result: Result, repaired: bool) -> None:
    algorithm = algorithm_of(folder, result.case, result.method, result.seed)
    if repaired:
        REPAIRS[result.method](algorithm)
    algorithm.finalize = lambda: None
    with redirect_stdout(io.StringIO()), result.timed():
        algorithm.run(n_rounds=result.rounds, eligible_perc=1.0)
    found = scores(algorithm)
    result.scores = {"headline": found[HEADLINE.get(result.method, "received")], **found}


def _repair_pfedme(algorithm: Any) -> None:
    """Pull theta towards w, keep w apart from theta, and send w (pfedme.py:129, 139, and the inherited send_model)."""
    kind = type(algorithm.clients[0])
    fit = kind.fit

    class Anchored(kind):  # type: ignore[misc, valid-type]
        def fit(self, override_local_epochs: int = 0) -> float:
            w = self.internal_model
            w.load_state_dict(self.model.state_dict())
            if self.optimizer is None:
                self.optimizer, self.scheduler = self._optimizer_cfg(self.model)
            step = type(self.optimizer).step
            self.optimizer.step = lambda _: step(self.optimizer, w.parameters())
            w.load_state_dict = lambda _: None
            try:
                loss: float = fit(self, override_local_epochs)
            finally:
                del w.load_state_dict
            return loss

        def send_model(self) -> None:
            self.channel.send(Message(self.internal_model, "model", self.index, inmemory=True), "server")

    for client in algorithm.clients:
        client.__class__ = Anchored


def _repair_apfl(algorithm: Any) -> None:
    """Let v learn: take the gradient of the mixed model by v, and keep v when both are mixed (apfl.py:91, 104)."""

    class Learning(type(algorithm.clients[0])):  # type: ignore[misc]
        def fit(self, override_local_epochs: int = 0) -> float:
            if getattr(self, "v", None) is not None:
                self.personalized_model.load_state_dict(self.v)
            w, v, lam = self.model.train(), self.personalized_model.train(), self.hyper_params.lam
            if self.optimizer is None:
                self.optimizer, self.scheduler = self._optimizer_cfg(w)
                self.pers_optimizer, self.pers_scheduler = self._optimizer_cfg(v)
            for _ in range(self.hyper_params.local_epochs):
                for x, y in self.train_set:
                    for optimiser, mixed in ((self.pers_optimizer, True), (self.optimizer, False)):
                        optimiser.zero_grad()
                        named = _mixed(w, v, lam) if mixed else dict(w.named_parameters())
                        self.hyper_params.loss_fn(functional_call(w, named, x), y).backward()
                        optimiser.step()
            self.v = {name: value.clone() for name, value in v.state_dict().items()}
            v.load_state_dict({name: value.detach() for name, value in _mixed(w, v, lam).items()}, strict=False)
            return 0.0

    for client in algorithm.clients:
        client.__class__ = Learning


def _mixed(w: torch.nn.Module, v: torch.nn.Module, lam: float) -> dict[str, torch.Tensor]:
    own = dict(v.named_parameters())
    return {name: (1 - lam) * value.detach() + lam * own[name] for name, value in w.named_parameters()}


def _repair_perfedavg(algorithm: Any) -> None:
    """Take the outer step from w instead of w' (per_fedavg.py:184), and score w after one step on a client's rows."""

    class Restored(type(algorithm.clients[0])):  # type: ignore[misc]
        def fit(self, override_local_epochs: int = 0) -> float:
            if self.optimizer is None:
                self.optimizer, _ = self._optimizer_cfg(self.model)
                step, before = type(self.optimizer).step, {}

                def restored(*args: Any, beta: float = 0.0, **more: Any) -> None:
                    parameters = self.optimizer.param_groups[0]["params"]
                    if beta:
                        for parameter, value in before.items():
                            parameter.data = value
                    else:
                        before.update({parameter: parameter.data.clone() for parameter in parameters})
                    step(self.optimizer, *args, beta=beta, **more)

                self.optimizer.step = restored
            loss: float = super().fit(override_local_epochs)
            return loss

        def evaluate(self, evaluator: Any, test_set: Any) -> Any:
            kept = {name: value.clone() for name, value in self.model.state_dict().items()}
            x, y = self.train_set.tensors
            optimiser = torch.optim.SGD(self.model.parameters(), lr=self.optimizer.param_groups[0]["lr"])
            optimiser.zero_grad()
            self.hyper_params.loss_fn(self.model(x), y).backward()
            optimiser.step()
            found = super().evaluate(evaluator, test_set)
            self.model.load_state_dict(kept)
            return found

    for client in algorithm.clients:
        client.__class__ = Restored


def _repair_fedproto(algorithm: Any) -> None:
    """Answer with the prototypes of all clients, also on clients without class 0 (fedproto.py:167)."""

    class Shared(type(algorithm.clients[0])):  # type: ignore[misc]
        def evaluate(self, evaluator: Any, test_set: Any) -> Any:
            known = dict(enumerate(algorithm.server.prototypes))
            model = fluke.algorithms.fedproto.FedProtoModel(self.model, known, self.device)
            return evaluator.evaluate(self._last_round, model, test_set, device=self.device)

    for client in algorithm.clients:
        client.__class__ = Shared


REPAIRS: dict[str, Callable[[Any], None]] = {
    "pfedme": _repair_pfedme,
    "apfl": _repair_apfl,
    "perfedavg": _repair_perfedavg,
    "fedproto": _repair_fedproto,
}


def main() -> None:
    parser = results.arguments(__doc__)
    parser.add_argument("--repaired", action="store_true", help=f"repair and run only: {' '.join(REPAIRS)}")
    args = parser.parse_args()
    torch.set_num_threads(1)
    for folder, result in results.todo(args, "fluke", metadata.version("fluke-fl"), REPAIRS):
        run(folder, result, args.repaired)
        result.write(args.out)


if __name__ == "__main__":
    main()
