"""Why a client cannot connect: the usual causes, found from the error."""

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
    """The cause in one sentence, with a remedy."""
    if isinstance(error, NotLetIn):
        return _refused(error, place)
    verify = _within(error, ssl.SSLCertVerificationError)
    if isinstance(verify, ssl.SSLCertVerificationError):
        if "name mismatch" in str(verify) or "not valid for" in str(verify) or "IP address mismatch" in str(verify):
            return Cause(
                "wrong name",
                Code.CERTIFICATE,
                f"server: its certificate is not valid for {place.server}; run `potluck deploy init --host` with "
                "the name that clients use.",
            )
        return Cause(
            "wrong authority",
            Code.CERTIFICATE,
            f"ca.crt: {place.authority} did not sign the certificate of the server at {place.server}; "
            "copy the client's folder from the server again.",
        )
    if isinstance(error, httpx.ConnectError | httpx.TimeoutException):
        return Cause("no server", Code.DEPLOY_SERVER, f"server: no answer from {place.server} ({error}).")
    return Cause("connection", Code.DEPLOY_SERVER, f"server: the connection to {place.server} broke ({error}).")


def _refused(error: NotLetIn, place: ClientFolder) -> Cause:
    skew = clock_skew(error.server_time)
    if error.status == 426:  # from the gateway
        return Cause(
            "version",
            Code.FLOWER_VERSION,
            f"flwr: the server has another version ({error}); install the same one here.",
        )
    if error.status == 401 and skew is not None and not -300.0 < skew < SKEW:
        way = "ahead of" if skew > 0 else "behind"
        return Cause(
            "clock", Code.CLOCK, f"clock: this machine is {abs(skew):.0f} s {way} the server; set both clocks."
        )
    if error.code == ApiErrorCode.FLEET_NODE_ACTIVATION_FAILED or error.status == 401:
        return Cause(
            "not let in",
            Code.KEY,
            f"key: the server does not know the key in {place.key}, or another process uses it already "
            f"(the name {place.name!r} is in use); `potluck deploy status` on the server shows which.",
        )
    return Cause("refused", Code.DEPLOY_SERVER, f"server: refused the connection ({error.status}: {error}).")


def clock_skew(server_time: str) -> float | None:
    """Seconds that this clock is ahead of the server's, by the date of its answer."""
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
