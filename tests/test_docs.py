"""What the documentation shows works: its Python is executed, its commands are given, its TOML is read.

Commands are shortened to one round and one seed. Lines that start an experiment file of the repository are read with
their settings (the files themselves run in test_experiments.py), and commands with processes of their own are parsed:
that there are such commands and options; tests of their own give them. What needs public data is skipped without it.
"""

from __future__ import annotations

import re
import shlex
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers.packages import write_package
from typer.main import get_command
from typer.testing import CliRunner

import potluck
from potluck import methods
from potluck.cli import app
from potluck.data.load import load
from potluck.runs import compare
from potluck.runs.experiment import Experiment, override, read_toml
from potluck.tune.request import of_file, request_of, spaces_for

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LANGUAGES = ("python", "toml")
# Long ones, and those with processes of their own: each has tests of its own.
ELSEWHERE = (
    "lab",
    "deploy",
    "firmware",
    "watch",
    "demo",
    "doctor",
    "study",
    "check-method",
    "tune",
    "choose",
    "ranks",
    "calibrate",
    "traces",
)
WRITTEN: set[str] = set()  # experiments that the page itself has shown
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^    potluck ((?:.*\\\n)*.+)$", re.MULTILINE)


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """(kind, text) in the order of the page; kind is a language or `potluck`."""
    text = page.read_text(encoding="utf-8")
    found = [(m.start(), m[1], m[2]) for m in FENCE.finditer(text) if m[1] in LANGUAGES]
    bare = FENCE.sub(lambda m: "\n" * m[0].count("\n"), text)  # a command inside a fence is no command
    found += [(text.index(m[0]), "potluck", m[1]) for m in COMMAND.finditer(bare)]
    return ((kind, body) for _, kind, body in sorted(found))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where a reader would stand: the repository's files, data of one's own, a run or two."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("experiments", "examples", "docs", "src"):
        (tmp_path / name).symlink_to(ROOT / name)
    made = load("made")
    assert made.subject is not None
    for name in ("mine", "my"):
        np.savez(tmp_path / f"{name}.npz", x=made.x, y=made.y, subject=made.subject)
    readings = [f"{k / 20:.2f},{k * 7 % 11},{k * 5 % 13},{k // 100 % 2}" for k in range(800)]
    (tmp_path / "recordings").mkdir()
    for name in ("ann", "bob"):
        (tmp_path / "recordings" / f"{name}.csv").write_text("\n".join(["time,ax,ay,label", *readings]))
    rows = [f"{k % 3},{k % 2},{k * 7 % 11}" for k in range(60)]
    (tmp_path / "my.csv").write_text("\n".join(["wearer,activity,ax", *rows]))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:  # modules that a page wrote; another test may use their names
        if str(getattr(sys.modules[name], "__file__", None) or "").startswith(str(tmp_path)):
            del sys.modules[name]


def a_run(name: str, method: str) -> None:
    """A short run at the place that a page takes for granted."""
    if not Path(name).exists():
        settings = {"data": {"source": "made"}, "model": {"name": "softmax"}, "fleet": {"devices": "pc"}}
        place = Path(name)
        run = {"out": str(place.parent), "name": place.name}
        potluck.run({**settings, "method": {"name": method}, "stop": {"rounds": 2}, "run": run})


def given(line: str) -> None:
    """One `potluck ...` line, shortened."""
    words = shlex.split(line.replace("\\\n", " "), comments=True)
    words = words[: words.index("|")] if "|" in words else words
    if words[0] in ELSEWHERE or "--tune" in words or any("*" in word for word in words):
        for command in " ".join(words).replace("; potluck ", ";").split(";"):
            parsed(command.split())
        return
    file = next((word for word in words if word.endswith(".toml")), None)
    if words[0] in ("run", "compare") and file is not None and file not in WRITTEN:
        settings = [words[i + 1] for i, word in enumerate(words) if word == "--set"]
        values, names, own = compare.of_file(override(read_toml(Path(file)), settings))
        compare.plan(values, names, 1, own) if names else Experiment.of(values)
        return
    for word in words[1:]:
        if word.startswith("runs/") and words[0] != "compare":
            method = Path(word).name.split("-")[0]
            a_run(f"{word}/local-made-s0" if method == "demo" else word, "local" if method == "demo" else method)
    if words[0] in ("run", "compare"):
        words += ["--rounds", "1", "--quiet"] + (["--seeds", "1"] if "--seeds" in words else [])
    result = CliRunner().invoke(app, words, input="y\n")
    if "is not on this machine" in " ".join(result.output.split()):
        pytest.skip(f"needs public data: potluck {line}")
    assert result.exit_code == 0, f"potluck {line}\n{result.output}"


