"""Envelopes: their heads, and how they travel in Flower's records."""

from __future__ import annotations

import pytest

from potluck.engines.flower.protocol import Envelope, head_of
from potluck.errors import BadInput

transport = pytest.importorskip("potluck.engines.flower.transport", reason="needs the extra flower")


@pytest.mark.parametrize("size", [0, 10, transport.INLINE, transport.INLINE + 1])
def test_envelopes_survive_flowers_records(size: int) -> None:
    envelope = Envelope({"kind": "task", "leg": 1}, b"\x01" * size)
    assert transport.from_records(transport.to_records(envelope)) == envelope


@pytest.mark.parametrize("text", ["[1]", "{", "1" * (2 << 20), "[" * 100_000])
def test_a_head_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="head"):
        head_of(text)
