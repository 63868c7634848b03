"""The script behind docs/results.md: rows are run, kept and read; the page has a row for every method."""

from __future__ import annotations

import importlib.util
import json
import re
import shutil
import sys
from functools import partial
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from potluck import methods

ROOT = Path(__file__).parents[1]
SCRIPT = ROOT / "experiments" / "results" / "table.py"
SMALL = """
[data]
source = "made"
[partition]
clients = 5
seed = 0
[model]
name = "{model}"
[budget]
local_passes = 3
[newcomers]
share = 0.2
rounds = 2
[compare]
fedprox = {{ "method.mu" = 0.1 }}
"""


@pytest.fixture
def table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The script, with two small data sets instead of its own."""
    spec = importlib.util.spec_from_file_location("results_table", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "results_table", module)
    spec.loader.exec_module(module)
    for name, model in (("one", "softmax"), ("two", "mlp")):
        (tmp_path / f"{name}.toml").write_text(SMALL.format(model=model))
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setattr(module, "DATA", {"one": "The first set", "two": "The second set"})
    monkeypatch.setattr(module, "REQUEST", module.Request(trials=2, seeds=1))
    return module


def places(folder: Path) -> list[str]:
    folder.mkdir(exist_ok=True)
    return ["--rows", str(folder / "rows.json"), "--out", str(folder / "out")]


def test_rows_are_run_kept_and_drawn(table: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows, page, picture = tmp_path / "rows.json", tmp_path / "page.md", tmp_path / "ranks.png"
    page.write_text("# Results\n\nWords.\n\n## All figures\n\nold")
    places = ["--rows", str(rows), "--out", str(tmp_path / "out"), "--page", str(page), "--picture", str(picture)]
    table.main(["--only", "local", "fedavg", "fedprox", "--seeds", "2", *places])
    text, figures = page.read_text(), json.loads(rows.read_text())
    assert picture.stat().st_size > 10_000
    assert "3 methods ranked over one, two" in capsys.readouterr().out
    assert text.startswith("# Results\n\nWords.\n\n## All figures\n\n### The first set\n\n`one`, 2 seeds")
    assert list(figures["one"]["fedavg"]["seeds"]) == ["0", "1"]
    assert "ditto" not in figures["two"]
    assert "| `ditto` |" in text
    means = {name: np.mean([seed[0] for seed in row["seeds"].values()]) for name, row in figures["one"].items()}
    best = max(means, key=lambda name: means[name])
    first = next(line for line in text.splitlines() if "**" in line)
    assert first.startswith(f"| `{best}` | **{means[best]:.3f} ± ")
    before = rows.read_bytes()
    table.main(["--only", "local", "fedavg", "fedprox", "--seeds", "2", *places])
    table.main(["--read", *places])
    assert rows.read_bytes() == before
    assert page.read_text() == text


def test_figures_are_those_of_the_summary(table: ModuleType, tmp_path: Path) -> None:
    table.main(["--data", "one", "--only", "fedavg", "--seeds", "1", *places(tmp_path)])
    (place,) = (tmp_path / "out" / "one" / "fedavg").glob("*/fedavg-s0/summary.json")
    summary = json.loads(place.read_text())
    row = table.read_rows(tmp_path / "rows.json")["one"]["fedavg"]
    found = dict(zip(table.COLUMNS, row.seeds[0], strict=True))
    close = partial(pytest.approx, rel=1e-5)
    assert found["mean"] == row.mean == close(summary["accuracy"]["mean"])
    assert found["new, 5"] == close(summary["newcomers"]["rows"]["5"]["mean"])
    assert found["J with idle"] == close(summary["energy"]["total"])
    assert found["J"] == close(summary["energy"]["total"] - summary["energy"]["idle"] - summary["energy"]["sleep"])
    assert row.chosen["chosen_candidate"] in (0, 1)


def test_more_seeds_take_the_settings_that_were_chosen(
    table: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the runs are gone, as on another machine. It is then as if all seeds had been run at once."""
    wanted = ["--data", "one", "--only", "fedprox"]
    table.main([*wanted, "--seeds", "2", *places(tmp_path / "whole")])
    table.main([*wanted, "--seeds", "1", *places(tmp_path / "parts")])
    shutil.rmtree(tmp_path / "parts" / "out")
    monkeypatch.setattr(table, "kept", lambda *_: pytest.fail("tuned again"))
    table.main([*wanted, "--seeds", "2", *places(tmp_path / "parts")])
    whole, parts = (table.read_rows(tmp_path / name / "rows.json") for name in ("whole", "parts"))
    assert parts == whole
    assert list(parts["one"]["fedprox"].seeds) == [0, 1]


def test_rows_of_other_settings_are_older_and_run_again(table: ModuleType, tmp_path: Path) -> None:
    older = table.Row("softmax", "", "", {}, {}, {"mean": 0.999, "half": 0.001, "worst tenth": 0.9})
    table.write_rows(tmp_path / "rows.json", {"one": {"ditto": older}})
    seen = [*places(tmp_path), "--page", str(tmp_path / "page.md")]
    table.main(["--read", *seen])
    text = (tmp_path / "page.md").read_text()
    assert "`one`. All rows are of earlier settings" in text
    assert "| `ditto` | **0.999 ± 0.001** | 0.900 |" in text
    table.main(["--data", "one", "--only", "local", "--seeds", "1", *seen])
    text = (tmp_path / "page.md").read_text()
    assert "| `ditto` † | 0.999 ± 0.001 | 0.900 |" in text
    assert "| `local` | **1.000** |" in text  # the best, and no italics beside it
    ours = table.read_rows(tmp_path / "rows.json")["one"]["local"]
    recipe = tmp_path / "one.toml"
    recipe.write_text(recipe.read_text().replace("local_passes = 3", "local_passes = 4"))
    assert table.digest("one", "local") != ours.asked
    table.main(["--data", "one", "--only", "ditto", "local", "--seeds", "1", *seen])
    again = table.read_rows(tmp_path / "rows.json")["one"]
    assert again["local"].asked == table.digest("one", "local")
    assert again["ditto"].means is None
    assert "†" not in (tmp_path / "page.md").read_text()


def test_a_row_that_cannot_be_run_stays_empty(
    table: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.main(["--data", "one", "--only", "fedbn", "--seeds", "1", *places(tmp_path)])
    found = capsys.readouterr().out
    assert "one, fedbn: model: must have batch norm" in found
    assert "`one`\n\nNo row has been run." in found
    assert not (tmp_path / "rows.json").exists()


def test_the_page_shows_the_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every row of rows.json is on the page, with its figures, and its settings are those of a method of today."""
    spec = importlib.util.spec_from_file_location("results_table", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "results_table", module)
    spec.loader.exec_module(module)
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for data, rows in module.read_rows(SCRIPT.parent / "rows.json").items():
        shown = page.partition(f"### {module.DATA[data]}\n")[2].partition("\n### ")[0]
        for name, row in rows.items():
            assert re.search(rf"\n\| `{name}`[^|]*\| \**{row.mean:.3f}[ *]", shown), f"docs/results.md: {data}, {name}"


def test_the_page_has_a_row_for_every_method() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for name in methods.METHODS:
        if name == "compose":
            continue  # it is what its parts make it
        assert f"\n| `{name}`" in page, f"docs/results.md: no row of {name}."
