"""Shamir's secret sharing (CACM 1979) over the integers modulo 2^31 - 1, for many secrets at once.

A secret of 32 bytes is 16 limbs of 16 bits, each the value at 0 of a polynomial of its own. Any `threshold` shares give
the secret; fewer give nothing. Everything is vectorised over secrets and limbs.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

P = (1 << 31) - 1
LIMBS = 16  # of a secret of 32 bytes
Field = NDArray[np.uint64]
Shares = NDArray[np.uint32]


def limbs_of(secrets: NDArray[np.uint8]) -> Field:
    """Secrets (n, 32) as numbers (n, 16)."""
    return secrets.view("<u2").astype(np.uint64)


def secrets_of(limbs: Field) -> NDArray[np.uint8]:
    return limbs.astype("<u2").view(np.uint8)


def random_field(*shape: int) -> Field:
    """Numbers of the field from the operating system; 64 bits each make the bias of the remainder negligible."""
    count = int(np.prod(shape))
    return (np.frombuffer(os.urandom(8 * count), dtype=np.uint64) % np.uint64(P)).reshape(shape)


def share(secrets: NDArray[np.uint8], holders: int, threshold: int) -> Shares:
    """Shares (n, holders, 16) of secrets (n, 32). Holder i has the values at i + 1."""
    limbs = limbs_of(secrets)
    points = np.arange(1, holders + 1, dtype=np.uint64)[None, :, None]
    values = np.zeros((len(limbs), holders, LIMBS), dtype=np.uint64)
    for coefficient in range(threshold - 1):  # Horner's rule, from the highest power down
        own = random_field(len(limbs), 1, LIMBS)
        values = own + values * points if coefficient else np.broadcast_to(own, values.shape)
        values = values % np.uint64(P)
    return ((limbs[:, None, :] + values * points) % np.uint64(P)).astype(np.uint32)


def combine(points: NDArray[np.int64], shares: Shares) -> NDArray[np.uint8]:
    """Secrets (n, 32) from shares (n, threshold, 16) at these points (n, threshold)."""
    x = points.astype(np.uint64)
    above, below = np.ones_like(x), np.ones_like(x)
    for other in range(x.shape[1]):  # Lagrange's polynomials at 0
        one = x[:, other : other + 1]
        same = x == one
        above = np.where(same, above, above * one % np.uint64(P))
        below = np.where(same, below, below * ((one + np.uint64(P) - x) % np.uint64(P)) % np.uint64(P))
    weights = above * _inverse(below) % np.uint64(P)
    terms = weights[:, :, None] * shares.astype(np.uint64) % np.uint64(P)
    return secrets_of(terms.sum(1, dtype=np.uint64) % np.uint64(P))


def _inverse(values: Field) -> Field:
    """1 / values, by Fermat: the power P - 2."""
    found, power, left = np.ones_like(values), values.copy(), P - 2
    while left:
        if left & 1:
            found = found * power % np.uint64(P)
        power = power * power % np.uint64(P)
        left >>= 1
    return found
