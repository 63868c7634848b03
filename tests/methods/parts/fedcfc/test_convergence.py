"""Convergence: the round in which no client's validation accuracy gains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from potluck.fleet import Arrival
from potluck.methods import fedcfc
from potluck.methods.parts.fedcfc.convergence import best_so_far, watched
from potluck.methods.parts.fedcfc.quantised import packed
from potluck.models import build

SMALL: dict[str, Any] = {"hidden": 3, "backbone": 5, "head": 4}


def test_the_round_without_a_gain_is_noted() -> None:
    state = fedcfc.start(build("cfc", (6, 2), 3, SMALL).init(0), fedcfc.Config())
    report = fedcfc.Report(packed(torch.zeros(12), "float32"), torch.tensor(0.5), {}, {})
    arrival = Arrival("c0", report, task=0, sent=0.0, at=1.0)
    state = watched(replace(state, round=1), [arrival], 0.0005)
    assert not state.settled
    state = watched(replace(state, round=2), [arrival], 0.0005)
    assert state.settled == 2
    assert watched(replace(state, round=3), [], 0.0005).settled == 2


def test_a_gain_is_a_share_of_the_best() -> None:
    assert best_so_far({"a": 0.5}, {"a": 0.54}, 0.1) == ({"a": 0.54}, False)
    assert best_so_far({"a": 0.5}, {"a": 0.56}, 0.1) == ({"a": 0.56}, True)
    assert best_so_far({"a": 0.5}, {"a": 0.4}, 0.0) == ({"a": 0.5}, False)
    assert best_so_far({}, {"a": -1.0}, 0.5)[1]  # no validation rows: always gaining
