"""FedRolex: as HeteroFL, but the window of channels moves on by one each round, so that every weight gets its turn.

Alam et al., "FedRolex: Model-Heterogeneous Federated Learning with Rolling Sub-Model Extraction", NeurIPS 2022,
Algorithm 1, equation (3). Deviation: none but the clients' optimiser, Adam as in FedConv's comparison.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from potluck.fleet import Fleet, Params
from potluck.learn import Recipe
from potluck.methods.heterofl import State, shared, start
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.submodels.figures import record
from potluck.methods.parts.submodels.fitting import FITTED, Slices
from potluck.methods.parts.submodels.train import Given, Mine, Train, Trained, personal, private, received, train
from potluck.methods.parts.submodels.widths import Indices, check, cut, merged, plan_of, rolled
from potluck.release import Release
from potluck.spaces import Range, Space

__all__ = [
    "Mine", "Recipe", "State", "Trained", "check", "personal", "private", "received", "record", "shared", "start",
]  # fmt: skip
KEY_SETTINGS = ("sizes.widths", "sizes.shares", "recipe.lr")
NEEDS = FITTED


@dataclass(frozen=True)
class Config(Slices):
    """Sizes, recipe, cohort and seed; nothing else."""


SPACE: Space = {"recipe.lr": Range(1e-4, 1e-2, log=True)}


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    plan = plan_of(fleet.home.model)
    width_of = cfg.sizes.fitted(fleet, state.weights, cfg.recipe, cfg.seed)

    def windows(round: int) -> dict[float, Indices]:
        return {width: rolled(plan, width, round) for width in cfg.sizes.widths}  # eq. (3), j = round

    def given(weights: Params, round: int) -> Given:
        return Given(dict(width_of), {str(width): cut(weights, plan, own) for width, own in windows(round).items()})

    state = replace(state, given=given(state.weights, state.round))
    while True:
        window = windows(state.round)
        tasks = {width: Train(state.given.models[str(width)], cfg.recipe) for width in window}
        arrivals = fleet.gather(
            {client: tasks[width_of[client]] for client in sample(fleet, cfg.cohort, cfg.seed, state.round)}
        )
        trained = [(a.update.weights, window[width_of[a.client]], a.update.examples) for a in arrivals]
        known = state.known | {a.client: width_of[a.client] for a in arrivals}
        weights = merged(state.weights, plan, trained)
        state = State(weights, state.round + 1, known, given(weights, state.round + 1))
        yield state


RELEASES = {Trained: Release(models=("weights",), weight="examples")}  # a sum for each width
PROGRAMS = {Train: train}
HEADLINE = "own"
