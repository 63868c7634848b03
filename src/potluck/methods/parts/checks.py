"""Checks of settings and models, used in the `__post_init__` of a method's `Config` and of its groups.

The sentences name the field alone (`cohort: must be ...`). `settings.fill` puts the section in front of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from potluck.errors import BadInput, Code, must_be, unknown
from potluck.fleet import Local


def at_least(cfg: Any, name: str, least: float) -> None:
    value = getattr(cfg, name)
    if not value >= least:
        raise _wrong(name, f"{least:g} or more", value)


def above(cfg: Any, name: str, bound: float) -> None:
    value = getattr(cfg, name)
    if not value > bound:
        raise _wrong(name, f"above {bound:g}", value)


def within(cfg: Any, name: str, low: float, high: float) -> None:
    value = getattr(cfg, name)
    if not low <= value <= high:
        raise _wrong(name, f"from {low:g} to {high:g}", value)


def share(cfg: Any, name: str) -> None:
    """Above 0 and up to 1."""
    value = getattr(cfg, name)
    if not 0.0 < value <= 1.0:
        raise _wrong(name, "above 0 and at most 1", value)


def one_of(cfg: Any, name: str, allowed: Sequence[str]) -> None:
    value = getattr(cfg, name)
    if value not in allowed:
        raise unknown(Code.SETTING_VALUE, name, str(value), allowed)


def unused(cfg: Any, why: str = "this method does not use it") -> None:
    """Refuse settings that `UNUSED` of the Config lists and that are not at their default: they would mislead.

    `potluck methods` does not show them, and a comparison leaves them out for this method.
    """
    for path in cfg.UNUSED:
        group, _, name = path.partition(".")
        chosen = getattr(cfg, group)
        value, default = getattr(chosen, name), getattr(type(chosen)(), name)
        if value != default:
            raise BadInput(Code.SETTING_VALUE, f"{path}: must stay {default}, got {value}: {why}.")


def probabilities(home: Local) -> None:
    """Refuse a model whose answers are no probabilities of classes."""
    if home.model.loss != "cross_entropy":
        raise BadInput(
            Code.METHOD_NEEDS,
            f"model: must answer with probabilities of classes (cross-entropy) for this method, got {home.model.name} "
            f"with the loss {home.model.loss}.",
        )


def _wrong(name: str, wanted: str, value: Any) -> BadInput:
    return must_be(Code.SETTING_VALUE, name, wanted, value)
