"""What tuning is asked to do: the `[tune]` section of a file, and the flags of the command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from potluck import spaces
from potluck.errors import BadInput, Code, must_be, unknown
from potluck.methods import Method, short_name
from potluck.settings import fill
from potluck.spaces import Choice, Dimension, Space

PREFIX = "method."


@dataclass(frozen=True)
class Request:
    """How much to try, and how."""

    trials: int = 20  # candidates per method, the default settings included
    seeds: int = 2  # seeds per candidate
    first_seed: int = 1000  # the first of them; those of a report begin at run.seed
    keep: int = 3  # one candidate in so many goes on to the next rung
    sampler: Literal["spread", "optuna"] = "spread"  # spread: evenly over the space; optuna: TPE of Optuna
    valid_share: float = 0.25  # validation rows, a share of the training rows, where partition.valid_share is not set

    def __post_init__(self) -> None:
        for name, low, high in (("trials", 2, 10_000), ("seeds", 1, 1000), ("keep", 2, 100), ("first_seed", 0, 2**62)):
            if not low <= getattr(self, name) <= high:
                raise must_be(Code.SETTING_VALUE, name, f"{low} to {high}", getattr(self, name))
        if not 0 < self.valid_share < 1:
            raise must_be(Code.SETTING_VALUE, "valid_share", "above 0 and below 1", self.valid_share)

    @property
    def all_seeds(self) -> range:
        return range(self.first_seed, self.first_seed + self.seeds)


def of_file(values: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any], list[str]]:
    """Take `[tune]` out of a file: the rest, the settings of a Request, and spaces as `name=text`."""
    rest = {name: part for name, part in values.items() if name != "tune"}
    section = values.get("tune", {})
    given = section.get("space", {}) if isinstance(section, Mapping) else None
    if not isinstance(section, Mapping) or not isinstance(given, Mapping):
        raise BadInput(Code.EXPERIMENT_FILE, "tune: must be a section of settings, and tune.space one of ranges.")
    settings = {name: value for name, value in section.items() if name != "space"}
    return rest, settings, [f"{name}={value}" for name, value in _flat(given)]


def _flat(given: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, str]]:
    for name, value in given.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", ",".join(map(_text, value)) if isinstance(value, list) else _text(value)


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def request_of(settings: Mapping[str, Any], **flags: Any) -> Request:
    """Fill a Request from the file's settings and the flags that were given."""
    return fill(Request, {**settings, **{name: value for name, value in flags.items() if value is not None}}, "tune")


def spaces_for(known: Mapping[str, Method], given: Sequence[str]) -> dict[str, dict[str, Dimension]]:
    """The space of every method: its own, changed by `method.recipe.lr=0.01..0.5:log` or `fedprox:method.mu=0,0.1`.

    A space without the name of a method goes to all methods that have the setting.
    """
    found: dict[str, dict[str, Dimension]] = {name: dict(method.space) for name, method in known.items()}
    short = {short_name(name): name for name in known}
    for one in given:
        left, equals, text = one.partition("=")
        owner, colon, key = left.strip().rpartition(":")
        owner = short.get(owner, owner)
        if not equals or not key.startswith(PREFIX):
            wanted = "[METHOD:]method.SETTING=LOW..HIGH, such as method.recipe.lr=0.01..0.5:log"
            raise must_be(Code.SET_FORM, "--space", wanted, one)
        if colon and owner not in known:
            raise unknown(Code.METHOD_UNKNOWN, "--space: method", owner, known)
        setting = key.removeprefix(PREFIX)
        having = [name for name in ([owner] if colon else known) if setting in known[name].settings]
        if not having:
            every = {f"{PREFIX}{s}" for name in ([owner] if colon else known) for s in known[name].settings}
            raise unknown(Code.UNKNOWN_SETTING, "--space", key, every)
        for name in having:
            found[name][setting] = spaces.read(text, f"--space {left.strip()}")
    for name, space in found.items():
        if not space:
            fix = f"Give it one: --space {short_name(name)}:method.recipe.lr=0.01..0.5:log."
            raise BadInput(Code.METHOD_OWN, f"tune: {name!r} declares no SPACE to choose from. {fix}")
    return found


def as_text(space: Space) -> dict[str, str]:
    return {name: str(dimension) for name, dimension in space.items()}


def size(space: Space) -> int | None:
    """How many different candidates there are; None where a range has no end of them."""
    total = 1
    for one in space.values():
        if not isinstance(one, Choice) and not one.whole:
            return None
        total *= len(one.values) if isinstance(one, Choice) else int(one.high - one.low) + 1
    return total
