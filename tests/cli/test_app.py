from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from potluck import __version__
from potluck.cli import COMMANDS, app

from .conftest import Potluck

DESIGN = ["demo", "run", "compare", "resume", "runs", "report"]
DESIGN += ["methods", "models", "datasets", "data", "devices", "doctor"]
NAMES = [command.__name__.replace("_", "-") for command, _ in COMMANDS]


def test_every_command_of_the_design_is_there() -> None:
    groups = {group.name for group in app.registered_groups}  # `potluck runs` has commands of its own
    assert set(DESIGN) <= {*NAMES, *groups}


@pytest.mark.parametrize("name", NAMES)
def test_help_says_what_it_does_and_gives_an_example(potluck: Potluck, name: str) -> None:
    result = potluck(name, "--help")
    assert result.exit_code == 0
    assert "Example: potluck " + name in " ".join(result.output.split())


def test_version(potluck: Potluck) -> None:
    result = potluck("--version")
    assert (result.exit_code, result.output.strip()) == (0, f"potluck {__version__}")


def test_help_does_not_wait_for_torch() -> None:
    code = "import sys; from potluck.cli import app; assert not {'torch', 'scipy', 'matplotlib'} & set(sys.modules)"
    env = {"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PATH": ""}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


@pytest.mark.parametrize(
    ("args", "said", "code"),
    [
        (["rn"], "No such command 'rn'. Did you mean 'run'", "PL-110"),
        (["deploy", "strt"], "Did you mean 'start'", "PL-110"),
        (["run", "--colour"], "No such option", "PL-110"),
        (["run", "--ronds", "3"], "--rounds", "PL-110"),
        (["run", "--enginee", "local"], "No such option: --enginee. Did you mean --engine?", "PL-110"),
        (["run", "a.toml", "b.toml"], "unexpected extra argument", "PL-110"),
        (["--nope"], "No such option: --nope", "PL-110"),
        (["run", "--experiment", "a.toml"], "(the file is an argument: EXPERIMENT.toml). See ", "PL-110"),
        (["run", "--lr", "0.1"], "No such option: --lr (use --set method.recipe.lr=VALUE). See ", "PL-110"),
        (
            ["run", "--overlap", "0.5"],
            "No such option: --overlap (use --set data.window.overlap=VALUE). See ",
            "PL-110",
        ),
        (["compare", "--device", "pc"], "No such option: --device (use --set fleet.devices=VALUE). See ", "PL-110"),
        (["run", "--rounds", "many"], "--rounds: must be a whole number, got 'many'. ", "PL-111"),
        (["demo", "--jobs", "0"], "--jobs: must be 1 to 256, got 0. ", "PL-111"),
        (["compare", "fedavg", "--target", "high"], "--target: must be a number, got 'high'. ", "PL-111"),
        (["run", "--rounds"], "requires an argument", "PL-111"),
        (["log"], "Missing argument", "PL-106"),
        (["resume"], "Missing argument", "PL-106"),
    ],
)
def test_a_slip_in_the_command_is_one_line_and_status_2(
    potluck: Potluck, args: list[str], said: str, code: str
) -> None:
    result = potluck(*args)
    assert result.exit_code == 2
    assert said in result.stderr
    assert re.search(rf" See `potluck[a-z ]* --help`\. \[potluck explain {code}\]\n$", result.stderr)
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""


def test_what_nobody_expected_is_short_and_status_1(potluck: Potluck, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise KeyError("gone")

    monkeypatch.setattr("potluck.models.table", fail)
    result = potluck("models")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "potluck: unexpected KeyError: 'gone' (POTLUCK_DEBUG=1 shows the traceback)\n"
    monkeypatch.setenv("POTLUCK_DEBUG", "1")
    result = potluck("models")
    assert result.exit_code == 1
    assert "Traceback" in result.stderr
