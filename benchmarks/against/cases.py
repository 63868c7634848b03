"""What is compared: the federations, the networks, and the settings of each method in each library.

Plain values only. The drivers of the other libraries import this file in environments without Potluck.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

ROUNDS = 20


@dataclass(frozen=True)
class Recipe:
    """How every client trains, in every library."""

    batch: int = 10  # 0: all rows of the client
    epochs: int = 1
    lr: float = 0.05


USUAL = Recipe()
MULTIPLE = 2 * USUAL.batch  # of the training rows of a client, so that no library ever has a short batch
RECIPES = {"w1": Recipe(batch=20, epochs=2, lr=0.01)}

# A case with this ending has the same clients and takes all rows of a client in each step. Then nothing is drawn at
# random during training, and two codes of one method must agree to rounding.
WHOLE = "-whole"
WHOLE_RECIPE = Recipe(batch=0, epochs=5, lr=0.1)


LARGEST = 500  # no client has more training rows


def recipe_of(case: str) -> Recipe:
    return WHOLE_RECIPE if case.endswith(WHOLE) else RECIPES.get(case, USUAL)


# Data and partition of each federation, as sections of a Potluck experiment.
CASES: dict[str, dict[str, dict[str, Any]]] = {
    "mnist-classes": {
        "data": {"source": "mnist"},
        "partition": {"kind": "classes", "clients": 20, "classes_per_client": 2, "most_rows": 200},
    },
    "mnist-dirichlet": {
        "data": {"source": "mnist"},
        "partition": {"kind": "dirichlet", "clients": 20, "alpha": 0.1, "min_samples": 40},
    },
    "uci-har": {
        "data": {"source": "uci_har", "standardise": "global"},
        "partition": {"kind": "subject", "most_rows": 120},
    },
    "made": {
        "data": {"source": "made"},
        "partition": {"kind": "subject", "clients": 4},
    },
    "w1": {  # 120 wearables, see docs/performance.md; benchmarks/workloads.py makes its samples
        "data": {"source": "w1"},
        "partition": {},
    },
}

KEEP = {"mnist-dirichlet": 0.06}  # share of the training rows: a cap would make all clients equally large

# The networks as Potluck's catalogue names them. Only FedBN needs batch norm.
NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": {"name": "mlp", "hidden": [64]},
    "cnn": {"name": "cnn", "channels": [8], "kernel": 3, "padding": 1, "stride": 2, "pool": 2, "norm": "batch"},
    "w1": {"name": "mlp", "hidden": [128]},
}


@dataclass(frozen=True)
class Entry:
    """One method: its settings in each library, beside those of the recipe."""

    recipe: Recipe
    ours: dict[str, Any]
    fluke: dict[str, Any]  # class; settings of client, optimizer and server
    pfllib: dict[str, Any]  # class, scoring function, arguments
    network: str = "mlp"
    ours_for: dict[str, dict[str, Any]] = field(default_factory=dict)  # changes of `ours` against one library

    def settings(self, against: str) -> dict[str, Any]:
        """Settings of Potluck's method."""
        batch = self.recipe.batch or LARGEST
        recipe = {"recipe.epochs": self.recipe.epochs, "recipe.batch": batch, "recipe.lr": self.recipe.lr}
        return recipe | self.ours | self.ours_for.get(against, {})

    def network_of(self, networks: Iterable[str]) -> str:
        """The network to use of those that an export has."""
        return self.network if self.network in networks else next(iter(networks))


def _fluke(
    path: str, optimizer: Mapping[str, Any] = MappingProxyType({}), server: Mapping[str, Any] = MappingProxyType({}),
    **client: Any,
) -> dict[str, Any]:  # fmt: skip
    return {"class": path, "client": client, "optimizer": dict(optimizer), "server": {"weighted": True, **server}}


def _pfllib(path: str, evaluate: str = "evaluate", **args: Any) -> dict[str, Any]:
    return {"class": path, "evaluate": evaluate, "args": args}


MU = 0.1  # of FedProx and Ditto
SLOW = 0.02  # fluke has one learning rate for both models of pFedMe
OWN_MODEL = {"model": True}  # fluke's clients of this method make a model of their own


