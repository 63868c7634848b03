"""A worker process: it makes an executor from the experiment's text and runs the stacks it is sent."""

from __future__ import annotations

import importlib
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection

from potluck.engines.chunks import Job
from potluck.engines.execute import Executor
from potluck.wire.codec import decode, encode


class Worker:
    """Runs jobs on an executor that `maker`, a `module:function`, makes."""

    def __init__(self, maker: str, experiment: str) -> None:
        module, _, name = maker.partition(":")
        made: tuple[Executor, Mapping[str, type]] = getattr(importlib.import_module(module), name)(experiment)
        self._executor, self._classes = made

    def run(self, data: bytes) -> bytes:
        jobs = [Job(**one) for one in decode(data, self._classes)]
        results = self._executor.run(jobs)
        notes, self._executor.notes[:] = list(self._executor.notes), []
        return encode(
            {"results": [[results[job.number].done, results[job.number].seen] for job in jobs], "notes": notes}
        )


def serve(line: Connection, maker: str) -> None:
    """Serve one connection until the other end closes it."""
    with suppress(EOFError, ConnectionError):
        worker = Worker(maker, line.recv_bytes().decode())
        while True:
            line.send_bytes(worker.run(line.recv_bytes()))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the run, which closes the connection
    serve(Connection(int(sys.argv[1])), sys.argv[2])
