from __future__ import annotations

import json
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import potluck as api
from potluck.runs.record import read

from .conftest import SMALL, Potluck, weights


@pytest.mark.quick
def test_a_run_ends_with_its_figures_and_where_they_are(potluck: Potluck, here: Path) -> None:
    result = potluck("run", *SMALL, "--rounds", 2, "--clients", 4)
    assert result.exit_code == 0, result.output
    folder = here / "runs" / "fedavg-made-s0"
    mean = api.open_run(folder).summary["accuracy"]["mean"]
    assert f"fedavg on made: accuracy {mean:.3f} ±" in result.stdout
    assert "over 4 clients" in result.stdout
    assert "report runs/fedavg-made-s0/report.html" in result.stdout
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!")
    assert "note: 4 of 12 subjects take part" in result.stderr


def test_json_is_the_summary_and_nothing_else(potluck: Potluck, here: Path) -> None:
    result = potluck("run", *SMALL, "--rounds", 1, "--json")
    assert json.loads(result.stdout) == api.open_run(here / "runs" / "fedavg-made-s0").summary


def test_quiet_leaves_only_the_result(potluck: Potluck) -> None:
    result = potluck("run", *SMALL, "--rounds", 1, "--clients", 4, "--quiet")
    assert result.exit_code == 0
    assert result.stderr == ""
    assert "accuracy" in result.stdout


def test_flags_override_the_file_and_set_overrides_flags(potluck: Potluck, here: Path) -> None:
    (here / "e.toml").write_text(
        '[data]\nsource = "watch_exercises"\n[method]\nname = "fedavg"\nrecipe.lr = 0.3\n'
        "[stop]\nrounds = 50\n[run]\nseed=5\n"
    )
    result = potluck("run", "e.toml", *SMALL, "--rounds", 9, "--set", "stop.rounds=1", "--cohort", 2, "--name", "mine")
    assert result.exit_code == 0, result.output
    experiment = api.open_run(here / "runs" / "mine").experiment
    assert (experiment.data.source, experiment.stop.rounds, experiment.run.seed) == ("made", 1, 5)
    assert experiment.method == {"name": "fedavg", "recipe": {"lr": 0.3}, "cohort": 2}
    assert experiment.model["name"] == "softmax"


def test_another_method_leaves_out_settings_it_does_not_have(potluck: Potluck, here: Path) -> None:
    (here / "e.toml").write_text(
        '[method]\nname = "fedprox"\nmu = 0.5\nrecipe.lr = 0.3\n[model]\nname = "mlp"\nhidden = [8]\n'
    )
    result = potluck("run", "e.toml", *SMALL, "--method", "fedavg", "--rounds", 1)
    assert result.exit_code == 0, result.output
    assert api.open_run(here / "runs" / "fedavg-made-s0").experiment.method == {"name": "fedavg", "recipe": {"lr": 0.3}}
    assert "--method fedavg: ignored method.mu from the file (a setting of fedprox)." in result.stderr
    assert "--model softmax: ignored model.hidden from the file (a setting of mlp)." in result.stderr


def test_seeds_give_a_run_each_and_their_mean(potluck: Potluck, here: Path) -> None:
    result = potluck("run", *SMALL, "--rounds", 1, "--seed", 3, "--seeds", 2, "--name", "x", "--json")
    figures = json.loads(result.stdout)
    assert [run["seed"] for run in figures["runs"]] == [3, 4]
    assert sorted(path.name for path in (here / "runs").iterdir()) == ["x-s3", "x-s4"]
    means = [run["accuracy"]["mean"] for run in figures["runs"]]
    assert figures["over_seeds"]["accuracy"]["mean"] == pytest.approx(sum(means) / 2)
    told = potluck("run", *SMALL, "--rounds", 1, "--seeds", 2)
    assert "fedavg over 2 seeds: accuracy" in told.stdout


def test_clients_that_do_not_fit_are_told_once(potluck: Potluck) -> None:
    slow = ["--data", "made", "--fleet", "mixed", "--rounds", 2, "--set", "model.hidden=[256]", "--model", "mlp"]
    result = potluck("run", *slow)
    assert result.exit_code == 0, result.output
    assert result.stderr.count("cannot train: arduino-nano-33-ble-sense: training needs") == 1
    assert "of 12 clients had too little memory to train" in result.stdout


@pytest.mark.quick
def test_resume_finishes_or_goes_further(potluck: Potluck, here: Path) -> None:
    potluck("run", *SMALL, "--rounds", 2, "--name", "r")
    result = potluck("resume", "runs/r", "--rounds", 4, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rounds"] == 4
    potluck("run", *SMALL, "--rounds", 4, "--name", "whole")
    assert weights(here / "runs" / "r") == weights(here / "runs" / "whole")


def test_ctrl_c_says_how_to_go_on(potluck: Potluck, monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    monkeypatch.setattr("potluck.cli.progress.line.Plain.show", lambda *_: signal.raise_signal(signal.SIGINT))
    result = potluck("run", *SMALL, "--rounds", 50, "--name", "a b")
    assert result.exit_code == 130
    assert result.stdout == ""
    assert result.stderr.endswith("potluck: stopped; continue with `potluck resume 'runs/a b'`\n")
    assert api.open_run(here / "runs" / "a b").summary["ended"] == "interrupted"


def test_defaults_are_named(potluck: Potluck, monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    monkeypatch.setattr("potluck.runs.drive.start", lambda *_: exit(3))
    first = potluck("run").stderr.splitlines()[0]
    assert first == (
        'note: using defaults: method "fedavg", data "watch_exercises", fleet "mixed", 20 rounds '
        "(change with --method, --data, --fleet, --rounds)."
    )
    said = potluck("run", "--data", "made", "--rounds", 3, "--set", "fleet.devices=pc", "--set", "method.recipe.lr=0.5")
    assert said.stderr == 'note: using defaults: method "fedavg" (change with --method).\n'
    (here / "mine.toml").write_text('[data]\nsource = "made"\n', encoding="utf-8")
    assert potluck("run", "mine.toml").stderr == ""  # a file says everything
    assert potluck("run", "--quiet").stderr == ""


def test_ctrl_c_before_there_is_anything(potluck: Potluck, monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("potluck.runs.drive.build", interrupt)
    result = potluck("run", *SMALL)
    assert (result.exit_code, result.stderr.splitlines()[-1]) == (130, "potluck: stopped")
    assert list(here.iterdir()) == []


def test_a_real_process_writes_plain_lines_and_resumes_after_sigint(
    process: Callable[..., subprocess.Popen[str]], potluck: Potluck, here: Path
) -> None:
    running = process("run", *SMALL, "--rounds", "1000000", "--set", "run.evaluate_every=1000", "--name", "long")
    database = here / "runs" / "long" / "run.db"
    deadline = time.monotonic() + 120
    while not (database.exists() and _steps(database) >= 2):
        assert running.poll() is None, running.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.05)
    running.send_signal(signal.SIGINT)
    out, err = running.communicate(timeout=120)
    assert (running.returncode, out) == (130, "")
    assert "\x1b" not in err
    assert err.splitlines()[1] == "long: fedavg, 12 clients, softmax, in runs/long"
    assert err.splitlines()[-1] == "potluck: stopped; continue with `potluck resume runs/long`"
    rounds = api.open_run(here / "runs" / "long").summary["rounds"] + 2
    result = potluck("resume", "runs/long", "--rounds", rounds, "--json")
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["rounds"] == rounds


def _steps(database: Path) -> int:
    try:
        return int(read(database, "SELECT count(*) AS n FROM steps")[0]["n"])
    except Exception:  # the table is not there yet
        return 0
