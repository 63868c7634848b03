"""When what a run writes is committed. Commits of quick steps are held, and made together a moment later."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

HELD = 0.2  # seconds: a commit takes as long as an arrival of an asynchronous run


class Transactions:
    """The transactions of one connection. What is held is committed by a timer, if nothing else is written."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self.alone = threading.RLock()  # the timer is another thread
        self._timer: threading.Timer | None = None
        self._committed = 0.0  # when, by the monotonic clock

    @contextmanager
    def writing(self, hold: bool = False) -> Iterator[None]:
        """Write in this block; with `hold` it may share its transaction with what was and what will be written."""
        with self.alone:
            others = self._db.in_transaction  # are held
            self._db.execute("SAVEPOINT this" if others else "BEGIN")
            try:
                yield
            except BaseException:  # no half of it may be committed later
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK TO this" if others else "ROLLBACK")
                raise
            if others:
                self._db.execute("RELEASE this")
            if not hold or time.monotonic() - self._committed >= HELD:
                self.commit()
            elif self._timer is None:  # the next step may take an hour
                self._timer = threading.Timer(HELD, self._overdue)
                self._timer.daemon = True
                self._timer.start()

    def commit(self) -> None:
        """Let others read what is written so far."""
        with self.alone:
            if self._db.in_transaction:
                self._db.execute("COMMIT")
            self._committed = time.monotonic()

    def close(self) -> None:
        with self.alone:
            if self._timer is not None:
                self._timer.cancel()
            with suppress(sqlite3.Error):  # closed already, or what it cannot write has been told
                self.commit()
            self._db.close()

    def _overdue(self) -> None:
        with self.alone:
            self._timer = None
            with suppress(sqlite3.Error):  # the next step meets the same error, and tells it
                self.commit()
