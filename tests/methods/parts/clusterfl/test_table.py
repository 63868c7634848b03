"""The server's table of reports."""

from __future__ import annotations

import pytest
import torch

from potluck.errors import BadInput
from potluck.fleet import Arrival
from potluck.methods.clusterfl import Trained
from potluck.methods.parts.clusterfl.table import empty, entered


def test_unlike_model_shapes_are_refused() -> None:
    def report(client: str, width: int) -> Arrival:
        return Arrival(client, Trained(torch.zeros(width), torch.zeros(0), torch.zeros(())), task=0, sent=0.0, at=1.0)

    with pytest.raises(BadInput, match="b has 4 weights, the others have 3"):
        entered(empty(2), [report("a", 3), report("b", 4)])
