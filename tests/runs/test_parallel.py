"""Runs in other processes: what becomes of those processes when the command that started them is killed."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import psutil

COMMAND = """
import os, sys, time
from functools import partial
from pathlib import Path
from potluck.runs import parallel
from potluck.runs.watcher import Silent

def job(folder, watcher):
    (folder / str(os.getpid())).touch()
    time.sleep(120)

if __name__ == "__main__":
    parallel.carry_out([partial(job, Path(sys.argv[1]))] * 2, [Silent()] * 2, 2)
"""


def test_the_processes_end_with_the_command_that_started_them(tmp_path: Path) -> None:
    # They hold its output open: whoever reads that to its end would wait for as long as they live.
    script, begun = tmp_path / "command.py", tmp_path / "begun"
    script.write_text(COMMAND)
    begun.mkdir()
    command = subprocess.Popen([sys.executable, script, begun], stdout=subprocess.PIPE)
    while len(list(begun.iterdir())) < 2:
        assert command.poll() is None
        time.sleep(0.05)
    command.kill()
    command.communicate(timeout=120)
    left = [psutil.Process(int(file.name)) for file in begun.iterdir() if psutil.pid_exists(int(file.name))]
    assert not psutil.wait_procs(left, timeout=120)[1]
