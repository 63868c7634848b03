"""A bare name gives the system of the method's paper; what the user says wins; what was chosen is written down."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import potluck
from potluck import methods
from potluck.errors import BadInput
from potluck.needs import RESOURCES
from potluck.runs import compare, needs
from potluck.runs.build import build
from potluck.runs.experiment import Experiment
from potluck.runs.resources import resources

pytestmark = pytest.mark.quick


def bare(name: str, **sections: dict[str, Any]) -> Experiment:
    values: dict[str, Any] = {"data": {"source": "made"}, **sections}
    values["method"] = {"name": name, **sections.get("method", {})}
    return Experiment.of(values)


@pytest.mark.parametrize(
    ("method", "wanted"),
    [
        ("centaur", {"fleet.access_point": "raspberry-pi-4", "model.name": "convnet", "stop.rounds": 40}),
        ("ap", {"fleet.access_point": "raspberry-pi-4", "model.name": "convnet"}),
        ("ucd", {"model.name": "convnet", "method.encoder.batch_norm": "train"}),
        ("fedcfc", {"model.name": "cfc", "model.hidden": 16, "method.recipe.batch": 8}),
        ("fedconv", {"server.share": 0.05, "method.sizes.assign": "auto"}),
        ("serveralone", {"server.share": 0.05}),
        ("fedmd", {"server.share": 0.05}),
        ("heterofl", {"method.sizes.assign": "auto"}),
    ],
)
def test_each_need_is_filled_in(method: str, wanted: dict[str, Any]) -> None:
    found = needs.filled(bare(method))
    values = found.model_dump()
    for name, value in wanted.items():
        section, _, key = name.partition(".")
        at = values[section]
        for part in key.split("."):
            at = at[part]
        assert at == value
        assert name in found.run.filled
    (line,) = needs.notes(found)
    assert line.startswith(f"{method}: ")
    assert "Change with --set" in line
    assert needs.filled(found) == found


def test_a_need_may_depend_on_a_setting() -> None:
    assert needs.filled(bare("echopfl")).run.filled == []
    assert needs.filled(bare("echopfl", method={"clusters.assign": "kl"})).server.share == 0.05


def test_a_method_without_needs_is_left_as_it_is() -> None:
    assert needs.filled(bare("fedavg")) == bare("fedavg")
    assert needs.notes(needs.filled(bare("fedavg"))) == []


def test_the_interval_is_that_of_the_data(tmp_path: Path) -> None:
    t = np.tile(np.arange(20) * 0.25, (40, 1))
    x = np.random.default_rng(0).normal(size=(40, 20, 3)).astype(np.float32)
    np.savez(tmp_path / "own.npz", x=x, y=np.arange(40) % 2, t=t, subject=np.arange(40) // 20)
    found = needs.filled(bare("fedcfc", data={"source": str(tmp_path / "own.npz")}))
    assert found.model["interval"] == 0.25


def test_what_the_user_says_wins() -> None:
    mine = {"fleet": {"access_point": "jetson-nano"}, "model": {"name": "mlp"}}
    assert needs.filled(bare("centaur", **mine, stop={"rounds": 3})).run.filled == []
    assert needs.filled(bare("centaur", **mine, budget={"virtual_seconds": 9.0})).stop.rounds is None
    assert needs.filled(bare("fedcfc", model={"hidden": 8})).model["hidden"] == 8
    assert needs.filled(bare("fedconv", server={"source": "made"})).server.share == 0.0
    assert needs.filled(bare("fedcfc", model={"name": "cfc"})).run.filled == []  # its recipe goes with its network
    dealt = needs.filled(bare("fedconv", method={"sizes.widths": [1.0], "sizes.shares": [1.0]}))
    assert "method.sizes.assign" not in dealt.run.filled
    seeded = bare("centaur", fleet={"access_point": "none"}).with_(run={"seed": 3})
    assert "fleet.access_point" not in needs.filled(seeded).run.filled


def test_a_contradiction_keeps_its_sentence() -> None:
    with pytest.raises(BadInput, match=r'fedcfc needs the heads f, g and h. Set model.name = "cfc"'):
        build(needs.filled(bare("fedcfc", model={"name": "mlp"})))


@pytest.mark.parametrize(
    ("method", "sections", "said"),
    [
        ("centaur", {"fleet": {"access_point": "none"}}, "no client has an access point"),
        ("centaur", {"fleet": {"access_point": None}}, "no client has an access point"),
        ("fedconv", {"server": {"share": 0.0}}, "the server has no rows"),
    ],
)
def test_what_is_missing_is_said_first(method: str, sections: dict[str, Any], said: str) -> None:
    found = needs.filled(bare(method, **sections))
    assert said in needs.notes(found)[0]
    again = needs.filled(Experiment.of(tomllib.loads(found.toml())))
    assert again == found, "the written file must not be filled in again"


def test_the_folder_holds_the_filled_values_and_a_resumed_run_keeps_them(tmp_path: Path) -> None:
    short = {"stop": {"rounds": 1}, "run": {"out": str(tmp_path)}, "model": {"width": 4, "features": 8}}
    run = potluck.run(bare("centaur", **short).model_dump(exclude_unset=True))
    assert run.experiment.fleet.access_point == "raspberry-pi-4"
    assert run.experiment.model["name"] == "convnet"
    assert run.experiment.model["width"] == 4
    (note,) = json.loads((run.folder / "summary.json").read_text())["notes"]
    assert "every client has a raspberry-pi-4 as its access point (fleet.access_point)" in note
    assert run.summary["resources"] == ["access points"]


def test_an_old_folder_without_access_points_is_not_filled_in(tmp_path: Path) -> None:
    short = {"stop": {"rounds": 1}, "run": {"out": str(tmp_path)}, "model": {"name": "mlp", "hidden": [8]}}
    run = potluck.run(bare("ucd", **short))
    text = (run.folder / "experiment.toml").read_text().replace('name = "ucd"', 'name = "centaur"')
    old = tmp_path / "old"
    old.mkdir()
    (old / "experiment.toml").write_text(text)
    assert potluck.resume(old).experiment.fleet.access_point is None


def test_a_comparison_gives_the_server_share_to_all_and_the_model_to_its_own() -> None:
    plan = compare.plan({"data": {"source": "made"}}, ["fedavg", "fedconv", "centaur"], 2)
    assert {run.experiment.server.share for run in plan.runs} == {0.05}
    by_method = {run.method: run.experiment for run in plan.runs}
    assert by_method["fedavg"].model == {}
    assert by_method["fedavg"].fleet.access_point is None
    assert by_method["centaur"].fleet.access_point == "raspberry-pi-4"
    told = "all methods: 5 % of the rows are the server's (server.share). Change with --set server.share=..."
    assert plan.notes.count(told) == 1
    assert needs.notes(by_method["fedavg"]) == [told]
    given = compare.plan({"data": {"source": "made"}}, ["fedavg", "fedconv"], 1, ["server.share=0.1"])
    assert {run.experiment.server.share for run in given.runs} == {0.1}


@pytest.mark.parametrize("name", methods.names())
def test_what_a_method_declares_is_understood(name: str) -> None:
    method = methods.load(name)
    assert set(method.uses(method.configure({}))) <= set(RESOURCES)
    assert method.pretrains is None or method.pretrains in method.settings
    for need in method.needs:
        section, _, key = need.partition(".")
        assert section in Experiment.model_fields
        assert section != "method" or key in method.settings


@pytest.mark.parametrize(
    ("experiment", "wanted"),
    [
        (bare("fedavg", server={"share": 0.1}), ()),
        (bare("fedavg", server={"share": 0.1, "pretrain": 2}), ("server rows", "pre-training")),
        (bare("fedconv", server={"share": 0.1}), ("server rows", "pre-training")),
        (bare("fedcfc", method={"settle": 0.1}, partition={"valid_share": 0.2}), ("validation rows",)),
        (bare("fedcfc", partition={"valid_share": 0.2}), ()),
        (bare("centralised"), ("the clients' rows on the server",)),
        (bare("ap", fleet={"access_point": "none"}), ()),
    ],
)
def test_resources_of_a_run(experiment: Experiment, wanted: tuple[str, ...]) -> None:
    assert resources(experiment) == wanted
