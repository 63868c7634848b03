"""Standalone: each client trains a sub-model of its width, alone; only the first weights are exchanged.

The baseline of FedConv (Shen et al., MobiSys 2024, section 5.3). `local` is the same with the full model for all
clients.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from potluck.fleet import Fleet
from potluck.learn import Recipe
from potluck.methods.heterofl import State, start
from potluck.methods.parts.cohort import sample
from potluck.methods.parts.submodels.figures import record
from potluck.methods.parts.submodels.fitting import FITTED, Slices
from potluck.methods.parts.submodels.train import Mine, Train, Trained, personal, private, train
from potluck.methods.parts.submodels.widths import check, cut, leading, plan_of
from potluck.spaces import Range, Space

__all__ = ["Mine", "Recipe", "State", "Trained", "check", "personal", "private", "record", "start"]
KEY_SETTINGS = ("sizes.widths", "sizes.shares", "recipe.lr")
NEEDS = FITTED


@dataclass(frozen=True)
class Config(Slices):
    """Sizes, recipe, cohort and seed; nothing else."""


SPACE: Space = {"recipe.lr": Range(1e-4, 1e-2, log=True)}


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    """`state.weights` are the first weights, at full width: they never change."""
    model, plan = fleet.home.model, plan_of(fleet.home.model)
    width_of = cfg.sizes.fitted(fleet, state.weights, cfg.recipe, cfg.seed)
    # Every layer and every buffer stays on the client, so that later tasks bring no weights.
    own = (*model.layers(), *(name for name in state.weights if name not in model.trainable))
    again = Train({}, cfg.recipe, own)
    first = {w: Train(cut(state.weights, plan, leading(plan, w)), cfg.recipe, own) for w in cfg.sizes.widths}
    while True:
        chosen = sample(fleet, cfg.cohort, cfg.seed, state.round)
        arrivals = fleet.gather({c: again if c in state.known else first[width_of[c]] for c in chosen})
        known = state.known | {a.client: width_of[a.client] for a in arrivals}
        state = State(state.weights, state.round + 1, known)
        yield state


RELEASES = "nothing is aggregated"
PROGRAMS = {Train: train}
HEADLINE = "own"


def improves(cfg: Config) -> bool:
    return False  # the server's model is sent once and never changes


VISIBLE = ("weights",)  # the first model, the same for all
