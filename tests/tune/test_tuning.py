"""Tuning with real runs: what is chosen, that test rows do not matter, that nothing is lost when it is stopped."""

from __future__ import annotations

import json
import signal
import tomllib
from pathlib import Path
from typing import Any

import pytest
from runs.test_pause import no_test_rows

from potluck import methods
from potluck.data.split import TEST
from potluck.errors import BadInput
from potluck.runs import build, compare
from potluck.runs import deal as deal_module
from potluck.runs.experiment import Experiment
from potluck.runs.parallel import RunWatcher
from potluck.runs.watcher import Silent
from potluck.tune import chosen, tuning
from potluck.tune.request import Request, of_file, request_of, spaces_for

VALUES: dict[str, Any] = {
    "data": {"source": "made"},
    "partition": {"clients": 4},
    "model": {"name": "softmax"},
    "fleet": {"devices": "boards"},
    "stop": {"rounds": 6},
    "method": {"recipe": {"epochs": 1, "lr": 0.001}},
}
SMALL = Request(trials=4, seeds=1)
SPACE = ["method.recipe.lr=0.001..0.5:log"]


class Turn(Silent):
    def start_from(self, facts: Any) -> None: ...
    def close(self) -> None: ...


class Nobody:
    """Watches nothing, and counts the trials that were carried on."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def expect(self, runs: Any) -> None: ...

    def next_run(self, name: str, number: int, of: int) -> RunWatcher:
        self.names.append(name)
        return Turn()


def tuned(
    folder: Path, names: tuple[str, ...] = ("fedavg",), request: Request = SMALL, space: list[str] = SPACE, **more: Any
) -> dict[str, Any]:
    planned = compare.plan(VALUES, list(names), 2, more.pop("settings", ()))
    return chosen.tuned(planned, request, folder, more.pop("watch", Nobody()), space=space, **more)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """A tuning of two methods, never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, tuned(folder, ("fedavg", "ftl"))


def test_settings_that_no_client_can_train_with_lose(tmp_path: Path) -> None:
    """Four passes over each row are allowed, so a task of ten epochs never starts."""
    paced = [
        "fleet.passes=4",
        "fleet.rows_per_hour=3600",
        "method.recipe.lr=0.05",
        "model.name=mlp",
        "model.hidden=[8]",
    ]
    found = tuned(tmp_path, ("fedrep",), SMALL, ["fedrep:method.head_epochs=1,10"], settings=paced)
    assert found["methods"]["fedrep"]["chosen"]["head_epochs"] == 1
    scores = [json.loads(path.read_text())["accuracy"] for path in tmp_path.glob("trials/*/at-*.json")]
    assert 0.0 in scores
    assert max(scores) > 0.3


def test_settings_that_do_not_suit_the_model_lose(tmp_path: Path) -> None:
    """A perceptron of two layers cannot keep both of them personal."""
    settings = ["method.recipe.lr=0.05", "model.name=mlp", "model.hidden=[8]"]
    found = tuned(tmp_path, ("fedper",), SMALL, ["fedper:method.layers=1,2"], settings=settings)
    assert found["methods"]["fedper"]["chosen"]["layers"] == 1
    scores = {one["settings"]["layers"]: one["scores"][0] for one in found["methods"]["fedper"]["candidates"]}
    assert scores[2] == 0.0 < scores[1]


def test_a_finished_tuning_is_read_again(tmp_path: Path) -> None:
    planned = compare.plan(VALUES, ["fedavg"], 2)
    first, again = (chosen.kept(planned, SMALL, tmp_path / "tuning", watch := Nobody()) for _ in range(2))
    assert first == again
    assert not watch.names


def test_a_better_learning_rate_is_found(whole: tuple[Path, dict[str, Any]]) -> None:
    folder, found = whole
    one = found["methods"]["fedavg"]
    assert one["chosen_accuracy"] > one["default_accuracy"]  # 0.001 is far too small
    assert one["chosen"]["recipe.lr"] > 0.001
    assert one["default"] == {"recipe.lr": 0.001}
    assert len(one["candidates"]) == 4
    assert one["candidates"][0]["scores"][-1] == one["default_accuracy"]
    assert one["passes"] == sum(each["passes"] for each in one["candidates"])
    assert json.loads((folder / "tuning.json").read_text()) == found


