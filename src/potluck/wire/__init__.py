"""What crosses the wire: named tensors and small settings, in a format with no code in it."""

from potluck.wire.codec import decode, encode, flatten, rebuild, size

__all__ = ["decode", "encode", "flatten", "rebuild", "size"]
