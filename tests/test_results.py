"""The script behind docs/results.md: rows are run, kept and read; the page has a row for every method."""

from __future__ import annotations

import importlib.util
import json
import sys
from pathlib import Path
from types import ModuleType

import pytest

from potluck import methods

ROOT = Path(__file__).parents[1]
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
    spec = importlib.util.spec_from_file_location("results_table", ROOT / "experiments" / "results" / "table.py")
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


def test_rows_are_run_kept_and_read(table: ModuleType, tmp_path: Path) -> None:
    out = tmp_path / "out"
    wanted = ["--only", "local", "fedavg", "fedprox", "--seeds", "2", "--out", str(out)]
    table.main(wanted)
    text, figures = (out / "tables.md").read_text(), json.loads((out / "results.json").read_text())
    assert (out / "ranks.png").stat().st_size > 10_000
    assert figures["one"]["fedavg"]["seeds"] == [0, 1]
    assert set(figures["one"]["fedavg"]["newcomers"]) == {"0", "1", "5"}
    assert figures["two"]["ditto"] is None
    first = next(line for line in text.splitlines() if "**" in line)
    best = max((row for row in figures["one"].values() if row), key=lambda row: row["accuracy"]["mean"])
    assert first.startswith(f"| `{best['method']}` | **{best['accuracy']['mean']:.3f} ± ")
    changed = {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")}
    page = tmp_path / "page.md"
    page.write_text("# Results\n\nWords.\n\n## All figures\n\nold")
    table.main([*wanted, "--read", "--page", str(page)])
    assert page.read_text() == f"# Results\n\nWords.\n\n## All figures\n\n{text}"
    table.main(wanted)
    assert {path: path.stat().st_mtime_ns for path in out.rglob("summary.json")} == changed
    assert (out / "tables.md").read_text() == text


def test_the_page_keeps_what_was_not_run_here(
    table: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A table without a run stays to the letter; the fewer rows get a mark; ranks are those of the page."""
    head = "| method | mean | worst tenth |\n|---|---:|---:|\n"
    old = head + "| `ditto` | **0.999 ± 0.001** | 0.9 |\n| `fedbn` (cnn) | *0.002* | 0.1 |\n| `local` | 0.003 | 0.1 |\n"
    second = f"### The second set\n\n`two`, 3 seeds,\nof May\n\n{old}"
    page = tmp_path / "page.md"
    page.write_text(f"Words.\n\n## All figures\n\n### The first set\n\n`one`, 3 seeds\n\n{old}\n{second}")
    wanted = ["--data", "one", "--only", "local", "fedavg", "--seeds", "1", "--out", str(tmp_path / "out")]
    table.main([*wanted, "--page", str(page)])
    text = page.read_text()
    assert text.endswith(second)
    first = text.partition("### The second set")[0]
    assert "`one`, 1 seed, Potluck" in first
    shown = [line for line in first.splitlines() if line.startswith("| `") and not line.endswith("| |")]
    assert "| `ditto` | 0.999 ± 0.001 | 0.9 |" in shown
    assert shown[0].startswith("| `local` ‡ | **1.000** |")  # in bold as the best, without italics beside it
    assert shown[-1] == "| `fedbn` (cnn) | 0.002 | 0.1 |"
    assert {line.split("`")[1] for line in shown if "‡" in line} == {"local", "fedavg"}
    assert "3 methods ranked over one, two" in capsys.readouterr().out
    table.main([*wanted, "--page", str(page)])
    assert page.read_text() == text
    table.main(
        ["--data", "one", "--only", "fedprox", "--seeds", "1", "--out", str(tmp_path / "out"), "--page", str(page)]
    )
    text = page.read_text()
    assert "| `ditto` † | 0.999 ± 0.001 | 0.9 |" in text  # now the older rows are fewer
    assert "‡" not in text


def test_a_row_that_cannot_be_run_stays_empty(
    table: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table.main(["--data", "one", "--only", "fedbn", "--seeds", "1", "--out", str(tmp_path / "out")])
    assert "one, fedbn: model: must have batch norm" in capsys.readouterr().out
    assert json.loads((tmp_path / "out" / "results.json").read_text())["one"]["fedbn"] is None


def test_the_page_has_a_row_for_every_method() -> None:
    page = (ROOT / "docs" / "results.md").read_text(encoding="utf-8")
    for name in methods.METHODS:
        if name == "compose":
            continue  # it is what its parts make it
        assert f"\n| `{name}`" in page, f"docs/results.md: no row of {name}."
