"""The four steps of a client in one secure sum (Bonawitz et al., Figure 4): keys, shares, masked vector, unmasking."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from numpy.typing import NDArray

from potluck.errors import BadInput, Code
from potluck.secure import field, keys
from potluck.secure.cost import PUBLIC, SHARES
from potluck.secure.keys import Masks


class SumClient:
    """One client in one sum. Everything but its answers stays in this object."""

    def __init__(self, name: str, number: str) -> None:
        self.name = name
        self._number = number  # of the sum; part of each key
        self._sealing = X25519PrivateKey.generate()
        self._masking = X25519PrivateKey.generate()
        self._own = os.urandom(32)  # seed of the mask that only survivors' shares open
        self._others: dict[str, bytes] = {}  # public masking keys of the neighbours
        self._sealed_with: dict[str, bytes] = {}  # key for what each neighbour seals
        self._held: dict[str, bytes] = {}  # sealed shares of the neighbours' secrets
        self._vector_sent = False
        self._opened = False

    def keys(self) -> bytes:
        """Step 1: both public keys."""
        return keys.public(self._sealing) + keys.public(self._masking)

    def shares(self, neighbours: Sequence[tuple[str, bytes]], threshold: int) -> list[bytes]:
        """Step 2: for each neighbour, sealed shares of the own mask's seed and of the masking key."""
        if len({name for name, _ in neighbours}) != len(neighbours) or self.name in dict(neighbours):
            raise BadInput(Code.MESSAGE, "secure sum: neighbours must be others, each once.")
        if not 1 <= threshold <= len(neighbours) or self._others:
            raise BadInput(Code.MESSAGE, "secure sum: shares are given once, with a threshold in reach.")
        secret = np.frombuffer(self._own + self._masking.private_bytes_raw(), dtype=np.uint8).reshape(2, 32)
        parts = field.share(secret, len(neighbours), threshold)
        sealed = []
        for place, (name, known) in enumerate(neighbours):
            self._others[name] = known[PUBLIC:]
            common = self._sealing.exchange(X25519PublicKey.from_public_bytes(known[:PUBLIC]))
            self._sealed_with[name] = keys.derived(common, f"{self._number} {name} {self.name}")
            key = keys.derived(common, f"{self._number} {self.name} {name}")
            sealed.append(keys.seal(key, parts[:, place].tobytes()))
        return sealed

    def masked(self, vector: NDArray[np.uint32], held: Mapping[str, bytes]) -> NDArray[np.uint32]:
        """Step 3: the vector with the own mask and one mask for each neighbour that gave shares (`held`)."""
        if self._vector_sent or not set(held) <= set(self._others):
            raise BadInput(Code.MESSAGE, "secure sum: one vector is masked once, with neighbours that are known.")
        self._vector_sent, self._held = True, dict(held)
        total = vector.astype(np.uint32, copy=True)
        masks = Masks(len(total))
        masks.add(total, keys.derived(self._own, f"{self._number} own"))
        for name in held:
            key = keys.agreed(self._masking, self._others[name], f"{self._number} pair")
            masks.add(total, key, 1 if self.name < name else -1)
        return total

    def opened(self, stayed: Sequence[str], gone: Sequence[str]) -> dict[str, bytes]:
        """Step 4: of neighbours that stayed the share of their own mask, of those that went that of their masking key.

        Both for one neighbour would show its vector, so this step is done once.
        """
        if self._opened or set(stayed) & set(gone):
            raise BadInput(Code.MESSAGE, "secure sum: a neighbour stayed or went, and shares are opened once.")
        self._opened = True
        found = {}
        for names, part in ((stayed, slice(0, SHARES)), (gone, slice(SHARES, 2 * SHARES))):
            for name in names:
                if name in self._held:
                    found[name] = keys.unseal(self._sealed_with[name], self._held[name])[part]
        return found
