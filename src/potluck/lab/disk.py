"""A disk that fails. Every change below a folder is counted; any of them may be the last one before a crash.

A `Disk` knows what a power cut may take: a file whose bytes were not flushed, a name whose folder was not flushed, and
what SQLite wrote after its last flushed commit. Names are lost independently of each other, so that writes look as if
they had been reordered. Bytes that were not flushed are torn: cut short, zero, or missing sectors.
"""

from __future__ import annotations

import errno
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any
from unittest import mock

from potluck.lab.chance import Chance

SECTOR = 512  # bytes that a disk writes as one
_REBUILT = ("-shm", ".lock")  # files that mean nothing after a restart
_DATABASE = (".db", ".db-wal")


class Killed(BaseException):
    """The process is gone: nothing that it does from here on reaches the disk."""


@dataclass(frozen=True)
class Crash:
    """What happens at the `at`-th change of a disk: kill, cut (the power), or full (for `length` changes)."""

    kind: str
    at: int
    seed: int = 0
    length: int = 1


class Disk:
    """One folder as a disk. Whatever is there at the beginning is flushed."""

    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.changes = 0
        self._crash: Crash | None = None
        self._left: dict[str, bytes | None] | None = None  # what a crash leaves: files, and folders as None
        self.settle()

    # -- what a test does --------------------------------------------------------------------------------------------

    def expect(self, crash: Crash | None) -> None:
        """Count from here on, and crash as told."""
        self.changes, self._crash, self._left = 0, crash, None

    @property
    def crashed(self) -> bool:
        return self._left is not None

    def settle(self) -> None:
        """Put on the disk what a crash left of it, and take that as flushed."""
        if self._left is not None:
            for path in list(self.root.iterdir()):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            for name, content in sorted(self._left.items()):
                if content is None:
                    (self.root / name).mkdir(parents=True, exist_ok=True)
                else:
                    (self.root / name).write_bytes(content)
        self._left = self._crash = None
        self._ids = count()
        self._synced: dict[int, int] = {}  # inode -> id of the bytes that were flushed last
        self._bytes: dict[int, bytes] = {}
        self._names: dict[Path, dict[str, int]] = {}  # folder -> its flushed names, each with the id of its bytes
        self._wal: dict[Path, int] = {}  # flushed bytes of each write-ahead log
        for folder in (self.root, *(path for path in self.root.rglob("*") if path.is_dir())):
            for path in folder.iterdir():
                if path.is_file():
                    self._flushed(path)
                    self._wal[path] = path.stat().st_size
            self._names[folder] = self._listed(folder)

    # -- what the operating system is asked to do --------------------------------------------------------------------

    def change(self, what: str, grows: bool = True) -> None:
        """Called before each change; raises Killed, or OSError on a full disk for what needs room."""
        if self._left is not None:
            return  # it is dead: its last words reach no disk
        self.changes += 1
        crash = self._crash
        if crash is None or self.changes < crash.at:
            return
        if crash.kind == "full" and grows and self.changes < crash.at + crash.length:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), what)
        if crash.kind in ("kill", "cut") and self.changes == crash.at:
            self._left = self._here() if crash.kind == "kill" else self._after_cut(Chance(crash.seed))
            raise Killed(what)

    def flushed(self, path: Path) -> None:
        """A file or a folder was flushed."""
        if path.is_dir():
            self._names[path] = self._listed(path)
        elif path.exists():
            self._flushed(path)

    def committed(self, database: Path) -> None:
        """SQLite flushed its log with a commit, and with a new log the folder."""
        log = database.with_name(f"{database.name}-wal")
        if log.exists():
            self._wal[log] = log.stat().st_size
        self._names.setdefault(database.parent, {}).update(
            {name: one for name, one in self._listed(database.parent).items() if name.endswith(_DATABASE)}
        )

    def gone(self, path: Path) -> None:
        """A name is about to be removed or to get another file."""
        if path.exists():
            self._synced.pop(path.stat().st_ino, None)

    # -- inside ------------------------------------------------------------------------------------------------------

    def _flushed(self, path: Path) -> None:
        one = next(self._ids)
        self._synced[path.stat().st_ino], self._bytes[one] = one, path.read_bytes()

    def _listed(self, folder: Path) -> dict[str, int]:
        """The names in a folder; -1 stands for a folder or for bytes that were never flushed."""
        return {path.name: self._synced.get(path.stat().st_ino, -1) for path in folder.iterdir()}

    def _here(self) -> dict[str, bytes | None]:
        """All that is in the folder now: what a killed process leaves."""
        return {
            str(path.relative_to(self.root)): None if path.is_dir() else path.read_bytes()
            for path in self.root.rglob("*")
            if not path.name.endswith(_REBUILT)
        }

    def _after_cut(self, draw: Chance, folder: Path | None = None) -> dict[str, bytes | None]:
        folder = folder or self.root
        found: dict[str, bytes | None] = {}
        flushed, now = self._names.get(folder, {}), self._listed(folder)
        for name in sorted({*flushed, *now}):
            path = folder / name
            if name.endswith(_REBUILT):
                continue
            took = name in now if flushed.get(name) == now.get(name) else draw.share() < 0.5  # the present or the past
            if name.endswith(_DATABASE) and (took or name in flushed):
                found |= {str(path.relative_to(self.root)): self._torn_log(path, draw)} if path.exists() else {}
            elif took and path.is_dir():
                found |= {str(path.relative_to(self.root)): None, **self._after_cut(draw, path)}
            elif took and name in now:
                whole = self._bytes.get(now[name])
                found[str(path.relative_to(self.root))] = _torn(path.read_bytes(), draw) if whole is None else whole
            elif not took and flushed.get(name, -1) >= 0:
                found[str(path.relative_to(self.root))] = self._bytes[flushed[name]]
        return found

    def _torn_log(self, path: Path, draw: Chance) -> bytes:
        """A database as it is: SQLite flushes it before it shortens the log. Of the log, what was flushed and some."""
        data = path.read_bytes()
        if not path.name.endswith("-wal"):
            return data
        safe = min(self._wal.get(path, 0), len(data))
        end = draw.whole(safe, len(data))
        torn = bytearray(data[:end])
        if end > safe and draw.share() < 0.5:
            start = draw.whole(safe, end - 1)
            torn[start : start + SECTOR] = bytes(len(torn[start : start + SECTOR]))
        return bytes(torn)


