"""Key agreement (X25519), key derivation (HKDF with SHA-256), sealed shares and masks (ChaCha20), by `cryptography`."""

from __future__ import annotations

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

_NONCE = bytes(12)  # every key seals one message
_START = bytes(16)  # every key makes one mask


def derived(secret: bytes, what: str) -> bytes:
    """32 bytes for one purpose from a shared secret."""
    return HKDF(SHA256(), 32, None, what.encode()).derive(secret)


def agreed(own: X25519PrivateKey, other: bytes, what: str) -> bytes:
    """The key that both ends of a pair have for a purpose."""
    return derived(own.exchange(X25519PublicKey.from_public_bytes(other)), what)


def public(own: X25519PrivateKey) -> bytes:
    return own.public_key().public_bytes_raw()


def seal(key: bytes, message: bytes) -> bytes:
    return ChaCha20Poly1305(key).encrypt(_NONCE, message, None)


def unseal(key: bytes, message: bytes) -> bytes:
    """The message. One that was changed raises cryptography's InvalidTag."""
    return ChaCha20Poly1305(key).decrypt(_NONCE, message, None)


class Masks:
    """Adds masks of one length to a vector, without an allocation for each."""

    def __init__(self, length: int) -> None:
        self._zeros = bytes(4 * length)
        self._stream = bytearray(4 * length + 63)
        self._mask = np.frombuffer(self._stream, dtype="<u4", count=length)

    def add(self, total: NDArray[np.uint32], key: bytes, sign: int = 1) -> None:
        """Add the mask of a key to `total` in place, or take it away."""
        Cipher(algorithms.ChaCha20(key, _START), None).encryptor().update_into(self._zeros, self._stream)
        (np.add if sign > 0 else np.subtract)(total, self._mask, out=total)
