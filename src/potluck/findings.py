"""What a check of a machine or a deployment found: a line that says ok, warn or fail, and the remedy."""

from __future__ import annotations

from dataclasses import dataclass

OK, WARN, FAIL = "ok", "warn", "fail"


@dataclass(frozen=True)
class Finding:
    what: str
    state: str
    detail: str
    fix: str = ""
