"""What a method needs of an experiment, and which resources it uses. Method files declare both.

`NEEDS` maps a dotted setting of the experiment to a value, or to a `Need`. A run fills in what the user left out, so
that the bare name of a method gives the system of its paper. `USES` names the resources that a method can use beyond
the clients' training rows; a comparison lists who gets what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

SERVER_ROWS, VALIDATION_ROWS, ACCESS_POINTS = "server rows", "validation rows", "access points"
PRETRAINING, POOLED_ROWS = "pre-training", "the clients' rows on the server"
RESOURCES = (SERVER_ROWS, VALIDATION_ROWS, ACCESS_POINTS, PRETRAINING, POOLED_ROWS)


@dataclass(frozen=True)
class Situation:
    """What a need may depend on. A deployment knows nothing of it in advance: all is None."""

    shape: tuple[int, ...] | None = None  # of one sample, as a model sees it
    classes: int | None = None
    interval: float | None = None  # seconds between two readings of a series with time stamps
    asks: str = ""  # the task that the labels ask for, where they are no classes


@dataclass(frozen=True)
class Need:
    """A setting that the method's system needs.

    `value` is plain, or a function of the `Situation`; a function that returns None leaves the setting as it is. The
    setting is not filled in where the user set it, or set one of `unless`. It is a need only if the settings in `when`
    have these values.
    """

    value: Any
    without: str = ""  # what happens without it: a clause for the first line of a run that lacks it
    unless: tuple[str, ...] = ()
    when: Mapping[str, Any] = field(default_factory=dict)

    def resolved(self, situation: Callable[[], Situation]) -> Any:
        return self.value(situation()) if callable(self.value) else self.value


def needs_of(declared: Mapping[str, Any]) -> dict[str, Need]:
    """The needs of a method's file; a plain value is a need without words."""
    return {name: one if isinstance(one, Need) else Need(one) for name, one in declared.items()}


ACCESS_POINT = "raspberry-pi-4"
SERVER_SHARE = 0.05


def own_model(name: Any, **settings: Any) -> dict[str, Need]:
    """Needs for a network of the method's own, with its settings; they stand aside if the user names a model."""
    named = {"model.name": Need(name)}
    return named | {f"model.{key}": Need(value, unless=("model.name",)) for key, value in settings.items()}
