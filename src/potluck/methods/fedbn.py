"""FedBN: clients share everything but batch norm, whose weights and statistics stay on the client.

Li et al., "FedBN: Federated Learning on Non-IID Features via Local Batch Normalization", ICLR 2021, Algorithm 1.
Deviation: none. A client trains as in FedPer.
"""

from __future__ import annotations

from collections.abc import Iterator

from potluck.errors import BadInput, Code
from potluck.fleet import Fleet, Local, Params
from potluck.methods.fedavg import SPACE, Config, State, Train, Trained, averaged, start
from potluck.methods.fedper import Mine, personal, train
from potluck.methods.parts import layers
from potluck.needs import Situation, own_model
from potluck.release import Release

__all__ = [
    "NEEDS", "PROGRAMS", "SPACE", "Config", "Mine", "State", "Train", "Trained", "personal", "private", "server",
    "start", "train",
]  # fmt: skip


def network(situation: Situation) -> str | None:
    """A small convolutional network, which can have batch norm, where the samples allow one."""
    shape = situation.shape or ()
    if len(shape) == 2 and shape[0] >= SHORTEST:
        return "convnet"
    return "cnn" if len(shape) == 3 and min(shape[1:]) >= 4 else None


SHORTEST = 16  # steps of a window that six convolutions leave something of
NEEDS = own_model(
    network,
    norm=lambda situation: "batch" if network(situation) else None,
    width=lambda situation: 8 if network(situation) == "convnet" else None,
    dropout=lambda situation: 0.0 if network(situation) == "convnet" else None,
)


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights)


def check(cfg: Config, home: Local) -> None:
    if not home.model.batch_norms():
        raise BadInput(
            Code.METHOD_NEEDS,
            f"model: must have batch norm for fedbn, got {home.model.name} without it. "
            'Set model.name = "convnet" for windows of a series, or model.norm = "batch" for a CNN.',
        )


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    norms = fleet.home.model.batch_norms()
    while True:
        common = layers.without(state.weights, norms)
        common = averaged(fleet, Train(common, cfg.recipe), common, cfg.cohort, cfg.seed, state.round, merge=cfg.merge)
        state = State(common, state.round + 1)
        yield state


RELEASES = {Trained: Release(models=("weights",), weight="examples", by_fit=True)}
PROGRAMS = {Train: train}
VISIBLE = ("weights",)  # the averaged part; the rest is the client's own
