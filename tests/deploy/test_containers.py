"""The container files: parsed and checked here; their steps run as processes, because few machines have an engine."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from potluck.cli import app
from potluck.runs.deal import federation_of
from potluck.runs.experiment import Experiment

yaml = pytest.importorskip("yaml", reason="Flower brings PyYAML")
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "containers"


def compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((FOLDER / "compose.yaml").read_text(encoding="utf-8"))
    return found


def steps() -> list[tuple[str, str]]:
    """The instructions of the Dockerfile, lines joined."""
    text = (FOLDER / "Dockerfile").read_text(encoding="utf-8")
    lines = [line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#")]
    return [(line.split()[0], line.split(None, 1)[1]) for line in lines]


def understood(words: list[str]) -> None:
    """Whether potluck has this command with these flags; nothing is carried out."""
    command: Any = get_command(app)
    while hasattr(command, "commands") and words:
        assert words[0] in command.commands, words
        command, words = command.commands[words[0]], words[1:]
    command.make_context("potluck", list(words))


def test_the_dockerfile_copies_what_there_is_and_runs_as_nobody_special() -> None:
    known = {"FROM", "WORKDIR", "COPY", "RUN", "ARG", "USER", "ENV", "ENTRYPOINT", "CMD"}
    found = steps()
    assert {name for name, _ in found} <= known
    assert found[0][0] == "FROM"
    for name, rest in found:
        if name == "FROM":
            assert re.fullmatch(r"python:3\.\d+-slim( AS build)?", rest), "a fixed release, never latest"
        if name == "COPY" and "--from" not in rest:
            for source in rest.split()[:-1]:
                assert (ROOT / source).exists(), source
        if name == "RUN":
            assert subprocess.run(["bash", "-n", "-c", rest]).returncode == 0
    users = [rest for name, rest in found if name == "USER"]
    assert users == ["potluck"]
    assert [rest for name, rest in found if name == "ENTRYPOINT"] == ['["potluck"]']


def test_the_image_has_what_the_wheel_is_made_of() -> None:
    """pyproject's force-include fails without its folders."""
    import tomllib

    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = [source for name, rest in steps() if name == "COPY" for source in rest.split()[:-1]]
    for folder in (*wheel["force-include"], *wheel["packages"]):
        assert any(folder == one or folder.startswith(f"{one}/") for one in copied), folder
    pinned = re.search(r"torch==[\d.]+", (ROOT / "constraints.txt").read_text())
    assert pinned is not None
    assert any(pinned[0] in rest for name, rest in steps() if name == "RUN")


def test_the_services_fit_together() -> None:
    found = compose()
    services = found["services"]
    assert set(services) == {"init", "server", "s02", "s05", "s06"}
    assert found["networks"]["fleet"] == {"internal": True}
    clients = [name for name in services if name not in ("init", "server")]
    assert sorted(federation_of(Experiment.read(FOLDER / "trio.toml")).names) == sorted(clients)
    for name, one in services.items():
        understood(list(one["command"]))
        assert one["networks"] == ["fleet"]
        assert "ports" not in one  # nothing is reachable from outside
        assert one["read_only"] is True
        assert (FOLDER / one["build"]["context"] / one["build"]["dockerfile"]).is_file()
        for volume in one["volumes"]:
            source, target, *_ = volume.split(":")
            assert source.startswith("./state/") or (FOLDER / source).exists()
            assert target in (*one["command"], "/runs", "/experiment/trio.toml"), f"{name} does not use {target}"
    for name in clients:
        assert services[name]["volumes"] == [f"./state/deploy/clients/{name}:/client"]


def test_the_commands_in_the_comments_are_commands() -> None:
    text = (FOLDER / "compose.yaml").read_text(encoding="utf-8")
    (line,) = re.findall(r"exec server potluck (.+)", text)
    understood(shlex.split(line))


@pytest.mark.slow
def test_the_same_steps_as_processes(tmp_path: Path) -> None:
    """init, server, three clients and start with the arguments of compose.yaml, on loopback."""
    pytest.importorskip("flwr", reason="needs the extra flower")
    from helpers.deployment import two_ports

    services = compose()["services"]
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "OMP_NUM_THREADS": "1"}

    def words(name: str) -> list[str]:
        places = {"/deploy": "deploy", "/client": f"deploy/clients/{name}", "server": "127.0.0.1"}
        given = services[name]["command"]
        at_host = {i + 1 for i, word in enumerate(given) if word == "--host"}
        plain = [
            str(FOLDER / "trio.toml") if word.startswith("/experiment") else
            places.get(word, word) if word != "server" or i in at_host else word
            for i, word in enumerate(given)
        ]  # fmt: skip
        return [sys.executable, "-m", "potluck.cli", *plain]

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=900)

    made = run(*words("init"), "--port", str(two_ports()))
    assert made.returncode == 0, made.stderr
    started = []
    try:
        for name in ("server", "s02", "s05", "s06"):
            with (tmp_path / f"{name}.log").open("wb") as log:
                started.append(subprocess.Popen(words(name), cwd=tmp_path, env=env, stdout=log, stderr=log))
            time.sleep(3 if name == "server" else 0)
        command = [sys.executable, "-m", "potluck.cli", "deploy", "start", str(FOLDER / "trio.toml"), "--out", "runs"]
        for _ in range(60):  # until the server answers
            done = run(*command)
            if "PL-803" not in done.stderr:
                break
            time.sleep(2)
        assert done.returncode == 0, done.stderr
        assert "3 rounds" in done.stdout
    finally:
        for process in reversed(started):
            process.terminate()
        for process in started:
            process.wait(120)
