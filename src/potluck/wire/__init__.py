"""Messages as bytes: named tensors and small settings, in a format that holds no code."""

from potluck.wire.codec import decode, encode, flatten, rebuild, size

__all__ = ["decode", "encode", "flatten", "rebuild", "size"]
