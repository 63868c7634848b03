"""What models answer to the same inputs, and which members of a cluster answer alike.

EchoPFL (section 4) groups clients by models. Two models with unlike weights may say the same, and two with like weights
the opposite: names that half of the clients exchanged change little but the last layer. So what decides whether a
cluster is one group or two, here, is what its members' models say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.nn.functional as nn_f
from torch import Tensor

from potluck._outputs import Asked
from potluck.fleet import Data, Params
from potluck.methods.parts.clusterfl import relation
from potluck.models import Model

Answers = Callable[[Sequence[Params]], Tensor]  # models -> one row of length 1 each
PASSES = 10  # of the two-group search at most
KEPT = 32  # models whose answers are kept


def answers(model: Model, probe: Data) -> Answers:
    """The standardised logits of models on the probe, a row of length 1 for each.

    The product of two rows is the correlation of what the models say: 1 for the same, 0 for nothing in common.
    """
    plain = tuple(probe.x.shape[1:]) == tuple(model.shape) and probe.t is None and probe.length is None
    asked = Asked(model, probe.x) if plain else None  # by a kernel, each model by itself

    def of(models: Sequence[Params]) -> Tensor:
        known = None if asked is None else asked(models)
        if known is not None:
            return known
        sizes = [tuple(value.shape for value in one.values()) for one in models]
        rows = torch.zeros(0)
        for size in dict.fromkeys(sizes):  # sub-models of unlike width answer, too: one stack for each width
            places = [place for place, own in enumerate(sizes) if own == size]
            one = models[places[0]]
            stack = {
                name: value[None] if len(places) == 1 else torch.stack([models[place][name] for place in places])
                for name, value in one.items()
            }
            said = relation.standardised(relation.answers(model, stack, probe)).flatten(1)
            rows = said if len(places) == len(models) else _placed(rows, said, places, len(models))
        return nn_f.normalize(rows, dim=1)

    return of


def _placed(rows: Tensor, said: Tensor, places: Sequence[int], count: int) -> Tensor:
    rows = torch.zeros(count, said.shape[1]) if not len(rows) else rows
    return rows.index_copy(0, torch.tensor(places), said)


def unlike(say: Answers, a: Params, b: Params) -> float:
    """1 minus the correlation of what two models say."""
    one, two = say((a, b))
    return 1.0 - float(one @ two)


class Newest:
    """A function of a model that keeps its values for the newest models: clusters meet arrival after arrival.

    Each model goes through the network by itself, so what is kept changes no bit of the result.
    """

    def __init__(self, of: Callable[[Params], Tensor]) -> None:
        self._of = of
        self._values: dict[int, tuple[Params, Tensor]] = {}  # by identity

    def __call__(self, model: Params) -> Tensor:
        known = self._values.pop(id(model), None)
        value = self._of(model) if known is None else known[1]
        if len(self._values) >= KEPT:
            del self._values[next(iter(self._values))]
        self._values[id(model)] = model, value
        return value


class Unlike:
    """`unlike`, with the answers of the newest models kept."""

    def __init__(self, say: Answers) -> None:
        self._row = Newest(lambda model: say([model])[0])

    def __call__(self, a: Params, b: Params) -> float:
        return 1.0 - float(self._row(a) @ self._row(b))


def two_groups(rows: Tensor, misfits: Sequence[int] = ()) -> tuple[Tensor, float]:
    """The group of the first row and the rest, and how the two correlate (1 where there is no second group).

    Two means. They begin with the `misfits` and the others, or with the first row and the one farthest from it.
    """
    group = torch.zeros(len(rows), dtype=torch.bool)
    group[list(misfits)] = True
    begun = bool(group.any()) and not bool(group.all())
    centres = torch.stack(
        [rows[group].mean(0), rows[~group].mean(0)] if begun else [rows[0], rows[(rows @ rows[0]).argmin()]]
    )
    group = torch.ones(len(rows), dtype=torch.bool)
    for _ in range(PASSES):
        nearer = torch.cdist(rows, centres).argmin(1) == 0
        if bool((nearer == group).all()) or bool(nearer.all()) or not bool(nearer.any()):
            break
        group = nearer
        centres = torch.stack([rows[group].mean(0), rows[~group].mean(0)])
    if bool(group.all()):
        return group, 1.0
    if not bool(group[0]):
        group = ~group
    return group, float(nn_f.cosine_similarity(rows[group].mean(0), rows[~group].mean(0), dim=0))