def test_how_much_settings_matter_is_told(whole: tuple[Path, dict[str, Any]]) -> None:
    _, found = whole
    matters = found["methods"]["ftl"]["sensitivity"]
    assert matters["worst"] <= matters["median"] <= matters["best"]
    lr = matters["by_setting"]["recipe.lr"]
    assert lr["spread"] == pytest.approx(max(lr["best"].values()) - min(lr["best"].values()))
    assert set(lr["best"]) <= {"lower third", "middle third", "upper third"}
    assert set(matters["by_setting"]["federated"]["best"]) <= {"0.5", "0.8"}


def test_the_chosen_file_is_a_comparison_with_the_chosen_settings(whole: tuple[Path, dict[str, Any]]) -> None:
    folder, found = whole
    values, names, own = compare.of_file(tomllib.loads((folder / "chosen.toml").read_text()))
    assert names == ["fedavg", "ftl"]
    planned = compare.plan(values, names, 2, own)
    for run in planned.runs:
        config = build.config_of(run.experiment, methods.load(run.method))
        assert config.recipe.lr == found["methods"][run.method]["chosen"]["recipe.lr"]
        assert config.recipe.epochs == 1
        assert run.experiment.partition["seed"] == 0  # with any seed, the test rows that no trial read
        assert run.experiment.stop.rounds == 6
        assert run.experiment.run.evaluate_on == "test"


def test_seeds_of_tuning_are_not_those_of_the_report(whole: tuple[Path, dict[str, Any]]) -> None:
    folder, found = whole
    assert found["seeds"] == [1000]
    assert {run.experiment.run.seed for run in tuning.runs_of(folder)} == {1000}
    with pytest.raises(
        BadInput, match=r"tune\.first_seed: must be other seeds than those of the report, got 1 in both"
    ):
        tuned(folder, request=Request(trials=4, seeds=1, first_seed=1))


