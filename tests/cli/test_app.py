from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from potluck import __version__
from potluck.cli import app
from potluck.cli.commands import COMMANDS

from .conftest import Potluck

DESIGN = ["demo", "run", "compare", "resume", "runs", "report"]
DESIGN += ["methods", "models", "datasets", "data", "devices", "doctor"]
NAMES = [name for name, entry in COMMANDS.items() if entry.example]


def test_every_command_of_the_design_is_there() -> None:
    assert set(DESIGN) <= set(COMMANDS)


def test_the_overview_has_each_command_in_its_own_first_words(
    potluck: Potluck, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    result = potluck("--help")
    shown = " ".join(result.stdout.replace("│", " ").split())
    group: Any = get_command(app)
    assert list(group.commands) == list(COMMANDS)
    for name, command in group.commands.items():
        first = " ".join(command.help.split("\n\n")[0].split())
        assert COMMANDS[name].about == first
        assert f" {name} {first.replace('`', '')} " in shown
    assert "-h" in shown
    assert "potluck demo" in shown
    assert {len(line) for line in result.stdout.splitlines() if line[:1] in tuple("╭│╰")} == {60}


def test_no_command_at_all_shows_the_overview_and_fails(potluck: Potluck) -> None:
    result = potluck()
    assert (result.exit_code, result.stdout) == (2, potluck("--help").stdout)


def test_a_terminal_without_line_drawing_gets_plain_lines() -> None:
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-m", "potluck.cli", "--help"], env=env, capture_output=True, check=True)
    assert done.stdout.startswith(b"\n Usage: potluck [OPTIONS]")
    assert b"+- Commands ---" in done.stdout
    assert b"?" not in done.stdout


def test_the_overview_imports_no_command_and_no_rich() -> None:
    code = """if True:
        import sys
        from typer.testing import CliRunner
        from potluck.cli import app
        assert CliRunner().invoke(app, ["--help"]).exit_code == 0
        assert not {"rich", "potluck.cli.run", "potluck.cli.text"} & set(sys.modules)
    """
    env = {"PYTHONPATH": str(Path(__file__).parents[2] / "src"), "PATH": ""}
    subprocess.run([sys.executable, "-c", code], check=True, env=env)


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
