"""The comparison with other people's code, as far as it needs none of it: files, networks, tables and reasons."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from potluck.methods import load
from potluck.runs.build import build

FOLDER = Path(__file__).parents[1] / "benchmarks" / "against"


@pytest.fixture(scope="module")
def against() -> Iterator[dict[str, ModuleType]]:
    """The files of the comparison that need no other library, by name."""
    patch = pytest.MonkeyPatch()
    patch.syspath_prepend(str(FOLDER))
    names = ("cases", "network", "results", "export", "reasons", "table", "ours")
    yield {name: __import__(name) for name in names}
    patch.undo()
    for name in names:  # short names, which another test may want for a file of its own
        del sys.modules[name]


@pytest.fixture(scope="module")
def exported(against: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = against["export"].export("made", 3, tmp_path_factory.mktemp("against"))
    return folder


def test_an_export_holds_plain_arrays_of_whole_batches(against: dict[str, ModuleType], exported: Path) -> None:
    files = sorted((exported / "clients").glob("*.npz"))
    assert len(files) == 4
    for path in files:
        with np.load(path, allow_pickle=False) as rows:
            assert set(rows.files) == {"x", "y", "split"}
            assert rows["x"].dtype == np.float32
            train = int((rows["split"] == 0).sum())
            assert train > 0
            assert train % against["cases"].MULTIPLE == 0
            assert (rows["split"] == 1).any()


def test_a_second_export_leaves_the_files_alone(against: dict[str, ModuleType], exported: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in exported.rglob("*") if path.is_file()}
    assert against["export"].export("made", 3, exported.parents[1]) == exported
    assert {path: path.stat().st_mtime_ns for path in exported.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("network", ["mlp", "cnn"])
def test_the_plain_network_is_ours(against: dict[str, ModuleType], exported: Path, network: str) -> None:
    """With the exported first weights, encoder and head give the outputs of Potluck's model."""
    method = "fedbn" if network == "cnn" else "fedavg"
    session = build(against["ours"].experiment_of(exported, method, {}, 1))
    encoder, head = against["network"].start(exported, network)
    rows = against["network"].clients(exported)[0]
    theirs = head(encoder.eval()(rows["x_test"]))
    ours = session.model.logits(session.weights, rows["x_test"])
    torch.testing.assert_close(theirs, ours, atol=1e-5, rtol=1e-5)
    session.close()


def test_our_side_runs_on_the_files_and_keeps_its_result(
    against: dict[str, ModuleType], exported: Path, tmp_path: Path
) -> None:
    results = against["results"]
    result = results.Result("potluck", "0", "made", 3, "fedavg", "fluke", 2)
    against["ours"].run(exported, result, against["cases"].entry("made", "fedavg").settings("fluke"))
    result.write(tmp_path)
    (read,) = results.read(tmp_path)
    assert read == result
    assert len(read.scores["headline"]) == 4
    assert read.cpu_seconds > 0


@pytest.mark.parametrize("case", ["mnist-classes", "mnist-classes-whole", "w1"])
def test_every_method_has_settings_that_potluck_accepts(against: dict[str, ModuleType], case: str) -> None:
    cases = against["cases"]
    for name in cases.METHODS:
        for library in cases.LIBRARIES:
            load(name).configure(cases.entry(case, name).settings(library))  # raises BadInput otherwise


def result_of(against: dict[str, ModuleType], library: str, form: str, accuracy: float, **more: Any) -> Any:
    given = {"case": "uci-har", "seed": 0, "method": "ditto", "rounds": 20, **more}
    one = against["results"].Result(library, "1", form=form, **given)
    one.scores, one.cpu_seconds = {"headline": [accuracy, accuracy]}, 1.0 if library == "potluck" else 3.0
    return one


@pytest.mark.parametrize(
    ("method", "ours", "theirs", "whole", "verdict"),
    [
        ("ditto", 0.900, 0.902, None, "agrees"),
        ("pfedme", 0.900, 0.850, None, "explained below"),
        ("ditto", 0.900, 0.880, 0.800, "order of batches"),
        ("ditto", 0.900, 0.880, 0.780, "**not explained**"),
        ("ditto", 0.900, 0.880, None, "**not explained**"),
    ],
)
def test_a_difference_is_within_half_a_point_or_has_a_reason(
    against: dict[str, ModuleType], method: str, ours: float, theirs: float, whole: float | None, verdict: str
) -> None:
    found = [
        result_of(against, "potluck", "fluke", ours, method=method),
        result_of(
            against, "potluck", "pfllib", 0.1, method=method
        ),  # ours against the other library: not for this table
        result_of(against, "fluke", "published", theirs, method=method),
    ]
    if whole is not None:
        more = {"method": method, "case": "uci-har-whole"}
        found += [
            result_of(against, "potluck", "fluke", 0.8, **more),
            result_of(against, "fluke", "published", whole, **more),
        ]
    (row,) = against["table"].rows_of(found, "uci-har", "fluke")
    assert row.verdict == verdict
    assert row.difference.points == pytest.approx(100 * (ours - theirs))
    assert row.cpu_ratio == 3.0


