"""The gateway's limits: how many requests, for how long, and how much before a key was shown."""

from __future__ import annotations

import asyncio
import base64
import datetime
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("flwr", reason="needs the extra flower")

from cryptography.hazmat.primitives.asymmetric import ec
from flwr.supercore.primitives.asymmetric import public_key_to_bytes, sign_message

from potluck.deploy.server import gateway, limits
from potluck.deploy.server.gateway import Gateway
from potluck.deploy.server.limits import STRANGER, Addresses, Login, TooMany

PATH = "/v1/fleet/push-object"


def signed(key: ec.EllipticCurvePrivateKey, at: datetime.datetime) -> dict[str, str]:
    stamp = at.isoformat()
    return {
        "flwr-public-key": base64.b64encode(public_key_to_bytes(key.public_key())).decode(),
        "flwr-signature": base64.b64encode(sign_message(key, stamp.encode())).decode(),
        "flwr-timestamp": stamp,
    }


def asked(app: Gateway, headers: dict[str, str], parts: list[bytes], pause: float = 0.0) -> int:
    """The status that a request gets."""
    scope = {"type": "http", "method": "POST", "path": PATH, "raw_path": PATH.encode(), "client": ("192.0.2.9", 1)}
    scope["headers"] = [(name.encode(), value.encode()) for name, value in headers.items()]
    told: list[dict[str, Any]] = []
    left = list(parts)

    async def receive() -> dict[str, Any]:
        await asyncio.sleep(pause)
        return {"type": "http.request", "body": left.pop(0), "more_body": bool(left)}

    async def send(event: dict[str, Any]) -> None:
        told.append(event)

    asyncio.run(app(scope, receive, send))
    return int(told[0]["status"])


def app_of(login: Login) -> Gateway:
    there = httpx.MockTransport(lambda request: httpx.Response(200, content=b"passed on"))
    return Gateway("http://superlink", httpx.AsyncClient(transport=there), login=login)


def test_a_large_body_needs_a_registered_key(tmp_path: Path) -> None:
    known, other = ec.generate_private_key(ec.SECP384R1()), ec.generate_private_key(ec.SECP384R1())
    (tmp_path / "known").write_text(json.dumps([public_key_to_bytes(known.public_key()).hex()]))
    app = app_of(Login(tmp_path / "known"))
    now = datetime.datetime.now(datetime.UTC)
    large, small = [bytes(40_000), bytes(40_000)], [bytes(STRANGER)]
    assert asked(app, signed(known, now), large) == 200
    assert asked(app, signed(other, now), large) == 413
    assert asked(app, signed(known, now - datetime.timedelta(hours=1)), large) == 413
    assert asked(app, {**signed(known, now), "flwr-signature": "AAAA"}, large) == 413
    assert asked(app, {}, large) == 413
    assert asked(app, {}, small) == 200  # the SuperLink itself says no
    (tmp_path / "known").write_text("[]")  # revoked
    assert asked(app_of(Login(tmp_path / "known")), signed(known, now), large) == 413


def test_a_body_has_a_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "SECONDS", 0.05)
    assert asked(app_of(Login(None)), {}, [b"a", b"b", b"c"], pause=0.04) == 408
    assert asked(app_of(Login(None)), {}, [b"a"]) == 200


def test_an_address_has_so_many_requests_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    few = Addresses(2)
    with few.one("a"), few.one("a"), few.one("b"), pytest.raises(TooMany), few.one("a"):
        pass
    with few.one("a"):
        pass
    app = app_of(Login(None))
    monkeypatch.setattr(app, "_addresses", Addresses(0))
    assert asked(app, {}, [b"a"]) == 429
    assert limits.MOST >= 100
