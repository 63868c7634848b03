"""Settings that many methods share, checked alike."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from potluck.errors import BadInput, Code, unknown


def local_training(cfg: Any) -> None:
    """cohort, epochs, batch, lr and momentum of a Config, whichever it has."""
    at_least(cfg, "cohort", 0)
    at_least(cfg, "epochs", 1)
    at_least(cfg, "batch", 1)
    above(cfg, "lr", 0.0)
    momentum = getattr(cfg, "momentum", 0.0)
    if not 0.0 <= momentum < 1.0:
        raise BadInput(Code.SETTING_VALUE, f"method.momentum: {momentum} given, allowed is 0 to below 1.")


def at_least(cfg: Any, name: str, least: float) -> None:
    value = getattr(cfg, name, least)
    if not value >= least:
        raise BadInput(Code.SETTING_VALUE, f"method.{name}: {value} given, allowed is {least} or more.")


def above(cfg: Any, name: str, bound: float) -> None:
    value = getattr(cfg, name, bound + 1)
    if not value > bound:
        raise BadInput(Code.SETTING_VALUE, f"method.{name}: {value} given, allowed is more than {bound}.")


def within(cfg: Any, name: str, low: float, high: float) -> None:
    value = getattr(cfg, name, low)
    if not low <= value <= high:
        raise BadInput(Code.SETTING_VALUE, f"method.{name}: {value} given, allowed is {low:g} to {high:g}.")


def one_of(cfg: Any, name: str, allowed: Sequence[str]) -> None:
    value = getattr(cfg, name)
    if value not in allowed:
        raise unknown(Code.SETTING_VALUE, f"method.{name}", str(value), allowed)
