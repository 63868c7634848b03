"""The classes of a method: declared, imported, or named in a type hint; one class for each name."""

from __future__ import annotations

from dataclasses import dataclass, make_dataclass
from types import ModuleType
from typing import Any

import pytest

from potluck.errors import BadInput, Code
from potluck.fleet import Data, Done
from potluck.wire.classes import classes_of
from potluck.wire.gate import Expected, Seen

ALWAYS = {"Data": Data, "Done": Done, "Expected": Expected, "Seen": Seen}


@dataclass(frozen=True)
class Inner:
    value: int = 0


@dataclass(frozen=True)
class Other:
    value: int = 0


@dataclass(frozen=True)
class Outer:
    by_name: dict[str, list[Inner]]
    other: Other | None = None
    itself: Outer | None = None


def module(**names: Any) -> ModuleType:
    made = ModuleType("a_method")
    vars(made).update(names)
    return made


def test_dataclasses_are_found_in_the_file_and_in_type_hints() -> None:
    given = module(Outer=Outer, number=3, one=Inner(1), kind=int, alias=Other)
    assert classes_of(given, "mine") == {**ALWAYS, "Outer": Outer, "Inner": Inner, "Other": Other}


def test_an_alias_does_not_hide_a_second_class_of_one_name() -> None:
    second = make_dataclass("Inner", ["other"], namespace={"__module__": "another"})
    with pytest.raises(BadInput, match=r"method 'mine'.*called Inner, in .*test_classes and in another") as refusal:
        classes_of(module(Inner=Inner, Alias=second), "mine")
    assert refusal.value.code is Code.METHOD_OWN


@pytest.mark.parametrize("name", ALWAYS)
def test_names_of_the_checkpoint_are_taken(name: str) -> None:
    with pytest.raises(BadInput, match=f"called {name}"):
        classes_of(module(mine=make_dataclass(name, ["other"])), "mine")
