"""Figures of a method's own that stand beside its accuracy, because the accuracy says little without them.

A method's file names them in `BESIDE`: a figure that `record` returns, and the words for it. Words that begin
with "share" are printed as a percentage. Centaur has the share of samples that devices hand over, for example.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from potluck.units import count, percent


def beside(module: ModuleType, figures: Mapping[str, Any]) -> dict[str, float]:
    """The figures of this record that the method's file wants beside its accuracy, by their words."""
    named: Mapping[str, str] = getattr(module, "BESIDE", {})
    return {words: float(figures[name]) for name, words in named.items() if name in figures}


def shown(words: str, value: float | None) -> str:
    """The figure alone."""
    return percent(value) if words.startswith("share") else count(value)


def in_words(found: Mapping[str, float]) -> str:
    """All figures of a run in one text; empty without any."""
    return ", ".join(f"{words} {shown(words, value)}" for words, value in found.items())
