"""The server of the live page: its files, the state of runs at a moment, and a stream of their progress."""

from __future__ import annotations

import asyncio
import ipaddress
import math
import socket
import threading
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import uvicorn
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from potluck.errors import BadInput, Code, unknown
from potluck.report.html.page import asset, palette
from potluck.runs.results import Run
from potluck.watch.follow import Follower, dumped
from potluck.watch.views import card, views

EVERY = 0.4  # seconds between two reads of the runs
ALIVE = 10.0  # seconds after which the stream sends something even if nothing changed
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

Find = Callable[[], list[Path]]


class Watch:
    """The watched runs; new folders may appear while it goes on, such as the runs of a comparison."""

    def __init__(self, find: Find) -> None:
        self._find = find
        self._followers: dict[Path, Follower] = {}
        self._drawn: tuple[object, str] = (None, "")
        self._drawing = threading.Lock()

    @property
    def followers(self) -> dict[str, Follower]:
        """The watched runs by their name in addresses."""
        folders = self._find()
        self._followers = {path: self._followers.get(path) or Follower(path) for path in folders}
        return {str(path): one for path, one in self._followers.items()}

    @property
    def runs(self) -> list[Run]:
        return [one.run for one in self.followers.values()]

    def one(self, name: str) -> Follower:
        found = self.followers
        if name not in found:
            raise unknown(Code.RUN_ABSENT, "run", name, list(found))
        return found[name]

    def sections(self, until: float | None) -> str:
        """The sections of the report; drawn once for all requests until something changes."""
        with self._drawing:
            asked = (until, [(head["id"], head["step"], head["state"]) for head in self.heads()])
            if self._drawn[0] != asked:
                self._drawn = asked, views(self.runs, until)
            return self._drawn[1]

    def heads(self) -> list[dict[str, object]]:
        return [{"id": name, **one.head()} for name, one in self.followers.items()]


def application(watch: Watch, hosts: list[str] | None = None) -> Starlette:
    """The web application of the watched runs; `hosts` are the host names it answers to, None for any."""

    def page(request: Request) -> Response:
        return HTMLResponse(_file("index.html"))

    def style(request: Request) -> Response:
        return Response(palette() + asset("page.css") + _file("watch.css"), media_type="text/css")

    def script(request: Request) -> Response:
        return Response(asset("page.js") + _file("watch.js"), media_type="text/javascript")

    def roster(request: Request) -> Response:
        return _json(watch.one(request.query_params.get("run", "")).roster())

    def moment(request: Request) -> Response:
        return _json(watch.one(request.query_params.get("run", "")).moment(_at(request)))

    def sections(request: Request) -> Response:
        return HTMLResponse(watch.sections(_at(request)))

    def device(request: Request) -> Response:
        asked = request.query_params
        folder = watch.one(asked.get("run", "")).run.folder
        return HTMLResponse(card(watch.runs, folder, asked.get("client", ""), _at(request)))

    async def events(request: Request) -> Response:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(_stream(watch), media_type="text/event-stream", headers=headers)

    def refused(request: Request, error: Exception) -> Response:
        said = error.told if isinstance(error, BadInput) else str(error)
        return Response(said, status_code=400, media_type="text/plain")

    plain = {"/": page, "/watch.css": style, "/watch.js": script, "/roster": roster, "/moment": moment}
    plain |= {"/views": sections, "/card": device}
    middleware = [Middleware(_Guarded), Middleware(GZipMiddleware, minimum_size=2000, compresslevel=3)]
    if hosts is not None:  # stops DNS rebinding: another site must not reach this page under its own host name
        middleware.insert(0, Middleware(TrustedHostMiddleware, allowed_hosts=hosts, www_redirect=False))
    return Starlette(
        routes=[Route(path, handler, methods=["GET"]) for path, handler in {**plain, "/events": events}.items()],
        middleware=middleware,
        exception_handlers={BadInput: refused},
    )


class _Guarded:
    """Adds headers to every response: what the page may load, and that nothing is cached."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(name, value) for name, value in message["headers"] if name != b"cache-control"]
                extra = {
                    "cache-control": "no-store",
                    "content-security-policy": POLICY,
                    "x-content-type-options": "nosniff",
                    "referrer-policy": "no-referrer",
                }
                message["headers"] = [*headers, *((k.encode(), v.encode()) for k, v in extra.items())]
            await send(message)

        await self.app(scope, receive, guarded)


async def _stream(watch: Watch) -> AsyncIterator[str]:
    """Send the progress of all runs whenever it has changed, or the error of a run that cannot be read."""
    yield "retry: 700\n\n"
    before, quiet = "", 0.0
    while True:
        try:
            now = dumped(await run_in_threadpool(watch.heads))
            line = f"event: runs\ndata: {now}\n\n"
        except BadInput as error:
            now = error.told
            line = f"event: trouble\ndata: {dumped(now)}\n\n"
        if now != before:
            before, quiet = now, 0.0
            yield line
        elif quiet >= ALIVE:
            quiet = 0.0
            yield ": still here\n\n"
        await asyncio.sleep(EVERY)
        quiet += EVERY


def _at(request: Request) -> float | None:
    given = request.query_params.get("at", "")
    if not given:
        return None
    try:
        value = float(given)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0:
        raise BadInput(Code.ARGUMENT, f"at: must be a virtual time of 0 seconds or more, got {given!r}.")
    return value


def _json(value: object) -> Response:
    return Response(dumped(value), media_type="application/json")


def _file(name: str) -> str:
    return resources.files("potluck.watch").joinpath("static", name).read_text(encoding="utf-8")


@dataclass(frozen=True)
class Server:
    """A server that already listens; `run` serves until `stop` or Ctrl-C."""

    address: str
    watch: Watch
    inner: uvicorn.Server
    listening: socket.socket

    def run(self) -> None:
        try:
            self.inner.run(sockets=[self.listening])
        finally:
            self.listening.close()

    def stop(self) -> None:
        self.inner.should_exit = True


def server(find: Find, host: str, port: int) -> Server:
    """Make a server for the runs that `find` returns; port 0 takes a free port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise BadInput(Code.PORT, f"--port: {host}:{port} cannot be used ({error.strerror or error}).") from None
    watch = Watch(find)
    names = ["localhost", "127.0.0.1", "[::1]", host] if loopback(host) else None
    # The stream of an open page never ends, so shutting down must not wait for it.
    config = uvicorn.Config(
        application(watch, names),
        log_level="critical",
        access_log=False,
        timeout_graceful_shutdown=1,
        lifespan="off",
        ws="none",
        loop="asyncio",
    )
    shown = f"[{host}]" if ":" in host else host
    return Server(f"http://{shown}:{listening.getsockname()[1]}/", watch, uvicorn.Server(config), listening)


def loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
