"""What a check of a machine or a deployment found: a line that says ok, info, warn or fail, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass

OK, INFO, WARN, FAIL = "ok", "info", "warn", "fail"  # info: what is not here, and only some need


@dataclass(frozen=True)
class Finding:
    what: str
    state: str
    detail: str
    fix: str = ""
