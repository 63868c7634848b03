"""Files: durable in the right order, private where they must be, and without leftovers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import potluck
from potluck import files
from potluck.errors import BadInput, Code
from potluck.runs import drive
from potluck.runs.experiment import Experiment
from potluck.testing import loopback

pytestmark = pytest.mark.skipif(os.name != "posix", reason="modes and folders that sync are POSIX")
SMALL = {
    "data": {"source": "made"},
    "method": {"name": "fedavg", "recipe.epochs": 1},
    "model": {"name": "softmax"},
    "fleet": {"devices": "pc"},
    "stop": {"rounds": 2},
}


def mode(path: Path) -> str:
    return f"{path.stat().st_mode & 0o777:o}"


def test_a_private_file_is_private_from_its_first_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(os, "fsync", lambda number: seen.append(os.fstat(number).st_mode & 0o777))
    files.write_bytes(tmp_path / "key", b"secret", private=True)
    assert seen[0] == 0o600
    assert mode(tmp_path / "key") == "600"


def test_a_folder_is_synced_after_the_rename(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced = []

    def note(number: int) -> None:
        place = Path(f"/proc/self/fd/{number}").resolve()
        synced.append(("folder" if place.is_dir() else "file", (tmp_path / "a").exists()))

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("needs /proc")
    monkeypatch.setattr(os, "fsync", note)
    files.write_bytes(tmp_path / "a", b"1")
    assert synced == [("file", False), ("folder", True)]


def test_a_full_disk_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files.write_bytes(tmp_path / "a", b"before")

    def full(number: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        files.write_bytes(tmp_path / "a", b"after")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"before"


def test_leftovers_of_dead_writers_go_and_those_of_the_living_stay(tmp_path: Path) -> None:
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    (tmp_path / "checkpoint").mkdir()
    dead, alive = tmp_path / "checkpoint" / f".state.{ended.pid}.part", tmp_path / f".tags.json.{os.getppid()}.part"
    for path in (dead, alive, tmp_path / "mine.part"):
        path.touch()
    files.sweep(tmp_path)
    assert not dead.exists()
    assert alive.exists()
    assert (tmp_path / "mine.part").exists()


def test_a_run_sweeps_its_folder_when_it_goes_on(tmp_path: Path) -> None:
    run = potluck.run({**SMALL, "run": {"out": str(tmp_path)}})
    left = run.folder / "checkpoint" / ".state.safetensors.999999999.part"
    left.touch()
    drive.resume(run.folder, rounds=3)
    assert not left.exists()


def test_nothing_is_written_before_the_lock(tmp_path: Path) -> None:
    run = potluck.run({**SMALL, "run": {"out": str(tmp_path)}})
    before = (run.folder / "experiment.toml").read_bytes()
    with files.locked(run.folder), pytest.raises(BadInput) as refused:
        drive.resume(run.folder, rounds=9)
    assert refused.value.code is Code.BUSY
    assert (run.folder / "experiment.toml").read_bytes() == before


def test_rows_are_on_disk_before_the_checkpoint_that_counts_on_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log of run.db is flushed after its last write and before the checkpoint is renamed into place."""
    if not Path("/usr/bin/strace").exists():
        pytest.skip("needs strace")
    script = f"import potluck; potluck.run({ {**SMALL, 'run': {'out': str(tmp_path), 'checkpoint_seconds': 0.0}}!r})"
    log = tmp_path / "trace"
    traced = ["strace", "-f", "-y", "-o", str(log), "-e", "trace=pwrite64,fsync,fdatasync,rename", sys.executable]
    done = subprocess.run([*traced, "-c", script], capture_output=True, text=True, env={**os.environ})
    if done.returncode and "ptrace" in done.stderr:
        pytest.skip("may not trace")
    assert done.returncode == 0, done.stderr
    flushed, renames = True, 0
    for line in log.read_text().splitlines():
        if "run.db-wal" in line:
            flushed = "sync(" in line
        if "rename(" in line and "state.safetensors" in line:
            renames += 1
            assert flushed, line
    assert renames >= 2


def test_what_a_client_keeps_is_private(tmp_path: Path) -> None:
    experiment = Experiment.of({**SMALL, "method": {"name": "ftl"}, "fleet": {"devices": "raspberry-pi-4"}})
    loopback.models(experiment, tmp_path)
    kept = [path for path in (tmp_path / "machines").rglob("*") if "runs" in path.parts or "models" in path.parts]
    assert kept
    for path in (one for one in kept if one.is_file()):
        assert mode(path) == "600", path
        assert mode(path.parent) == "700", path.parent
    assert {mode(path) for path in (tmp_path / "machines").glob("*.npz")} == {"600"}