def test_differences_are_paired_by_seed(against: dict[str, ModuleType]) -> None:
    """Seeds that only one side has do not count; the interval is that of the paired differences."""
    found = [result_of(against, "potluck", "fluke", value, seed=seed) for seed, value in enumerate((0.8, 0.9, 0.7))]
    found += [result_of(against, "fluke", "published", value, seed=seed) for seed, value in enumerate((0.79, 0.88))]
    (row,) = against["table"].rows_of(found, "uci-har", "fluke")
    assert row.seeds == 2
    assert row.difference.points == pytest.approx(1.5)
    assert row.difference.half == pytest.approx(12.706 * 0.5, rel=1e-3)  # t(1) = 12.706; the standard error is 0.5


def test_the_report_names_the_lines_behind_each_large_difference(
    against: dict[str, ModuleType], tmp_path: Path
) -> None:
    for library, form, accuracy in (("potluck", "fluke", 0.9), ("fluke", "published", 0.8), ("fluke", "repaired", 0.9)):
        result_of(against, library, form, accuracy, method="pfedme").write(tmp_path)
    result_of(against, "fluke", "published", 0.2, method="pfedme", rounds=5).write(tmp_path)  # ours has no such run
    report = against["table"].report(tmp_path)
    assert "**uci-har, fluke** (1 seed, 20 rounds)" in report
    assert "| pfedme | 90.00 | 80.00 | +10.00 | +0.00 |  | 3.0x | explained below |" in report
    assert "pfedme.py:125" in report


def test_the_report_names_the_lines_that_draw_mini_batches(against: dict[str, ModuleType], tmp_path: Path) -> None:
    """Only where whole batches agree: a difference that nothing explains gets no line."""
    for case, ours, theirs in (("uci-har", 0.9, 0.88), ("uci-har-whole", 0.8, 0.8), ("mnist-classes", 0.9, 0.8)):
        method = "fedavg" if case == "mnist-classes" else "ditto"
        result_of(against, "potluck", "pfllib", ours, method=method, case=case).write(tmp_path)
        result_of(against, "pfllib", "published", theirs, method=method, case=case).write(tmp_path)
    report = against["table"].report(tmp_path)
    assert report.count("| order of batches |") == report.count("| **not explained** |") == 1
    assert report.count("* **PFLlib, order of batches**: `system/flcore/clients/clientbase.py:59`") == 1
    assert "fedavg**:" not in report


def test_each_reason_has_a_repair_that_proves_it(against: dict[str, ModuleType]) -> None:
    """Read from the source: the drivers import libraries that are not here."""
    for library in against["cases"].LIBRARIES:
        tree = ast.parse((FOLDER / f"run_{library}.py").read_text())
        (repairs,) = (
            node.value
            for node in tree.body
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "REPAIRS"
        )
        assert isinstance(repairs, ast.Dict)
        methods = {key.value for key in repairs.keys if isinstance(key, ast.Constant)}
        assert methods == {method for other, method in against["reasons"].REASONS if other == library}


def test_the_page_has_the_reasons_as_they_are(against: dict[str, ModuleType]) -> None:
    page = re.sub(r"\s+", " ", (FOLDER.parents[1] / "docs" / "against.md").read_text())
    reasons = against["reasons"]
    for reason in (*reasons.REASONS.values(), *reasons.ORDER.values()):
        assert reason.what in page
        assert reason.lines in page


def test_a_half_written_result_is_never_read(against: dict[str, ModuleType], tmp_path: Path) -> None:
    one = result_of(against, "potluck", "fluke", 0.9)
    one.write(tmp_path)
    (tmp_path / "uci-har" / "0" / "fluke-published-ditto-20.part").write_text("{")
    assert against["results"].read(tmp_path) == [one]
    assert json.loads((tmp_path / one.path).read_text())["method"] == "ditto"
