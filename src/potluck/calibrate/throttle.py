"""Limit the processor share of a process: a control group's quota where that is allowed, else stops in turn.

A quota is exact over each period of the kernel's scheduler. Without the right to make a group, the process is stopped
and continued so that its processor time follows the share; `Stops` measures what it got.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from potluck.errors import Code, must_be

PERIOD = 100_000  # microseconds of one period of a quota
WEIGHT = 8192  # of a group, of 2 to 262144: with a quota, other work on the machine disturbs less
SMALLEST = 0.01  # the kernel takes no quota below 1 ms, and less than 1 % of a core trains nothing
STEP = 0.05  # seconds between two looks of `Stops`
V1, V2 = Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup")


class Throttle(Protocol):
    """Holds processes to a share of one core until it is closed."""

    name: str  # how it limits, for the certificate

    def set(self, share: float) -> None:
        """Change the share."""

    def close(self) -> None: ...


def check_share(share: float) -> float:
    if not SMALLEST <= share <= 1:
        raise must_be(Code.FLAG_VALUE, "share", f"a share of a core from {SMALLEST:g} to 1", share)
    return share


def throttle(process: int, share: float) -> Throttle:
    """Limit a process and its threads."""
    check_share(share)
    try:
        return Quota(process, share)
    except OSError:
        return Stops(process, share)


class Quota:
    """A control group with a quota, version 1 or 2. Raises OSError where this user may not make one."""

    name = "control group"

    def __init__(self, process: int, share: float, root: Path | None = None) -> None:
        old = root is None and (V1 / "cpu.cfs_quota_us").exists()
        self.folder = (root or (V1 if old else V2)) / f"potluck-{process}"
        self.folder.mkdir()
        try:
            self._old = (self.folder / "cpu.cfs_quota_us").exists()
            self.set(share)
            (self.folder / "cgroup.procs").write_text(str(process))
        except OSError:
            self.folder.rmdir()
            raise

    def set(self, share: float) -> None:
        quota = max(1000, round(PERIOD * share))
        if self._old:
            (self.folder / "cpu.cfs_period_us").write_text(str(PERIOD))
            (self.folder / "cpu.cfs_quota_us").write_text(str(quota))
            (self.folder / "cpu.shares").write_text(str(WEIGHT))
        else:
            (self.folder / "cpu.max").write_text(f"{quota} {PERIOD}")

    def close(self) -> None:
        try:
            for line in (self.folder / "cgroup.procs").read_text().split():
                (self.folder.parent / "cgroup.procs").write_text(line)
            self.folder.rmdir()
        except OSError:
            return  # the process has ended, or the group is gone


def used_seconds(process: int) -> float:
    """The processor time that a process has used, with all its threads."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass
class Stops:
    """Stops a process when it is ahead of its share, and lets it go on when it is behind."""

    process: int
    share: float
    name: str = "stopped in turn"
    used: Callable[[int], float] = used_seconds
    now: Callable[[], float] = time.monotonic
    send: Callable[[int, int], None] = os.kill
    threaded: bool = True
    _stopped: bool = False
    _end: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self.set(self.share)
        if self.threaded:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def set(self, share: float) -> None:
        self.share, self._began, self._before = share, self.now(), self.used(self.process)

    def look(self) -> None:
        """Compare what it used with its share, and stop it or let it go on."""
        ahead = self.used(self.process) - self._before > self.share * (self.now() - self._began)
        if ahead != self._stopped:
            self.send(self.process, signal.SIGSTOP if ahead else signal.SIGCONT)
            self._stopped = ahead

    def _run(self) -> None:
        while not self._end.wait(STEP):
            try:
                self.look()
            except (OSError, ValueError):
                return  # it has ended

    def close(self) -> None:
        self._end.set()
        if self._stopped:
            try:
                self.send(self.process, signal.SIGCONT)
            except OSError:
                return
