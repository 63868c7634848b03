"""Noise on uploads: on what can give a client away, from the task's key, and nowhere else."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from helpers.fleets import fleet_of, made, run
from torch import Tensor

from potluck import keys, methods
from potluck.fleet import Data
from potluck.wire.noise import blurred


@dataclass(frozen=True)
class Update:
    weights: dict[str, Tensor]
    examples: Tensor
    label: str
    more: tuple[Tensor, ...] = ()


def test_noise_has_the_asked_spread_and_comes_from_the_key() -> None:
    update = Update({"w": torch.zeros(20_000)}, torch.tensor(5.0), "x")
    noisy = blurred(update, 0.5, keys.key(1))
    assert abs(float(noisy.weights["w"].std()) - 0.5) < 0.02
    assert abs(float(noisy.weights["w"].mean())) < 0.02
    assert torch.equal(noisy.weights["w"], blurred(update, 0.5, keys.key(1)).weights["w"])
    assert not torch.equal(noisy.weights["w"], blurred(update, 0.5, keys.key(2)).weights["w"])


def test_two_tensors_get_noise_of_their_own() -> None:
    noisy = blurred(Update({"a": torch.zeros(5), "b": torch.zeros(5)}, torch.tensor(1.0), "x"), 1.0, keys.key(0))
    assert not torch.equal(noisy.weights["a"], noisy.weights["b"])


def test_counts_integers_names_and_buffers_are_left_alone() -> None:
    update = Update(
        {"w": torch.zeros(3), "running_var": torch.ones(3), "seen": torch.zeros(3, dtype=torch.int64)},
        torch.tensor(7.0),
        "x",
        (torch.zeros(2),),
    )
    noisy = blurred(update, 1.0, keys.key(0), {"running_var"})
    assert noisy.examples == 7.0
    assert noisy.label == "x"
    assert torch.equal(noisy.weights["running_var"], torch.ones(3))
    assert torch.equal(noisy.weights["seen"], torch.zeros(3, dtype=torch.int64))
    assert bool((noisy.weights["w"] != 0).all())
    assert bool((noisy.more[0] != 0).all())


def test_samples_are_blurred_and_stay_samples() -> None:
    data = Data(torch.zeros(4, 2), torch.arange(4), torch.ones(4))
    noisy = blurred(data, 1.0, keys.key(0))
    assert bool((noisy.x != 0).all())
    assert torch.equal(noisy.weight, data.weight)
    assert torch.equal(noisy.y, data.y)


def _ended(name: str, noise: float) -> tuple[Any, list[str]]:
    method = methods.load(name)
    config = method.configure({"recipe.epochs": 1, "recipe.batch": 5, "recipe.lr": 0.1})
    fleet, state = fleet_of(method, config, made((12, 9, 15)), noise=noise)
    state = run(method, config, fleet, state, 3)
    tasks, _ = fleet.log.drain()
    return method.personal(state, "c0", fleet.mine(0)), [task.outcome for task in tasks]


def test_every_upload_of_any_method_is_blurred_before_the_gate() -> None:
    clean, _ = _ended("fedavg", 0.0)
    noisy, outcomes = _ended("fedavg", 0.1)
    again, _ = _ended("fedavg", 0.1)
    assert set(outcomes) == {"accepted"}
    assert not torch.equal(clean["fc.weight"], noisy["fc.weight"])
    assert torch.equal(again["fc.weight"], noisy["fc.weight"])


def test_a_client_keeps_its_own_model_clean() -> None:
    """Local training sends a count only, so noise on the wire changes nothing."""
    clean, _ = _ended("local", 0.0)
    noisy, _ = _ended("local", 10.0)
    assert torch.equal(clean["fc.weight"], noisy["fc.weight"])
