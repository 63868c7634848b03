"""Runs: what they leave, how they stop, and that a stopped or killed one goes on to the same bits."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import potluck
from potluck.runs import drive
from potluck.runs.experiment import Experiment
from potluck.runs.watcher import Progress, Silent

SMALL: dict[str, Any] = {
    "data": {"source": "made"},
    "method": {"name": "fedavg", "recipe.epochs": 1, "recipe.lr": 0.1},
    "model": {"name": "softmax"},
    "fleet": {"devices": "boards"},
    "stop": {"rounds": 4},
}


def small(out: Path, **changes: Any) -> dict[str, Any]:
    merged = {name: dict(part) for name, part in SMALL.items()}
    merged["run"] = {"out": str(out)}
    for section, values in changes.items():
        merged[section] = {**merged.get(section, {}), **values}
    return merged


def contents(run: Any) -> dict[str, Any]:
    """Everything of a run that must be the same for the same bits: all but wall-clock time."""
    tables = {name: run.table(name) for name in ("clients", "steps", "evaluations", "accuracies", "tasks", "events")}
    for row in tables["steps"]:
        del row["wall"]
    summary = {k: v for k, v in run.summary.items() if k not in ("wall_seconds", "mean_stack")}
    models = {
        str(path.relative_to(run.folder)): {n: v.tolist() for n, v in load_file(path).items()}
        for path in sorted((run.folder / "models").rglob("*.safetensors"))
    }
    return {"tables": tables, "summary": summary, "models": models}


def test_a_run_leaves_its_folder_whole(tmp_path: Path) -> None:
    run = potluck.run(small(tmp_path))
    assert run.folder == tmp_path / "fedavg-made-s0"
    for name in (
        "experiment.toml",
        "run.db",
        "summary.json",
        "models/global.safetensors",
        "checkpoint/state.safetensors",
    ):
        assert (run.folder / name).exists(), name
    assert not list(run.folder.rglob("*.part"))
    summary = run.summary
    wanted = (
        "method data clients rounds seed accuracy per_client bytes virtual_seconds time_to_accuracy energy_joules macs "
        "refused_updates lost_clients wall_seconds versions"
    )
    assert set(wanted.split()) <= set(summary)
    assert set(summary["accuracy"]) >= {"mean", "std", "worst", "best", "global"}
    assert summary["rounds"] == 4
    assert len(summary["per_client"]) == summary["clients"]
    assert summary["bytes"]["up"] > 0
    assert summary["energy_joules"] > 0
    assert summary["virtual_seconds"] > 0
    assert [row["step"] for row in run.table("evaluations")] == [0, 1, 2, 3, 4]  # a curve starts before any training


def test_totals_are_sums_over_the_tasks(tmp_path: Path) -> None:
    run = potluck.run(small(tmp_path, faults={"dropout": 0.2, "nan": 0.2}))
    tasks = run.table("tasks")
    assert run.summary["bytes"]["up"] == sum(task["bytes_up"] for task in tasks)
    assert run.summary["energy_joules"] == pytest.approx(sum(task["joules"] for task in tasks))
    assert run.summary["refused_updates"] == sum(task["outcome"] == "refused" for task in tasks) > 0
    assert run.summary["lost_clients"] == sum(task["outcome"] == "lost" for task in tasks) > 0


def test_its_own_experiment_file_gives_the_same_bits(tmp_path: Path) -> None:
    first = potluck.run(small(tmp_path, partition={"kind": "dirichlet", "clients": 6, "alpha": 0.3}))
    again = potluck.run(Experiment.read(first.folder / "experiment.toml"))
    assert again.folder != first.folder
    assert contents(again)["models"] == contents(first)["models"]
    assert contents(again)["tables"] == contents(first)["tables"]


def test_other_chance_is_other_moments_of_the_same_training(tmp_path: Path) -> None:
    """`fleet.chance` draws how long tasks take; models and rows stay those of the seed."""
    runs = [potluck.run(small(tmp_path, fleet={"devices": "boards", "chance": n})) for n in (None, 0, 1)]
    first, same, other = (contents(run) for run in runs)
    assert same["tables"] == first["tables"]
    assert other["models"] == first["models"]
    assert other["tables"]["tasks"] != first["tables"]["tasks"]
    moments = [{(row["client"], row["arrived"]) for row in one["tables"]["tasks"]} for one in (first, other)]
    assert not moments[0] & moments[1]


@pytest.mark.parametrize(
    ("stop", "says"),
    [
        ({"rounds": 1}, "1 round done"),
        ({"rounds": 2}, "2 rounds done"),
        ({"rounds": None, "virtual_seconds": 0.001}, "virtual seconds passed"),
        ({"rounds": 500, "accuracy": 0.6}, "mean accuracy 0.6 reached"),
        ({"rounds": 500, "patience": 3}, "no better mean accuracy for 3 evaluations"),
    ],
)
def test_stops_when_asked(tmp_path: Path, stop: dict[str, Any], says: str) -> None:
    run = potluck.run(small(tmp_path, stop=stop))
    assert says in run.summary["ended"]
    assert run.summary["rounds"] < 500


def test_a_longer_run_is_a_shorter_one_gone_on(tmp_path: Path) -> None:
    whole = potluck.run(small(tmp_path, stop={"rounds": 5}, run={"name": "whole", "out": str(tmp_path)}))
    part = potluck.run(small(tmp_path, stop={"rounds": 2}, run={"name": "part", "out": str(tmp_path)}))
    more = drive.resume(part.folder, rounds=5)
    a, b = contents(whole), contents(more)
    assert a["models"] == b["models"]
    assert a["tables"] == b["tables"]


def test_resuming_a_finished_run_changes_nothing(tmp_path: Path) -> None:
    run = potluck.run(small(tmp_path))
    before = contents(run)
    assert contents(potluck.resume(run.folder)) == before


def test_an_interrupted_run_is_complete_and_goes_on(tmp_path: Path) -> None:
    class Impatient(Silent):
        def step(self, progress: Progress) -> None:
            if progress.round == 2:
                os.kill(os.getpid(), signal.SIGINT)

    stopped = potluck.run(small(tmp_path, stop={"rounds": 6}), Impatient())
    assert stopped.summary["ended"] == "interrupted"
    assert 2 <= stopped.summary["rounds"] < 6
    again = potluck.resume(stopped.folder)
    whole = potluck.run(small(tmp_path, stop={"rounds": 6}, run={"name": "whole", "out": str(tmp_path)}))
    assert contents(again)["models"] == contents(whole)["models"]
    assert contents(again)["tables"] == contents(whole)["tables"]


def test_two_writers_are_refused(tmp_path: Path) -> None:
    run = potluck.run(small(tmp_path))
    with drive.files.locked(run.folder), pytest.raises(ValueError, match="another process"):
        potluck.resume(run.folder)


def test_a_broken_checkpoint_is_named(tmp_path: Path) -> None:
    run = potluck.run(small(tmp_path))
    path = run.folder / "checkpoint" / "state.safetensors"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match=r"checkpoint: .* cannot be read"):
        potluck.resume(run.folder)


def test_a_bad_experiment_leaves_no_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"method.cohort: must be at most 12, the number of clients, got 40"):
        potluck.run(small(tmp_path / "out", method={"cohort": 40}))
    assert not (tmp_path / "out").exists()


def test_nobody_can_hold_the_model(tmp_path: Path) -> None:
    experiment = small(
        tmp_path, model={"name": "mlp", "hidden": [2000]}, fleet={"devices": "arduino-nano-33-ble-sense"}
    )
    with pytest.raises(ValueError, match="12 of 12 clients cannot hold the model"):
        potluck.run(experiment)


def test_evaluation_uses_test_rows_and_no_time(tmp_path: Path) -> None:
    often = potluck.run(small(tmp_path, run={"out": str(tmp_path), "name": "often"}))
    seldom = potluck.run(small(tmp_path, run={"out": str(tmp_path), "name": "seldom", "evaluate_every": 3}))
    assert [row["step"] for row in seldom.table("evaluations")] == [0, 3, 4]  # the third round, and the last
    assert often.summary["virtual_seconds"] == seldom.summary["virtual_seconds"]
    assert often.summary["accuracy"] == seldom.summary["accuracy"]


def test_evaluations_may_go_by_virtual_time(tmp_path: Path) -> None:
    """The first step in every stretch of this many seconds, and the last step."""
    often = potluck.run(small(tmp_path, run={"out": str(tmp_path), "name": "often"}))
    moments = {row["step"]: row["virtual"] for row in often.table("steps")}
    every = moments[4] * 0.4
    run = {"out": str(tmp_path), "name": "timed", "evaluate_seconds": every, "evaluate_every": 1000}
    timed = [row["step"] for row in potluck.run(small(tmp_path, run=run)).table("evaluations")]
    firsts = [next(step for step, at in moments.items() if at >= k * every) for k in (1, 2)]
    assert timed == sorted({0, *firsts, 4})


def test_personal_models_predict_as_they_were_evaluated(tmp_path: Path) -> None:
    """Raw samples in, the client's own scale applied: the same accuracy as the run's own evaluation."""
    from potluck.runs.deal import federation_of

    for name in ("fedavg", "local"):
        run = potluck.run(small(tmp_path, method={"name": name}))
        federation = federation_of(run.experiment)
        for i, client in enumerate(federation.names):
            rows = federation.test_rows(i)
            guess = run.personal(client).predict(federation.dataset.x[rows])
            accuracy = float((guess == federation.dataset.y[rows]).mean())
            assert accuracy == pytest.approx(run.summary["per_client"][client], abs=1e-6)
    with pytest.raises(ValueError, match="client: 'nobody' is not known"):
        run.personal("nobody")


def test_tables_as_data_frames(tmp_path: Path) -> None:
    run = potluck.run(small(tmp_path))
    frame = run.frame("accuracies")
    assert set(frame["client"]) == set(run.clients)
    with pytest.raises(ValueError, match="table: 'acuracies' is not known, did you mean 'accuracies'"):
        run.table("acuracies")


def test_threads_may_run_experiments(tmp_path: Path) -> None:
    done: list[Any] = []
    thread = threading.Thread(target=lambda: done.append(potluck.run(small(tmp_path))))
    thread.start()
    thread.join()
    assert done[0].finished


SCRIPT = """
import sys, potluck
from pathlib import Path
from potluck.runs.experiment import Experiment
folder = Path(sys.argv[2])
if (folder / "experiment.toml").exists():
    potluck.resume(folder)
