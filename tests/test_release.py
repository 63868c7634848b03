"""What methods declare of their updates: every method does, and one that says it needs only sums gets no more."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import pytest
import torch
from helpers.fleets import fleet_of, made
from torch import Tensor

from potluck import methods
from potluck.methods import METHODS
from potluck.privacy.plan import OPEN
from potluck.release import Release, vector, with_numbers, with_vector
from potluck.runs.private_fleet import PrivateFleet
from potluck.runs.protection import Protection
from potluck.runs.sums import PlainAdder

ALONE = {"epochs": 1, "batch": 5, "lr": 0.1}


@pytest.mark.parametrize("name", METHODS)
def test_every_method_declares_what_its_updates_tell(name: str) -> None:
    method = methods.load(name)
    found = method.releases(method.config())
    if isinstance(found, str):
        assert 10 < len(found) < 100
        return
    for update, release in found.items():
        names = {field.name for field in fields(update)} if is_dataclass(update) else set()
        declared = {*release.vectors, *release.numbers, *release.open} | ({release.by} if release.by else set())
        assert declared <= names, update
        assert not release.unnamed(update) or release.single, update


def _only_sums(name: str) -> bool:
    method = methods.load(name)
    found = method.releases(method.config())
    return not isinstance(found, str) and any(one.vectors and not one.single for one in found.values())


# FedRep needs a deeper model than this one. FedConv's server tunes kernels for each client, and gets means here.
SUMS = [name for name in METHODS if _only_sums(name) and name not in ("fedconv", "fedrep")]


def test_the_methods_that_need_only_sums_are_those_that_the_page_names() -> None:
    assert {"fedavg", "fedbuff", "fedcfc", "scaffold", "ifca", "heterofl", "feddyn", "fedper"} <= set(SUMS)
    assert not {"clusterfl", "echopfl", "fedasync", "qfedavg", "oort", "cfl", "centaur"} & set(SUMS)


@pytest.mark.parametrize("name", SUMS)
def test_a_method_that_needs_only_sums_ends_alike_with_means_in_place_of_updates(name: str) -> None:
    method = methods.load(name)
    known = {"recipe.epochs": 1, "recipe.batch": 5, "recipe.lr": 0.1}
    config = method.configure({key: value for key, value in known.items() if key in method.settings})
    data = (
        [(x[:, :, None].repeat(2, 2), y) for x, y in made((12, 9, 15, 7))] if name == "fedcfc" else made((12, 9, 15, 7))
    )
    releases = method.releases(config)
    assert not isinstance(releases, str)

    def ended(hidden: bool) -> dict[str, Tensor]:
        fleet, state = fleet_of(method, config, data)
        used: Any = (
            PrivateFleet(fleet, Protection(releases, PlainAdder(hides=True), 0, OPEN), state) if hidden else fleet
        )
        last = state
        for last in method.server(used, state, config):
            if getattr(last, "arrivals", 4 * last.round) >= 12:
                break
        return method.personal(last, "c1", fleet.mine(1))

    plain, pooled = ended(False), ended(True)
    for key, value in plain.items():
        assert torch.allclose(value, pooled[key], atol=2e-5), key


@dataclass(frozen=True)
class Task:
    weights: dict[str, Tensor]


@dataclass(frozen=True)
class Update:
    weights: dict[str, Tensor]
    gradient: Tensor
    aim: Tensor
    examples: Tensor


def test_a_release_is_the_change_and_what_else_is_told_and_can_be_put_back() -> None:
    told = Release(models=("weights",), changes=("gradient",), directions=("aim",), weight="examples")
    task = Task({"w": torch.ones(2), "n": torch.tensor(3)})
    weights = {"w": torch.tensor([2.0, 4.0]), "n": torch.tensor(5)}
    update = Update(weights, torch.tensor([7.0]), torch.tensor([3.0, 4.0]), torch.tensor(6.0))
    found = vector(update, task, told)
    assert torch.allclose(found, torch.tensor([1.0, 3.0, 7.0, 0.6, 0.8, 5.0]))
    back = with_vector(update, task, told, 2.0 * found)
    assert torch.equal(back.weights["w"], torch.tensor([3.0, 7.0]))
    assert torch.equal(back.weights["n"], torch.tensor(5))
    assert torch.equal(back.gradient, torch.tensor([14.0]))
    assert torch.allclose(back.aim, torch.tensor([6.0, 8.0]))  # the length counts once, the direction not at all
    assert float(with_numbers(update, told, 1.0).examples) == 1.0
    assert told.unnamed(Update) == []
    assert Release(models=("weights",)).unnamed(Update) == ["gradient", "aim", "examples"]
