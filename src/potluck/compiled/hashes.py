"""BLAKE2b (RFC 7693) of many short texts, 8 bytes of each digest: the numbers that `potluck.keys.numbers` draws."""

from __future__ import annotations

from typing import Any

import numpy as np

from potluck.compiled.jit import INT, PLACES, inlined, kernel

Array = Any
Word = Any  # an unsigned integer of 64 bits
BLOCK = 128  # bytes of the longest text: one block
DIGITS = 20  # of the longest integer, with its sign
BYTES, WORDS, WORD = "uint8[::1]", "uint64[::1]", "uint64"
W8, W16, W24, W32, W40, W48, W56, W63 = (np.uint64(n) for n in (8, 16, 24, 32, 40, 48, 56, 63))
W1, FULL = np.uint64(1), np.uint64(0xFFFFFFFFFFFFFFFF)
# The first words of the fractions of square roots of primes (RFC 7693, section 2.6), and the orders of 2.7.
IV = np.array(
    [
        0x6A09E667F3BCC908, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1,
        0x510E527FADE682D1, 0x9B05688C2B3E6C1F, 0x1F83D9ABFB41BD6B, 0x5BE0CD19137E2179,
    ],
    np.uint64,
)  # fmt: skip
ORDERS = np.array(
    [
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
        [11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4],
        [7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8],
        [9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13],
        [2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9],
        [12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11],
        [13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10],
        [6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5],
        [10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0],
        [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15],
        [14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3],
    ]
)
FIRST = IV[0] ^ np.uint64(0x01010008)  # no key, a digest of 8 bytes (RFC 7693, section 2.5)


@inlined(WORD, WORD, WORD, WORD, WORD, WORD)
def _mixed(a: Word, b: Word, c: Word, d: Word, x: Word, y: Word) -> Any:
    """The function G (RFC 7693, section 3.1)."""
    a = a + b + x
    d = d ^ a
    d = (d >> W32) | (d << W32)
    c = c + d
    b = b ^ c
    b = (b >> W24) | (b << W40)
    a = a + b + y
    d = d ^ a
    d = (d >> W16) | (d << W48)
    c = c + d
    b = b ^ c
    b = (b >> W63) | (b << W1)
    return a, b, c, d


@kernel(WORDS, INT)
def _digest(m: Array, length: int) -> Word:
    """The first 8 bytes of the digest of a text of one block (RFC 7693, section 3.2)."""
    v0, v1, v2, v3, v4, v5, v6, v7 = FIRST, IV[1], IV[2], IV[3], IV[4], IV[5], IV[6], IV[7]
    v8, v9, v10, v11, v12, v13, v14, v15 = IV[0], IV[1], IV[2], IV[3], IV[4], IV[5], IV[6], IV[7]
    v12, v14 = v12 ^ np.uint64(length), v14 ^ FULL
    for r in range(12):
        s = ORDERS[r]
        v0, v4, v8, v12 = _mixed(v0, v4, v8, v12, m[s[0]], m[s[1]])
        v1, v5, v9, v13 = _mixed(v1, v5, v9, v13, m[s[2]], m[s[3]])
        v2, v6, v10, v14 = _mixed(v2, v6, v10, v14, m[s[4]], m[s[5]])
        v3, v7, v11, v15 = _mixed(v3, v7, v11, v15, m[s[6]], m[s[7]])
        v0, v5, v10, v15 = _mixed(v0, v5, v10, v15, m[s[8]], m[s[9]])
        v1, v6, v11, v12 = _mixed(v1, v6, v11, v12, m[s[10]], m[s[11]])
        v2, v7, v8, v13 = _mixed(v2, v7, v8, v13, m[s[12]], m[s[13]])
        v3, v4, v9, v14 = _mixed(v3, v4, v9, v14, m[s[14]], m[s[15]])
    return FIRST ^ v0 ^ v8


@kernel(BYTES, INT, BYTES)
def _put(text: Array, at: int, part: Array) -> int:
    for i in range(len(part)):
        text[at + i] = part[i]
    return at + len(part)


@kernel(BYTES, INT, INT)
def _put_number(text: Array, at: int, number: int) -> int:
    """Write a number in decimal digits."""
    if number < 0:
        text[at] = 45  # minus
        at += 1
    rest = np.uint64(-number) if number < 0 else np.uint64(number)
    count, left = 1, rest
    while left >= np.uint64(10):
        left //= np.uint64(10)
        count += 1
    for i in range(count):
        text[at + count - 1 - i] = 48 + rest % np.uint64(10)
        rest //= np.uint64(10)
    return at + count


@kernel(BYTES, BYTES, PLACES, BYTES, PLACES, BYTES, PLACES)
def digests(begin: Array, names: Array, lengths: Array, between: Array, numbers: Array, end: Array, out: Array) -> None:
    """Of each text `begin` name `between` number `end`, 8 bytes of the digest; `names` has all of them in a row."""
    text = np.empty(BLOCK, np.uint8)
    words = text.view(np.uint64)
    start, at = _put(text, 0, begin), 0
    for k in range(len(lengths)):
        last = at + lengths[k]
        place = _put(text, start, names[at:last])
        place = _put_number(text, _put(text, place, between), numbers[k])
        place = _put(text, place, end)
        for i in range(place, BLOCK):
            text[i] = 0
        out[k] = np.int64(_digest(words, place))
        at = last