else:
    potluck.run(Experiment.read(sys.argv[1]))
print("done")
"""


def killed_at_random(tmp_path: Path, experiment: dict[str, Any], kills: int, seed: int) -> tuple[Any, Any, int]:
    """The run never killed, the run killed at random instants until it was done, and how often it was killed."""
    began = time.perf_counter()
    whole = potluck.run({**experiment, "run": {**experiment["run"], "name": "whole"}})
    # Half of it on average: three quarters of the run are left after all kills, or half of it on a machine that others
    # used twice as much while the run was measured.
    lifetimes = (time.perf_counter() - began) / kills / 2
    toml = tmp_path / "experiment.toml"
    toml.write_text(Experiment.of({**experiment, "run": {**experiment["run"], "name": "killed"}}).toml())
    folder = tmp_path / "killed"
    draw = random.Random(seed)
    done = 0
    while done < kills:
        process = subprocess.Popen(
            [sys.executable, "-c", SCRIPT, str(toml), str(folder)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        # Starting up takes seconds: the clock runs from the first sign of work.
        before = _marks(folder)
        while process.poll() is None and _marks(folder) == before:
            time.sleep(0.002)
        try:
            process.wait(draw.uniform(0.0, lifetimes))
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            done += 1
            continue
        _, errors = process.communicate()
        assert process.returncode == 0, errors.decode()
        break
    return whole, potluck.resume(folder), done


def _marks(folder: Path) -> tuple[int, ...]:
    paths = (folder / "run.db-wal", folder / "run.db", folder / "checkpoint" / "state.safetensors")
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)


def kill_experiment(tmp_path: Path, method: str, rounds: int) -> dict[str, Any]:
    return small(
        tmp_path,
        method={"name": method, "cohort": 8},
        stop={"rounds": rounds},
        faults={"dropout": 0.1, "nan": 0.05},
        run={"out": str(tmp_path), "checkpoint_seconds": 0.0},
    )


@pytest.mark.parametrize("method", ["scaffold"])
def test_killed_at_random_instants_it_ends_with_the_same_bits(tmp_path: Path, method: str) -> None:
    whole, survivor, kills = killed_at_random(tmp_path, kill_experiment(tmp_path, method, 400), kills=3, seed=1)
    assert kills >= 1
    assert contents(whole) == contents(survivor) | {"summary": contents(whole)["summary"]}
    assert contents(whole)["summary"]["accuracy"] == contents(survivor)["summary"]["accuracy"]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fedavg", "scaffold", "local", "ftl", "fedyogi"])
def test_ten_kills_each(tmp_path: Path, method: str) -> None:
    whole, survivor, kills = killed_at_random(tmp_path, kill_experiment(tmp_path, method, 4000), kills=10, seed=2)
    assert kills == 10
    assert contents(whole)["models"] == contents(survivor)["models"]
    assert contents(whole)["tables"] == contents(survivor)["tables"]


def test_json_has_no_nan(tmp_path: Path) -> None:
    run = potluck.run(small(tmp_path))
    json.loads((run.folder / "summary.json").read_text(), parse_constant=lambda name: pytest.fail(name))


def test_weights_in_the_folder_are_the_models(tmp_path: Path) -> None:
    run = potluck.run(small(tmp_path))
    weights = load_file(run.folder / "models" / "global.safetensors")
    assert {name for name in weights if not name.startswith("input.")} == {"fc.weight", "fc.bias"}
    assert all(torch.isfinite(value).all() for value in weights.values())


def test_a_folder_may_have_an_awkward_name(tmp_path: Path) -> None:
    run = potluck.run(small(tmp_path, run={"out": str(tmp_path), "name": "what? 50% #1"}))
    assert len(run.table("steps")) == 5
