"""Run PFLlib's own methods on an exported federation, from a checkout that you name.

`python benchmarks/against` calls this:

    PYTHON benchmarks/against/run_pfllib.py against/exported/uci-har/0 --checkout PFLlib \\
        --methods ditto --rounds 20 --out against/results

PYTHON is an environment with torch, scikit-learn, h5py and matplotlib, and no Potluck. Commit d832e76 was used.
`--repaired` changes the lines that `reasons.py` names, to show that they, and nothing else, make the difference.
"""

from __future__ import annotations

import importlib
import io
import os
import random
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import cases
import network
import numpy as np
import results
import torch
from results import Result
from torch.func import functional_call

# What PFLlib's main.py sets when its flags are left out, as far as the methods of `cases.py` read it.
DEFAULTS: dict[str, Any] = {
    "device": "cpu", "join_ratio": 1.0, "random_join_ratio": False, "few_shot": 0, "time_select": False,
    "goal": "against", "time_threthold": 10000, "save_folder_name": "items", "top_cnt": 100, "auto_break": False,
    "client_drop_rate": 0.0, "train_slow_rate": 0.0, "send_slow_rate": 0.0, "dlg_eval": False, "dlg_gap": 100,
    "batch_num_per_client": 2, "num_new_clients": 0, "fine_tuning_epoch_new": 0, "learning_rate_decay": False,
    "learning_rate_decay_gamma": 0.99,
}  # fmt: skip
DATASET = "Exported"


@contextmanager
def dataset(folder: Path) -> Iterator[int]:
    """Write the clients in PFLlib's form where it looks for them, ../dataset of the working folder; their number.

    PFLlib reads a pickled dict from each file. It is written and read in this process only.
    """
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as scratch:
        target = Path(scratch) / "dataset" / DATASET
        rows = network.clients(folder)
        for part, x, y in (("train", "x", "y"), ("test", "x_test", "y_test")):
            (target / part).mkdir(parents=True)
            for i, client in enumerate(rows):
                data = {"x": client[x].numpy(), "y": client[y].numpy()}
                np.savez_compressed(target / part / f"{i}.npz", data=np.array(data, dtype=object), allow_pickle=True)
        (Path(scratch) / "system").mkdir()
        os.chdir(Path(scratch) / "system")
        try:
            yield len(rows)
        finally:
            os.chdir(before)


def server_of(folder: Path, case: str, name: str, clients: int, rounds: int) -> Any:
    about = results.about(folder)
    entry = cases.entry(case, name)
    split = importlib.import_module("flcore.trainmodel.models").BaseHeadSplit
    model = split(*network.start(folder, entry.network_of(about["networks"])))
    module, _, made = entry.pfllib["class"].rpartition(".")
    args = {
        **DEFAULTS, "model": model, "algorithm": made, "dataset": DATASET, "num_classes": about["classes"],
        "num_clients": clients, "batch_size": entry.recipe.batch, "local_epochs": entry.recipe.epochs,
        "local_learning_rate": entry.recipe.lr, "global_rounds": rounds - 1, "eval_gap": rounds, **entry.pfllib["args"],
    }  # fmt: skip
    server = getattr(importlib.import_module(f"flcore.servers.{module}"), made)(Namespace(**args), 0)
    if not entry.recipe.batch:  # all rows of a client
        for client in server.clients:
            client.batch_size = client.train_samples
            if name == "fedala":
                client.ALA.batch_size = client.train_samples
    return server


def run(folder: Path, result: Result, repaired: bool) -> None:
    """Train for the rounds, then score as the server would at the start of the next round."""
    evaluate = cases.entry(result.case, result.method).pfllib["evaluate"]
    with dataset(folder) as clients, redirect_stdout(io.StringIO()):
        server = server_of(folder, result.case, result.method, clients, result.rounds)
        if repaired:
            REPAIRS[result.method](server)
        for seed in (random.seed, np.random.seed, torch.manual_seed):
            seed(result.seed)
        setattr(server, evaluate, lambda: server.rs_test_acc.append(0.0))  # it is timed without scoring
        if evaluate != "evaluate":
            server.evaluate = lambda: None
        getattr(server, "rs_test_acc_per", []).append(0.0)  # pFedMe keeps another list
        with result.timed():
            server.train()
        delattr(server, evaluate)
        result.scores = {"own": accuracies(server, evaluate)}
        if result.method != "fedproto" and not (repaired and result.method == "fedala"):
            server.send_models()
        result.scores["headline"] = accuracies(server, evaluate)


def accuracies(server: Any, evaluate: str) -> list[float]:
    """Call PFLlib's own scoring, and note the right answers of each client that it counts."""
    found: list[Any] = []
    name = "test_metrics_personalized" if evaluate == "evaluate_personalized" else "test_metrics"
    metrics = getattr(server, name)

    def noted() -> Any:
        found.append(metrics())
        return found[-1]

    setattr(server, name, noted)
    getattr(server, evaluate)()
    delattr(server, name)
    _, rows, right, *_ = found[-1]
    return [float(r / n) for r, n in zip(right, rows, strict=True)]


def _each(server: Any, change: Callable[[type], type]) -> None:
    kind = change(type(server.clients[0]))
    for client in server.clients:
        client.__class__ = kind


