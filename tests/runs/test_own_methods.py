"""Mistakes in a method file are named before, or while, the run would be lost to them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import potluck
from potluck import methods
from potluck.errors import BadInput, Code
from potluck.runs.watcher import Silent

# A method that counts its rounds and trains nothing. {fields}, {first} and {private} are filled in by the tests.
METHOD = '''
"""Counts."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from potluck.fleet import Done, Params
{imports}


class Pair(NamedTuple):
    a: int
    b: int


@dataclass(frozen=True)
class Config:
    seed: int = 0


@dataclass(frozen=True)
class State:
    weights: Params
    kept: {kept} = None
    round: int = 0


@dataclass(frozen=True)
class Ask:
    number: int


@dataclass(frozen=True)
class Answer:
    number: Tensor


def start(weights, cfg):
    return State(weights, {first})


def private(weights, cfg):
    return {private}


def server(fleet, state, cfg):
    {server}


def answer(task, local):
    return Done(Answer(local.data.weight.sum()))


PROGRAMS = {{Ask: answer}}


def shared(state):
    return state.weights


def personal(state, client, mine):
    return state.weights
'''
EVERY_ROUND = """while True:
        fleet.gather({client: Ask(state.round) for client in fleet.idle})
        state = State(state.weights, state.kept, state.round + 1)
        yield state"""


def written(folder: Path, **parts: str) -> Path:
    given = {"imports": "", "kept": "Any", "first": "None", "private": "None", "server": EVERY_ROUND} | parts
    path = folder / "mine.py"
    path.write_text(METHOD.format(**given))
    return path


def experiment(method: Path, rounds: int = 2) -> dict[str, Any]:
    return {
        "data": {"source": "made"},
        "partition": {"clients": 4},
        "method": {"name": str(method)},
        "model": {"name": "softmax"},
        "fleet": {"devices": "pc"},
        "stop": {"rounds": rounds},
        "run": {"out": str(method.parent / "runs")},
    }


class Noting(Silent):
    def __init__(self) -> None:
        self.sentences: list[str] = []

    def say(self, sentence: str) -> None:
        self.sentences.append(sentence)


def test_the_template_runs_and_resumes(tmp_path: Path) -> None:
    run = potluck.run(experiment(written(tmp_path)))
    assert run.summary["rounds"] == 2
    (run.folder / "summary.json").unlink()
    assert potluck.resume(run.folder).summary["rounds"] == 2


MUST = "must be tensors, numbers, strings, dicts, lists or dataclasses of them, got"


@pytest.mark.parametrize(
    ("first", "sentence"),
    [
        ("frozenset({1})", f"State.kept: {MUST} frozenset."),
        ("{'seen': [1, {2}]}", f"State.kept['seen'][1]: {MUST} set."),
        ("b'bytes'", f"State.kept: {MUST} bytes."),
        ("Pair(1, 2)", f"State.kept: {MUST} Pair."),
        ("defaultdict(list)", f"State.kept: {MUST} defaultdict."),
        ("{1.5: 2}", "State.kept: the keys must be strings or integers, got 1.5."),
    ],
)
@pytest.mark.parametrize("where", ["State", "private"])
def test_what_cannot_be_saved_is_named_before_the_run(tmp_path: Path, first: str, sentence: str, where: str) -> None:
    if where == "State":
        method = written(tmp_path, first=first)
    else:
        method, sentence = written(tmp_path, private=f"Ask({first})"), sentence.replace("State.kept", "private.number")
    with pytest.raises(BadInput) as refusal:
        potluck.run(experiment(method))
    assert refusal.value.code is Code.METHOD_OWN
    assert str(refusal.value) == f"method {str(method)!r}: {sentence}"
    assert not (tmp_path / "runs").exists()


def test_what_becomes_unsaveable_later_is_named(tmp_path: Path) -> None:
    later = EVERY_ROUND.replace("state.kept", "frozenset()")
    with pytest.raises(BadInput, match=r"State\.kept: must be tensors.*got frozenset"):
        potluck.run(experiment(written(tmp_path, server=later)))


@pytest.fixture
def helper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module beside the method's file, with a dataclass that holds another one."""
    name = f"helper_{tmp_path.name.replace('-', '_')}"
    lines = ["from dataclasses import dataclass", "import torch"]
    for made, fields in (("Inner", "value: torch.Tensor"), ("Buffer", "inner: Inner\n    count: int = 0")):
        lines += ["@dataclass(frozen=True)", f"class {made}:", f"    {fields}"]
    (tmp_path / f"{name}.py").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.mark.parametrize("kept", ["{}.Buffer", "list[{}.Buffer] | {}.Buffer | None", "'{}.Buffer'"])
def test_a_dataclass_of_a_helper_module_is_found_by_its_type_hint(tmp_path: Path, helper: str, kept: str) -> None:
    first = f"{helper}.Buffer({helper}.Inner(torch.ones(2)))"
    method = written(tmp_path, imports=f"import {helper}", kept=kept.replace("{}", helper), first=first)
    again = potluck.resume(potluck.run(experiment(method)).folder)
    assert again.summary["rounds"] == 2


def test_a_dataclass_that_no_hint_names_is_refused(tmp_path: Path, helper: str) -> None:
    first = f"[{helper}.Inner(torch.ones(2))]"
    with pytest.raises(BadInput, match=rf"State\.kept\[0\]: .*{helper}\.Inner.*type hint") as refusal:
        potluck.run(experiment(written(tmp_path, imports=f"import {helper}", first=first)))
    assert refusal.value.code is Code.METHOD_OWN
    assert not (tmp_path / "runs").exists()


def test_two_classes_of_one_name_are_refused_at_load(tmp_path: Path, helper: str) -> None:
    (tmp_path / f"{helper}.py").write_text(
        "from dataclasses import dataclass\n@dataclass(frozen=True)\nclass Answer:\n    count: int = 0\n"
    )
    method = written(tmp_path, imports=f"import {helper}", kept=f"{helper}.Answer")
    with pytest.raises(BadInput) as refusal:
        methods.load(str(method))
    assert refusal.value.code is Code.METHOD_OWN
    for part in ("Answer", helper, "potluck_method_mine"):
        assert part in str(refusal.value)


def test_a_class_with_a_name_of_the_checkpoint_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path)
    path.write_text(path.read_text().replace("class Ask:", "class Seen:").replace("Ask", "Seen"))
    with pytest.raises(BadInput, match=r"two classes.*Seen"):
        methods.load(str(path))


def test_no_method_of_ours_has_two_classes_of_one_name() -> None:
    for name in methods.METHODS:
        assert methods.load(name).classes


def test_a_server_program_that_never_yields_is_named(tmp_path: Path) -> None:
    """The run ends by itself here, after more updates than a watcher should wait for in silence."""
    silent = """for number in range(400):
        fleet.gather({client: Ask(number) for client in fleet.idle})
    yield State(state.weights, None, 2)"""
    watcher = Noting()
    method = written(tmp_path, server=silent)
    potluck.run(experiment(method), watcher)
    (sentence,) = [said for said in watcher.sentences if "yielded no state" in said]
    assert str(method) in sentence
    assert "1,000 answers" in sentence


def test_a_server_program_that_yields_is_not_scolded(tmp_path: Path) -> None:
    """300 rounds of 4 clients: more answers than the limit, but never that many without a yield."""
    watcher = Noting()
    potluck.run(experiment(written(tmp_path), rounds=300), watcher)
    assert not [said for said in watcher.sentences if "yielded" in said]


@pytest.mark.parametrize("server", ["return\n    yield state", "return [state]", "pass"])
def test_a_server_program_that_ends_without_a_yield_is_named(tmp_path: Path, server: str) -> None:
    method = written(tmp_path, server=server)
    with pytest.raises(BadInput) as refusal:
        potluck.run(experiment(method))
    assert refusal.value.code is Code.METHOD_OWN
    assert str(method) in str(refusal.value)
    assert "yield" in str(refusal.value)
    assert not list((tmp_path / "runs").iterdir())


def test_hints_that_cannot_be_read_do_no_harm(tmp_path: Path) -> None:
    """Names that only a type checker imports cannot be looked up; the round trip decides."""
    path = written(tmp_path, kept="Nothing")
    path.write_text(f'"""Counts."""\nfrom __future__ import annotations\n{path.read_text()}')
    assert potluck.run(experiment(path)).summary["rounds"] == 2
