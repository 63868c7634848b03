"""Ctrl-C: the first one asks for an orderly stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

STOPPING = "stopping after this round; Ctrl-C again stops at once."


@contextmanager
def interruptible(say: Callable[[str], None] | None = None) -> Iterator[threading.Event]:
    """Let the first Ctrl-C ask for a stop after this round, and the second one stop at once; `say` tells the user.

    Where one of these is inside another, as a run in a tuning, the outer one learns of it when the inner one ends.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def on_interrupt(number: int, frame: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()
        if say is not None:
            say(STOPPING)

    on_interrupt.asked = asked  # type: ignore[attr-defined]
    before = signal.signal(signal.SIGINT, on_interrupt)
    try:
        yield asked
    finally:
        signal.signal(signal.SIGINT, before)
        outer = getattr(before, "asked", None)
        if asked.is_set() and isinstance(outer, threading.Event):
            outer.set()
