"""Mutated messages: a short flood leaves no trace, and what once ended a run is found."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace

import pytest
import torch
from typer.testing import CliRunner

from potluck.cli import app
from potluck.engines.flower.protocol import Envelope
from potluck.engines.flower.server import tasks
from potluck.lab.chance import Chance
from potluck.lab.holds import Violation
from potluck.lab.messages import KINDS, Tally, finite, one_run
from potluck.lab.mutate import mutated
from potluck.wire.codec import encode


def test_a_flood_leaves_no_trace() -> None:
    done = CliRunner().invoke(app, ["lab", "--messages", "1000000", "--seconds", "0", "--method", "fedavg", "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert set(told["messages"]) == set(KINDS)
    assert all(many > 500 for many in told["messages"].values())
    assert 0 < told["accepted"] < told["messages"]["task"] / 10
    assert told["violations"] == []
    assert told["runs"] == 1


def test_methods_that_look_at_the_order_are_refused() -> None:
    assert CliRunner().invoke(app, ["lab", "--messages", "1", "--method", "echopfl"]).exit_code == 2


@pytest.mark.parametrize("method", ["fednova", "ifca", "qfedavg", "heterofl"])
def test_what_it_found_stays_mended(method: str) -> None:
    """An answer for no rows at all, numbers whose squares overflow, and a late client where there are sub-models."""
    one_run(method, 1, Tally())


def test_a_gate_that_lets_numbers_pass_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = tasks.inspect
    monkeypatch.setattr(tasks, "inspect", lambda update: replace(plain(update), finite=True))
    with pytest.raises(Violation):
        one_run("fedavg", 1, Tally())


def test_a_mutation_is_the_same_for_the_same_key() -> None:
    honest = Envelope({"kind": "task", "client": "a", "ticket": "0.1"}, encode({"w": 1.5}))
    other = Envelope({"kind": "join", "joined": True})
    made = [mutated(honest, other, Chance("m", number)) for number in range(300)]
    assert made == [mutated(honest, other, Chance("m", number)) for number in range(300)]
    assert Counter(one == honest for one in made)[True] < 30


def test_a_body_that_is_not_finite() -> None:
    finite(encode({"w": torch.ones(2)}))
    with pytest.raises(Violation):
        finite(encode({"w": torch.tensor([1.0, float("nan")])}))
