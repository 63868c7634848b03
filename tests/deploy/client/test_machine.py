"""What a client machine refuses, whatever server asks."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from helpers.short_runs import experiment_of, tiny

from potluck.deploy.client.machine import ClientMachine
from potluck.deploy.client.owner import Owner
from potluck.deploy.client.rows import read, split_rows
from potluck.engines.flower.protocol import Envelope
from potluck.engines.flower.server.members import Sizes
from potluck.errors import BadInput
from potluck.learn import Recipe
from potluck.methods import fedavg
from potluck.testing.loopback import Loopback, machines, owners, staged
from potluck.wire.codec import encode

RULES = {"standardise": "client", "seed": 0, "partition": {"split": "auto", "test_share": 0.25}}


@pytest.fixture
def joined(tmp_path: Path) -> tuple[ClientMachine, dict[str, Any]]:
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
        ({"client": "s01"}, body(), "'s01' is not on this machine"),
        ({"run": "other"}, body(), "'other' is not known on this machine"),
        ({"run": "../../etc"}, body(), "letters, digits, dots and dashes"),
        ({"leg": 2, "legs": 3}, body(), "needs the legs before it, which are missing"),
        ({"taken": {"s00": "7.7"}}, body(), "the state that task 7.7 left is missing"),
        ({}, body(weights={"0.weight": torch.full((6, 4), torch.nan)}), "all numbers must be finite"),
        ({}, encode({"task": Sizes(1, 1, 0, (2,), ("a",), False, False), "mail": None}), "a class must be one of"),
        ({}, b"rubbish", "not a well-formed message"),
        ({}, encode([1, 2]), "the body must hold a task and its mail"),
        ({"kind": "shell"}, b"", "must be hello, join, task or evaluate, got 'shell'"),
        ({"legs": "many"}, body(), "ValueError"),
    ],
)
def test_what_a_machine_refuses(
    head: dict[str, Any], content: bytes, reason: str, joined: tuple[ClientMachine, dict[str, Any]]
) -> None:
    machine, address = joined
    answer = machine.handle(Envelope({**address, **head}, content))
    assert reason in answer.head["refused"]
    assert answer.body == b""


def test_a_message_may_be_too_large_for_a_machine(joined: tuple[ClientMachine, dict[str, Any]]) -> None:
    machine, address = joined
    small = ClientMachine(dataclasses.replace(machine.owner, limit=100))
    assert "must have at most 100 bytes here" in small.handle(Envelope(address, body())).head["refused"]


@pytest.mark.parametrize(
    ("field", "value", "reason"),
    [
        ("method", "os", "'os' is not installed here"),
        ("method", "potluck_evil.method", "this machine's owner did not allow it"),
        ("method", "mine.py", "did not allow it"),
        ("model", {"name": "os:system", "shape": [4], "settings": {}}, "is not in the catalogue"),
    ],
)
def test_only_what_is_installed_or_allowed_runs(
    field: str, value: Any, reason: str, joined: tuple[ClientMachine, dict[str, Any]]
) -> None:
    machine, _ = joined
    head = {"kind": "join", "run": "next", "method": "fedavg", "classes": ["0", "1", "2"], "rules": RULES, "seed": 0}
    head |= {"model": {"name": "mlp", "shape": [4], "settings": {}}, "noise": 0.0, "valid": False}
    answer = machine.handle(Envelope({**head, field: value}, encode({"private": None})))
    assert reason in answer.head["refused"]
    assert not (machine.owner.home / "runs" / "next").exists()


def test_another_protocol_is_refused(joined: tuple[ClientMachine, dict[str, Any]]) -> None:
    assert "update potluck" in joined[0].handle(Envelope({"kind": "hello", "protocol": 99})).head["refused"]


def test_a_device_nobody_knows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="device: 'toaster' is not known"):
        ClientMachine(Owner("s00", "rows.npz", tmp_path, device="toaster"))


def test_a_client_may_hold_samples_of_one_class_only(tmp_path: Path) -> None:
    x = np.arange(24, dtype=np.float32).reshape(12, 2)
    np.savez(tmp_path / "a.npz", x=x, y=np.full(12, 1), class_names=np.array(["rest", "walk"]))
    assert read(str(tmp_path / "a.npz")).class_names == ("rest", "walk")
    with pytest.raises(BadInput, match="there is no file"):
        read(str(tmp_path / "b.npz"))
    with pytest.raises(BadInput, match="must be 'client' or 'none' in a deployment, got 'global'"):
        split_rows(read(str(tmp_path / "a.npz")), {**RULES, "standardise": "global"})
