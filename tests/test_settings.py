"""Settings from plain values: what fits is taken, what does not is refused by name."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pytest

from potluck.errors import BadInput, Code
from potluck.settings import fill, flat, names_of, nested

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
            raise BadInput(Code.SETTING_VALUE, f"method.rounds: must be 0 or more, got {self.rounds}.")
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
        ({"rounds": 1.5}, "method.rounds: must be a whole number, got 1.5."),
        ({"rounds": True}, "method.rounds: must be a whole number, got True."),
        ({"rounds": "3"}, "method.rounds: must be a whole number, got '3'."),
        ({"rounds": None}, "method.rounds: must be a whole number, got None."),
        ({"rounds": float("inf")}, "method.rounds: must be a whole number, got inf."),
        ({"lr": "fast"}, "method.lr: must be a number, got 'fast'."),
        ({"lr": False}, "method.lr: must be a number, got False."),
        ({"name": 3}, "method.name: must be a text, got 3."),
        ({"weighted": 1}, "method.weighted: must be true or false, got 1."),
        ({"limit": "no"}, "method.limit: must be a whole number, got 'no'."),
        ({"target": [1]}, r"method.target: must be a number or a text, got \[1\]."),
        ({"hidden": 4}, "method.hidden: must be a list of whole numbers, got 4."),
        ({"hidden": ["a"]}, "method.hidden: must be a whole number, got 'a'."),
        ({"pair": [1]}, r"method.pair: must be a whole number and a text, got \[1\]."),
        ({"pair": ["a", 1]}, "method.pair: must be a whole number, got 'a'."),
        ({"shares": "1"}, "method.shares: must be a list of numbers, got '1'."),
        ({"rates": [1]}, r"method.rates: must be a table, got \[1\]."),
        ({"rates": {"a": "b"}}, "method.rates.a: must be a number, got 'b'."),
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
    with pytest.raises(BadInput, match=r"(?m)^method.rounds: must be 0 or more, got -1.$"):
        fill(Config, {"rounds": -1}, "method")
    with pytest.raises(BadInput, match=r"(?m)^method: lr: thirteen.$"):
        fill(Config, {"lr": 13}, "method")


def test_what_is_needed_and_missing_is_named() -> None:
    with pytest.raises(BadInput, match="size"):
        fill(Needy, {}, "model")


def test_nothing_given_is_the_default() -> None:
    assert fill(Config, {}, "method") == Config()


@dataclass(frozen=True)
class Group:
    size: int = 10
    kind: str = "noise"

    def __post_init__(self) -> None:
        if self.size < 1:
            raise BadInput(Code.SETTING_VALUE, f"size: must be 1 or more, got {self.size}.")


@dataclass(frozen=True)
class Grouped:
    MOVED: ClassVar[dict[str, str]] = {"sort": "probe.kind", "probe": "probe.kind"}
    probe: Group = Group(size=20)
    other: Group = Group()
    seed: int = 0


def test_a_group_given_in_part_keeps_its_other_defaults() -> None:
    assert fill(Grouped, {"probe": {"kind": "rows"}}, "method") == Grouped(Group(20, "rows"))
    assert fill(Grouped, {}, "method") == Grouped(Group(20))


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"probe": {"size": 0}}, r"^method.probe.size: must be 1 or more, got 0.$"),
        ({"probe": {"size": "x"}}, r"^method.probe.size: must be a whole number, got 'x'.$"),
        ({"probe": {"sice": 3}}, "method.probe.sice.*did you mean 'size'"),
        ({"size": 3}, r"^method.size: is now called method.probe.size.$"),
        ({"probe_size": 3}, r"^method.probe_size: is now called method.probe.size.$"),
        ({"sort": "x"}, r"^method.sort: is now called method.probe.kind.$"),
        ({"probe": "x"}, r"^method.probe: is now called method.probe.kind.$"),
        ({"other": 3}, r"^method.other: must be a section of settings .size, kind., got 3.$"),
    ],
)
def test_groups_are_refused_by_their_dotted_names(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInput, match="(?m)" + sentence):
        fill(Grouped, given, "method")


def test_dotted_names_and_groups_are_the_same_settings() -> None:
    assert names_of(Grouped) == ["probe.size", "probe.kind", "other.size", "other.kind", "seed"]
    assert flat(Grouped, {"probe": {"size": 3}, "seed": 1}) == {"probe.size": 3, "seed": 1}
    both = nested({"probe.size": 3, "probe": {"kind": "a"}, "seed": 1})
    assert both == {"probe": {"size": 3, "kind": "a"}, "seed": 1}
    with pytest.raises(BadInput, match="probe must be a section"):
        nested({"probe": 3, "probe.size": 4})
