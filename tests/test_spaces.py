"""Spaces of settings: what they hold, how they are read, and that every method's fits its settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from potluck import methods, spaces
from potluck.errors import BadInput
from potluck.spaces import Choice, Range

pytestmark = pytest.mark.quick

SHARES = (0.0, 0.13, 0.5, 0.77, 0.999999)


def test_a_range_spreads_over_its_numbers() -> None:
    assert [Range(1.0, 3.0).at(share) for share in (0.0, 0.5, 1.0)] == [1.0, 2.0, 3.0]
    assert [Range(0.01, 1.0, log=True).at(share) for share in (0.0, 0.5, 1.0)] == [0.01, 0.1, 1.0]


def test_a_whole_range_gives_each_number_its_turn() -> None:
    found = [Range(2, 5, whole=True).at(share / 40) for share in range(41)]
    assert {type(value) for value in found} == {int}
    assert [found.count(value) for value in (2, 3, 4, 5)] == [10, 10, 10, 11]
    assert {Range(1, 8, log=True, whole=True).at(share) for share in SHARES} <= set(range(1, 9))


def test_a_choice_gives_each_value_the_same_room() -> None:
    assert [Choice("a", "b").at(share) for share in (0.0, 0.49, 0.5, 1.0)] == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("0.01..0.5:log", Range(0.01, 0.5, log=True)),
        ("1..8:whole", Range(1, 8, whole=True)),
        ("1..8:log:whole", Range(1, 8, log=True, whole=True)),
        ("0.1, 0.2,0.4", Choice(0.1, 0.2, 0.4)),
        ("all,last", Choice("all", "last")),
        ("true,false", Choice(True, False)),
    ],
)
def test_a_space_is_read_as_it_is_shown(text: str, wanted: spaces.Dimension) -> None:
    assert spaces.read(text, "--space") == wanted
    assert spaces.read(str(wanted), "--space") == wanted


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("0.5..0.1", "above 0.5"),
        ("0..1:log", "above 0 for a logarithmic range"),
        ("0.5..2:whole", "a whole number"),
        ("1..2:lin", ":log or :whole"),
        ("a..b", "a finite number"),
        ("1..inf", "a finite number"),
        ("0.1", "two or more different values"),
        ("0.1,0.1", "two or more different values"),
        ("", "two or more different values"),
    ],
)
def test_a_space_that_makes_no_sense_is_refused(text: str, sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence) as refused:
        spaces.read(text, "--space method.recipe.lr")
    assert str(refused.value).startswith("--space method.recipe.lr: ")


@pytest.mark.parametrize("name", methods.METHODS)
def test_every_method_has_a_space_of_its_own_settings(name: str) -> None:
    method = methods.load(name)
    assert "recipe.lr" in method.space
    assert len(method.space) <= 3
    for share in SHARES:  # every value is one that the method accepts
        method.configure({setting: one.at(share) for setting, one in method.space.items()})


OWN = """
from potluck.methods.fedavg import Config, State, PROGRAMS, start, server, shared
from potluck.spaces import Range
SPACE = {space}
"""


@pytest.mark.parametrize(
    ("space", "sentence"),
    [("{'recipe.rate': Range(1, 2)}", "did you mean"), ("{'recipe.lr': 0.1}", "must map"), ("[0.1]", "must map")],
)
def test_a_wrong_space_of_an_own_method_is_refused(tmp_path: Path, space: str, sentence: str) -> None:
    path = tmp_path / f"own{abs(hash(space))}.py"
    path.write_text(OWN.replace("{space}", space))
    with pytest.raises(BadInput, match=sentence):
        _ = methods.load(str(path)).space


def test_a_method_without_a_space_has_none(tmp_path: Path) -> None:
    path = tmp_path / "bare_own.py"
    path.write_text(OWN.replace("from potluck.spaces import Range\nSPACE = {space}\n", ""))
    assert methods.load(str(path)).space == {}
