"""Bad input and how it is told: one sentence that names the field, what was given and what is allowed."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class BadInput(ValueError):
    """Something a person wrote (a file, a flag, a setting) cannot be used; the message is one clear sentence."""


class Missing(BadInput):
    """An optional package or a dataset is not on this machine; the message says how to get it."""


def nearest(given: str, allowed: Iterable[str]) -> str | None:
    """The allowed name most like the given one, or None when nothing comes close."""
    options = list(allowed)
    lowered = {option.lower(): option for option in options}
    close = difflib.get_close_matches(given.lower(), list(lowered), n=1, cutoff=0.5)
    return lowered[close[0]] if close else None


def unknown(what: str, given: object, allowed: Iterable[str]) -> BadInput:
    """The refusal of an unknown name: says the nearest one and all that are allowed."""
    options = sorted(allowed)
    close = nearest(str(given), options)
    hint = f", did you mean {close!r}?" if close else "."
    return BadInput(f"{what}: {given!r} is not known{hint} Allowed: {', '.join(options)}.")
