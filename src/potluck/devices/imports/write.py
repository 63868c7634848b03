"""A link as a devices file."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any


def link_file(name: str, like: str, figures: Mapping[str, Any], factors: Sequence[float] | None, source: str) -> str:
    """A [links.name] table with sourced figures, and its trace of one factor per second."""
    title = f"from {source}"
    lines = [f"[links.{name}]", f"like = {json.dumps(like)}", f"title = {json.dumps(title)}"]
    lines += [f"{key} = {json.dumps(value)}" for key, value in figures.items()]
    if factors is not None:
        lines += [f"trace = {json.dumps(name)}", "", f"[traces.{name}]", f"title = {json.dumps(title)}", "seconds = 1"]
        lines.append(f"factors = {json.dumps(list(factors))}")
    return "\n".join(lines) + "\n"
