"""Grouping `relation`: ClusterFL's learned relation F, for clients whose models may be of unlike width.

Each client has a model of its own. The server keeps the models at full width, learns F, and pulls each client towards
the mean that its row of F F^T gives, at the client's own width. Mode mm, with a coupling (`methods/clusterfl.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as nn_f
from torch import Tensor

from potluck.fleet import Arrival, ClientId, Data, Fleet, Params
from potluck.methods.parts.clusterfl import relation, tuning, vectors
from potluck.methods.parts.clusterfl.clock import charged
from potluck.methods.parts.clusterfl.dual import mm
from potluck.methods.parts.clusterfl.relation import Structure
from potluck.methods.parts.clusterfl.table import Table, empty, entered
from potluck.methods.parts.compose.books import Grouping, Offer, unchanged
from potluck.methods.parts.compose.messages import Towards
from potluck.methods.parts.compose.shapes import Upload
from potluck.models import Model

At = Callable[[Any, int, Params, ClientId], tuple[Any, Params]]  # (state, cluster, model, client): at its width


@dataclass(frozen=True)
class Related:
    """ClusterFL's side of the server; the fields are those that `parts/clusterfl/relation.py` reads."""

    initial: Params  # the shared layers, the same for all clients
    table: Table
    structure: Structure
    omega: Tensor
    alpha: float
    beta: float
    trained: tuple[str, ...]  # the names of the weights, in the order of the table's columns
    probe: Data | None = None
    dropped: dict[ClientId, float] = field(default_factory=dict)
    round: int = 0


@dataclass(frozen=True)
class Row:
    """What the table takes of an upload."""

    weights: Tensor
    buffers: Tensor
    loss: Tensor


def opened(model: Model, shared: Params, cfg: Any) -> Related:
    """`cfg` is a `clusterfl.Config`."""
    none = torch.zeros(0, 0)
    ((beta, _),) = tuning.candidates(cfg)
    alpha, trained = tuning.terms(cfg, beta)[0], tuple(vectors.trained(model, shared))
    return Related(shared, empty(cfg.savers.window), Structure(none), none, alpha, beta, trained)


def grouping(model: Model, cfg: Any, at: At, private: Collection[str]) -> Grouping:
    ((_, coupling),) = tuning.candidates(cfg)

    def begin(fleet: Fleet, state: Any) -> Tensor | None:
        """Z, with the time it takes; None until F is known."""
        book: Related = state.book
        with charged(fleet, cfg.server_macs_per_second):
            if book.structure.learned < 0 or not book.beta:
                return None
            return mm(book.structure.F, book.table.weights, book.beta)

    def ask(state: Any, z: Tensor | None, client: ClientId) -> tuple[Any, Offer]:
        book: Related = state.book
        row = book.table.place.get(client)
        first = state.first if client not in state.known else {}
        alone = row is None or z is None or not bool(book.structure.F[row].any())
        if alone or row is None or z is None:
            towards = Towards(True, {}, max(0.0, book.alpha - book.beta), coupling, cfg.lr_decay)
            return state, Offer(0 if row is None else row, first, (0, book.round), towards=towards)
        names = [name for name in book.initial if name in model.trainable]
        centre = {**book.initial, **vectors.parted(z[row], names, book.initial)}
        state, cut = at(state, book.structure.cluster[row], centre, client)
        pull = {name: cut[name] for name in names}
        return state, Offer(
            row, first, (row, book.round), towards=Towards(True, pull, book.alpha, coupling, cfg.lr_decay)
        )

    def take(fleet: Fleet, state: Any, came: Sequence[tuple[Arrival, Upload]]) -> Any:
        book: Related = state.book
        rows = [replace(arrival, update=_row(model, one)) for arrival, one in came]
        table = entered(book.table, rows)
        new = len(table.names) - len(book.table.names)
        book = replace(
            book,
            table=table,
            structure=relation.grown(book.structure, new),
            omega=nn_f.pad(book.omega, (0, 0, 0, new)),
            round=book.round + 1,
        )
        due = book.round == 1 or book.round % cfg.f_every == 0
        learned: Any = relation.learn(fleet, book, cfg) if due else book  # type: ignore[arg-type]
        return replace(state, book=learned)

    return Grouping(begin, ask, take, unchanged)


def _row(model: Model, one: Upload) -> Row:
    own, rest = (vectors.flat(one.weights, names(model, one.weights)) for names in (vectors.trained, vectors.buffers))
    return Row(own, rest, one.update.loss)
