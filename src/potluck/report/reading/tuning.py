"""What a tuning beside the runs chose: `tuning/tuning.json` in the folder of a comparison."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def tuning_of(folders: Iterable[Path]) -> dict[str, Any] | None:
    """The tuning of the comparison that these runs belong to; None if they have none, or not the same one."""
    parents = {folder.parent for folder in folders}
    if len(parents) != 1:
        return None
    try:
        found = json.loads((parents.pop() / "tuning" / "tuning.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and isinstance(found.get("methods"), dict) else None
