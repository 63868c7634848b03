"""Bytes and seconds of the steps of a secure sum, beyond the masked vector, which is as large as the update."""

from __future__ import annotations

from potluck.devices import Link
from potluck.secure.field import LIMBS

PUBLIC = 32  # bytes of a public key
SHARES = 4 * LIMBS  # of the share of one secret
SEALED = 2 * SHARES + 16  # of the sealed shares for one neighbour
STEPS = 4  # keys, shares, masked vector, unmasking


def up(neighbours: int) -> int:
    """Bytes that a client sends: its keys, sealed shares, opened shares."""
    return 2 * PUBLIC + neighbours * (SEALED + SHARES)


def down(neighbours: int) -> int:
    """Bytes that a client gets: keys and sealed shares of its neighbours."""
    return neighbours * (2 * PUBLIC + SEALED)


def seconds(link: Link, neighbours: int) -> float:
    """How long the steps take over a link, without jitter; the masked vector is counted as the update."""
    return 2 * STEPS * link.latency + 8.0 * up(neighbours) / link.up + 8.0 * down(neighbours) / link.down
