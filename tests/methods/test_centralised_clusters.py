"""Centralised per cluster: k-means on what the clients hand over, one model per group."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from helpers.fleets import fleet_of, run

from potluck import methods
from potluck.data.made import opposite
from potluck.fleet import Data
from potluck.methods.centralised_clusters import described, grouped

METHOD = methods.load("centralised_clusters")


def _clients(count: int = 6) -> list[tuple[np.ndarray, np.ndarray]]:
    data = opposite(count, 20)
    assert data.subject is not None
    return [(data.x[data.subject == s], data.y[data.subject == s]) for s in range(count)]


def test_a_client_is_described_by_its_means_spreads_and_classes() -> None:
    data = Data(torch.tensor([[0.0], [2.0], [6.0]]), torch.tensor([0, 0, 1]), torch.ones(3))
    found = described(data, 3)
    assert found.tolist() == pytest.approx([8 / 3, (56 / 9) ** 0.5, 1.0, 6.0, 0.0])


def test_opposite_names_are_told_apart() -> None:
    config = METHOD.configure({"recipe.epochs": 1, "recipe.batch": 5, "recipe.lr": 0.05})
    fleet, state = fleet_of(METHOD, config, _clients())
    state = run(METHOD, config, fleet, state, 3)
    cluster = METHOD.clusters(state)
    assert len({cluster[f"c{i}"] for i in (0, 2, 4)}) == 1
    assert len({cluster[f"c{i}"] for i in range(6)}) == 2
    assert not torch.equal(
        METHOD.personal(state, "c0", None)["fc.weight"], METHOD.personal(state, "c1", None)["fc.weight"]
    )
    assert METHOD.personal(state, "c0", None) is METHOD.personal(state, "c2", None)


def test_known_groups_replace_k_means() -> None:
    config = METHOD.configure({"groups": {"c0": 0, "c1": 0, "c2": 7}})
    rows = {f"c{i}": Data(torch.ones(3, 2), torch.tensor([0, 1, 0]), torch.ones(3)) for i in range(4)}
    assert grouped(rows, {}, config, 2) == {"c0": 0, "c1": 0, "c2": 7, "c3": -1}


def test_who_comes_later_joins_the_nearest_cluster() -> None:
    def at(place: float) -> Data:
        return Data(torch.full((2, 1), place), torch.tensor([0, 1]), torch.ones(2))

    rows = {"a": at(0.0), "b": at(10.0), "late": at(9.0)}
    assert grouped(rows, {"a": 0, "b": 1}, METHOD.configure({}), 2) == {"a": 0, "b": 1, "late": 1}