def test_a_tuning_goes_on_where_it_was_stopped(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    _, found = whole

    class Impatient(Nobody):
        """Ctrl-C in the first round of every third trial, which may be the round of a pause."""

        def next_run(self, name: str, number: int, of: int) -> RunWatcher:
            super().next_run(name, number, of)
            stops = len(self.names) % 3 == 0

            class Stopping(Turn):
                calm = not stops

                def step(self, progress: Any) -> None:
                    if not self.calm:
                        self.calm = True
                        signal.raise_signal(signal.SIGINT)

            return Stopping()

    stops, watch = 0, Impatient()
    while True:
        try:
            again = tuned(tmp_path, ("fedavg", "ftl"), watch=watch, take_up=True)
            break
        except compare.Interrupted:
            stops += 1
    assert stops >= 3
    assert again == found
    idle = Nobody()
    assert tuned(tmp_path, ("fedavg", "ftl"), watch=idle, take_up=True) == found
    assert idle.names == []  # nothing is done twice


def test_in_parallel_the_same_is_chosen(whole: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    _, found = whole
    assert tuned(tmp_path, at_a_time=2)["methods"]["fedavg"] == found["methods"]["fedavg"]


def test_no_trial_reads_a_test_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_test_rows(monkeypatch)
    tuned(tmp_path)


def test_labels_of_test_rows_do_not_change_the_choice(
    whole: tuple[Path, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Poisoned are the rows that the report tests on, with any of its seeds."""
    _, found = whole
    deal = deal_module.federate
    seen: list[int] = []

    def poisoned(dataset: Any, *rest: Any) -> Any:
        federation = deal(dataset, *rest)
        labels = federation.dataset.y.copy()
        spec = Experiment.of({**VALUES, "method": {"name": "fedavg"}}).partition_spec()
        test = deal(dataset, spec, "client", 0).side == TEST  # of the report, seed 0
        seen.append(int(test.sum()))
        labels[test] = (labels[test] + 1) % federation.dataset.classes
        object.__setattr__(federation.dataset, "y", labels)
        return federation

    monkeypatch.setattr(deal_module, "federate", poisoned)
    assert tuned(tmp_path, ("fedavg", "ftl")) == found
    assert min(seen) > 0


def test_another_request_is_not_taken_up(whole: tuple[Path, dict[str, Any]]) -> None:
    folder, _ = whole
    with pytest.raises(BadInput, match="Add --resume to continue it"):
        tuned(folder, ("fedavg", "ftl"))
    with pytest.raises(BadInput, match=r"was made with tune\.trials = 4, got 5 now"):
        tuned(folder, ("fedavg", "ftl"), Request(trials=5, seeds=1), take_up=True)
    with pytest.raises(BadInput, match=r"space of recipe\.lr"):
        tuned(folder, ("fedavg", "ftl"), space=["method.recipe.lr=0.1,0.2"], take_up=True)


def test_sizes_of_clients_keep_their_split(tmp_path: Path) -> None:
    """With partition.sizes, validation rows change who gets which rows: the report has them too."""
    settings = ["partition.kind=sizes", "partition.sizes=[8, 8, 8, 8]"]
    tuned(tmp_path, request=Request(trials=2, seeds=1), settings=settings)
    chosen = tomllib.loads((tmp_path / "chosen.toml").read_text())
    assert chosen["partition"]["valid_share"] == 0.25


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"trials": 1}, r"tune\.trials: must be 2 to 10000, got 1"),
        ({"seeds": 0}, r"tune\.seeds: must be 1 to"),
        ({"sampler": "grid"}, r"tune\.sampler: 'grid' is not known"),
        ({"valid_share": 1.0}, r"tune\.valid_share: must be above 0 and below 1"),
        ({"trails": 3}, r"tune\.trails.*did you mean"),
        ({"trials": "many"}, r"tune\.trials: must be a whole number"),
    ],
)
def test_a_silly_request_is_refused(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        request_of(given)


@pytest.mark.parametrize(
    ("space", "sentence"),
    [
        ("recipe.lr=0.1,0.2", r"--space: must be \[METHOD:\]method\.SETTING"),
        ("method.recipe.rate=0.1,0.2", "did you mean 'method.recipe.lr'"),
        ("fedprox:method.mu=0.1,0.2", "--space: method: 'fedprox' is not known"),
        ("method.recipe.lr=-1..1", r"recipe.*lr: must be above 0"),
        ("method.recipe.lr=1..0.1", r"--space method\.recipe\.lr: high: must be above 1"),
    ],
)
def test_a_silly_space_is_refused_before_anything_runs(tmp_path: Path, space: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        tuned(tmp_path / "new", space=[space])
    assert not (tmp_path / "new").exists()


def test_the_file_may_hold_spaces() -> None:
    text = '[tune]\ntrials = 7\n[tune.space]\n"method.recipe.lr" = "0.1..0.2"\n"ftl:method.federated" = [0.5, 0.9]\n'
    rest, settings, space = of_file({"stop": {"rounds": 3}, **tomllib.loads(text)})
    assert rest == {"stop": {"rounds": 3}}
    assert request_of(settings, seeds=3) == Request(trials=7, seeds=3)
    assert space == ["method.recipe.lr=0.1..0.2", "ftl:method.federated=0.5,0.9"]
    found = spaces_for({name: methods.load(name) for name in ("fedavg", "ftl")}, space)
    assert {name: str(one) for name, one in found["ftl"].items()} == {"recipe.lr": "0.1..0.2", "federated": "0.5,0.9"}


def test_a_method_without_a_space_is_refused(tmp_path: Path) -> None:
    own = tmp_path / "plain_own.py"
    own.write_text("from potluck.methods.fedavg import Config, State, PROGRAMS, start, server, shared\n")
    with pytest.raises(BadInput, match=r"declares no SPACE.*--space plain_own:method\.recipe\.lr"):
        spaces_for({str(own): methods.load(str(own))}, [])


def test_without_an_end_there_is_no_budget_to_divide(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="given a budget"):
        tuned(tmp_path, settings=["stop.rounds=0", "stop.patience=3"])
