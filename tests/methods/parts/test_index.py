"""The index in `potluck.methods.parts` lists every part, with users that really use it."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from potluck.methods import parts

FOLDER = Path(parts.__file__).parent
MODULES = {path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.py")}
MODULES = {name for name in MODULES if not name.endswith("__init__")}
LINE = re.compile(r"^    (?P<part>\S+) +(?P<answer>\S.*) \((?P<users>[^()]+)\)$")
QUESTIONS = ["pace", "grouping", "shape", "local", "share", "merge", "none of the six"]


def listed() -> dict[str, list[str]]:
    """The parts of the index and their users."""
    lines = [line for line in (parts.__doc__ or "").splitlines() if line.startswith("    ")]
    found = [LINE.match(line) for line in lines]
    assert all(found), [line for line, match in zip(lines, found, strict=True) if match is None]
    return {match["part"]: match["users"].split(", ") for match in found if match is not None}


@cache
def imported(path: Path) -> set[str]:
    """The parts that a file imports."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("potluck.methods.parts"):
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
    return {name.removeprefix("potluck.methods.parts.").replace(".", "/") for name in names} & MODULES


def test_every_part_is_listed_once() -> None:
    lines = [line.split()[0] for line in (parts.__doc__ or "").splitlines() if line.startswith("    ")]
    assert sorted(lines) == sorted(MODULES)


@pytest.mark.parametrize("part", sorted(MODULES))
def test_the_users_of_a_part_import_it(part: str) -> None:
    (users,) = (names for name, names in listed().items() if name == part)
    methods = [path for path in FOLDER.parent.glob("*.py") if part in imported(path)]
    if users == ["most methods"]:
        assert len(methods) > 14
        return
    for user in users:
        path = FOLDER / f"{user}.py" if user in MODULES else FOLDER.parent / f"{user}.py"
        assert part in imported(path), f"{user} does not import {part}"


def test_the_questions_are_those_of_the_design() -> None:
    lines = (parts.__doc__ or "").splitlines()
    assert [line.partition(":")[0] for line in lines if re.match(r"^(none of the six|[a-z]+): ", line)] == QUESTIONS
