"""What a client infers with: the model that the server would send it, its own, or what its method makes of both.

Every method has a headline, the model that `personal` gives a client. It is the model received from the server, the
model as local training left it (own), or a mix. The evaluation measures all that exist, from the same run.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from potluck.fleet import ClientId, Params
from potluck.methods import Method

RECEIVED, OWN = "received", "own"
START, PERSONAL = "start", "personal"  # of clients that never trained: the first model, or what `personal` makes of it


def model_of(
    method: Method, state: Any, client: ClientId, mine: Any, trained: bool, start: Params
) -> tuple[Params, str]:
    """The model that a client uses, and what it is for a client that never trained ("" for the others).

    A client that had no accepted task gets the best model that the method can give it without training there: what the
    server would send it now. Where the server sends no whole model, it is what `personal` makes of the first private
    state: in general the untrained start. This is the only place that decides it.
    """
    given = None if trained else method.received(state, client)
    if given is not None:
        return given, RECEIVED
    model = method.personal(state, client, mine)
    return model, "" if trained else START if _same(model, start) else PERSONAL


def model_of_newcomer(
    method: Method, config: Any, before: Any, after: Any, client: ClientId, mine: Any, trained: bool, start: Params
) -> tuple[Params, str]:
    """The model of a client that came after training: `before` is the server's state, `after` what it would become.

    The server stays as it is, so all but the client's own part comes from `before`. Where a method gives clients the
    model of their cluster, it is that of the cluster that the server would put the newcomer in.
    """
    if not trained or method.headline(config) != RECEIVED:
        return model_of(method, before, client, mine, trained, start)
    cluster = method.clusters(after).get(client)
    like = next((one for one, number in method.clusters(before).items() if number == cluster), client)
    given = method.received(before, like)
    return (given, "") if given is not None else model_of(method, before, client, mine, trained, start)


def _same(model: Params, other: Params) -> bool:
    def equal(a: Tensor, b: Tensor) -> bool:
        return a is b or (a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b))

    return model.keys() == other.keys() and all(equal(value, other[name]) for name, value in model.items())


class Client(NamedTuple):
    """One evaluated client, as its engine knows it."""

    name: ClientId
    mine: Any  # private state
    trained: bool  # whether it ever had an accepted task
    own: Params | None = None  # the model as its last accepted training left it


@dataclass(frozen=True)
class Models:
    """The models of the evaluated clients, one list for each thing to infer with, in the order of the clients."""

    headline: list[Params]
    kind: str = "mixed"  # what the headline is: received, own or mixed
    others: dict[str, list[Params]] = field(default_factory=dict)  # received and own, where they are not the headline
    having: dict[str, int] = field(default_factory=dict)  # clients with such a model; others fall back on the headline
    untrained: dict[ClientId, str] = field(default_factory=dict)  # never trained -> received, start or personal


def models_of(method: Method, config: Any, state: Any, start: Params, clients: Iterable[Client]) -> Models:
    """Collect what each client may infer with.

    A client without a model of its own (it never trained) falls back on what it is scored with.
    """
    kind, everyone = method.headline(config), list(clients)
    picked = [model_of(method, state, one.name, one.mine, one.trained, start) for one in everyone]
    headline = [model for model, _ in picked]
    untrained = {one.name: scored for one, (_, scored) in zip(everyone, picked, strict=True) if scored}
    found: dict[str, Sequence[Params | None]] = {}
    if kind != RECEIVED:
        found[RECEIVED] = [method.received(state, one.name) for one in everyone]
    if kind != OWN:
        found[OWN] = [one.own if one.trained else None for one in everyone]
    others, having = {}, {}
    for name, models in found.items():
        having[name] = sum(model is not None for model in models)
        if having[name]:
            others[name] = [one if mine is None else mine for one, mine in zip(headline, models, strict=True)]
    having |= {RECEIVED: len(everyone)} if kind == RECEIVED else {}
    having |= {OWN: len(everyone) - len(untrained)} if kind == OWN else {}
    return Models(headline, kind, others, having, untrained)
