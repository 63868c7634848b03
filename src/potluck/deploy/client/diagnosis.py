"""Why a client is not let in: the usual causes, told apart by what the server or the line said."""

from __future__ import annotations

import datetime
import email.utils
import ssl
from dataclasses import dataclass

import httpx
from flwr.supercore.error import ApiErrorCode

from potluck.deploy.layout import ClientFolder
from potluck.engines.flower.client.connection import NotLetIn
from potluck.errors import Code

SKEW = 4.0  # seconds; a signature from 5 s in the future is refused


@dataclass(frozen=True)
class Cause:
    kind: str
    code: Code
    sentence: str


def cause(error: Exception, place: ClientFolder) -> Cause:
    """The cause in one sentence, with what to do about it."""
    if isinstance(error, NotLetIn):
        return _refused(error, place)
    verify = _within(error, ssl.SSLCertVerificationError)
    if isinstance(verify, ssl.SSLCertVerificationError):
        if "name mismatch" in str(verify) or "not valid for" in str(verify) or "IP address mismatch" in str(verify):
            return Cause(
                "wrong name",
                Code.CERTIFICATE,
                f"server: its certificate is not made out to {place.server}; run `potluck deploy init --host` with "
                "the name that clients use.",
            )
        return Cause(
            "wrong authority",
            Code.CERTIFICATE,
            f"ca.crt: the server at {place.server} is certified by another authority than {place.authority}; "
            "copy the client's folder from the server anew.",
        )
    if isinstance(error, httpx.ConnectError | httpx.TimeoutException):
        return Cause("no server", Code.DEPLOY_SERVER, f"server: nobody answers at {place.server} ({error}).")
    return Cause("line", Code.DEPLOY_SERVER, f"server: the line to {place.server} broke ({error}).")


def _refused(error: NotLetIn, place: ClientFolder) -> Cause:
    skew = clock_skew(error.server_time)
    if error.status == 426:  # said by the gateway
        return Cause(
            "version",
            Code.FLOWER_VERSION,
            f"flwr: the server runs another version ({error}); install the same one here.",
        )
    if error.status == 401 and skew is not None and not -300.0 < skew < SKEW:
        way = "ahead of" if skew > 0 else "behind"
        return Cause(
            "clock", Code.CLOCK, f"clock: this machine is {abs(skew):.0f} s {way} the server; set the clocks alike."
        )
    if error.code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED or error.status == 401:
        return Cause(
            "not let in",
            Code.KEY,
            f"key: the server does not know the key in {place.key}, or somebody is on the line with it already "
            f"(the name {place.name!r} is in use); `potluck deploy status` on the server tells which.",
        )
    return Cause("refused", Code.DEPLOY_SERVER, f"server: it refused ({error.status}: {error}).")


def clock_skew(server_time: str) -> float | None:
    """How far this clock is ahead of the server's, from the date it put on its answer."""
    try:
        there = email.utils.parsedate_to_datetime(server_time)
    except (TypeError, ValueError):
        return None
    return (now() - there).total_seconds()


def now() -> datetime.datetime:
    """This machine's clock."""
    return datetime.datetime.now(datetime.UTC)


def _within(error: BaseException | None, kind: type[BaseException]) -> BaseException | None:
    seen = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, kind):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None
