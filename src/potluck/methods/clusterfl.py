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
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import torch
import torch.nn.functional as nn_f
from torch import Tensor

from potluck.errors import BadInput, Code
from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Pull, Recipe, sgd
from potluck.methods.parts import checks
from potluck.methods.parts.clusterfl import figures, probe, relation, savers, tuning, vectors
from potluck.methods.parts.clusterfl.clock import charged
from potluck.methods.parts.clusterfl.probe import Offer, Offered, Probe
from potluck.methods.parts.clusterfl.relation import Relation, Structure
from potluck.methods.parts.clusterfl.savers import Dropped, Finish, Finished, Saved, Savers
from potluck.methods.parts.clusterfl.table import Table, empty, entered
from potluck.methods.parts.clusterfl.tuning import Tuning
from potluck.methods.parts.clusterfl.validation import Check, Checked, checked, training_loss
from potluck.spaces import Range, Space


@dataclass(frozen=True)
class Config:
    beta: float | Literal["auto"] = 5e-4  # coupling; auto: the best of `tuning.candidates` on validation rows
    alpha: float | None = None  # ridge; unless given 1e-3 as published, and never below beta
    mode: Literal["mm", "admm"] = "mm"  # how models are coupled: by a tangent (mm), or as published (admm)
    rho: float | None = None  # penalty of admm; unless given 10 beta
    fresh_duals: bool = True  # start at the fixed point of every new F; false keeps the duals of the old F, as printed
    guard: bool = True  # refuse settings for which the iteration or the objective has no bound
    f_every: int = 5  # rounds between two updates of F
    relation: Relation = Relation()  # how the server compares clients to learn F
    probe: Probe = Probe()  # the inputs on which models are compared
    savers: Savers = Savers()  # clients that the server stops asking (section 6)
    tuning: Tuning = Tuning()  # how beta = "auto" chooses
    stop_settled: bool = False  # end the run once the mean loss change is below `tolerance`
    tolerance: float = 1e-2  # of `stop_settled`
    recipe: Recipe = Recipe(epochs=20, batch=5, lr=0.01)
    lr_decay: float = 0.999  # factor on recipe.lr per 100 local steps
    server_macs_per_second: float = 5e10  # of the server, for the virtual time of its matrix products; an ordinary PC
    UNUSED: ClassVar[tuple[str, ...]] = ("recipe.optimiser",)
    MOVED: ClassVar[dict[str, str]] = {"probe": "probe.source"}

    def __post_init__(self) -> None:
        checks.unused(self, "eq. (6) is solved by SGD")
        checks.at_least(self, "f_every", 1)
        checks.at_least(self, "tolerance", 0)
        for name in ("lr_decay", "server_macs_per_second"):
            checks.above(self, name, 0.0)
        for beta in self.tuning.candidates if self.beta == "auto" else (float(self.beta),):
            alpha, _, rho = self.terms(beta)
            tuning.bounded(alpha, beta, rho if self.mode == "admm" else None, self.guard)

    def terms(self, beta: float) -> tuple[float, float, float]:
        """alpha, beta and rho for a coupling."""
        alpha = max(beta, 1e-3) if self.alpha is None else self.alpha
        return alpha, beta, 10.0 * beta if self.rho is None else self.rho


KEY_SETTINGS = ("beta", "mode", "probe.source", "savers.select", "recipe.lr")
SPACE: Space = {"recipe.lr": Range(0.001, 0.1, log=True), "beta": Range(1e-4, 0.05, log=True)}


@dataclass(frozen=True)
class State:
    initial: Params  # the same for all clients
    table: Table  # W and what else the clients reported
    structure: Structure  # F and the clusters
    omega: Tensor  # admm only
    alpha: float
    beta: float | None  # None until "auto" has chosen
    scores: dict[str, float] = field(default_factory=dict)  # candidate of beta -> mean validation accuracy
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
    """Server to client. `start` is empty but for the first task, `z` until F is known."""

    start: Params
    z: Tensor
    lam: Tensor
    alpha: float
    recipe: Recipe
    lr_decay: float


@dataclass(frozen=True)
class Trained:
    """Client to server."""

    weights: Tensor
    buffers: Tensor
    loss: Tensor


def start(weights: Params, cfg: Config) -> State:
    beta = None if cfg.beta == "auto" else float(cfg.beta)
    none = torch.zeros(0, 0)
    return State(weights, empty(cfg.savers.window), Structure(none), none, cfg.terms(beta or 0.0)[0], beta)


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights, torch.zeros(()))


def check(cfg: Config, home: Local) -> None:
    """Raise BadInput, before anything runs, for settings that do not fit the data."""
    if cfg.beta == "auto" and home.valid is None:
        raise BadInput(Code.METHOD_NEEDS, "method.beta: auto needs validation rows. Set partition.valid_share above 0.")
    shape, wanted = tuple(home.data.x.shape[1:]), tuple(home.model.shape)
    if cfg.relation.similarity == "kl" and shape != wanted:
        raise BadInput(Code.METHOD_NEEDS, f"server: samples must have the shape {wanted} to be a probe, got {shape}.")


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    """Algorithm 1."""
    if state.beta is None:
        for tuned in tuning.choose(fleet, state, cfg, start, server):
            state = tuned
            yield state
    while not (cfg.stop_settled and savers.settled(state, cfg.tolerance)):
        with charged(fleet, cfg.server_macs_per_second):
            z, lam, omega = collaborate(state, cfg)
        row = {name: i for i, name in enumerate(state.table.names)}
        asked = [client for client in fleet.idle if client not in state.dropped]
        arrivals = fleet.gather({client: _task(state, cfg, z, lam, row.get(client)) for client in asked})
        table = entered(state.table, arrivals)
        new = len(table.names) - len(row)  # new clients learn alone until the next F
        wide = table.weights.shape[1] if cfg.mode == "admm" else 0
        state = replace(
            state,
            table=table,
            structure=relation.grown(state.structure, new),
            omega=nn_f.pad(omega, (0, wide - omega.shape[1], 0, new)),
            saved=savers.counted(state.saved, len(asked), arrivals, state.dropped.values()),
            round=state.round + 1,
        )
        if state.round % cfg.f_every == 0:
            state = relation.learn(fleet, state, cfg)  # section 5.3
        state = drop(fleet, state, cfg)  # section 6
        yield state


