from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

import potluck
from potluck.cli.progress.line import Quiet, Turn
from potluck.errors import BadInput, Code
from potluck.files import locked
from potluck.runs import compare
from potluck.runs.experiment import Experiment
from potluck.runs.results import Run
from potluck.runs.rosters import equipment
from potluck.runs.watcher import Progress

BASE = {"data": {"source": "made"}, "model": {"name": "softmax"}, "fleet": {"devices": "pc"}, "stop": {"rounds": 2}}


def test_same_fleet_same_split_same_seeds() -> None:
    planned = compare.plan(BASE, ["local", "fedavg"], 2, ["run.seed=4"])
    assert [run.name for run in planned.runs] == ["local-s4", "fedavg-s4", "local-s5", "fedavg-s5"]
    for local, fedavg in zip(planned.runs[::2], planned.runs[1::2], strict=True):
        there, here = local.experiment.model_dump(), fedavg.experiment.model_dump()
        assert {name for name in there if there[name] != here[name]} == {"method"}


def test_one_deal_of_the_devices_for_all_seeds() -> None:
    mixed = {**BASE, "fleet": {"devices": "mixed"}}

    def dealt(*settings: str) -> list[list[int]]:
        runs = compare.plan(mixed, ["fedavg"], 3, settings).runs
        return [equipment(run.experiment)[1].codes(30).tolist() for run in runs]

    first, *others = dealt("run.seed=4")
    assert others == [first, first]  # the first seed's deal, whatever the others are
    assert dealt("run.seed=9") != dealt("run.seed=4")
    assert dealt("fleet.seed=4", "run.seed=9") == [first] * 3
    alone = Experiment.of({**mixed, "run": {"seed": 4}})  # a single run deals by its own seed
    assert equipment(alone)[1].codes(30).tolist() == first


def test_every_method_gets_the_same_passes_and_pace_where_the_user_says_nothing() -> None:
    nothing = {name: part for name, part in BASE.items() if name != "stop"}
    planned = compare.plan(nothing, ["local", "fedavg"], 1)
    for run in planned.runs:
        assert run.experiment.budget.limits == {"local_passes": 20.0}
        assert run.experiment.stop.rounds is None
        assert (run.experiment.fleet.rows_per_hour, run.experiment.fleet.passes) == (3600.0, 20.0)
    assert "every method gets 20 local passes" in planned.notes[0]
    assert "3,600 labelled rows arrive" in planned.notes[1]


def test_a_budget_of_the_user_stays_and_rounds_keep_their_meaning() -> None:
    nothing = {name: part for name, part in BASE.items() if name != "stop"}
    timed = compare.plan({**nothing, "budget": {"virtual_seconds": 60}}, ["fedavg"], 1).runs[0].experiment
    assert timed.budget.limits == {"virtual_seconds": 60}
    assert timed.fleet.passes == 20.0
    few = compare.plan(nothing, ["fedavg"], 1, ["budget.local_passes=4", "fleet.duty=0.5"]).runs[0].experiment
    assert (few.budget.local_passes, few.fleet.passes, few.fleet.duty) == (4, 0.0, 0.5)  # a pace of the user stays
    rounds = compare.plan(BASE, ["fedavg"], 1).runs[0].experiment
    assert (rounds.stop.rounds, rounds.budget.limits, rounds.fleet.passes) == (2, {}, 0.0)
    one = compare.plan(nothing, ["fedavg", "local"], 1, ["local:stop.rounds=3"]).runs
    assert [run.experiment.stop.rounds for run in one] == [None, 3]


def test_a_setting_goes_to_those_that_have_it() -> None:
    settings = ["method.recipe.momentum=0.5", "scaffold:method.global_lr=0.5", "stop.rounds=3"]
    planned = compare.plan(BASE, ["fedavg", "scaffold"], 1, settings)
    fedavg, scaffold = (run.experiment for run in planned.runs)
    assert fedavg.method == {"name": "fedavg", "recipe": {"momentum": 0.5}}
    assert scaffold.method == {"name": "scaffold", "global_lr": 0.5}
    assert fedavg.stop.rounds == scaffold.stop.rounds == 3
    assert planned.notes == ("scaffold runs without method.recipe.momentum, which it does not have.",)


def test_settings_of_the_method_a_file_was_written_for_are_left_out() -> None:
    planned = compare.plan({**BASE, "method": {"name": "fedprox", "mu": 0.5}}, ["fedavg"], 1)
    assert planned.runs[0].experiment.method == {"name": "fedavg"}
    assert planned.notes == ("fedavg runs without method.mu, which it does not have.",)