def _repair_pfedme(server: Any) -> None:
    """Keep a copy of theta: personalized_params are the model's own tensors, and w overwrites them."""

    def change(kind: type) -> type:
        class Copied(kind):  # type: ignore[misc, valid-type]
            def update_parameters(self, model: Any, new_params: Any) -> None:
                if new_params is self.local_params:  # the end of `train`
                    self.personalized_params = [p.detach().clone() for p in model.parameters()]
                super().update_parameters(model, new_params)

        return Copied

    _each(server, change)


def _repair_apfl(server: Any) -> None:
    """Eq. (4), (5) and (10) of APFL: v follows the gradient of the mix and is kept; alpha moves once in a round."""

    def change(kind: type) -> type:
        class Mixing(kind):  # type: ignore[misc, valid-type]
            def train(self) -> None:
                w, v = self.model, self.model_per
                if getattr(self, "v", None) is not None:
                    v.load_state_dict(self.v)
                for _ in range(self.local_epochs):
                    for x, y in self.load_train_data():
                        for optimiser, mixed in ((self.optimizer_per, True), (self.optimizer, False)):
                            optimiser.zero_grad()
                            named = _mixed(w, v, self.alpha) if mixed else dict(w.named_parameters())
                            self.loss(functional_call(w, named, (x,)), y).backward()
                            optimiser.step()
                self.v = {name: value.clone() for name, value in v.state_dict().items()}
                rows = list(self.load_train_data(self.train_samples))
                alpha = torch.tensor(float(self.alpha), requires_grad=True)
                self.loss(functional_call(w, _mixed(w, v, alpha, True), (rows[0][0],)), rows[0][1]).backward()
                assert alpha.grad is not None
                self.alpha = float(np.clip(self.alpha - self.learning_rate * float(alpha.grad), 0.0, 1.0))
                v.load_state_dict({name: value.detach() for name, value in _mixed(w, v, self.alpha).items()})
                self.train_time_cost["num_rounds"] += 1

        return Mixing

    _each(server, change)


def _mixed(w: torch.nn.Module, v: torch.nn.Module, alpha: Any, both_rest: bool = False) -> dict[str, torch.Tensor]:
    own = {name: value.detach() if both_rest else value for name, value in v.named_parameters()}
    return {name: (1 - alpha) * value.detach() + alpha * own[name] for name, value in w.named_parameters()}


def _repair_perfedavg(server: Any) -> None:
    """Score after one step on all rows of a client, as the paper's alpha-step has it, instead of ten of them."""

    def change(kind: type) -> type:
        class Whole(kind):  # type: ignore[misc, valid-type]
            def train_one_step(self) -> None:
                ((x, y),) = self.load_train_data(self.train_samples)
                self.optimizer.zero_grad()
                self.loss(self.model(x), y).backward()
                self.optimizer.step()

        return Whole

    _each(server, change)


def _repair_fedala(server: Any) -> None:
    """Nothing changes in training: `run` scores the models after it, before the next model arrives."""


def _repair_fedproto(server: Any) -> None:
    """Eq. (3) and (6) of FedProto: prototypes of the trained model, and their mean weighted by samples."""

    def change(kind: type) -> type:
        class Weighted(kind):  # type: ignore[misc, valid-type]
            def train(self) -> None:
                super().train()
                self.collect_protos()
                self.counts = defaultdict(int)
                for _, y in self.load_train_data():
                    for label in y.tolist():
                        self.counts[label] += 1

        return Weighted

    _each(server, change)
    module = importlib.import_module("flcore.servers.serverproto")

    def weighted(uploaded: list[dict[int, torch.Tensor]]) -> dict[int, Any]:
        sums: dict[int, Any] = defaultdict(list)
        for label in sorted({label for protos in uploaded for label in protos}):
            having = [(c, p[label]) for c, p in zip(server.selected_clients, uploaded, strict=True) if label in p]
            total = sum(client.counts[label] for client, _ in having)
            sums[label] = sum(client.counts[label] / total * proto for client, proto in having)
        return sums

    module.proto_aggregation = weighted  # type: ignore[attr-defined]


REPAIRS: dict[str, Callable[[Any], None]] = {
    "pfedme": _repair_pfedme,
    "apfl": _repair_apfl,
    "perfedavg": _repair_perfedavg,
    "fedala": _repair_fedala,
    "fedproto": _repair_fedproto,
}


def version_of(checkout: Path) -> str:
    """The checkout's commit; empty for a folder without git."""
    said = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    return said.stdout.strip()


def main() -> None:
    parser = results.arguments(__doc__)
    parser.add_argument("--checkout", type=Path, required=True, help="a checkout of TsingZ0/PFLlib")
    parser.add_argument("--repaired", action="store_true", help=f"repair and run only: {' '.join(REPAIRS)}")
    args = parser.parse_args()
    system = args.checkout.resolve() / "system"
    if not (system / "flcore").is_dir():
        parser.error(f"--checkout: must be a checkout of PFLlib with system/flcore in it, got {args.checkout}.")
    sys.path.insert(0, str(system))
    torch.set_num_threads(1)
    if args.whole:  # its Per-FedAvg splits two batches of a client: none of them can be the whole
        args.methods = [name for name in args.methods if name != "perfedavg"]
    for folder, result in results.todo(args, "pfllib", version_of(args.checkout), REPAIRS):
        run(folder, result, args.repaired)  # in a working folder of its own
        result.write(args.out)


if __name__ == "__main__":
    main()
