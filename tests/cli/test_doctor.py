from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from potluck.cli import doctor

from .conftest import Potluck


def test_all_is_well(potluck: Potluck) -> None:
    result = potluck("doctor", "--json")
    findings = {finding["what"]: finding for finding in json.loads(result.stdout)}
    assert result.exit_code == 0
    assert {"python", "torch", "cores", "memory", "disk", "demo data", "data sets", "runs folder"} <= findings.keys()
    assert findings["torch"]["state"] == "ok"
    assert potluck("doctor").stdout.startswith("ok")


def test_a_folder_that_cannot_be_written_fails(potluck: Potluck, here: Path) -> None:
    (here / "file").write_text("")
    result = potluck("doctor", "--out", "file/runs")
    assert result.exit_code == 1
    assert "fail  runs folder" in " ".join(result.stdout.split(" ")).replace("   ", "  ")
    assert "choose another folder with --out" in " ".join(result.stdout.split())


def test_what_is_missing_is_named_with_its_remedy(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    monkeypatch.setattr("potluck.data.load.roots", lambda: [here])
    monkeypatch.setattr("potluck.data.watch.installed", lambda: None)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10, 9, 1))
    found = {finding.what: finding for finding in doctor.examine(here)}
    assert (found["demo data"].state, found["data sets"].state, found["pandas"].state) == ("warn", "warn", "warn")
    assert "potluck[demo]" in found["demo data"].fix
    assert "potluck[frames]" in found["pandas"].fix
    assert found["disk"].state == "fail"