def entry(case: str, name: str) -> Entry:
    """The settings of a method on a federation."""
    recipe, whole = recipe_of(case), case.endswith(WHOLE)
    epochs, lr = recipe.epochs, recipe.lr
    ours: dict[str, Any] = {}
    ours_for: dict[str, dict[str, Any]] = {}
    match name:
        case "fedavg":
            others = _fluke("fedavg.FedAVG"), _pfllib("serveravg.FedAvg")
        case "fedprox":
            ours = {"mu": MU}
            others = _fluke("fedprox.FedProx", mu=MU), _pfllib("serverprox.FedProx", mu=MU)
        case "scaffold":
            ours = {"global_lr": 1.0}
            others = (
                _fluke("scaffold.SCAFFOLD", server={"weighted": False, "global_step": 1.0}),
                _pfllib("serverscaffold.SCAFFOLD", server_learning_rate=1.0),
            )
        case "ditto":
            ours = {"lam": MU}
            others = (
                _fluke("ditto.Ditto", lam=MU, tau=epochs, **OWN_MODEL),
                _pfllib("serverditto.Ditto", "evaluate_personalized", mu=MU, plocal_epochs=epochs),
            )
        case "fedrep":  # the head trains twice as long as the representation
            ours = {"head_epochs": 2 * epochs}
            others = (
                _fluke("fedrep.FedRep", local_epochs=2 * epochs, tau=epochs, **OWN_MODEL),
                _pfllib("serverrep.FedRep", plocal_epochs=2 * epochs),
            )
        case "fedper":
            others = _fluke("fedper.FedPer", **OWN_MODEL), _pfllib("serverper.FedPer")
        case "pfedme":
            ours = {"lam": 15.0, "inner": 5, "eta": SLOW, "beta": 1.0, "recipe.lr": SLOW}
            others = (
                _fluke("pfedme.PFedMe", {"lr": SLOW, "lamda": 15.0, "mu": 0.0}, {"beta": 1.0}, k=5),
                _pfllib(
                    "serverpFedMe.pFedMe", "evaluate_personalized",
                    lamda=15.0, K=5, beta=1.0, p_learning_rate=SLOW, local_learning_rate=SLOW,
                ),
            )  # fmt: skip
        case "apfl":
            ours = {"alpha": 0.5}
            ours_for = {"fluke": {"adaptive": False}}  # fluke keeps the share of each model
            others = (
                _fluke("apfl.APFL", lam=0.5, server={"tau": 1}, **OWN_MODEL),
                _pfllib("serverapfl.APFL", alpha=0.5),
            )
        case "perfedavg":  # PFLlib has one learning rate for both steps
            ours = {"form": "first", "alpha": lr}
            others = (
                _fluke("per_fedavg.PerFedAVG", mode="FO", beta=lr),
                _pfllib("serverperavg.PerAvg", "evaluate_one_step"),
            )
        case "fedala":  # epochs of W in round 2: what the rules of the other library come to
            share, settles = (1.0, 0.0) if whole else (0.8, 0.001)
            ours = {"layers": 1, "share": share, "eta": 1.0}
            ours_for = {"fluke": {"first_epochs": 100 if whole else 7}, "pfllib": {"first_epochs": 11}}
            others = (
                _fluke("fedala.FedALA", ala_sample_size=share, eta=1.0, conergence_threshold=settles),
                _pfllib("serverala.FedALA", eta=1.0, rand_percent=int(100 * share), layer_idx=2),
            )
        case "fedbn":
            others = _fluke("fedbn.FedBN"), _pfllib("serverbn.FedBN")
        case "fedproto":
            ours = {"lam": 1.0}
            others = (
                _fluke("fedproto.FedProto", lam=1.0, **OWN_MODEL),
                _pfllib("serverproto.FedProto", lamda=1.0),
            )
        case _:
            raise SystemExit(f"--methods: must be some of {' '.join(METHODS)}, got {name}.")
    return Entry(recipe, ours, *others, "cnn" if name == "fedbn" else "mlp", ours_for)


METHODS = (
    "fedavg", "fedprox", "scaffold", "ditto", "fedrep", "fedper",
    "pfedme", "apfl", "perfedavg", "fedala", "fedbn", "fedproto",
)  # fmt: skip
# Others give a client the model of the last round before they score. Potluck's Per-FedAvg scores the personal step from
# the model that the client had when it trained, so the same step comes one round later.
MORE_ROUNDS = {"perfedavg": 1}
LIBRARIES = ("fluke", "pfllib")
