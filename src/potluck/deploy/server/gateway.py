"""The gateway between clients and the SuperLink: it passes on the requests that a client needs, and nothing else.

Flower serves nodes, commands and server programs on one port, and its commands have no login. Anyone that reaches them
may start code on every node. So the SuperLink listens on loopback only. This gateway listens on the port that clients
reach, and passes on the paths of the fleet protocol alone.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import ssl
import sys
from collections.abc import Awaitable, Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import httpx
import uvicorn

from potluck.deploy.server.limits import KNOWN, MOST, SECONDS, STRANGER, Addresses, Login, TooMany
from potluck.errors import Code

FLEET = "/v1/fleet/"
CALLS = (
    *("activate-node", "deactivate-node", "send-node-heartbeat"),
    *("pull-messages", "push-messages", "confirm-message-received"),
    *("get-run", "get-fab", "push-object", "pull-object"),
)
UNKEYED = ("register-node", "unregister-node")  # without node keys each node registers itself
LIMIT = 32 << 20  # bytes of one request; Flower sends larger objects in parts of 5 MiB
VERSION, HERE = b"flwr-package-version", metadata.version("flwr")  # the SuperLink itself only warns
KEPT = ("content-type", "accept", "user-agent")

log = logging.getLogger("potluck.gateway")
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]


class TooLarge(Exception):
    """A request with more bytes than Flower ever sends."""


class Gateway:
    """An ASGI application."""

    def __init__(
        self, target: str, client: httpx.AsyncClient, insecure: bool = False, login: Login | None = None
    ) -> None:
        self._target = target
        self._client = client
        self._login = login or Login(None)
        self._addresses = Addresses()
        self._paths = {f"{FLEET}{call}" for call in (*CALLS, *(UNKEYED if insecure else ()))}

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        who = (scope.get("client") or ("?", 0))[0]
        try:
            with self._addresses.one(who):
                await self._pass_on(who, scope, receive, send)
        except TooMany:
            log.warning("refused: %s has %d requests open [%s]", who, MOST, Code.MESSAGE)
            await _answer(send, 429, b"too many requests at once")

    async def _pass_on(self, who: str, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        path = scope["raw_path"].decode("latin-1") if scope.get("raw_path") else scope["path"]
        if scope["method"] != "POST" or path not in self._paths:
            asked = scope["method"]
            log.warning("refused: %s asked for %s %.100r, not for clients [%s]", who, asked, path, Code.MESSAGE)
            await _answer(send, 404, b"not here")
            return
        there = next((value.decode("latin-1") for name, value in scope["headers"] if name == VERSION), HERE)
        if there.split(".")[:2] != HERE.split(".")[:2]:
            log.warning("refused: %s runs flwr %.40s, here is %s [%s]", who, there, HERE, Code.FLOWER_VERSION)
            await _answer(send, 426, f"flwr {HERE} is needed".encode())
            return
        headers = [
            (name.decode("latin-1"), value.decode("latin-1"))
            for name, value in scope["headers"]
            if name.decode("latin-1") in KEPT or name.startswith(b"flwr-")
        ]
        try:
            async with asyncio.timeout(SECONDS):
                body = await _body(receive, lambda: self._login.valid(dict(headers)))
        except TooLarge as error:
            log.warning("refused: %s sent more than %s to %s [%s]", who, error, path, Code.UPDATE_SIZE)
            await _answer(send, 413, b"too large")
            return
        except TimeoutError:
            log.warning("refused: %s took more than %d seconds over a request [%s]", who, SECONDS, Code.MESSAGE)
            await _answer(send, 408, b"too slow")
            return
        try:
            response = await self._client.post(f"{self._target}{path}", content=body, headers=headers)
        except httpx.HTTPError as error:
            log.warning("the SuperLink does not answer (%s)", error)
            await _answer(send, 503, b"the server is being started")
            return
        if response.status_code >= 400:
            log.warning("refused: %s, %s: %d %.200s", who, path, response.status_code, response.text)
        kept = [
            (name.encode(), value.encode())
            for name, value in response.headers.multi_items()
            if name not in ("content-length", "transfer-encoding", "connection", "server", "date", "content-encoding")
        ]
        await _answer(send, response.status_code, response.content, kept)


async def _body(receive: Receive, known: Callable[[], bool]) -> bytes:
    """Read a body. More than a few kilobytes are read from a registered key only."""
    parts, size, trusted = [], 0, False
    while True:
        event = await receive()
        if event["type"] == "http.disconnect":
            return b""
        part = event.get("body", b"")
        size += len(part)
        if size > STRANGER and not trusted:
            trusted = known()
            if not trusted:
                raise TooLarge(f"{STRANGER} bytes without a registered key")
        if size > LIMIT:
            raise TooLarge(f"{LIMIT} bytes")
        parts.append(part)
        if not event.get("more_body"):
            return b"".join(parts)


async def _answer(send: Send, status: int, body: bytes, headers: list[tuple[bytes, bytes]] | None = None) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*(headers or []), length]})
    await send({"type": "http.response.body", "body": body})


def main(arguments: list[str]) -> None:
    """`python -m potluck.deploy.server.gateway`, as the server's supervisor starts it."""
    parser = argparse.ArgumentParser(prog="potluck.deploy.server.gateway")
    parser.add_argument("--bind", required=True)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--target", required=True)
    parser.add_argument("--certificates", type=Path)
    given = parser.parse_args(arguments)
    logging.basicConfig(format="%(asctime)s %(message)s", level=logging.INFO)
    logging.getLogger("httpx").setLevel(logging.WARNING)
    folder: Path | None = given.certificates
    verify: ssl.SSLContext | bool = False
    if folder is not None:
        verify = ssl.create_default_context(cafile=str(folder / "ca.crt"))
    client = httpx.AsyncClient(verify=verify, timeout=60.0, trust_env=False)
    login = Login(None if folder is None else folder / KNOWN)
    uvicorn.run(
        Gateway(f"{'http' if folder is None else 'https'}://{given.target}", client, folder is None, login),
        host=given.bind,
        port=given.port,
        log_level="warning",
        access_log=False,
        limit_concurrency=10 * MOST,
        ssl_certfile=None if folder is None else str(folder / "server.pem"),
        ssl_keyfile=None if folder is None else str(folder / "server.key"),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
