"""What is proposed from the data card and the fleet, and with which reason."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from potluck.choose.facts import Facts, facts, skew
from potluck.choose.proposal import propose
from potluck.data import PartitionSpec, federate
from potluck.data.made import made
from potluck.runs.experiment import Experiment

MADE = Facts(
    data="made",
    kind="series",
    steps=32,
    clients=12,
    natural=True,
    rows=45,
    least_rows=45,
    classes=4,
    skew=0.0,
    model="mlp",
    parameters=1000,
    devices={"pixel-4a": 6, "raspberry-pi-4": 6},
    speed_ratio=40.0,
    smallest_memory=200_000,
    constrained=0,
)


def reasons(of: Facts) -> dict[str, str]:
    proposal = propose(of)
    return {one.what: one.why for one in (*proposal.methods, *proposal.left_out, *proposal.around)}


def test_facts_are_read_from_data_and_fleet() -> None:
    found = facts(Experiment.of({"data": {"source": "made"}, "fleet": {"devices": "wearables"}}))
    assert (found.clients, found.natural, found.kind, found.classes) == (12, True, "series", 4)
    assert found.rows == found.least_rows == 45
    assert found.constrained == 12  # every device of that fleet is worn or a microcontroller
    assert sum(found.devices.values()) == 12
    assert list(found.devices.values()) == sorted(found.devices.values(), reverse=True)
    assert found.speed_ratio > 1


def test_skew_is_zero_for_equal_mixes_and_large_for_one_class_each() -> None:
    alike = federate(made(), PartitionSpec(kind="subject"))
    apart = federate(made(), PartitionSpec(kind="classes", clients=4, classes_per_client=1))
    assert skew(alike) < 0.05
    assert skew(apart) == pytest.approx(0.75, abs=0.05)
    by_hand = np.abs(np.eye(4) - 0.25).sum(1).mean() / 2
    assert by_hand == pytest.approx(0.75)


def test_the_baselines_are_always_there() -> None:
    small = replace(MADE, clients=3, kind="features", steps=0, devices={"pc-i7-9700": 3}, speed_ratio=1.0)
    proposal = propose(small)
    assert proposal.names == ["local", "fedavg", "ftl"]
    assert {one.what for one in proposal.left_out} == {"clusterfl", "echopfl", "fedconv", "centaur", "fedcfc"}
    assert proposal.server_share == 0.0


@pytest.mark.parametrize(
    ("change", "method", "fits", "why"),
    [
        ({}, "clusterfl", True, "12 clients may fall into groups"),
        ({"clients": 5}, "clusterfl", False, "5 clients: too few"),
        ({}, "echopfl", True, "40 times faster"),
        ({"speed_ratio": 2.0}, "echopfl", False, "no stragglers"),
        ({"rows": 100}, "fedconv", True, "differ in memory"),
        ({}, "fedconv", False, "would be 27"),
        ({"devices": {"pixel-4a": 12}}, "fedconv", False, "all devices are alike"),
        ({"constrained": 3}, "centaur", True, "3 of 12 devices are small"),
        ({}, "centaur", False, "no device is so small"),
        ({}, "fedcfc", True, "series of 32 steps"),
        ({"steps": 500}, "fedcfc", False, "series of 500 steps take its network too long"),
        ({"kind": "image", "steps": 0}, "fedcfc", False, "the data is of kind image"),
    ],
)
def test_a_system_is_proposed_where_it_fits(change: dict[str, object], method: str, fits: bool, why: str) -> None:
    of = replace(MADE, **change)  # type: ignore[arg-type]
    assert (method in propose(of).names) is fits
    assert why in reasons(of)[method]


def test_the_server_gets_rows_only_where_a_method_needs_them() -> None:
    assert propose(replace(MADE, rows=100)).server_share == 0.05
    assert "server rows" in reasons(replace(MADE, rows=100))
    assert "server rows" not in reasons(MADE)


def test_a_method_that_takes_too_long_is_left_out_with_the_reason() -> None:
    proposal = propose(MADE).without("fedcfc", "it would take an hour.")
    assert "fedcfc" not in proposal.names
    assert proposal.left_out[-1].why == "it would take an hour."
