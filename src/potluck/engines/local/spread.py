"""Stacks of clients spread over the actors of a Ray cluster: the same chunks, run elsewhere, with the same bits.

An actor makes the run's executor for itself, from the experiment's own text; between it and us travel the codec's
bytes. How stacks are cut never depends on who runs them.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from potluck.errors import Code, Missing
from potluck.wire.codec import decode, encode

if TYPE_CHECKING:
    from potluck.engines.local.stack import Executor, Job, Result


class Hand:
    """What an actor does: runs the jobs it is sent on an executor of its own."""

    def __init__(self, maker: str, told: str) -> None:
        module, _, name = maker.partition(":")
        made: tuple[Executor, Mapping[str, type]] = getattr(importlib.import_module(module), name)(told)
        self._executor, self._classes = made

    def run(self, data: bytes) -> bytes:
        from potluck.engines.local.stack import Job

        jobs = [Job(**one) for one in decode(data, self._classes)]
        results = self._executor.run(jobs)
        notes, self._executor.notes[:] = list(self._executor.notes), []
        return encode(
            {"results": [[results[job.number].done, results[job.number].seen] for job in jobs], "notes": notes}
        )


class RaySpread:
    """A hand on every core of the cluster that $RAY_ADDRESS names, or of this machine."""

    def __init__(self, maker: str, told: str, classes: Mapping[str, type], hands: int | None = None) -> None:
        try:
            ray: Any = importlib.import_module("ray")
        except ImportError:
            raise Missing(Code.EXTRA, "ray: not installed; `pip install 'potluck[ray]'` adds it.") from None
        self._ray = ray
        self._classes = classes
        if not ray.is_initialized():
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            own = {} if os.environ.get("RAY_ADDRESS") else {"_node_ip_address": "127.0.0.1", "num_cpus": os.cpu_count()}
            ray.init(include_dashboard=False, log_to_driver=False, logging_level="ERROR", **own)
        count = hands or max(1, int(ray.cluster_resources().get("CPU", 1)))
        actor: Any = ray.remote(num_cpus=1)(Hand)
        self._hands = [actor.remote(maker, told) for _ in range(count)]
        self._notes: list[str] = []

    def news(self) -> list[str]:
        """What the hands said since the last time."""
        said, self._notes = self._notes, []
        return said

    def run(self, chunks: Sequence[Sequence[Job]]) -> list[list[Result]]:
        """Each chunk's results; a hand that has finished takes the next chunk."""
        from potluck.engines.local.stack import Result

        results: dict[int, list[Result]] = {}
        busy: dict[Any, tuple[int, Any]] = {}
        free, waiting = list(self._hands), list(enumerate(chunks))
        while waiting or busy:
            while waiting and free:
                number, jobs = waiting.pop(0)
                hand = free.pop()
                busy[hand.run.remote(encode([dict(vars(job)) for job in jobs]))] = (number, hand)
            done, _ = self._ray.wait(list(busy), num_returns=1)
            number, hand = busy.pop(done[0])
            free.append(hand)
            told = decode(self._ray.get(done[0]), self._classes)
            results[number] = [Result(one, seen) for one, seen in told["results"]]
            self._notes += told["notes"]
        return [results[number] for number in range(len(chunks))]

    def close(self) -> None:
        for hand in self._hands:
            self._ray.kill(hand)
        self._hands = []
