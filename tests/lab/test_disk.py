"""The disk that fails: what was flushed survives a power cut, what was not may not."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from potluck import files
from potluck.lab.disk import Crash, Disk, Killed, watched

SEEDS = range(40)


def after(root: Path, crash: Crash, write: object) -> dict[str, bytes]:
    """What is on the disk after a crash while something writes."""
    disk = Disk(root)
    with watched([disk]):
        disk.expect(crash)
        with pytest.raises(Killed):
            write()  # type: ignore[operator]
    assert disk.crashed
    disk.settle()
    return {path.name: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def test_an_atomic_write_is_there_or_not(tmp_path: Path) -> None:
    """At each of its changes, killed or without power: the old bytes or the new ones, never others."""
    for kind in ("kill", "cut"):
        for at in range(1, 4):
            seen = set()
            for seed in SEEDS:
                root = tmp_path / f"{kind}{at}-{seed}"
                root.mkdir()
                (root / "a").write_bytes(b"before")

                def write(root: Path = root) -> None:
                    files.write_bytes(root / "a", b"afterwards")
                    files.write_bytes(root / "b", b"next")

                seen.add(after(root, Crash(kind, at, seed), write)["a"])
            assert seen <= {b"before", b"afterwards"}
            if kind == "cut" and at == 3:  # renamed, and the folder was not flushed
                assert seen == {b"before", b"afterwards"}


def test_bytes_that_were_not_flushed_are_torn(tmp_path: Path) -> None:
    seen = set()
    for seed in SEEDS:
        root = tmp_path / str(seed)
        root.mkdir()

        def write(root: Path = root) -> None:
            (root / "a").write_bytes(b"x" * 2000)
            os.replace(root / "a", root / "b")
            files.sync(root)
            files.sync(root)

        seen.add(after(root, Crash("cut", 3, seed), write).get("b"))
    assert {b"x" * 2000, b"", b"x" * 1000, bytes(2000)} <= seen


def test_rows_survive_a_power_cut_once_their_commit_was_flushed(tmp_path: Path) -> None:
    kept = {"NORMAL": set(), "FULL": set()}  # type: dict[str, set[int]]
    for level, counts in kept.items():
        for seed in SEEDS:
            root = tmp_path / f"{level}{seed}"
            root.mkdir()

            def write(root: Path = root, level: str = level) -> None:
                db = sqlite3.connect(root / "run.db", isolation_level=None)
                try:
                    db.execute("PRAGMA journal_mode=WAL")
                    db.execute(f"PRAGMA synchronous={level}")
                    db.execute("CREATE TABLE t (n)")
                    for n in range(5):
                        db.execute("BEGIN")
                        db.execute("INSERT INTO t VALUES (?)", (n,))
                        db.execute("COMMIT")
                    files.sync(root)
                finally:
                    db.close()

            after(root, Crash("cut", 11, seed), write)
            db = sqlite3.connect(root / "run.db")
            there = db.execute("SELECT name FROM sqlite_master").fetchall()
            counts.add(db.execute("SELECT count(*) FROM t").fetchone()[0] if there else -1)
            db.close()
    assert kept["FULL"] == {5}
    assert len(kept["NORMAL"]) > 2


def test_a_full_disk_refuses_what_needs_room(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    with watched([disk]):
        disk.expect(Crash("full", 1, length=2))
        with pytest.raises(OSError, match="No space"):
            files.write_bytes(tmp_path / "a", b"1")
    assert not list(tmp_path.iterdir())
