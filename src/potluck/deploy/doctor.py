"""Finds out what keeps a deployment from working: checks the usual causes, and names each with its remedy."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import httpx
from cryptography import x509
from cryptography.exceptions import InvalidSignature

from potluck.deploy.client.diagnosis import cause
from potluck.deploy.client.owner import read_owner
from potluck.deploy.client.rows import read
from potluck.deploy.findings import FAIL, OK, WARN, Finding
from potluck.deploy.layout import SERVER_LOCK, ClientFolder, Deployment, free, holder
from potluck.engines.flower.client.connection import Connection, NotLetIn, ServerAddress
from potluck.errors import BadInput, install

FLOWER = "1.41.0"


def examine(folder: Path, data: str | None = None) -> Iterator[Finding]:
    """Check a server's folder or a client's folder."""
    yield version()
    if (folder / "client.toml").is_file():
        yield from client(ClientFolder.read(folder), data)
    else:
        yield from server(Deployment.read(folder))


def version() -> Finding:
    here = metadata.version("flwr")
    if here != FLOWER:
        return Finding("flwr", FAIL, f"must be {FLOWER}, got {here}", install(f"flwr=={FLOWER}"))
    return Finding("flwr", OK, here)


def server(deployment: Deployment) -> Iterator[Finding]:
    running = holder(deployment.server / SERVER_LOCK)
    if running:
        yield Finding("server", OK, f"runs, process {running}")
    else:
        for host, port in ((deployment.bind, deployment.port), (deployment.control_host, deployment.port + 1)):
            if free(host, port):
                yield Finding(f"port {port}", OK, f"free on {host}")
            else:
                yield Finding(
                    f"port {port}", FAIL, f"taken on {host}", "stop what listens there, or `deploy init --port`"
                )
    if deployment.insecure:
        yield Finding("security", FAIL, "--insecure: no TLS and no keys", "make another deployment without --insecure")
        return
    yield _signed(deployment)
    names = deployment.names
    yield Finding(
        "clients", OK if names else WARN, ", ".join(names) or "none", "" if names else "deploy init --client NAME"
    )


def _signed(deployment: Deployment) -> Finding:
    """Whether the authority that clients trust signed the server's certificate."""
    certificate = x509.load_pem_x509_certificate((deployment.server / "server.pem").read_bytes())
    authority = x509.load_pem_x509_certificate((deployment.server / "ca.crt").read_bytes())
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return Finding("certificate", FAIL, "server.pem is not signed by ca.crt", "run `potluck deploy init` again")
    days = (certificate.not_valid_after_utc - certificate.not_valid_before_utc).days
    for name in deployment.names:
        if (deployment.client(name) / "ca.crt").read_bytes() != (deployment.server / "ca.crt").read_bytes():
            return Finding("certificate", FAIL, f"{name} has a different ca.crt", "run `potluck deploy init` again")
    return Finding("certificate", OK, f"valid for {deployment.host}, for {days} days")


def client(place: ClientFolder, data: str | None) -> Iterator[Finding]:
    yield _rows(place, data)
    running = holder(place.folder / "home" / ".lock")
    if running:
        yield Finding("client", OK, f"{place.name} runs, process {running}")
        return  # a second connection with the same key would end the first
    yield from _connection(place)


def _rows(place: ClientFolder, data: str | None) -> Finding:
    owner = place.folder / "home" / "owner.json"
    known = read_owner(owner) if owner.exists() else None
    source = data or (str(place.folder / "data.npz") if known is None else known.data)
    try:
        found = read(source, {} if known is None else known.reading)
    except BadInput as error:
        return Finding("data", FAIL, str(error), "name the file with --data")
    return Finding("data", OK, f"{len(found)} rows of {found.classes} classes in {source}")


def _connection(place: ClientFolder) -> Iterator[Finding]:
    """Come online for a moment, as the client would, and leave again."""
    connection = Connection(ServerAddress(place.server, place.authority, place.key), threading.Event())
    try:
        connection.activate()
    except (httpx.TransportError, ssl.SSLError, NotLetIn) as error:
        found = cause(error, place)
        yield Finding(found.kind, FAIL, found.sentence, f"potluck explain {found.code}")
        return
    finally:
        connection.close()
    yield Finding("connection", OK, f"{place.server} accepts {place.name}")