def parsed(words: list[str]) -> None:
    """Whether there are such commands and options; nothing is carried out."""
    command: Any = get_command(app)
    while hasattr(command, "commands") and words:
        assert words[0] in command.commands, f"potluck has no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    command.make_context("potluck", list(words))


def packaged(entry_points: dict[str, dict[str, str]]) -> None:
    """Install the package of a page: it has shown all files but the method, which is a copy of the example."""
    (method,) = entry_points["potluck.methods"].values()
    text = (ROOT / "examples" / "a_method_of_your_own.py").read_text(encoding="utf-8")
    write_package(Path.cwd(), method.partition(".")[0], {f"{method.replace('.', '/')}.py": text}, entry_points)


def told(text: str) -> None:
    """Use a TOML block: devices, entry points, sections of an experiment, or a file that its first line names."""
    values, asked, space = of_file(tomllib.loads(text))
    request_of(asked)
    spaces_for({name: methods.load(name) for name in ("fedprox", "ftl")}, space)
    name = re.match(r"# ([\w/-]+\.toml)\n", text)
    if "devices" in values or "links" in values:
        Path("my-devices.toml" if name is None else name[1]).write_text(text, encoding="utf-8")
    elif "project" in values:
        packaged(values["project"]["entry-points"])
    elif name is not None:
        WRITTEN.add(name[1])
        Path(name[1]).write_text(text, encoding="utf-8")
    else:
        Experiment.of(values)


SHOWN = [page for page in PAGES if list(blocks(page)) and page.parent.name != "errors"]  # those show what is refused


@pytest.mark.parametrize("page", SHOWN, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_a_page_shows_works(page: Path, folder: Path) -> None:
    space: dict[str, object] = {"__name__": "docs"}
    WRITTEN.clear()
    for kind, text in blocks(page):
        if kind == "potluck":
            given(text)
        elif kind == "toml":
            told(text)
        elif match := re.match(r"# ([\w/]+\.py)\n", text):
            file = folder / match[1]
            file.parent.mkdir(exist_ok=True)
            file.write_text(text, encoding="utf-8")
        else:
            if 'Path("runs/demo")' in text:
                a_run("runs/demo/local-made-s0", "local")
            exec(compile(text, str(page), "exec"), space)


AROUND = """
from dataclasses import dataclass

from torch import Tensor

from potluck.fleet import Done, Params
from potluck.learn import sgd
from potluck.tensors import mix


@dataclass(frozen=True)
class Config:
    seed: int = 0


@dataclass(frozen=True)
class State:
    weights: Params
    round: int = 0


@dataclass(frozen=True)
class Train:
    weights: Params


@dataclass(frozen=True)
class Trained:
    weights: Params
    examples: Tensor


def start(weights, cfg):
    return State(weights)


def merged(state, arrival):
    return State(mix(state.weights, arrival.update.weights, 0.5), state.round + 1)


def train(task, local):
    weights = sgd(local.model, task.weights, local.data, key=local.key, lr=0.1, batch=32)
    return Done(Trained(weights, local.data.weight.sum()))


PROGRAMS = {Train: train}


def shared(state):
    return state.weights
"""


def test_the_asynchronous_example_lives_with_lost_clients(tmp_path: Path) -> None:
    """The page shows the server program alone; a fleet that loses a third of its tasks must not end it."""
    page = ROOT / "docs" / "adding_a_method.md"
    (server,) = [text for kind, text in blocks(page) if kind == "python" and "fleet.receive()" in text]
    method = tmp_path / "asynchronous.py"
    method.write_text(f'"""An example of the page."""\n{AROUND}\n\n{server}', encoding="utf-8")
    settings = {"data": {"source": "made"}, "model": {"name": "softmax"}, "fleet": {"devices": "pc"}}
    settings |= {"faults": {"dropout": 0.3}, "stop": {"rounds": 40}, "run": {"out": str(tmp_path / "runs")}}
    ended = potluck.run({**settings, "method": {"name": str(method)}})
    assert ended.summary["rounds"] == 40
    assert ended.summary["lost_clients"] > 0


def test_the_site_lists_every_page() -> None:
    listed = set(re.findall(r"[\w/.-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert listed == {str(page.relative_to(ROOT / "docs")) for page in PAGES[1:]}
