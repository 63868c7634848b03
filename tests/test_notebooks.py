"""The notebooks: valid, without outputs, and each runs from a clean folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs the extra notebooks")
ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def test_there_are_five() -> None:
    assert [path.stem.partition("_")[2] for path in NOTEBOOKS] == [
        "own_data", "comparing", "own_method", "devices_and_costs", "deploying",
    ]  # fmt: skip


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_valid_and_empty(path: Path) -> None:
    found = read(path)
    nbformat.validate(found)
    assert found.cells[0].source.startswith("# ")
    for cell in found.cells:
        if cell.cell_type == "code":
            assert cell.outputs == []
            assert cell.execution_count is None


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    client = pytest.importorskip("nbclient", reason="needs the extra notebooks")
    pytest.importorskip("ipykernel", reason="needs the extra notebooks")
    if "deploying" in path.stem:
        pytest.importorskip("flwr", reason="needs the extra flower")
    monkeypatch.setenv("PYTHONPATH", str(ROOT / "src"))
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    found = read(path)
    client.NotebookClient(found, timeout=600, resources={"metadata": {"path": str(tmp_path)}}).execute()
    said = "\n".join(
        output.text for cell in found.cells if cell.cell_type == "code" for output in cell.outputs if "text" in output
    )
    assert "PL-" not in said, said  # a command that was refused
    assert "Traceback" not in said, said
    if "comparing" in path.stem or "own_data" in path.stem:  # runs and comparisons show themselves
        shown = [output for cell in found.cells if cell.cell_type == "code" for output in cell.outputs]
        assert any("text/html" in output.get("data", {}) for output in shown)
