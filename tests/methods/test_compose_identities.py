"""Identity laws: the composition that spells a method ends with that method's models."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from potluck.settings import nested
from potluck.testing import Trial
from potluck.testing.trial import assert_same

MLP = {"name": "mlp", "hidden": [8]}
# Bytes decide the order of arrivals, and messages carry other names here. Over this link bytes take no time.
LINK = """
[links.instant]
like = "ethernet"
title = "No time at all"
up = [1e18, "made up"]
down = [1e18, "made up"]
latency = [0.0, "made up"]
jitter = [0.0, "made up"]
"""
SIZES = {"widths": [1.0, 0.5, 0.25], "shares": [2.0, 2.0, 1.0]}
CLUSTERS = {"count": 2, "refine_every": 4}
ROUNDS = {"pace": "rounds", "merge": "mean"}

LAWS: dict[str, tuple[str, dict[str, Any], dict[str, Any], float]] = {
    # name: the method, its settings, those of the composition, the tolerance
    "fedavg": ("fedavg", {}, ROUNDS, 0.0),
    "fedavg, a cohort": ("fedavg", {"cohort": 3}, {"cohort": 3}, 0.0),
    "fedavg, median": ("fedavg", {"merge.rule": "median"}, {"merge": "robust", "robust.rule": "median"}, 0.0),
    "fedprox": ("fedprox", {"mu": 0.5}, {"local": "proximal", "proximal.mu": 0.5}, 0.0),
    "fedbuff": (
        "fedbuff", {"buffer": 4}, {"pace": "buffered", "buffered.size": 4, "merge": "stale"}, 0.0,
    ),
    "fedper": ("fedper", {}, {"share": "all-but-head"}, 0.0),
    "ifca": ("ifca", {"clusters": 3}, {"grouping": "choice", "choice.count": 3}, 0.0),
    "heterofl": (
        "heterofl", {"sizes": SIZES, "recipe.optimiser": "adam", "masked": False, "scaler": False},
        {"shape": "slices", "sizes": SIZES, "mean.by": "clients", "recipe.optimiser": "adam"}, 0.0,
    ),
    "fedrolex": (
        "fedrolex", {"sizes": SIZES, "recipe.optimiser": "adam"},
        {"shape": "rolling", "sizes": SIZES, "recipe.optimiser": "adam"}, 0.0,
    ),
    "echopfl": (
        "echopfl", {"clusters": CLUSTERS, "broadcast.predictor": "ewma"},
        {"pace": "arrivals", "grouping": "clusters", "merge": "latest", "clusters": CLUSTERS,
         "broadcast.predictor": "ewma"}, 0.0,
    ),
    "echopfl, whole models by kernels": (
        "echopfl", {"clusters": CLUSTERS, "broadcast.predictor": "ewma"},
        {"pace": "arrivals", "grouping": "clusters", "shape": "fedconv", "merge": "latest", "clusters": CLUSTERS,
         "broadcast.predictor": "ewma", "sizes": {"widths": [1.0], "shares": [1.0]}, "server.pretrain_epochs": 0,
         "use": "received"}, 0.0,
    ),
    "clusterfl": (
        "clusterfl", {"f_every": 2}, {"grouping": "relation", "couple.f_every": 2}, 0.0,
    ),
    "fedconv": (
        "fedconv", {"sizes": SIZES, "recipe.optimiser": "adam"},
        {"shape": "fedconv", "merge": "learned", "sizes": SIZES, "recipe.optimiser": "adam"}, 0.0,
    ),
    "centaur": ("centaur", {"cohort": 3}, {"local": "handover", "cohort": 3, "recipe.momentum": 0.9}, 0.0),
    "centaur, any": (
        "centaur", {"cohort": 3, "selection.hand_over": "any"},
        {"local": "handover", "cohort": 3, "recipe.momentum": 0.9, "select.hand_over": "any"}, 0.0,
    ),
}  # fmt: skip


@pytest.mark.parametrize("law", LAWS)
def test_the_composition_is_the_method(law: str, tmp_path: Path) -> None:
    name, own, composed, tolerance = LAWS[law]
    ones = Trial(name, nested(own)), Trial("compose", nested(composed))
    by_arrival = composed.get("pace") in ("arrivals", "buffered")
    (tmp_path / "links.toml").write_text(LINK)
    fleet = {"file": str(tmp_path / "links.toml"), "link": "instant"} if by_arrival else {}
    ended = [one.run(model=MLP, fleet=fleet) for one in ones]
    assert ended[0].state.round == ended[1].state.round
    assert_same(ended[0].models, ended[1].models, f"{name} and its composition", tolerance)
