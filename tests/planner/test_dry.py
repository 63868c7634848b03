from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import potluck
from potluck.planner.dry import dry_run
from potluck.planner.words import rough
from potluck.runs import compare_plan, drive
from potluck.runs.experiment import Experiment

MIXED: dict[str, Any] = {"data": {"source": "made"}, "fleet": {"devices": "mixed"}, "budget": {"local_passes": 3}}


def planned(method: str, **sections: Any) -> Experiment:
    settings = ["method.recipe.epochs=1", "method.recipe.batch=16"]
    return compare_plan.plan({**MIXED, **sections}, [method], 1, settings).runs[0].experiment


@pytest.mark.parametrize(
    "method", ["local", "fedavg", "scaffold", "fedbuff", "fedproto", "heterofl", "ap", "clusterfl"]
)
def test_a_dry_run_costs_what_the_run_costs(method: str, tmp_path: Any) -> None:
    """Synchronous or not, with sub-models, prototypes, private state or hand-offs: nothing of the cost is a guess."""
    experiment = planned(method)
    with dry_run(experiment) as (run, _):
        dry = run.summary
        tasks = [(t["client"], t["program"], t["arrived"], t["memory"], t["outcome"]) for t in run.table("tasks")]
    real = drive.start(experiment.with_(run={"out": str(tmp_path)}))
    for figure in ("bytes", "virtual_seconds", "energy", "macs", "local_passes", "rounds", "ended", "unfit_clients"):
        assert dry[figure] == real.summary[figure], figure
    did = [(t["client"], t["program"], t["arrived"], t["memory"], t["outcome"]) for t in real.table("tasks")]
    assert tasks == did  # task by task: the same clients at the same moments


def test_losses_and_absences_are_those_of_the_run(tmp_path: Any) -> None:
    shaky = planned("fedavg", faults={"dropout": 0.2, "late": 0.1}, fleet={"devices": "phones", "link": "ble-worn"})
    with dry_run(shaky) as (run, _):
        dry = run.summary
    real = drive.start(shaky.with_(run={"out": str(tmp_path)})).summary
    assert real["lost_clients"] > 0
    for figure in ("lost_clients", "bytes", "virtual_seconds", "refused_updates"):
        assert dry[figure] == real[figure]


def test_nothing_is_trained_and_nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """A method's program runs for its template alone, however many clients and rounds there are."""
    from potluck.methods import fedavg

    ran: list[int] = []

    def counted(task: Any, local: Any) -> Any:
        ran.append(len(local.data.y))
        return fedavg.train(task, local)

    monkeypatch.setattr(fedavg, "PROGRAMS", {fedavg.Train: counted})
    with dry_run(planned("fedavg")) as (run, session):
        assert run.summary["rounds"] == 3
        assert run.summary[run.metric.name]["mean"] is None  # nothing was evaluated
        folder = run.folder
        assert len(session.fleet.clients) == 12
    assert ran == [16, 32, 16, 32]  # one and two mini-batches, for the price and for the template
    assert not folder.exists()


def test_a_plan_loads_no_kernels() -> None:
    """Loading them takes longer than the plan, and compiling them half a minute."""
    said = "import sys, potluck; potluck.plan({'data': {'source': 'made'}}, ['fedavg'], seeds=1, look=False)"
    loaded = "print([name for name in ('numba', 'scipy.stats', 'matplotlib', 'sklearn') if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", f"{said}; {loaded}"], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_goal_of_accuracy_does_not_end_a_dry_run() -> None:
    with dry_run(planned("fedavg", stop={"rounds": 2, "accuracy": 0.1})) as (run, _):
        assert run.summary["rounds"] == 2


def test_a_long_run_is_simulated_in_part() -> None:
    with dry_run(planned("fedavg", budget={"local_passes": 20}), tasks=60) as (run, _):
        assert run.summary["ended"] == "paused"
        assert 0.2 <= run.summary["progress"] < 0.3  # 5 of 20 rounds with 12 clients


def test_another_seed_uses_prices_and_answers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from potluck.engines import price

    counted: list[Any] = []
    whole = price.count
    monkeypatch.setattr(price, "count", lambda *given: counted.append(given) or whole(*given))
    experiment = planned("fedavg")
    with dry_run(experiment) as (run, session):
        first = run.summary["virtual_seconds"]
    with dry_run(experiment.with_(run={"seed": 7}), like=session) as (run, _):
        assert run.summary["virtual_seconds"] != first
    assert len(counted) == 1
    with dry_run(experiment.with_(run={"seed": 7})) as (alone, _):
        assert alone.summary["bytes"] == potluck.open_run(alone.folder).summary["bytes"]


def test_what_values_decide_is_said_and_the_interval_holds_both_extremes(tmp_path: Any) -> None:
    values: dict[str, Any] = {**MIXED, "budget": {"local_passes": 10}}
    settings = ["method.recipe.epochs=1", "method.recipe.batch=16"]
    (one,) = potluck.plan(values, ["lotteryfl"], settings=settings, seeds=1, look=False).able
    experiment = compare_plan.plan(values, ["lotteryfl"], 1, settings).runs[0].experiment
    moved = sum(drive.start(experiment.with_(run={"out": str(tmp_path)})).summary["bytes"].values())
    assert one.bytes.low is not None
    assert one.bytes.high is not None
    assert one.bytes.low <= moved <= one.bytes.high
    assert abs(one.bytes.value / moved - 1) < abs(one.bytes.high / moved - 1)  # nearer than a run in which none prunes
    assert "prunes" in rough(one)
    always = potluck.plan(values, ["lotteryfl"], settings=[*settings, "method.threshold=0"], seeds=1, look=False)
    assert not always.able[0].rough
    assert not potluck.plan(values, ["fedavg"], seeds=1, look=False).able[0].rough
