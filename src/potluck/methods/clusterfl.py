"""ClusterFL: each client learns from the clients like it; the server learns during training which are alike.

Ouyang et al., "ClusterFL", MobiSys 2021 and ACM TOSN 18(4), 2022. Minimises eq. (1), sum_i loss_i(w_i) + alpha |W|^2
- beta |F^T W|^2, over the models W (section 5.2, eqs. 2 to 6) and the soft cluster indicator F (section 5.3).
Deviations from the paper, each with a test:
* z_i has F_qj w_q in its inner sum (eq. 5 gives it); the printed F_iq, and w_q missing in the summary, are slips.
* Eq. (6) is written with -z_i.w, the same up to a constant but defined for lambda_i = 0. The opposite sign would repel.
* F comes from scores, not directions, and is scaled until rows and columns sum to 1: z_i is a mean (relation.py).
* rho must exceed 4 beta: at 4 beta (the released value) the dual oscillates without end. U is -2 beta Omega after every
  step, so only Omega is kept. When F changes, the duals of the old F are replaced by those of a fixed point.
* `mode = "mm"` (the default) replaces the concave -beta |F^T W|^2 by its tangent: no rho, no dual, monotone descent.
* `coupling` (the default) sets beta by what it does: the share of the way to its cluster's mean that a model is pulled
  in a round, whatever its learning rate and its number of steps are.
* A client that is in no cluster yet is alone in one (F_ii = 1): of eq. (1) (alpha - beta) |w|^2 is left, not the ridge.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from potluck import keys
from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Pull, Recipe, sgd
from potluck.methods.parts.clusterfl import declared, models, probe, relation, savers, tuning, vectors
from potluck.methods.parts.clusterfl.clock import charged
from potluck.methods.parts.clusterfl.declared import KEY_SETTINGS, SPACE, check, uses
from potluck.methods.parts.clusterfl.dual import admm, mm
from potluck.methods.parts.clusterfl.figures import clusters, record
from potluck.methods.parts.clusterfl.probe import Offer, Offered, Probe
from potluck.methods.parts.clusterfl.relation import Relation, Structure
from potluck.methods.parts.clusterfl.savers import Dropped, Finish, Finished, Saved, Savers
from potluck.methods.parts.clusterfl.table import Table, empty, entered
from potluck.methods.parts.clusterfl.tuning import Tuning
from potluck.methods.parts.clusterfl.validation import Check, Checked, checked, training_loss
from potluck.methods.parts.cohort import not_in, ready
from potluck.release import Release

__all__ = ["KEY_SETTINGS", "SPACE", "check", "clusters", "record", "uses"]  # of the parts


@dataclass(frozen=True)
class Config:
    coupling: float | Literal["auto"] | None = None  # pull per round, 0 to below 1; unless it or beta is given 0.5
    beta: float | Literal["auto"] | None = None  # coupling as in eq. (1), instead; auto: the best on validation rows
    alpha: float | None = None  # ridge, with beta only; unless given 1e-3 as published, and never below beta
    mode: Literal["mm", "admm"] = "mm"  # how models are coupled: by a tangent (mm), or as published (admm)
    rho: float | None = None  # penalty of admm, with beta only; unless given 10 beta
    fresh_duals: bool = True  # start at the fixed point of every new F; false keeps the duals of the old F, as printed
    guard: bool = True  # refuse settings for which the iteration or the objective has no bound
    f_every: int = 5  # rounds between two updates of F; the first is after the first round
    relation: Relation = Relation()  # how the server compares clients to learn F
    probe: Probe = Probe()  # the inputs on which models are compared
    savers: Savers = Savers()  # clients that the server stops asking (section 6)
    tuning: Tuning = Tuning()  # how "auto" chooses
    stop_settled: bool = False  # end the run once the mean loss change is below `tolerance`
    tolerance: float = 1e-2  # of `stop_settled`
    recipe: Recipe = Recipe(epochs=20, batch=5, lr=0.01)
    lr_decay: float = 0.999  # factor on recipe.lr per 100 local steps
    server_macs_per_second: float = 5e10  # of the server, for the virtual time of its matrix products; an ordinary PC
    UNUSED: ClassVar[tuple[str, ...]] = ("recipe.optimiser",)
    MOVED: ClassVar[dict[str, str]] = {"probe": "probe.source"}

    def __post_init__(self) -> None:
        declared.checked(self)


@dataclass(frozen=True)
class State:
    initial: Params  # the same for all clients
    table: Table  # W and what else the clients reported
    structure: Structure  # F and the clusters
    omega: Tensor  # admm only
    alpha: float
    beta: float
    coupling: float = 0.0  # 0: beta as it stands
    trained: tuple[str, ...] = ()  # the names of the weights, in the order of W's columns
    trials: tuple[State, ...] = ()  # "auto": the candidates, until one is chosen
    scores: dict[str, float] = field(default_factory=dict)  # candidate -> mean validation accuracy
    owed: tuple[ClientId, ...] = ()  # clients whose private model is another candidate's: the server sends its row back
    probe: Data | None = None  # the inputs that clients contributed
    dropped: dict[ClientId, Dropped] = field(default_factory=dict)
    saved: Saved = field(default_factory=Saved)
    round: int = 0


@dataclass(frozen=True)
class Mine:
    weights: Params  # w_i with its buffers: the personal model
    steps: Tensor  # local steps so far


@dataclass(frozen=True)
class Train:
    """Server to client. `start` is empty but for the first task, `z` until F is known.

    With a `coupling`, alpha, z and lambda are those of beta = 1/2, and the client scales them to its own steps.
    """

    start: Params
    z: Tensor
    lam: Tensor
    alpha: float
    coupling: float
    recipe: Recipe
    lr_decay: float


@dataclass(frozen=True)
class Trained:
    """Client to server."""

    weights: Tensor
    buffers: Tensor
    loss: Tensor


def start(weights: Params, cfg: Config) -> State:
    none = torch.zeros(0, 0)

    def begun(beta: float, coupling: float) -> State:
        table = empty(cfg.savers.window)
        return State(weights, table, Structure(none), none, tuning.terms(cfg, beta)[0], beta, coupling)

    first, *others = (begun(*each) for each in tuning.candidates(cfg))
    return replace(first, trials=(first, *others)) if others else first


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights, torch.zeros(()))


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    """Algorithm 1."""
    state = replace(state, trained=tuple(vectors.trained(fleet.home.model, state.initial)))
    while not (cfg.stop_settled and savers.settled(state, cfg.tolerance)):
        if state.trials:
            state = tuning.tried(fleet, state, cfg, one_round)
        else:
            state = drop(fleet, one_round(fleet, state, cfg), cfg)  # section 6
        yield state


def one_round(fleet: Fleet, state: State, cfg: Config) -> State:
    """Sections 5.1 to 5.3: couple, train, enter the answers, and learn F where it is due."""
    with charged(fleet, cfg.server_macs_per_second):
        z, lam, omega = collaborate(state, cfg)
    asked = ready(fleet, fits=partial(not_in, state.dropped))
    arrivals = fleet.gather({client: _task(state, cfg, z, lam, client) for client in asked})
    table = entered(state.table, arrivals)
    new = len(table.names) - len(state.table.names)  # new clients learn alone until the next F
    wide = table.weights.shape[1] if cfg.mode == "admm" else 0
    here = {arrival.client for arrival in arrivals}
    state = replace(
        state,
        table=table,
        structure=relation.grown(state.structure, new),
        omega=torch.nn.functional.pad(omega, (0, wide - omega.shape[1], 0, new)),
        saved=savers.counted(state.saved, len(asked), arrivals, state.dropped.values()),
        owed=tuple(client for client in state.owed if client not in here),
        round=state.round + 1,
    )
    due = state.round == 1 or state.round % cfg.f_every == 0
    return relation.learn(fleet, state, cfg) if due else state


def collaborate(state: State, cfg: Config) -> tuple[Tensor, Tensor, Tensor]:
    """Z (M x D), lambda (M) and Omega+ for the models as they are: two products of whole matrices.

    mm: Z = 2 beta F (F^T W), lambda = 0. admm, with A = F^T W and U = -2 beta Omega:
    Omega+ = (rho A + U) / (rho - 2 beta), lambda_i = rho/2 sum_j F_ij^2,
    Z = F (rho Omega+ - U+ - rho A) + 2 diag(lambda) W, where the last term takes q = i out of the inner sum.
    """
    f, w, learned = state.structure.F, state.table.weights, state.structure.learned
    if learned < 0 or not state.beta:
        return torch.zeros(0, 0), torch.zeros(len(f)), state.omega
    _, beta, rho = tuning.terms(cfg, state.beta)
    if cfg.mode == "mm":
        return mm(f, w, beta), torch.zeros(len(f), dtype=w.dtype), state.omega
    return admm(f, w, None if cfg.fresh_duals and learned == state.round else state.omega, beta, rho)


def drop(fleet: Fleet, state: State, cfg: Config) -> State:
    """The two savers: a dropped client gets its last z and finishes alone."""
    causes = savers.causes(cfg.savers, state, len(fleet.clients), keys.fold(fleet.home.key, "select"))
    if not causes:
        return state
    z, lam, _ = collaborate(state, cfg)
    tasks = {i: _task(state, cfg, z, lam, state.table.names[i]) for i in causes}
    return replace(state, dropped=state.dropped | savers.dropped(fleet, cfg.savers, state, causes, tasks))


def _task(state: State, cfg: Config, z: Tensor, lam: Tensor, client: ClientId) -> Train:
    row = state.table.place.get(client)
    first = models.of(state, client) if row is None or client in state.owed else {}
    shared = (state.coupling, cfg.recipe, cfg.lr_decay)
    if row is None or not len(z) or not bool(state.structure.F[row].any()):
        return Train(first, torch.zeros(0), torch.zeros(()), max(0.0, state.alpha - state.beta), *shared)
    return Train(first, z[row], lam[row], state.alpha, *shared)


def train(task: Train, local: Local) -> Done:
    begin: Mine = replace(local.mine, weights=task.start) if task.start else local.mine
    after = descend(task, local, begin)
    model, w = local.model, after.weights
    own, rest = (vectors.flat(w, names(model, w)) for names in (vectors.trained, vectors.buffers))
    return Done(Trained(own, rest, training_loss(local, w)), mine=after)


def descend(task: Train, local: Local, mine: Mine) -> Mine:
    """Eq. (6) by SGD: the gradient of loss + (alpha + lambda_i) |w|^2 - z_i.w, defined for lambda_i = 0 too."""
    recipe, names = task.recipe, vectors.trained(local.model, mine.weights)
    lr = recipe.lr * task.lr_decay ** (mine.steps / 100.0)
    steps = recipe.epochs * torch.ceil(local.data.weight.sum() / recipe.batch)
    unit = tuning.strength(task.coupling, lr / (1.0 - recipe.momentum), steps) if task.coupling else 1.0
    shift = vectors.parted(task.z, names, mine.weights) if task.z.numel() else None
    coupled = task.alpha or shift is not None
    pull = Pull(unit * 2.0 * (task.alpha + task.lam), shift, times=-unit) if coupled else None
    weights = sgd(
        local.model, mine.weights, local.data, key=local.key, lr=lr, epochs=recipe.epochs, batch=recipe.batch,
        momentum=recipe.momentum, clip=recipe.clip, pull=pull,
    )  # fmt: skip
    return Mine(weights, mine.steps + steps)


def finish(order: Finish, local: Local) -> Done:
    """Section 6.1: a dropped client goes on alone, with the same training."""
    return savers.finish(order, local, train)


MESSAGES = (Train, Trained, Finish, Finished, Offer, Offered, Check, Checked)  # all that crosses the wire
RELEASES = {
    Trained: Release(changes=("weights", "buffers", "loss"), single="it compares the clients' models"),
    Finished: Release(changes=("loss",), single="it reads each loss"),
}
PROGRAMS = {Train: train, Finish: finish, Offer: probe.offer, Check: checked}
HEADLINE = "own"


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    """The client's own model; where the candidates of "auto" share its private state, the server's row of the best."""
    rows = tuning.best(state) if state.trials else state
    if state.trials or client in state.owed:
        return models.of(rows, client)
    return mine.weights


def visible(state: State, client: ClientId) -> dict[str, Any]:
    """Nothing of the table, which has every client's model: where a model is a row of it, the server sends that row."""
    return {"trials": (), "owed": ()}


def received(state: State, client: ClientId) -> Params | None:
    """The centre of the client's cluster; of the largest cluster for a client that never reported."""
    return models.centre(tuning.best(state) if state.trials else state, client)
