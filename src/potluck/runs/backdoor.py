"""How often the trigger of a backdoor works (`faults.attack = "backdoor"`)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from potluck.engines.local.hostile import TARGET, Hostile, triggered
from potluck.fleet import Data, Params


@torch.no_grad()
def hits(
    hostile: Hostile | None,
    places: Sequence[int],
    chunks: Sequence[tuple[np.ndarray, Callable[[], Data]]],
    models: Sequence[Params],
    logits: Callable[[list[Params], Data], Tensor],
) -> float | None:
    """The share of the honest clients' rows of other classes that the trigger turns; None without a backdoor.

    A chunk is the clients that are evaluated together, as places in `places` and `models`, and their rows.
    """
    if hostile is None or hostile.attack != "backdoor" or not hostile.places:
        return None
    turned = rows = 0.0
    for chunk, data_of in chunks:
        data = data_of()
        honest = torch.tensor([places[i] not in hostile.places for i in chunk])
        asked = data.weight * (data.y != TARGET) * honest[:, None]
        answers = logits([models[i] for i in chunk], replace(data, x=triggered(data.x))).argmax(-1)
        turned += float(((answers == TARGET) * asked).sum())
        rows += float(asked.sum())
    return turned / rows if rows else None
