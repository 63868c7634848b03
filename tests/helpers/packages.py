"""A package as pip would install it: its modules and its dist-info in a folder that is on the path."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import pytest


def install(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    modules: Mapping[str, str],
    entry_points: Mapping[str, Mapping[str, str]],
) -> None:
    """Write a package and put its folder on the path for this test."""
    write_package(folder, name, modules, entry_points)
    if str(folder) not in sys.path:
        monkeypatch.syspath_prepend(str(folder))


def write_package(
    folder: Path, name: str, modules: Mapping[str, str], entry_points: Mapping[str, Mapping[str, str]]
) -> None:
    """Write the files `modules`, and the entry points by group."""
    for path, text in modules.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    info = folder / f"{name}-1.5.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n", encoding="utf-8")
    groups = (
        "\n".join([f"[{group}]", *(f"{key} = {value}" for key, value in entries.items())])
        for group, entries in entry_points.items()
    )
    (info / "entry_points.txt").write_text("\n\n".join(groups) + "\n", encoding="utf-8")
    (info / "RECORD").write_text("", encoding="utf-8")
