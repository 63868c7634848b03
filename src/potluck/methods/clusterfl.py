"""ClusterFL: everybody learns from the clients like her; who is alike is learned while training.

Ouyang et al., "ClusterFL", MobiSys 2021 and ACM TOSN 18(4), 2022. Minimises eq. (1), sum_i loss_i(w_i) + alpha |W|^2
- beta |F^T W|^2, over the models W (section 5.2, eqs. 2 to 6) and the soft cluster indicator F (section 5.3).
Deviations from print, each with a test:
* z_i has F_qj w_q in its inner sum (eq. 5 gives it); the printed F_iq, and w_q missing in the summary, are slips.
* Eq. (6) is written with -z_i.w, the same up to a constant but defined for lambda_i = 0. The opposite sign would repel.
* Columns of F are divided by their sum, not its root, and come from scores, not directions (relation.py).
* rho must exceed 4 beta: at 4 beta (the released value) the dual oscillates for ever. U is -2 beta Omega after every
  step, so only Omega is kept. When F changes, the duals of the old F are replaced by those of a fixed point.
* `mode = "mm"` (the default) replaces the concave -beta |F^T W|^2 by its tangent: no rho, no dual, monotone descent.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Literal

import torch
import torch.nn.functional as nn_f
from torch import Tensor

from potluck import keys
from potluck.errors import BadInput, Code
from potluck.fleet import ClientId, Data, Done, Fleet, Local, Params
from potluck.learn import Pull, Recipe, sgd
from potluck.methods.parts import checks
from potluck.methods.parts.clusterfl import probe as probes
from potluck.methods.parts.clusterfl import relation, savers
from potluck.methods.parts.clusterfl import rows as vectors
from potluck.methods.parts.clusterfl.clock import charged
from potluck.methods.parts.clusterfl.probe import Offer, Offered, offer
from potluck.methods.parts.clusterfl.savers import Dropped, Saved
from potluck.methods.parts.clusterfl.table import Report, Table, empty, entered, kept
from potluck.methods.parts.clusterfl.validation import Check, Checked, checked, score
from potluck.tensors import each

RELATION_SHOWN = 200  # clients up to which the relation matrix is written to the run's database


@dataclass(frozen=True)
class Config:
    mode: Literal["mm", "admm"] = "mm"
    alpha: float | None = None  # ridge; 1e-3 as published unless given, and never below beta
    beta: float | Literal["auto"] = 5e-4  # coupling; "auto" tries `candidates` on the clients' validation rows
    candidates: tuple[float, ...] = (0.001, 0.01, 0.1, 1.0)  # of beta "auto", each with alpha = beta
    trial_rounds: int = 15  # of each candidate
    rho: float | None = None  # admm's penalty; 10 beta unless given
    fresh_duals: bool = True  # begin at the fixed point of every new F; false keeps the duals of the old F, as printed
    guard: bool = True  # refuse settings for which the iteration or the objective has no bound
    similarity: Literal["kl", "weights", "one", "given"] = "kl"  # "one": F = 11^T/M; "given": `groups`
    groups: dict[str, int] = field(default_factory=dict)  # client -> known group, for similarity "given"
    tau: float = 6.0  # temperature of the models' answers
    f_every: int = 5  # rounds between updates of F
    probe: Literal["auto", "server", "clients", "noise"] = "auto"  # inputs for "kl"; auto: server's rows, else noise
    probe_size: int = 10  # probe inputs per client
    probe_most: int = 1000  # and no more than so many in all
    stragglers: bool = False  # saver 1: let go whoever still moves while her cluster has settled
    straggler_factor: float = 10.0
    window: int = 10  # T_c, reports that a straggler is judged by
    select: float = 0.0  # saver 2: M_d, weakly related clients to let go; below 1 a share of all
    select_at: int = 15  # T_thresh, the round of that
    finish: int = 20  # rounds' worth of training that a client let go may still do alone,
    finish_tolerance: float = 1e-3  # until a round's worth changes its loss by less than this
    stop_settled: bool = False  # end the run once the mean loss change is below the tolerance
    tolerance: float = 1e-2
    recipe: Recipe = Recipe(epochs=20, batch=5, lr=0.01)
    lr_decay: float = 0.999  # of recipe.lr, per 100 local steps
    server_macs_per_second: float = 5e10  # an ordinary PC's; what the server's products take on the virtual clock

    def __post_init__(self) -> None:
        checks.uses(self.recipe, "epochs", "batch", "lr", "momentum", "clip", why="eq. (6) is solved by SGD")
        for name in ("trial_rounds", "f_every", "probe_size", "probe_most", "window", "select_at"):
            checks.at_least(self, name, 1)
        for name in ("select", "finish", "finish_tolerance", "tolerance", "straggler_factor"):
            checks.at_least(self, name, 0)
        for name in ("tau", "lr_decay", "server_macs_per_second"):
            checks.above(self, name, 0.0)
        if not self.candidates or min(self.candidates) <= 0:
            raise BadInput(Code.SETTING_VALUE, f"method.candidates: {self.candidates} given, all must be above 0.")
        for beta in self.candidates if self.beta == "auto" else (float(self.beta),):
            self._check(beta)

    def terms(self, beta: float) -> tuple[float, float, float]:
        """alpha, beta and rho for a coupling."""
        alpha = max(beta, 1e-3) if self.alpha is None else self.alpha
        return alpha, beta, 10.0 * beta if self.rho is None else self.rho

    def _check(self, beta: float) -> None:
        alpha, beta, rho = self.terms(beta)
        if beta < 0:
            raise BadInput(Code.SETTING_VALUE, f"method.beta: {beta:g} given, allowed is 0 or more, or auto.")
        if self.guard and alpha < beta:
            raise BadInput(
                Code.SETTINGS_CLASH,
                f"method.alpha: {alpha:g} given with beta = {beta:g}, allowed is beta or more (beta sigma_max(F)^2, "
                f"which is beta for hard clusters): below it the objective has no minimum. Try alpha = {beta:g}.",
            )
        if self.mode == "admm" and beta > 0 and rho == 2.0 * beta:
            raise BadInput(Code.SETTINGS_CLASH, f"method.rho: {rho:g} given; the update divides by rho - 2 beta, or 0.")
        if self.mode == "admm" and beta > 0 and self.guard and rho <= 4.0 * beta:
            raise BadInput(
                Code.SETTINGS_CLASH,
                f"method.rho: {rho:g} given with beta = {beta:g}, allowed is more than 4 beta = {4 * beta:g}: the dual "
                f"grows by 2 beta/(rho - 2 beta) at every step. Try rho = {10 * beta:g}.",
            )


@dataclass(frozen=True)
class State:
    initial: Params  # identical for all
    table: Table  # W and what else the clients reported
    alpha: float
    beta: float | None  # None until "auto" has chosen
    F: Tensor
    omega: Tensor  # admm only
    cluster: tuple[int, ...] = ()  # of the table's rows
    dropped: dict[ClientId, Dropped] = field(default_factory=dict)
    probe: Data | None = None  # what the clients gave, where they were asked
    scores: dict[str, float] = field(default_factory=dict)  # candidate -> mean validation accuracy
    learned: int = -1  # round of the last F
    change: float = 0.0  # |F - F before|_1
    sigma: float = 0.0  # sigma_max(F) before the guard
    saved: Saved = field(default_factory=Saved)
    round: int = 0


@dataclass(frozen=True)
class Mine:
    weights: Params  # w_i with its buffers: the personal model
    steps: Tensor  # local steps so far


@dataclass(frozen=True)
class Train:
    """Server to client. z is empty where there is nothing to learn from others; start, but for the first time, too."""

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


@dataclass(frozen=True)
class Finish:
    """Server to a client it will not ask again: the last z, and leave to go on alone until the loss has settled."""

    task: Train
    pieces: int
    tolerance: float


@dataclass(frozen=True)
class Finished:
    loss: Tensor


def start(weights: Params, cfg: Config) -> State:
    chosen = None if cfg.beta == "auto" else float(cfg.beta)
    alpha = cfg.terms(chosen or 0.0)[0]
    return State(weights, empty(cfg.window), alpha, chosen, torch.zeros(0, 0), torch.zeros(0, 0))


def private(weights: Params, cfg: Config) -> Mine:
    return Mine(weights, torch.zeros(()))


def check(cfg: Config, home: Local) -> None:
    """What only the data can tell to be wrong, before anything runs."""
    if cfg.beta == "auto" and home.valid is None:
        raise BadInput(Code.METHOD_NEEDS, "method.beta: auto needs validation rows; set partition.valid_share above 0.")
    shape, wanted = tuple(home.data.x.shape[1:]), tuple(home.model.shape)
    if cfg.similarity == "kl" and shape != wanted:
        raise BadInput(Code.METHOD_NEEDS, f"server: the probe set has samples of {shape}, the model takes {wanted}.")


def server(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    """Algorithm 1."""
    if state.beta is None:
        trials = choose(fleet, state, cfg)
        for state in trials:
            yield state
    while not _settled(state, cfg):
        with charged(fleet, cfg.server_macs_per_second):
            z, lam, omega = collaborate(state, cfg)
        row = {name: i for i, name in enumerate(state.table.names)}
        asked = [client for client in fleet.idle if client not in state.dropped]
        tasks = {client: _task(state, cfg, z, lam, row.get(client)) for client in asked}
        news = [
            Report(a.client, a.update.weights, a.update.buffers, a.update.loss, a.at - a.sent)
            for a in fleet.gather(tasks)
        ]
        table = entered(state.table, news)
        new = len(table.names) - len(row)  # newcomers learn alone until the next F
        wide = table.weights.shape[1] if cfg.mode == "admm" else 0
        state = replace(
            state,
            table=table,
            F=nn_f.pad(state.F, (0, new, 0, new)),
            omega=nn_f.pad(omega, (0, wide - omega.shape[1], 0, new)),
            cluster=state.cluster + tuple(range(len(row), len(row) + new)),
            saved=savers.counted(state.saved, len(asked), [one.trip for one in news], state.dropped.values()),
            round=state.round + 1,
        )
        if state.round % cfg.f_every == 0:
            state = learn(fleet, state, cfg)
        state = let_go(fleet, state, cfg)
        yield state


def collaborate(state: State, cfg: Config) -> tuple[Tensor, Tensor, Tensor]:
    """Z (M x D), lambda (M) and Omega+ for the models as they are: two products of whole matrices.

    mm: Z = 2 beta F (F^T W), lambda = 0. admm, with A = F^T W and U = -2 beta Omega:
    Omega+ = (rho A + U) / (rho - 2 beta), lambda_i = rho/2 sum_j F_ij^2,
    Z = F (rho Omega+ - U+ - rho A) + 2 diag(lambda) W, where the last term takes q = i out of the inner sum.
    """
    f, w = state.F, state.table.weights
    if state.learned < 0 or not state.beta:
        return torch.zeros(0, 0), torch.zeros(len(f)), state.omega
    _, beta, rho = cfg.terms(state.beta)
    if cfg.mode == "mm":
        return mm(f, w, beta), torch.zeros(len(f), dtype=w.dtype), state.omega
    return admm(f, w, None if cfg.fresh_duals and state.learned == state.round else state.omega, beta, rho)


def mm(f: Tensor, w: Tensor, beta: float) -> Tensor:
    return (2.0 * beta * (f @ f.T)) @ w  # F F^T first: M^3 instead of a second M^2 D


def admm(f: Tensor, w: Tensor, omega: Tensor | None, beta: float, rho: float) -> tuple[Tensor, Tensor, Tensor]:
    """Section 5.2; omega None stands for a new F, whose duals begin at their fixed point Omega = F^T W."""
    a = f.T @ w
    # Omega+ = (rho A + U) / (rho - 2 beta); in place, as every copy of W counts at a thousand clients
    step = rho / (rho - 2.0 * beta)
    omega = a.clone() if omega is None else torch.add(a, omega, alpha=-2.0 * beta / rho).mul_(step)
    lam = rho / 2.0 * (f * f).sum(1)
    a.mul_(-rho).add_(omega, alpha=rho + 2.0 * beta)  # rho Omega - U - rho A
    return (2.0 * lam[:, None] * w).addmm_(f, a), lam, omega


def _task(state: State, cfg: Config, z: Tensor, lam: Tensor, row: int | None) -> Train:
    alone = row is None or not len(z)
    return Train(
        start=state.initial if row is None else {},
        z=torch.zeros(0) if alone else z[row],
        lam=torch.zeros(()) if alone else lam[row],
        alpha=state.alpha,
        recipe=cfg.recipe,
        lr_decay=cfg.lr_decay,
    )


def learn(fleet: Fleet, state: State, cfg: Config) -> State:
    """F of the clients that are still asked (section 5.3); rows of those let go leave the matrices here."""
    here = torch.tensor([i for i, name in enumerate(state.table.names) if name not in state.dropped], dtype=torch.int64)
    before, table = state.F[here][:, here], kept(state.table, here)
    if not table.names:
        return replace(state, table=table, F=before, omega=before, cluster=())
    if cfg.similarity == "kl" and state.probe is None and probes.source(cfg.probe, fleet.home) == "clients":
        each = max(1, min(cfg.probe_size, cfg.probe_most // len(table.names)))
        state = replace(state, probe=probes.collected(fleet, table.names, each))
    with charged(fleet, cfg.server_macs_per_second):
        f = _indicator(fleet.home, state, table, cfg)
        if not bool(torch.isfinite(f).all()):  # models that diverged (guard off) say nothing about who is alike
            f = before
        sigma = relation.spread(f)
        bound = (state.alpha / (state.beta * sigma**2)) ** 0.5 if state.beta and sigma > 0 else 1.0
        if cfg.guard and bound < 1.0:  # alpha >= beta sigma_max(F)^2, or the objective has no lower bound
            f = f * bound
        cluster = tuple(relation.components(relation.correlation(f)))
    change = float((f - before).abs().sum())
    return replace(
        state, table=table, F=f, cluster=cluster, learned=state.round, change=change, sigma=sigma,
        omega=state.omega[here],
    )  # fmt: skip


def _indicator(home: Local, state: State, table: Table, cfg: Config) -> Tensor:
    if cfg.similarity == "one":
        return relation.normalised(torch.ones(len(table.names), len(table.names)))
    if cfg.similarity == "given":
        return relation.given(table.names, cfg.groups)
    size = min(cfg.probe_most, cfg.probe_size * len(table.names))
    probe = probes.inputs(cfg.probe, home, state.probe, size) if cfg.similarity == "kl" else None
    if probe is None or not len(probe.x):  # nothing to ask the models: compare their weights
        return relation.indicator(table.weights)
    logits = relation.answers(
        home.model, vectors.stacked(home.model, state.initial, table.weights, table.buffers), probe
    )
    return relation.indicator(relation.divergence(logits, cfg.tau))


def let_go(fleet: Fleet, state: State, cfg: Config) -> State:
    """Section 6: the two savers. Whoever is let go gets her last z and goes on alone."""
    table = state.table
    if state.learned < 0 or not (cfg.stragglers or cfg.select):
        return state
    active = torch.tensor([name not in state.dropped for name in table.names])
    causes: dict[int, str] = {}
    if cfg.stragglers:
        judged = active & (table.reports > cfg.window)
        moves = torch.where(active[:, None], table.moves, 0.0)
        slow = savers.stragglers(moves, state.cluster, cfg.straggler_factor) & judged
        causes |= {int(i): "straggler" for i in slow.nonzero()[:, 0]}
    chosen_before = any(one.cause == "selection" for one in state.dropped.values())
    if cfg.select and state.round >= cfg.select_at and not chosen_before:
        count = round(cfg.select * len(fleet.clients)) if cfg.select < 1 else int(cfg.select)
        sigma = savers.importance(relation.correlation(state.F), state.cluster)
        causes |= {int(i): "selection" for i in savers.weakest(sigma, count, active)}
    if not causes:
        return state
    z, lam, _ = collaborate(state, cfg)
    idle = set(fleet.idle)
    for i in causes:
        if table.names[i] in idle:
            task = _task(state, cfg, z, lam, i)
            fleet.send(Finish(task, cfg.finish, cfg.finish_tolerance), to=table.names[i])
    gone = {
        table.names[i]: Dropped(state.round, cause, state.cluster[i], float(table.trips[i]))
        for i, cause in causes.items()
    }
    return replace(state, dropped=state.dropped | gone)


def choose(fleet: Fleet, state: State, cfg: Config) -> Iterator[State]:
    """beta "auto": every candidate trains for a while from the same start, and the clients' validation rows decide.

    The trials run by ordinary tasks, so their traffic and time count. The smaller of equally good candidates is taken.
    """
    for beta in cfg.candidates:
        if str(beta) in state.scores:
            continue
        trial = replace(cfg, beta=beta, stragglers=False, select=0.0, stop_settled=False)
        for _ in islice(server(fleet, start(state.initial, trial), trial), cfg.trial_rounds):
            pass
        state = replace(state, scores=state.scores | {str(beta): score(fleet)})
        yield state
    best = max(sorted(cfg.candidates), key=lambda beta: state.scores[str(beta)])
    yield replace(state, beta=best, alpha=cfg.terms(best)[0])


def _settled(state: State, cfg: Config) -> bool:
    """Section 6: the mean loss change of those still asked is below the tolerance."""
    if not cfg.stop_settled or state.learned < 0:
        return False
    rows = [i for i, name in enumerate(state.table.names) if name not in state.dropped]
    return bool(rows) and float(state.table.moves[rows, -1].mean()) < cfg.tolerance


def train(task: Train, local: Local) -> Done:
    mine: Mine = local.mine
    begin = mine if not task.start else Mine(task.start, torch.zeros(()))
    after = descend(task, local, begin, local.key)
    own, beside = vectors.trained(local.model, after.weights), vectors.buffers(local.model, after.weights)
    w, loss = after.weights, _loss(local, after.weights)
    return Done(Trained(vectors.flat(w, own), vectors.flat(w, beside), loss), mine=after)


def descend(task: Train, local: Local, mine: Mine, key: Tensor) -> Mine:
    """Eq. (6) by SGD: the gradient of loss + (alpha + lambda_i) |w|^2 - z_i.w, defined for lambda_i = 0 too."""
    recipe, names = task.recipe, vectors.trained(local.model, mine.weights)
    shift = vectors.parted(-task.z, names, mine.weights) if task.z.numel() else None
    weights = sgd(
        local.model, mine.weights, local.data, pull=Pull(2.0 * (task.alpha + task.lam), shift),
        key=key, lr=recipe.lr * task.lr_decay ** (mine.steps / 100.0), epochs=recipe.epochs, batch=recipe.batch,
        momentum=recipe.momentum, clip=recipe.clip,
    )  # fmt: skip
    return Mine(weights, mine.steps + recipe.epochs * torch.ceil(local.data.weight.sum() / recipe.batch))


def finish(order: Finish, local: Local) -> Done:
    """Go on alone, with the last z, until the loss has settled (section 6.1); what comes after that changes nothing."""
    mine: Mine = local.mine
    loss, moving = _loss(local, mine.weights), torch.ones(())
    for piece in range(order.pieces):
        after = descend(order.task, local, mine, keys.fold(local.key, piece))
        mine = Mine(
            each(lambda new, old, go=moving: torch.where(go > 0, new, old), after.weights, mine.weights), after.steps
        )
        now = _loss(local, mine.weights)
        moving, loss = moving * ((now - loss).abs() >= order.tolerance), now
    return Done(Finished(loss), mine=mine)


def _loss(local: Local, weights: Params) -> Tensor:
    """The mean training loss, without the terms of the method."""
    data = local.data
    losses = local.model.losses(local.model.logits(weights, data.x, t=data.t, length=data.length), data.y)
    mean: Tensor = (losses * data.weight).sum() / data.weight.sum().clamp_min(1.0)
    return mean


MESSAGES = (Train, Trained, Finish, Finished, Offer, Offered, Check, Checked)  # all that crosses the wire
PROGRAMS = {
    Train: train,
    Finish: finish,
    Offer: offer,
    Check: lambda task, local: checked(local.mine.weights, local),
}


def personal(state: State, client: ClientId, mine: Mine) -> Params:
    return mine.weights


def clusters(state: State) -> Mapping[ClientId, int]:
    if state.learned < 0:
        return {}
    now = dict(zip(state.table.names, state.cluster, strict=True))
    return now | {client: one.cluster for client, one in state.dropped.items()}


def record(state: State) -> Mapping[str, Any]:
    """Section 10 of the figures: objective of eq. (1), how F moves, who was let go, and what that saved."""
    table, beta = state.table, state.beta or 0.0
    if not table.names:
        return {"validation": state.scores} if state.scores else {}
    centres = state.F.T @ table.weights
    coupled = float((centres**2).sum())
    ridge = float((table.weights**2).sum())
    figures: dict[str, Any] = {
        "objective": float(table.loss.sum()) + state.alpha * ridge - beta * coupled,
        "beta": state.beta,
        "client_rounds": {"asked": state.saved.asked, "saved": state.saved.skipped},
        "saved": state.saved.shown(table.weights.shape[1]),
        "dropped": {client: [one.round, one.cause] for client, one in state.dropped.items()},
    }
    if state.omega.shape == centres.shape and coupled > 0:  # admm: how far the dual's Omega is from F^T W, eq. (4c)
        figures["dual_gap"] = float(((centres - state.omega) ** 2).sum() / coupled) ** 0.5
    if state.scores:
        figures["validation"] = state.scores
    if state.learned == state.round:
        figures |= {"f_change": state.change, "sigma_max": state.sigma}
        if len(table.names) <= RELATION_SHOWN:
            matrix = [[round(v, 3) for v in row] for row in relation.correlation(state.F).tolist()]
            figures["relation"] = {"clients": list(table.names), "cluster": list(state.cluster), "matrix": matrix}
    return figures