def _torn(data: bytes, draw: Chance) -> bytes:
    """Bytes that were not flushed, after a power cut."""
    kind = draw.one(("whole", "empty", "short", "zeros", "sector"))
    if kind == "sector" and data:
        start = draw.whole(0, len(data) - 1) // SECTOR * SECTOR
        return data[:start] + bytes(len(data[start : start + SECTOR])) + data[start + SECTOR :]
    return {"whole": data, "empty": b"", "short": data[: len(data) // 2]}.get(kind, bytes(len(data)))


@contextmanager
def watched(disks: Sequence[Disk]) -> Iterator[None]:
    """Pass every change below one of the disks through it first. Other folders are left alone."""

    def disk_of(path: Any) -> tuple[Disk, Path] | None:
        where = Path(os.readlink(f"/proc/self/fd/{path}")) if isinstance(path, int) else Path(os.path.abspath(path))
        found = next((disk for disk in disks if where.is_relative_to(disk.root)), None)
        return None if found is None else (found, where)

    def changing(name: str) -> Callable[..., Any]:
        real = getattr(os, name)

        def call(path: Any, *others: Any, **options: Any) -> Any:
            found = disk_of(others[0] if name == "replace" else path)
            if found is None:
                return real(path, *others, **options)
            disk, where = found
            disk.change(f"{name} {where.name}", grows=name != "unlink")
            if name in ("replace", "unlink"):
                disk.gone(where)
            if name == "fsync":  # what is below is thrown away: to note it is enough
                return disk.flushed(where)
            return real(path, *others, **options)

        return call

    real_connect = sqlite3.connect

    def connect(database: Any, *others: Any, **options: Any) -> sqlite3.Connection:
        found = None if options.get("uri") else disk_of(database)
        if found is None:
            plain: sqlite3.Connection = real_connect(database, *others, **options)
            return plain
        disk, where = found

        class Watched(sqlite3.Connection):
            def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
                writes = sql in ("BEGIN", "COMMIT") or sql.startswith("PRAGMA user_version=")
                if writes:
                    try:
                        disk.change(f"{sql} {where.name}")
                    except OSError as full:
                        error = sqlite3.OperationalError("database or disk is full")
                        error.sqlite_errorname = "SQLITE_FULL"
                        raise error from full
                done = super().execute(sql, *values)
                if writes and not self.in_transaction and super().execute("PRAGMA synchronous").fetchone()[0] >= 2:
                    disk.committed(where)
                return done

        return real_connect(database, *others, factory=Watched, **options)

    patches = [mock.patch.object(os, name, changing(name)) for name in ("fsync", "replace", "unlink", "mkdir")]
    patches.append(mock.patch.object(sqlite3, "connect", connect))
    for patch in patches:
        patch.start()
    try:
        yield
    finally:
        for patch in reversed(patches):
            patch.stop()
