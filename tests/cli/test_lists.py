from __future__ import annotations

import dataclasses
import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from potluck.cli.settings import Setting, groups_of, settings_of
from potluck.methods import METHODS, load

from .conftest import Potluck


def test_methods_lists_each_with_its_line(potluck: Potluck) -> None:
    lines = json.loads(potluck("methods", "--json").stdout)
    assert lines == {name: load(name).summary for name in METHODS}
    assert "FedAvg: aggregate the clients' models" in potluck("methods").stdout


def test_one_method_shows_the_settings_that_matter_then_all_others(potluck: Potluck) -> None:
    method = load("fedprox")
    shown = potluck("methods", "fedprox").stdout
    shown, _, space = shown.partition("`potluck tune` chooses")
    assert re.search(r"method\.mu +0\.0001\.\.1:log", space)
    settings = [line.split()[0] for line in shown.splitlines() if re.match(r"method\.\S+ +\S", line)]
    names = [name for name in settings if name not in ("method.recipe", "method.merge")]
    assert set(names) == {f"method.{name}" for name in method.settings}
    assert len(names) == len(set(names))
    key = [f"method.{name}" for name in method.key_settings]
    assert names[: len(key)] == key
    assert re.search(r"^method\.recipe +How a client trains", shown, flags=re.MULTILINE)
    assert "weight of the proximal term" in shown
    told = json.loads(potluck("methods", "fedprox", "--json").stdout)
    assert told["key_settings"] == list(method.key_settings)
    assert [each["name"] for each in told["settings"]] == method.settings


@dataclass(frozen=True)
class Group:
    """Sizes of things.

    And more about them.
    """

    size: int = 1  # of a thing
    unused: int = 0


@dataclass(frozen=True)
class Config:
    UNUSED = ("group.unused",)

    # Two lines above
    # belong to it.
    gamma: float = 0.5
    seed: int = 0  # s
    group: Group = Group(size=3)
    names: tuple[str, ...] | None = (
        None  # in the middle
    )  # fmt: skip
    loud: bool = True
    must: int = dataclasses.field(kw_only=True)


def test_settings_carry_the_comments_beside_them() -> None:
    assert settings_of(Config) == [
        Setting("gamma", "float", "0.5", "Two lines above belong to it."),
        Setting("seed", "int", "0", "seed of the method's own random choices; the run's seed unless set (s)"),
        Setting("group.size", "int", "3", "of a thing"),
        Setting("names", "tuple[str, ...] | None", "not set", "in the middle"),
        Setting("loud", "bool", "true", ""),
        Setting("must", "int", "must be given", ""),
    ]
    assert groups_of(Config) == {"group": "Sizes of things."}


def test_models(potluck: Potluck) -> None:
    assert "resnet18" in potluck("models").stdout
    assert json.loads(potluck("models", "--json").stdout)["mlp"]["settings"]["hidden"] == [128]


def test_datasets_says_which_are_here(potluck: Potluck, monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    (here / "mnist.npz").write_bytes(b"")
    monkeypatch.setattr("potluck.data.load.roots", lambda: [here])
    monkeypatch.setattr("potluck.data.exercises.installed", lambda: None)
    sets = json.loads(potluck("datasets", "--json").stdout)
    assert {name for name, entry in sets.items() if entry["here"]} == {"made", "mnist"}
    assert sets["mnist"]["where"] == str(here / "mnist.npz")
    assert "seglearn" in sets["watch_exercises"]["where"]
    assert "mnist" in potluck("datasets").stdout


def test_the_data_card(potluck: Potluck, here: Path) -> None:
    dealt = ["--set", "partition.kind=dirichlet", "--set", "partition.alpha=0.1", "--clients", 5]
    result = potluck("data", "made", *dealt, "--picture", "card.png")
    assert result.exit_code == 0, result.output
    assert "5 by dirichlet" in result.stdout
    assert (here / "card.png").read_bytes().startswith(b"\x89PNG")
    assert json.loads(potluck("data", "made", *dealt, "--json").stdout)["clients"] == 5


def test_devices(potluck: Potluck, here: Path) -> None:
    assert "raspberry-pi-4" in potluck("devices").stdout
    assert "where it comes from" in potluck("devices", "raspberry-pi-4").stdout
    (here / "own.toml").write_text('[devices.pi-at-home]\nlike = "raspberry-pi-4"\ntitle = "Mine"\n')
    result = potluck("devices", "--file", "own.toml")
    assert result.exit_code == 0, result.output
    assert "pi-at-home" in result.stdout
