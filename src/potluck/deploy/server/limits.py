"""What one address may ask of the gateway at once, for how long, and how much before it has shown its key."""

from __future__ import annotations

import base64
import binascii
import datetime
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from flwr.common.constant import SYSTEM_TIME_TOLERANCE, TIMESTAMP_HEADER, TIMESTAMP_TOLERANCE
from flwr.supercore.constant import FLEET_HTTP_PUBLIC_KEY_HEADER, FLEET_HTTP_SIGNATURE_HEADER
from flwr.supercore.primitives.asymmetric import bytes_to_public_key, verify_signature

KNOWN = "known_keys.json"  # the registered keys, as the supervisor writes them
MOST = 200  # requests of one address at once; forty clients behind one address have a few each
SECONDS = 60.0  # for the body of a request
STRANGER = 64 << 10  # bytes of a request without a registered key; the largest is that of a greeting


class TooMany(Exception):
    """An address has too many requests open."""


class Addresses:
    """Counts the open requests of each address."""

    def __init__(self, most: int = MOST) -> None:
        self._open: Counter[str] = Counter()
        self._most = most

    @contextmanager
    def one(self, address: str) -> Iterator[None]:
        if self._open[address] >= self._most:
            raise TooMany
        self._open[address] += 1
        try:
            yield
        finally:
            self._open[address] -= 1
            if not self._open[address]:
                del self._open[address]


class Login:
    """Checks the signature of a request before its body is read. The SuperLink checks it again."""

    def __init__(self, path: Path | None) -> None:
        self._path = path  # None: a deployment without keys
        self._read = -1.0
        self._keys: frozenset[str] = frozenset()

    def valid(self, headers: Mapping[str, str], now: datetime.datetime | None = None) -> bool:
        """Whether a registered key signed this request, a short while ago."""
        if self._path is None:
            return True
        try:
            key = base64.b64decode(headers[FLEET_HTTP_PUBLIC_KEY_HEADER], validate=True)
            signature = base64.b64decode(headers[FLEET_HTTP_SIGNATURE_HEADER], validate=True)
            stamp = headers[TIMESTAMP_HEADER]
            age = (
                (now or datetime.datetime.now(datetime.UTC)) - datetime.datetime.fromisoformat(stamp)
            ).total_seconds()
            fresh = -SYSTEM_TIME_TOLERANCE < age < TIMESTAMP_TOLERANCE + SYSTEM_TIME_TOLERANCE
            signed = verify_signature(bytes_to_public_key(key), stamp.encode("ascii"), signature)
            return fresh and key.hex() in self._known() and bool(signed)
        except (KeyError, ValueError, TypeError, UnicodeError, binascii.Error):
            return False

    def _known(self) -> frozenset[str]:
        assert self._path is not None
        try:
            changed = self._path.stat().st_mtime
            if changed != self._read:
                self._keys = frozenset(json.loads(self._path.read_text(encoding="utf-8")))
                self._read = changed
        except (OSError, ValueError):
            return frozenset()
        return self._keys
