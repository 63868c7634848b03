"""Long-lived processes of `potluck deploy`: start one in the background, stop one by a signal, write its log."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from potluck.cli import text
from potluck.errors import BadInput, Code, retold

TENTHS = 600  # how long a process may take to start, in tenths of a second


def start_in_background(words: list[str], log: Path, up: Callable[[], bool]) -> None:
    """Start `potluck deploy ...` as its own process that writes to `log`; return once `up` says that it works."""
    log.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "potluck.cli", "deploy", *words]
    with log.open("ab") as file:
        process = subprocess.Popen(command, stdout=file, stderr=file, stdin=subprocess.DEVNULL, start_new_session=True)
    for _ in range(TENTHS):
        if process.poll() is not None:
            last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            said = last[0].removeprefix("potluck: ") if last else f"deploy: the process ended at once; see {log}."
            raise retold(said, Code.DEPLOY_SERVER)
        if up():
            return
        time.sleep(0.1)
    raise BadInput(Code.DEPLOY_SERVER, f"deploy: the process did not start within a minute; see {log}.")


def stop_signal() -> threading.Event:
    """An event that Ctrl-C and `potluck deploy stop` set."""
    asked = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: asked.set())
    return asked


def log_line(sentence: str) -> None:
    text.line(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {sentence}")
