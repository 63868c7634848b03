from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from potluck import open_run
from potluck.errors import Missing

from .conftest import SMALL, Potluck, weights

THREE = ["local", "fedavg", "scaffold"]


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawing takes a second; one test looks at the pictures."""
    monkeypatch.setattr("potluck.report.write_figures", lambda runs, folder: [])


def test_one_table_one_report_one_folder(potluck: Potluck, here: Path) -> None:
    sets = ["--set", "method.recipe.momentum=0.5", "--set", "scaffold:method.global_lr=0.5"]
    result = potluck("compare", *THREE, *SMALL, "--rounds", 1, "--seeds", 3, *sets)
    assert result.exit_code == 0, result.output
    folder = here / "runs" / "compare-made"
    assert sorted(path.name for path in folder.glob("*-s*")) == sorted(f"{m}-s{s}" for m in THREE for s in range(3))
    assert "scaffold runs without method.recipe.momentum, which it does not have" in result.stderr
    assert "best accuracy" in result.stdout
    assert "*" in result.stdout
    assert "95 % paired t interval" in " ".join(result.stdout.split())
    assert (folder / "report.html").exists()
    pictures = {path.stem for path in (folder / "figures").glob("*.png")}
    assert pictures >= {"differences", "client_gains", "average_ranks"}
    written = json.loads((folder / "comparison.json").read_text(encoding="utf-8"))
    statistics_agree(folder, written)
    assert {row["name"] for row in written["rows"]} == set(THREE)
    assert all(len(times) == 3 for times in written["time_to_target"].values())
    assert written["notes"][0].startswith("scaffold runs without")


def statistics_agree(folder: Path, written: dict[str, Any]) -> None:
    """The statistics of a real comparison against SciPy, from what its runs recorded."""

    def last(method: str, seed: int) -> dict[str, float]:
        rows = open_run(folder / f"{method}-s{seed}").table("accuracies")
        step = max(row["step"] for row in rows)
        return {row["client"]: row["accuracy"] for row in rows if row["step"] == step}

    ends = {method: [last(method, seed) for seed in range(3)] for method in THREE}
    means = {method: [float(np.mean(list(one.values()))) for one in seeds] for method, seeds in ends.items()}
    assert len(written["pairs"]) == len(written["seeds_needed"]) == 3
    for one in written["pairs"]:
        gaps = np.subtract(means[one["method"]], means[one["other"]])
        assert one["mean"] == pytest.approx(gaps.mean())
        if np.ptp(gaps) > 1e-9:
            assert one["p"] == pytest.approx(stats.ttest_1samp(gaps, 0.0).pvalue)
    (ranked,) = [written["ranks"]["average"]]
    expected = dict(zip(THREE, stats.rankdata(-np.array(list(means.values())), axis=0).mean(axis=1), strict=True))
    assert ranked == pytest.approx(expected)
    first = written["per_client"][0]
    gaps_of = {
        client: np.mean([ends[first["method"]][seed][client] - ends[first["other"]][seed][client] for seed in range(3)])
        for client in ends["local"][0]
    }
    assert first["differences"] == pytest.approx(gaps_of)
    rows = {row["method"]: row["accuracy"]["mean"] for row in [*written["rows"], *written["own"]]}
    for one, clients in zip(written["own_pairs"], written["own_clients"], strict=True):
        assert (one["method"], one["other"]) == (clients["method"], clients["other"])
        assert one["mean"] == pytest.approx(rows[one["method"]] - rows[one["other"]]) == pytest.approx(clients["mean"])
    assert "fedavg, own" in {one["method"] for one in written["own_pairs"]}
    assert first["gain"] + first["lose"] + first["tie"] == first["clients"] == len(gaps_of)


@pytest.mark.usefixtures("no_pictures")
def test_json_and_quiet(potluck: Potluck) -> None:
    result = potluck("compare", "local", "fedavg", *SMALL, "--rounds", 1, "--seeds", 1, "--json", "-q", "--target", 0.5)
    figures = json.loads(result.stdout)
    assert result.stderr == ""
    assert figures["target"] == 0.5
    assert figures["rows"][1]["difference"]["verdict"] == "too few seeds to tell"


@pytest.mark.usefixtures("no_pictures")
def test_a_new_comparison_gets_a_new_folder(potluck: Potluck, here: Path) -> None:
    for _ in range(2):
        potluck("compare", "local", *SMALL, "--rounds", 1, "--seeds", 1, "--name", "c")
    assert sorted(path.name for path in (here / "runs").iterdir()) == ["c", "c-2"]


@pytest.mark.usefixtures("no_pictures")
def test_ctrl_c_then_resume_keeps_what_is_done(potluck: Potluck, monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    args = ["compare", *THREE, *SMALL, "--rounds", 3, "--seeds", 1, "--name", "c"]
    seen: list[int] = []

    def interrupt(*about: object) -> None:
        seen.append(1)
        if len(seen) == 5:  # in the second of three rounds of the second run
            signal.raise_signal(signal.SIGINT)

    with monkeypatch.context() as patched:
        patched.setattr("potluck.cli.progress.line.Plain.show", interrupt)
        result = potluck(*args)
    assert result.exit_code == 130
    go_on = f"continue with `potluck {' '.join(map(str, args))} --resume`"
    assert result.stderr.endswith(f"potluck: stopped; {go_on}\n")
    states = {row["run"]: row["state"] for row in json.loads(potluck("runs", "--json").stdout)}
    assert states == {"c/fedavg-s0": "interrupted", "c/local-s0": "finished"}
    first = (here / "runs" / "c" / "local-s0" / "summary.json").stat().st_mtime_ns
    result = potluck(*args, "--resume")
    assert result.exit_code == 0, result.output
    assert (here / "runs" / "c" / "local-s0" / "summary.json").stat().st_mtime_ns == first
    states = {row["run"]: row["state"] for row in json.loads(potluck("runs", "--json").stdout)}
    assert set(states.values()) == {"finished"}
    potluck(*args[:-1], "d")
    assert weights(here / "runs" / "c" / "fedavg-s0") == weights(here / "runs" / "d" / "fedavg-s0")


@pytest.mark.usefixtures("no_pictures")
def test_resume_refuses_runs_of_other_settings(potluck: Potluck) -> None:
    args = ["compare", "local", *SMALL, "--seeds", 1, "--name", "c"]
    potluck(*args, "--rounds", 1)
    result = potluck(*args, "--rounds", 2, "--resume")
    assert result.exit_code == 2
    assert "was made with stop.rounds = 1, got 2 now" in result.stderr


@pytest.mark.usefixtures("no_pictures")
def test_more_seeds_can_be_added(potluck: Potluck, here: Path) -> None:
    args = ["compare", "local", *SMALL, "--rounds", 1, "--name", "c", "--workers", 1]
    potluck(*args, "--seeds", 1)
    assert potluck(*args[:-1], 2, "--seeds", 2, "--resume").exit_code == 0  # threads do not change figures
    assert sorted(path.name for path in (here / "runs" / "c").glob("*-s*")) == ["local-s0", "local-s1"]


@pytest.mark.usefixtures("no_pictures")
def test_the_demo_in_small(potluck: Potluck, here: Path) -> None:
    from potluck.data.load import load

    try:
        load("watch_exercises")
    except Missing:
        pytest.skip("needs the watch data: pip install 'potluck[demo]'")
    result = potluck("demo", "--quick", "--jobs", 1)
    assert result.exit_code == 0, result.output
    told = " ".join(result.stdout.split())
    assert "has the highest mean accuracy" in told
    assert "Too little memory to train: adafruit-m4-express with" in told
    assert "with all its rows (69 to 169 each) a client does nearly as well alone" in told
    for method in ("local", "fedavg", "ftl", "clusterfl", "echopfl", "fedcfc", "centaur", "fedconv"):
        assert (here / "runs" / "demo" / f"{method}-s0" / "summary.json").exists()
    assert (here / "runs" / "demo" / "report.html").exists()


@pytest.mark.usefixtures("no_pictures")
def test_the_demo_without_its_data_says_where_it_comes_from(
    potluck: Potluck, monkeypatch: pytest.MonkeyPatch, here: Path
) -> None:
    monkeypatch.setattr("potluck.data.load.find", lambda _: None)
    monkeypatch.setattr("potluck.data.exercises.installed", lambda: None)
    result = potluck("demo", "--quick")
    assert result.exit_code == 2
    assert "-m pip install" in result.stderr
    assert "[demo]'" in result.stderr
    assert not (here / "runs").exists()