def collaborate(state: State, cfg: Config) -> tuple[Tensor, Tensor, Tensor]:
    """Z (M x D), lambda (M) and Omega+ for the models as they are: two products of whole matrices.

    mm: Z = 2 beta F (F^T W), lambda = 0. admm, with A = F^T W and U = -2 beta Omega:
    Omega+ = (rho A + U) / (rho - 2 beta), lambda_i = rho/2 sum_j F_ij^2,
    Z = F (rho Omega+ - U+ - rho A) + 2 diag(lambda) W, where the last term takes q = i out of the inner sum.
    """
    f, w, learned = state.structure.F, state.table.weights, state.structure.learned
    if learned < 0 or not state.beta:
        return torch.zeros(0, 0), torch.zeros(len(f)), state.omega
    _, beta, rho = cfg.terms(state.beta)
    if cfg.mode == "mm":
        return mm(f, w, beta), torch.zeros(len(f), dtype=w.dtype), state.omega
    return admm(f, w, None if cfg.fresh_duals and learned == state.round else state.omega, beta, rho)


def mm(f: Tensor, w: Tensor, beta: float) -> Tensor:
    return (2.0 * beta * (f @ f.T)) @ w  # F F^T first: M^3 instead of a second M^2 D


def admm(f: Tensor, w: Tensor, omega: Tensor | None, beta: float, rho: float) -> tuple[Tensor, Tensor, Tensor]:
    """Section 5.2. For a new F, omega is None: the duals start at their fixed point Omega = F^T W."""
    a = f.T @ w
    # Omega+ = (rho A + U) / (rho - 2 beta); in place, because a copy of W is large with a thousand clients
    step = rho / (rho - 2.0 * beta)
    omega = a.clone() if omega is None else torch.add(a, omega, alpha=-2.0 * beta / rho).mul_(step)
    lam = rho / 2.0 * (f * f).sum(1)
    a.mul_(-rho).add_(omega, alpha=rho + 2.0 * beta)  # rho Omega - U - rho A
    return (2.0 * lam[:, None] * w).addmm_(f, a), lam, omega


def drop(fleet: Fleet, state: State, cfg: Config) -> State:
    """The two savers: a dropped client gets its last z and finishes alone."""
    causes = savers.causes(cfg.savers, state, len(fleet.clients))
    if not causes:
        return state
    z, lam, _ = collaborate(state, cfg)
    tasks = {i: _task(state, cfg, z, lam, i) for i in causes}
    return replace(state, dropped=state.dropped | savers.dropped(fleet, cfg.savers, state, causes, tasks))


def _task(state: State, cfg: Config, z: Tensor, lam: Tensor, row: int | None) -> Train:
    first = state.initial if row is None else {}
    if row is None or not len(z):
        return Train(first, torch.zeros(0), torch.zeros(()), state.alpha, cfg.recipe, cfg.lr_decay)
    return Train(first, z[row], lam[row], state.alpha, cfg.recipe, cfg.lr_decay)


def train(task: Train, local: Local) -> Done:
    begin: Mine = Mine(task.start, torch.zeros(())) if task.start else local.mine
    after = descend(task, local, begin)
    model, w = local.model, after.weights
    own, rest = (vectors.flat(w, names(model, w)) for names in (vectors.trained, vectors.buffers))
    return Done(Trained(own, rest, training_loss(local, w)), mine=after)


def descend(task: Train, local: Local, mine: Mine) -> Mine:
    """Eq. (6) by SGD: the gradient of loss + (alpha + lambda_i) |w|^2 - z_i.w, defined for lambda_i = 0 too."""
    recipe, names = task.recipe, vectors.trained(local.model, mine.weights)
    shift = vectors.parted(-task.z, names, mine.weights) if task.z.numel() else None
    weights = sgd(
        local.model,
        mine.weights,
        local.data,
        key=local.key,
        lr=recipe.lr * task.lr_decay ** (mine.steps / 100.0),
        epochs=recipe.epochs,
        batch=recipe.batch,
        momentum=recipe.momentum,
        clip=recipe.clip,
        pull=Pull(2.0 * (task.alpha + task.lam), shift),
    )
    return Mine(weights, mine.steps + recipe.epochs * torch.ceil(local.data.weight.sum() / recipe.batch))


MESSAGES = (Train, Trained, Finish, Finished, Offer, Offered, Check, Checked)  # all that crosses the wire
PROGRAMS = {
    Train: train,
    Finish: lambda order, local: savers.finish(order, local, train),
    Offer: probe.offer,
    Check: lambda task, local: checked(local.mine.weights, local),
}


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights


def clusters(state: State) -> Mapping[ClientId, int]:
    if state.structure.learned < 0:
        return {}
    now = dict(zip(state.table.names, state.structure.cluster, strict=True))
    return now | {client: one.cluster for client, one in state.dropped.items()}


def record(state: State) -> Mapping[str, Any]:
    return figures.of(state)