@pytest.mark.parametrize(
    ("names", "settings", "sentence"),
    [
        (["fedavg"], ["method.mu=1"], "'mu' is not known"),
        (["fedavg"], ["fedprox:method.mu=1"], "--set: method: 'fedprox' is not known"),
        (["fedavg"], ["fedavg:method.mu=1"], "method.mu"),
        (["fedavg", "fedavg"], [], "compare: must be different methods, got fedavg, fedavg"),
        ([], [], "compare: must be one method or more, got none"),
        (["fedavg"], ["run.seed=-1"], "run.seed"),
        (
            ["fedavg"],
            ["fedavg:partition.alpha=1"],
            r"must be one of method.\*, model.\*, stop.\*, fleet.access_point, got 'fedavg:partition.alpha=1'",
        ),
    ],
)
def test_slips_are_refused(names: list[str], settings: list[str], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        compare.plan(BASE, names, 1, settings)


def test_a_folder_nobody_has_and_the_newest_there_is(tmp_path: Path) -> None:
    assert compare.latest_folder(tmp_path, "c") == tmp_path / "c"
    for name in ("c", "c-2", "c-3"):
        assert compare.new_folder(tmp_path, "c") == tmp_path / name
        (tmp_path / name).mkdir()
        assert compare.latest_folder(tmp_path, "c") == tmp_path / name


def test_what_is_there_is_kept_or_gone_on_with(tmp_path: Path) -> None:
    planned = compare.plan(BASE, ["local", "fedavg"], 1)
    runs = compare.carry_out(planned, tmp_path, Quiet())
    whole = load_file(runs[1].folder / "models" / "global.safetensors")
    kept = (runs[0].folder / "summary.json").stat().st_mtime_ns
    (runs[1].folder / "summary.json").unlink()
    again = compare.carry_out(planned, tmp_path, Quiet(), take_up=True)
    assert [run.folder for run in again] == [run.folder for run in runs]
    assert (runs[0].folder / "summary.json").stat().st_mtime_ns == kept
    resumed = load_file(runs[1].folder / "models" / "global.safetensors")
    assert all(torch.equal(whole[name], resumed[name]) for name in whole)


def test_two_at_a_time_give_the_same_bits(tmp_path: Path) -> None:
    """Also what their watcher sees is the same, each run by itself in order."""
    planned = compare.plan(BASE, ["local", "fedavg"], 2)
    seen: dict[str, list[int]] = {}

    class Noting(Quiet):
        def show(self, turn: Turn, progress: Progress, left: float | None) -> None:
            seen.setdefault(turn.name, []).append(progress.round)

    one = compare.carry_out(planned, tmp_path / "one", Quiet())
    two = compare.carry_out(planned, tmp_path / "two", Noting(), at_a_time=2)
    assert [run.name for run in two] == [run.name for run in one] == [run.name for run in planned.runs]
    for mine, other in zip(one, two, strict=True):
        assert mine.summary["accuracy"] == other.summary["accuracy"]
    assert seen == {run.name: [1, 2] for run in planned.runs}


UNLIKE = {"data": {"source": "made"}, "model": {"name": "softmax"}, "fleet": {"devices": "pc"}}


def test_a_task_that_is_longer_than_the_budget_is_shortened() -> None:
    """ClusterFL trains 20 epochs a round: with a budget of 3 passes no client could take part."""
    planned = compare.plan({**UNLIKE, "budget": {"local_passes": 3.5}}, ["clusterfl", "fedavg"], 1)
    clusterfl, fedavg = (run.experiment for run in planned.runs)
    assert clusterfl.method["recipe"]["epochs"] == 3
    assert "recipe" not in fedavg.method
    assert any(note.startswith("clusterfl: method.recipe.epochs is 3") for note in planned.notes), planned.notes
    said = compare.plan({**UNLIKE, "budget": {"local_passes": 3}}, ["clusterfl"], 1, ["method.recipe.epochs=5"])
    assert said.runs[0].experiment.method["recipe"]["epochs"] == 5  # the user's word stays


@pytest.mark.parametrize("at_a_time", [1, 2])
def test_a_method_without_clients_is_left_out_and_the_others_run(at_a_time: int, tmp_path: Path) -> None:
    values = {**UNLIKE, "budget": {"local_passes": 3}}
    planned = compare.plan(values, ["clusterfl", "fedavg"], 1, ["clusterfl:method.recipe.epochs=5"])
    runs = compare.carry_out(planned, tmp_path / "c", Quiet(), at_a_time=at_a_time)
    assert [run.name for run in runs] == ["fedavg-s0"]
    assert not (tmp_path / "c" / "clusterfl-s0").exists()
    (note,) = [note for note in potluck.compare(*runs).notes if "clusterfl" in note]
    assert note.startswith("clusterfl did not run (seed 0): no client could take part.")
    assert "its task needs 5 more" in note
    again = compare.carry_out(planned, tmp_path / "c", Quiet(), take_up=True)
    assert [run.name for run in again] == ["fedavg-s0"]


def test_a_comparison_in_which_no_method_runs_is_refused(tmp_path: Path) -> None:
    planned = compare.plan({**UNLIKE, "budget": {"local_passes": 3}}, ["clusterfl"], 1, ["method.recipe.epochs=5"])
    with pytest.raises(BadInput, match="no client could take part") as refused:
        compare.carry_out(planned, tmp_path / "c", Quiet())
    assert refused.value.code is Code.NOT_FITTING
    assert not (tmp_path / "c").exists()


@pytest.mark.slow
def test_what_fails_beside_others_is_told_here(tmp_path: Path) -> None:
    planned = compare.plan(BASE, ["local", "fedavg"], 1)
    (tmp_path / "fedavg-s0").mkdir()
    (tmp_path / "fedavg-s0" / "thesis.tex").write_text("")
    with pytest.raises(BadInput, match="is not a run") as refused:
        compare.carry_out(planned, tmp_path, Quiet(), take_up=True, at_a_time=2)
    assert refused.value.code is Code.OUTPUT_PLACE


@pytest.mark.slow
def test_ctrl_c_stops_runs_side_by_side_after_their_round(tmp_path: Path) -> None:
    """It says so at once, and can be gone on with."""
    planned = compare.plan({**BASE, "stop": {"rounds": 20_000}}, ["local", "fedavg"], 1)
    told: list[str] = []

    class Impatient(Quiet):
        def tell(self, text: str) -> None:
            told.append(text)

        def show(self, turn: Turn, progress: Progress, left: float | None) -> None:
            if progress.round == 2 and turn.name == "local-s0":
                signal.raise_signal(signal.SIGINT)

    with pytest.raises(compare.Interrupted):
        compare.carry_out(planned, tmp_path, Impatient(), at_a_time=2)
    states = [compare.state_of(Run(path)) for path in tmp_path.glob("*-s0")]
    assert "note: stopping after this round; Ctrl-C again stops at once." in told
    assert states
    assert set(states) == {"interrupted"}


def test_a_file_names_methods_and_what_is_theirs() -> None:
    section = {"local": {}, "fedprox": {"method.mu": 0.5, "model.name": "mlp", "model.hidden": [8]}}
    values, names, own = compare.of_file({**BASE, "compare": section})
    assert names == ["local", "fedprox"]
    runs = {run.method: run.experiment for run in compare.plan(values, names, 1, own).runs}
    assert runs["fedprox"].method["mu"] == 0.5
    assert runs["fedprox"].model == {"name": "mlp", "hidden": [8]}
    assert runs["local"].model == BASE["model"]
    with pytest.raises(BadInput, match="the section of that name must hold NAME = "):
        compare.of_file({"compare": {"local": 3}})


def test_a_folder_that_never_became_a_run_is_begun_anew(tmp_path: Path) -> None:
    planned = compare.plan(BASE, ["local"], 1)
    (tmp_path / "local-s0").mkdir()
    (tmp_path / "local-s0" / ".experiment.toml.1.part").write_text("")
    (run,) = compare.carry_out(planned, tmp_path, Quiet(), take_up=True)
    assert run.folder == tmp_path / "local-s0"
    (tmp_path / "other" / "local-s0").mkdir(parents=True)
    (tmp_path / "other" / "local-s0" / "thesis.tex").write_text("")
    with pytest.raises(BadInput, match="is not a run"):
        compare.carry_out(planned, tmp_path / "other", Quiet(), take_up=True)


def test_states(tmp_path: Path) -> None:
    run = potluck.run({**BASE, "run": {"out": str(tmp_path)}})
    assert compare.state_of(run) == "finished"
    with locked(run.folder):
        assert compare.state_of(run) == "running"
    summary = run.summary
    for changed, state in (({"ended": "interrupted"}, "interrupted"), ({"steps": 1}, "killed")):
        (run.folder / "summary.json").write_text(json.dumps({**summary, **changed}))
        assert compare.state_of(run) == state
    (run.folder / "summary.json").unlink()
    assert compare.state_of(run) == "killed"


def test_common_target_is_what_more_than_half_reached() -> None:
    assert compare.common_target([0.83, 0.91]) == 0.8  # both of two
    assert compare.common_target([0.2, 0.83, 0.91]) == 0.8  # two of three
    assert compare.common_target([0.2, 0.4, 0.83, 0.91]) == 0.4  # three of four
    assert compare.common_target([0.85]) == 0.85
    assert compare.common_target([0.01, 0.04]) is None


def test_time_to_a_target_is_the_first_time(tmp_path: Path) -> None:
    runs = [potluck.run({**BASE, "run": {"out": str(tmp_path), "seed": seed}}) for seed in (0, 1)]
    curves = [[(row["virtual"], mean["mean"]) for row, mean in _rows(run)] for run in runs]
    target = curves[0][-1][1]
    first = next(virtual for virtual, mean in curves[0] if mean >= target)
    reached = compare.time_to_target(runs, target)
    assert reached.seconds["fedavg"][0] == first
    assert compare.time_to_target(runs, 1.1).seconds == {"fedavg": [None, None]}
    assert compare.time_to_target(runs, 1.1).mean("fedavg") is None
    assert compare.Reached(0.5, {"m": [2.0, 4.0], "n": [2.0, None]}).mean("m") == 3.0
    assert compare.Reached(0.5, {"m": [2.0, 4.0], "n": [2.0, None]}).mean("n") is None


def _rows(run: Run) -> list[tuple[dict[str, float], dict[str, float]]]:
    return list(zip(run.table("steps"), run.table("evaluations"), strict=True))
