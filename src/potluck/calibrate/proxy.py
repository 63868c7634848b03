"""A proxy that makes a loopback connection as slow as a client's link: rate, latency, jitter and loss.

It passes on bytes and understands none of them, so TLS goes through untouched. A piece of bytes leaves when the link
is free again, at the link's rate, and arrives one latency later. Latency is drawn per piece; pieces never overtake each
other. The connection is reliable, so a lost piece is one that comes later: after a wait for its repetition.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from potluck import keys
from potluck.errors import Code, must_be

PIECE = 16_384  # bytes read at once
RESEND = 0.2  # seconds that a lost piece waits at least for its repetition, as TCP does
AHEAD = 64  # pieces on their way before the sender must wait


@dataclass(frozen=True)
class Shape:
    """One way of a link."""

    rate: float  # bit/s
    latency: float = 0.0  # seconds
    jitter: float = 0.0  # sigma of a log-normal factor with mean 1 on the latency
    loss: float = 0.0  # probability that a piece must be sent again

    def __post_init__(self) -> None:
        if not 0 < self.rate < float("inf"):
            raise must_be(Code.FLAG_VALUE, "rate", "bit/s above 0", self.rate)
        if not 0 <= self.latency < 60:
            raise must_be(Code.FLAG_VALUE, "latency", "seconds from 0 to below 60", self.latency)
        if not 0 <= self.jitter <= 3:
            raise must_be(Code.FLAG_VALUE, "jitter", "a sigma from 0 to 3", self.jitter)
        if not 0 <= self.loss < 1:
            raise must_be(Code.FLAG_VALUE, "loss", "a probability from 0 to below 1", self.loss)


@dataclass
class Line:
    """When each piece arrives. It knows no clock: `send` is told the moment."""

    shape: Shape
    rng: np.random.Generator
    free: float = 0.0  # when the last piece has left
    last: float = 0.0  # when it arrives
    nbytes: int = 0

    def send(self, nbytes: int, now: float) -> float:
        """Return the moment at which a piece arrives that is handed over now."""
        shape = self.shape
        self.nbytes += nbytes
        seconds = 8.0 * nbytes / shape.rate
        tries = 1
        while shape.loss and self.rng.random() < shape.loss:
            tries += 1
        self.free = max(now, self.free) + tries * seconds
        factor = np.exp(shape.jitter * self.rng.standard_normal() - shape.jitter**2 / 2) if shape.jitter else 1.0
        wait = (tries - 1) * max(RESEND, 2 * shape.latency)
        self.last = max(self.last, self.free + shape.latency * float(factor) + wait)
        return self.last


@dataclass
class Proxy:
    """One client's link: listens on a port of loopback and passes on to the server."""

    target: tuple[str, int]
    up: Shape
    down: Shape
    seed: int = 0
    port: int = 0  # where it listens, once it is started
    _lines: list[tuple[Line, Line]] = field(default_factory=list)

    @property
    def bytes_up(self) -> int:
        return self._up.nbytes

    @property
    def bytes_down(self) -> int:
        return self._down.nbytes

    async def start(self) -> None:
        # All connections of a client share its link.
        self._up = Line(self.up, keys.rng("proxy", self.seed, "up"))
        self._down = Line(self.down, keys.rng("proxy", self.seed, "down"))
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there, back = await asyncio.open_connection(*self.target)
        except OSError:
            writer.close()
            return
        ways = [
            asyncio.create_task(passed_on(reader, back, self._up)),
            asyncio.create_task(passed_on(there, writer, self._down)),
        ]
        try:
            await asyncio.gather(*ways)
        except (OSError, asyncio.CancelledError):
            for way in ways:
                way.cancel()
        finally:
            for end in (writer, back):
                end.close()


async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: Line) -> None:
    """Pass on what comes, each piece at its moment, until the sender is done."""
    loop = asyncio.get_running_loop()
    on_the_way: asyncio.Queue[tuple[float, bytes] | None] = asyncio.Queue(AHEAD)

    async def deliver() -> None:
        while (piece := await on_the_way.get()) is not None:
            moment, content = piece
            await asyncio.sleep(max(0.0, moment - loop.time()))
            writer.write(content)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()

    delivering = asyncio.create_task(deliver())
    try:
        while content := await reader.read(PIECE):
            await on_the_way.put((line.send(len(content), loop.time()), content))
        await on_the_way.put(None)
        await delivering
    finally:
        delivering.cancel()


class Proxies:
    """Runs the proxies of all clients in one thread."""

    def __init__(self, proxies: dict[str, Proxy]) -> None:
        self.proxies = proxies
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Proxies:
        self._thread.start()
        for proxy in self.proxies.values():
            self._call(proxy.start)
        return self

    def __exit__(self, *error: object) -> None:
        for proxy in self.proxies.values():
            self._call(proxy.stop)
        self._loop.call_soon_threadsafe(self._end)
        self._thread.join(10)
        if not self._thread.is_alive():
            self._loop.close()

    def _end(self) -> None:
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.call_soon(self._loop.stop)

    def _call(self, function: Callable[[], Any]) -> Any:
        answer: Future[Any] = asyncio.run_coroutine_threadsafe(function(), self._loop)
        return answer.result(30)
