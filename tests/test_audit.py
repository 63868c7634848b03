"""The audit of locked packages: which versions an advisory is about, and what bad input gets."""

from __future__ import annotations

import importlib.util
import json
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from packaging.version import Version

ROOT = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def audit() -> ModuleType:
    spec = importlib.util.spec_from_file_location("audit", ROOT / "scripts" / "audit.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def record(name: str = "Jinja_2", events: Any = (), versions: Any = (), **more: Any) -> dict[str, Any]:
    package = {"name": name, "ecosystem": "PyPI"}
    ranges = [{"type": "ECOSYSTEM", "events": list(events)}]
    affected = [{"package": package, "ranges": ranges, "versions": list(versions)}]
    return {"id": "PYSEC-1", "modified": "2024-05-06T00:00:00Z", "details": "a  fault", "affected": affected, **more}


@pytest.mark.parametrize(
    ("events", "versions", "hit", "free"),
    [
        ([{"introduced": "0"}, {"fixed": "2.11.3"}], [], ["0.1", "2.9", "2.11.3rc1", "2.11.2"], ["2.11.3", "3"]),
        ([{"introduced": "1.0"}, {"last_affected": "1.10"}], [], ["1.0", "1.9", "1.10"], ["0.9", "1.10.1"]),
        ([{"introduced": "1"}, {"fixed": "2"}, {"introduced": "3"}, {"fixed": "4"}], [], ["1", "3.5"], ["2", "4"]),
        ([{"introduced": "1"}], [], ["1", "99"], ["0.9"]),
        ([], ["1.0", "2.0-rc.1"], ["1", "2.0rc1"], ["1.1"]),
    ],
)
def test_the_versions_of_an_advisory(audit: ModuleType, events: Any, versions: Any, hit: Any, free: Any) -> None:
    (affected,) = record(events=events, versions=versions)["affected"]
    assert [one for one in hit if not audit.affects(affected, Version(one))] == []
    assert [one for one in free if audit.affects(affected, Version(one))] == []


def test_a_lock_with_a_known_fault(audit: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lock = tmp_path / "some.lock"
    lock.write_text("# made by hand\njinja-2==2.10.1 \\\n    --hash=sha256:00\ntorch==1.12.0+cpu\n")
    everything = [{"introduced": "0"}]
    found = {
        "a": record(events=[{"introduced": "0"}, {"fixed": "2.11"}], aliases=["CVE-1"]),
        "b": record(name="torch", versions=["1.12.0"], id="PYSEC-2"),
        "c": record(events=everything, withdrawn="2024-01-01T00:00:00Z", id="PYSEC-3"),
        "d": record(name="other", events=everything, id="PYSEC-4"),
    }
    folder = tmp_path / "db" / "vulns"
    folder.mkdir(parents=True)
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        for name, one in found.items():
            (folder / f"{name}.json").write_text(json.dumps(one))
            archive.writestr(f"{name}.json", json.dumps(one))
    for source in (tmp_path / "db", tmp_path / "all.zip"):
        assert audit.main([str(source), "--lock", str(lock)]) == 1
        lines = capsys.readouterr().out.splitlines()
        assert lines[0] == "jinja-2 2.10.1: PYSEC-1 CVE-1: a fault"
        assert lines[1].startswith("torch 1.12.0: PYSEC-2")
        assert lines[2:] == [
            "2 packages compared with 4 records, the newest of 2024-05-06; "
            "2 of the packages have a record of some version.",
            "2 known vulnerabilities.",
        ]
    lock.write_text("jinja-2==2.11\n")
    assert audit.main([str(tmp_path / "db"), "--lock", str(lock)]) == 0


def test_records_in_yaml(audit: ModuleType, tmp_path: Path) -> None:
    pytest.importorskip("yaml")
    (tmp_path / "one.yaml").write_text(
        "id: PYSEC-9\nmodified: 2024-05-06\naffected:\n- package: {name: a, ecosystem: PyPI}\n  versions: [1.10]\n"
    )
    assert audit.audit({"a": Version("1.10")}, tmp_path)[0] == ["a 1.10: PYSEC-9 : "]
    assert audit.audit({"a": Version("1.1")}, tmp_path)[0] == []


def test_our_lock_can_be_looked_up(audit: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    """PyPI knows no `torch 2.13.0+cpu`, and pip-audit passes over what PyPI does not know."""
    assert audit.main(["--plain"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 20
    assert not [line for line in lines if "+" in line or "==" not in line]


@pytest.mark.parametrize(
    ("lock", "records", "sentence"),
    [
        (None, {}, "the lock cannot be read"),
        ("", {}, "must name packages, got none"),
        ("torch>=2\n", {}, "must have lines NAME==VERSION, got 'torch>=2'"),
        ("torch==2\n", None, "must be a folder or a zip of OSV records"),
        ("torch==2\n", {}, "must hold OSV records, got none"),
        ("torch==2\n", {"a.json": "{"}, "a.json: cannot be read"),
    ],
)
def test_bad_input(
    audit: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str], lock: Any, records: Any, sentence: str
) -> None:
    if lock is not None:
        (tmp_path / "lock").write_text(lock)
    if records is not None:
        (tmp_path / "db").mkdir()
        for name, text in records.items():
            (tmp_path / "db" / name).write_text(text)
    assert audit.main([str(tmp_path / "db"), "--lock", str(tmp_path / "lock")]) == 2
    assert sentence in capsys.readouterr().err
