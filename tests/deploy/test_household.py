"""What a client's machine will not do, whoever asks; and what it keeps."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.loopback import Loopback, experiment_of, machines, owners, staged, tiny

from potluck.deploy.holding import hold, read
from potluck.deploy.household import Household, Owner
from potluck.deploy.stage import check, class_names
from potluck.engines.flower.crowd import Sizes
from potluck.engines.flower.words import Envelope
from potluck.errors import BadInput
from potluck.learn import Recipe
from potluck.methods import fedavg
from potluck.wire.codec import encode

RULES = {"standardise": "client", "seed": 0, "partition": {"split": "auto", "test_share": 0.25}}


@pytest.fixture
def joined(tmp_path: Path) -> tuple[Household, dict[str, Any]]:
    """A machine in a run, and the address of its client."""
    experiment = experiment_of("fedavg", tiny(tmp_path / "tiny.npz", clients=2))
    homes = machines(experiment, tmp_path / "machines", **owners(experiment))
    staged(experiment, Loopback(homes))
    head = {"kind": "task", "run": "run", "client": "s00", "taken": {}, "safe": {}}
    return homes["s00"], {**head, "ticket": "0.0", "leg": 0, "legs": 1, "count": 0}


def body(**changes: Any) -> bytes:
    model = {"0.weight": torch.zeros(6, 4)}
    task = fedavg.Train(**{"weights": model, "recipe": Recipe(1, 8, 0.1), **changes})
    return encode({"task": task, "mail": None})


@pytest.mark.parametrize(
    ("head", "content", "reason"),
    [
        ({"client": "s01"}, body(), "'s01' does not live here"),
        ({"run": "other"}, body(), "'other' is not known here"),
        ({"run": "../../etc"}, body(), "letters, digits, dots and dashes"),
        ({"leg": 2, "legs": 3}, body(), "the legs before it are not here"),
        ({"taken": {"s00": "7.7"}}, body(), "the state that task 7.7 left is not here"),
        ({}, body(weights={"0.weight": torch.full((6, 4), torch.nan)}), "not finite"),
        ({}, encode({"task": Sizes(1, 1, 0, (2,), ("a",), False, False), "mail": None}), "a 'Sizes' is not expected"),
        ({}, b"rubbish", "not a well-formed message"),
        ({}, encode([1, 2]), "a message of a task and its mail"),
        ({"kind": "shell"}, b"", "allowed are hello, join, task and look"),
        ({"legs": "many"}, body(), "ValueError"),
    ],
)
def test_what_a_machine_refuses(
    head: dict[str, Any], content: bytes, reason: str, joined: tuple[Household, dict[str, Any]]
) -> None:
    machine, address = joined
    answer = machine.handle(Envelope({**address, **head}, content))
    assert reason in answer.head["refused"]
    assert answer.body == b""


def test_a_message_may_be_too_large_for_a_machine(joined: tuple[Household, dict[str, Any]]) -> None:
    machine, address = joined
    small = Household(dataclasses.replace(machine.owner, limit=100))
    assert "takes at most 100" in small.handle(Envelope(address, body())).head["refused"]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("method", "os", "'os' is not installed here"),
        ("method", "potluck_evil.method", "this machine's owner did not allow it"),
        ("method", "mine.py", "did not allow it"),
        ("model", {"name": "os:system", "shape": [4], "settings": {}}, "is not of the catalogue"),
    ],
)
def test_only_what_is_installed_or_allowed_runs(
    field: str, value: Any, reason: str, joined: tuple[Household, dict[str, Any]]
) -> None:
    machine, _ = joined
    head = {"kind": "join", "run": "next", "method": "fedavg", "classes": ["0", "1", "2"], "rules": RULES, "seed": 0}
    head |= {"model": {"name": "mlp", "shape": [4], "settings": {}}, "noise": 0.0, "valid": False}
    answer = machine.handle(Envelope({**head, field: value}, encode({"private": None})))
    assert reason in answer.head["refused"]
    assert not (machine.owner.home / "runs" / "next").exists()


def test_another_protocol_is_refused(joined: tuple[Household, dict[str, Any]]) -> None:
    assert "update potluck" in joined[0].handle(Envelope({"kind": "hello", "protocol": 99})).head["refused"]


def test_a_device_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="device: 'toaster' is not known"):
        Household(Owner("s00", "rows.npz", tmp_path, device="toaster"))


def test_rows_of_one_class_and_labels_by_name(tmp_path: Path) -> None:
    """A client may hold one class only; clients that name their labels alike agree on their numbers."""
    x = np.arange(24, dtype=np.float32).reshape(12, 2)
    np.savez(tmp_path / "a.npz", x=x, y=np.full(12, 1), class_names=np.array(["rest", "walk"]))
    assert read(str(tmp_path / "a.npz")).class_names == ("rest", "walk")
    with pytest.raises(BadInput, match="there is no file"):
        read(str(tmp_path / "b.npz"))
    with pytest.raises(BadInput, match="'global' needs everybody's rows"):
        hold(read(str(tmp_path / "a.npz")), {**RULES, "standardise": "global"})

    def sizes(*names: str) -> Sizes:
        return Sizes(1, 1, 0, (2,), names, False, False)

    assert class_names([sizes("rest", "walk"), sizes("rest", "walk")]) == ("rest", "walk")
    assert class_names([sizes("10", "2"), sizes("3",)]) == ("2", "3", "10")  # fmt: skip
    assert class_names([sizes("walk"), sizes("rest", "run")]) == ("rest", "run", "walk")


@pytest.mark.parametrize(
    ("sections", "field"),
    [
        ({"faults": {"nan": 0.1}}, "faults"),
        ({"drift": {"at": [10.0]}}, "drift.at"),
        ({"fleet": {"joins": {"s00": 3.0}}}, "fleet.joins"),
    ],
)
def test_what_only_a_simulation_can_do_is_refused(sections: dict[str, Any], field: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=field):
        check(experiment_of("fedavg", tiny(tmp_path / "tiny.npz"), **sections))
