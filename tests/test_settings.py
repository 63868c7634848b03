"""Settings from plain values: what fits is taken, what does not is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from potluck.errors import BadInput, Code
from potluck.settings import fill

pytestmark = pytest.mark.quick


@dataclass(frozen=True)
class Config:
    rounds: int = 3
    lr: float = 0.1
    name: str = "x"
    weighted: bool = False
    limit: int | None = None
    target: float | str = 0.0
    hidden: tuple[int, ...] = (8,)
    pair: tuple[int, str] = (0, "")
    shares: list[float] = field(default_factory=list)
    rates: Mapping[str, float] = field(default_factory=dict)
    variant: Literal["plain", "fbind", 2] = "plain"
    other: Any = None
    fixed: int = field(default=1, init=False)

    def __post_init__(self) -> None:
        if self.rounds < 0:
            raise BadInput(Code.SETTING_VALUE, f"method.rounds: {self.rounds} given, allowed is 0 or more.")
        if self.lr == 13:
            raise ValueError("lr: thirteen")


@dataclass(frozen=True)
class Needy:
    size: int


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ({"rounds": 5}, 5),
        ({"rounds": 5.0}, 5),
        ({"lr": 1}, 1.0),
        ({"name": "y"}, "y"),
        ({"weighted": True}, True),
        ({"limit": None}, None),
        ({"limit": 4}, 4),
        ({"target": "best"}, "best"),
        ({"target": 1}, 1.0),
        ({"hidden": [4, 5.0]}, (4, 5)),
        ({"hidden": []}, ()),
        ({"pair": [1, "a"]}, (1, "a")),
        ({"shares": (1, 0.5)}, [1.0, 0.5]),
        ({"rates": {"a": 1}}, {"a": 1.0}),
        ({"variant": "fbind"}, "fbind"),
        ({"variant": 2}, 2),
        ({"other": {"any": [1]}}, {"any": [1]}),
    ],
)
def test_what_fits_is_taken(given: dict[str, Any], found: Any) -> None:
    ((name, _),) = given.items()
    value = getattr(fill(Config, given, "method"), name)
    assert value == found
    assert type(value) is type(found)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"rounds": 1.5}, "method.rounds: 1.5 given, allowed is a whole number."),
        ({"rounds": True}, "method.rounds: True given, allowed is a whole number."),
        ({"rounds": "3"}, "method.rounds: '3' given, allowed is a whole number."),
        ({"rounds": None}, "method.rounds: None given, allowed is a whole number."),
        ({"rounds": float("inf")}, "method.rounds: inf given, allowed is a whole number."),
        ({"lr": "fast"}, "method.lr: 'fast' given, allowed is a number."),
        ({"lr": False}, "method.lr: False given, allowed is a number."),
        ({"name": 3}, "method.name: 3 given, allowed is a text."),
        ({"weighted": 1}, "method.weighted: 1 given, allowed is true or false."),
        ({"limit": "no"}, "method.limit: 'no' given, allowed is a whole number."),
        ({"target": [1]}, r"method.target: \[1\] given, allowed is a number or a text."),
        ({"hidden": 4}, "method.hidden: 4 given, allowed is a list of whole numbers."),
        ({"hidden": ["a"]}, "method.hidden: 'a' given, allowed is a whole number."),
        ({"pair": [1]}, r"method.pair: \[1\] given, allowed is a whole number and a text."),
        ({"pair": ["a", 1]}, "method.pair: 'a' given, allowed is a whole number."),
        ({"shares": "1"}, "method.shares: '1' given, allowed is a list of numbers."),
        ({"rates": [1]}, r"method.rates: \[1\] given, allowed is a table."),
        ({"rates": {"a": "b"}}, "method.rates.a: 'b' given, allowed is a number."),
        ({"variant": "fbnd"}, "method.variant: 'fbnd' is not known, did you mean 'fbind'?"),
        ({"variant": True}, "method.variant: True is not known"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        fill(Config, given, "method")


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(BadInput, match="did you mean 'rounds'"):
        fill(Config, {"round": 3}, "method")


def test_a_field_that_is_computed_cannot_be_set() -> None:
    with pytest.raises(BadInput, match="fixed"):
        fill(Config, {"fixed": 3}, "method")


def test_the_dataclass_has_the_last_word() -> None:
    with pytest.raises(BadInput, match=r"(?m)^method.rounds: -1 given, allowed is 0 or more.$"):
        fill(Config, {"rounds": -1}, "method")
    with pytest.raises(BadInput, match=r"(?m)^method: lr: thirteen.$"):
        fill(Config, {"lr": 13}, "method")


def test_what_is_needed_and_missing_is_named() -> None:
    with pytest.raises(BadInput, match="size"):
        fill(Needy, {}, "model")


def test_nothing_given_is_the_default() -> None:
    assert fill(Config, {}, "method") == Config()
