"""What people get wrong: each gives one clear sentence, exit status 2, and leaves nothing behind."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from .conftest import Potluck

SETTINGS = {
    "unknown section": (["--set", "fleets.devices=boards"], "did you mean 'fleet'?"),
    "unknown key": (["--set", "stop.round=5"], "did you mean 'rounds'?"),
    "unknown setting of the method": (["--set", "method.epoch=5"], "did you mean 'recipe.epochs'?"),
    "unknown setting of the model": (["--model", "mlp", "--set", "model.hiden=5"], "did you mean 'hidden'?"),
    "unknown setting of the partition": (["--set", "partition.alfa=5"], "did you mean 'alpha'?"),
    "unknown method": (["--method", "fedavgg"], "did you mean 'fedavg'?"),
    "unknown model": (["--model", "mpl"], "did you mean 'mlp'?"),
    "unknown data": (["--data", "uci_haar"], "did you mean 'uci_har'?"),
    "unknown fleet": (["--fleet", "board"], "did you mean 'boards'?"),
    "unknown engine": (["--engine", "flour"], "run.engine: 'flour' is not known, did you mean 'flower-sim'?"),
    "no equals sign": (["--set", "stop.rounds"], "must be section.key=value"),
    "a number out of range": (
        ["--set", "method.recipe.lr=-1"],
        "method.recipe.lr: must be above 0 and finite, got -1.0.",
    ),
    "a text for a number": (["--set", "method.recipe.lr=fast"], "method.recipe.lr: must be a number, got 'fast'."),
    "fewer than no rounds": (["--rounds", "-1"], "stop.rounds: must be at least 0, got -1."),
    "no seeds": (["--seeds", "0"], "--seeds: must be at least 1, got 0"),
    "more subjects than there are": (
        ["--clients", "13"],
        "partition.clients: must be at most 12, the subjects of made, got 13",
    ),
    "more asked than there are": (
        ["--cohort", "40"],
        "method.cohort: must be at most 12, the number of clients, got 40",
    ),
    "probabilities beyond 1": (
        ["--set", "faults.nan=0.6", "--set", "faults.late=0.6"],
        "must add up to at most 1, got 1.2",
    ),
    "a folder in the name": (["--name", "../x"], "must be a plain folder name"),
}


@pytest.mark.parametrize(("args", "sentence"), SETTINGS.values(), ids=SETTINGS)
def test_a_setting(potluck: Potluck, here: Path, args: list[str], sentence: str) -> None:
    base = [] if "--data" in args else ["--data", "made"]
    _refused(potluck, here, ["run", *base, "--set", "run.checkpoint_seconds=1", *args], sentence)


FILES = {
    "not there": (None, "there is no file 'e.toml'"),
    "not TOML": ("[data\n", "is not valid TOML"),
    "unknown section": ("[models]\n", "models: 'models' is not known, did you mean 'model'?"),
    "unknown key": ("[run]\nseeed = 1\n", "did you mean 'seed'?"),
    "a value for a section": ("method = 5\n", "method: must be a table, got 5."),
    "no method": ("[method]\nlr = 0.1\n", "method.name: missing"),
    "a wrong type": ('[stop]\nrounds = "ten"\n', "stop.rounds: must be a whole number"),
    "nobody of that name": ("[fleet]\njoins = { s99 = 3.0 }\n", "'s99' is not known"),
}


@pytest.mark.parametrize(("text", "sentence"), FILES.values(), ids=FILES)
def test_a_file(potluck: Potluck, here: Path, text: str | None, sentence: str) -> None:
    if text is not None:
        (here / "e.toml").write_text(text)
    _refused(potluck, here, ["run", "e.toml", "--data", "made"], sentence)


def test_an_experiment_that_is_no_text(potluck: Potluck, here: Path) -> None:
    (here / "e.toml").write_bytes(b"\xff\xfe\x00")
    _refused(potluck, here, ["run", "e.toml"], "is not valid TOML")
    _refused(potluck, here, ["run", "."], "must be a TOML file, got a folder")


X, Y = np.zeros((6, 4), dtype=np.float32), np.array([0, 1, 0, 1, 0, 1])
ARRAYS = {
    "no labels": ({"x": X}, "y"),
    "fewer labels than rows": ({"x": X, "y": Y[:5]}, "5"),
    "labels without a number": ({"x": X, "y": np.full(len(Y), np.nan)}, "label"),
    "holes in the data": ({"x": np.full_like(X, np.nan), "y": Y}, "x"),
    "one class": ({"x": X, "y": Y * 0}, "class"),
}


@pytest.mark.parametrize(("arrays", "word"), ARRAYS.values(), ids=ARRAYS)
def test_own_data(potluck: Potluck, here: Path, arrays: dict[str, np.ndarray], word: str) -> None:
    np.savez(here / "own.npz", **arrays)  # type: ignore[arg-type]
    _refused(potluck, here, ["run", "--data", "own.npz"], word)


def test_own_data_that_is_not_what_it_says(potluck: Potluck, here: Path) -> None:
    (here / "own.npz").write_text("not a zip")
    _refused(potluck, here, ["run", "--data", "own.npz"], "own.npz")
    _refused(potluck, here, ["run", "--data", "gone.npz"], "gone.npz")
    _refused(potluck, here, ["run", "--data", "json:lods"], "lods")


def test_a_place_that_cannot_hold_runs(potluck: Potluck, here: Path) -> None:
    (here / "taken").write_text("")
    _refused(potluck, here, ["run", "--data", "made", "--fleet", "pc", "--out", "taken/runs"], "run.out: 'taken/runs'")


@pytest.mark.parametrize(
    ("args", "sentence"),
    [
        (["resume", "nowhere"], "'nowhere' is not a run: it has no experiment.toml"),
        (["runs", "nowhere"], "there is no folder 'nowhere'"),
        (["report", "nowhere"], "no run in 'nowhere'"),
        (["methods", "fedavgg"], "did you mean 'fedavg'?"),
        (["devices", "pixel-5"], "did you mean 'pixel-"),
        (["data", "made", "--picture", "no/such/folder.png"], "--picture: must be a file in a folder that exists"),
        (["data", "made", "--set", "partition.kind=dirichlt"], "did you mean 'dirichlet'?"),
        (["compare", "fedavg", "fedavg", "--data", "made"], "must be different methods"),
        (["compare", "fedavg", "locall", "--data", "made"], "did you mean 'local'?"),
        (["compare", "fedavg", "local", "--data", "made", "--set", "method.mu=1"], "'mu' is not known"),
        (["compare", "fedavg", "local", "--data", "made", "--set", "fedprox:method.mu=1"], "--set: method: 'fedprox'"),
        (["compare", "fedavg", "local", "--data", "made", "--cohort", "40"], "method.cohort: must be at most 12"),
        (["compare", "fedavg", "--data", "made", "--target", "85"], "--target: must be above 0 and at most 1, got 85"),
        (["compare", "fedavg", "--data", "made", "--seed", "-1"], "run.seed: must be at least 0, got -1."),
    ],
)
def test_other_commands(potluck: Potluck, here: Path, args: list[str], sentence: str) -> None:
    _refused(potluck, here, args, sentence)


def _refused(potluck: Potluck, here: Path, args: list[str], sentence: str) -> None:
    before = sorted(here.rglob("*"))
    result = potluck(*args)
    assert result.exit_code == 2, result.output
    assert result.stdout == ""
    lines = [line for line in result.stderr.splitlines() if not line.startswith("note: ")]
    assert len(lines) == 1, result.stderr
    assert lines[0].startswith("potluck: ")
    assert sentence in lines[0]
    assert sorted(here.rglob("*")) == before, "something half-written was left"
