"""An installed package adds methods, models, datasets and devices; a broken one does no harm to other runs."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest
from helpers.packages import install
from typer.testing import CliRunner

from potluck import devices, methods, models
from potluck.cli import app
from potluck.data.load import load as load_data
from potluck.errors import BadInput
from potluck.runs import drive
from potluck.runs.experiment import Experiment

EXAMPLE = Path(__file__).parents[1] / "examples" / "a_method_of_your_own.py"
NETS = '''"""Networks."""
from torch import nn


class Line(nn.Module):
    """One linear layer."""

    def __init__(self, shape, classes):
        super().__init__()
        self.fc = nn.Linear(shape[0], classes)

    def forward(self, x):
        return self.fc(x)
'''
SETS = '''"""Data."""
import numpy as np


def two():
    x = np.random.Generator(np.random.Philox(key=1)).normal(size=(60, 4)).astype("float32")
    return {"x": x, "y": (x[:, 0] > 0).astype("int64"), "subject": np.repeat(np.arange(3), 20)}
'''
TAGS = '''"""Devices."""
from pathlib import Path


def file():
    return Path(__file__).with_name("tags.toml")
'''
TOML = """
[devices.acme-tag]
title = "A tag"
kind = "microcontroller"
link = "acme-radio"
macs_per_second = [1e7, "measured"]
memory = [65536, "data sheet"]
storage = [1000000, "data sheet"]
active_watts = [0.02, "measured"]
idle_watts = [0.001, "measured"]

[links.acme-radio]
title = "A radio"
up = [1e6, "measured"]
down = [1e6, "measured"]
latency = [0.01, "measured"]
jitter = [0.0, "estimate"]
up_watts = [0.01, "measured"]
down_watts = [0.01, "measured"]
dropout = [0.0, "estimate"]
"""


@pytest.fixture
def acme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package that adds one of each, and one of each that cannot be imported."""
    package = tmp_path / "site"
    install(
        package,
        monkeypatch,
        "acme",
        {
            "acme/__init__.py": '"""A package."""\n',
            "acme/median.py": EXAMPLE.read_text(encoding="utf-8"),
            "acme/nets.py": NETS,
            "acme/sets.py": SETS,
            "acme/tags.py": TAGS,
            "acme/tags.toml": TOML,
            "acme/torn.py": 'raise RuntimeError("the licence has run out")\n',
        },
        {
            "potluck.methods": {"median": "acme.median", "torn-method": "acme.torn"},
            "potluck.models": {"line": "acme.nets:Line", "torn-model": "acme.torn:Net"},
            "potluck.datasets": {"two": "acme.sets:two", "torn-data": "acme.torn:data"},
            "potluck.devices": {"acme-tag": "acme.tags:file", "torn-device": "acme.torn:file"},
        },
    )
    yield package  # type: ignore[misc]
    for name in [name for name in sys.modules if name.partition(".")[0] == "acme"]:
        del sys.modules[name]


def listed(command: str) -> dict[str, object]:
    result = CliRunner().invoke(app, [command, "--json"])
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_a_run_of_what_a_package_adds(acme: Path, tmp_path: Path) -> None:
    values = {"data": {"source": "two"}, "model": {"name": "line"}, "method": {"name": "median"}}
    values |= {"fleet": {"devices": "acme-tag"}, "stop": {"rounds": 2}, "run": {"out": str(tmp_path / "runs")}}
    run = drive.start(Experiment.of(values))
    assert (run.summary["method"], run.summary["model"], run.summary["data"]) == ("median", "line", "two")
    assert {(row["device"], row["link"]) for row in run.table("clients")} == {("acme-tag", "acme-radio")}
    assert "torn" not in " ".join(sys.modules)  # nothing is imported that is not used
    assert drive.resume(run.folder, rounds=3).summary["steps"] == 3


def test_what_cannot_be_imported_is_told_when_it_is_used(acme: Path) -> None:
    said = r"of the package acme 1.5 cannot be imported \(RuntimeError: the licence has run out\)"
    with pytest.raises(BadInput, match=rf"method: 'torn-method' {said}"):
        methods.load("torn-method")
    with pytest.raises(BadInput, match=rf"model: 'torn-model' {said}"):
        models.build("torn-model", (4,), 2)
    with pytest.raises(BadInput, match=rf"data: 'torn-data' {said}"):
        load_data("torn-data")
    with pytest.raises(BadInput, match=rf"device: 'torn-device' {said}"):
        devices.device("torn-device")


def test_lists_show_them_and_what_is_broken(acme: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "160")  # a narrow table breaks long names
    lines = listed("methods")
    assert lines["median"] == f"{methods.load('median').summary} (package acme 1.5)"
    assert str(lines["torn-method"]).startswith("broken: method: 'torn-method' of the package acme")
    zoo = listed("models")
    assert zoo["line"] == {"about": "One linear layer. (package acme 1.5)", "takes": "", "settings": {}}
    assert "broken: model: 'torn-model'" in str(zoo["torn-model"])
    sets = listed("datasets")
    assert sets["two"] == {"about": "of the package acme 1.5", "here": True, "where": "acme.sets:two"}
    assert "broken: data: 'torn-data'" in str(sets["torn-data"])
    shown = CliRunner().invoke(app, ["devices"])
    assert shown.exit_code == 0
    assert "acme-tag" in shown.stdout
    assert "acme-radio" in shown.stdout
    assert "broken: device: 'torn-device'" in " ".join(shown.stdout.split())
    assert "measured" in CliRunner().invoke(app, ["devices", "acme-tag"]).stdout


def test_an_unknown_name_is_told_with_the_packages_names(acme: Path) -> None:
    with pytest.raises(BadInput, match="did you mean 'median'"):
        methods.load("medain")
    with pytest.raises(BadInput, match="did you mean 'line'"):
        models.build("lien", (4,), 2)
    with pytest.raises(BadInput, match="did you mean 'acme-tag'"):
        devices.device("acme-tga")


@pytest.mark.parametrize(
    ("group", "name", "use"),
    [
        ("methods", "fedavg", lambda: methods.load("fedavg")),
        ("models", "mlp", lambda: models.build("mlp", (4,), 2)),
        ("datasets", "made", lambda: load_data("made")),
        ("devices", "pixel-6", lambda: devices.device("pixel-6")),
    ],
)
def test_a_name_that_is_taken_is_refused_by_name(
    group: str, name: str, use: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path / "site", monkeypatch, "rival", {"rival.py": ""}, {f"potluck.{group}": {name: "rival:thing"}})
    with pytest.raises(BadInput, match=f"'{name}' is a name of Potluck itself and of the package rival 1.5"):
        use()  # type: ignore[operator]
    result = CliRunner().invoke(app, [group])
    assert result.exit_code == 0
    shutil.rmtree(tmp_path / "site")


def test_two_packages_with_one_name_are_refused(acme: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install(acme, monkeypatch, "zenith", {"zenith.py": ""}, {"potluck.methods": {"median": "zenith"}})
    monkeypatch.syspath_prepend(str(acme))  # the path is read anew where it has changed
    with pytest.raises(BadInput, match=r"'median' is a name of acme 1\.5 and of the package zenith 1.5"):
        methods.load("median")


def test_a_device_file_without_the_device_is_named(acme: Path) -> None:
    (acme / "acme" / "tags.toml").write_text(TOML.replace("acme-tag", "other-tag"), encoding="utf-8")
    with pytest.raises(BadInput, match=r"has no \[devices.acme-tag\]"):
        devices.device("acme-tag")
