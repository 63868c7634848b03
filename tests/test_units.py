"""Numbers as people read them."""

from __future__ import annotations

import pytest

from potluck.units import count, number, percent, points, quantity


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (0, "B", "0 B"), (999, "B", "999 B"), (1234, "B", "1.23 kB"), (81_200_000, "B", "81.2 MB"),
        (0, "J", "0 J"), (0.424, "J", "424 mJ"), (171.4, "J", "171 J"), (11_400, "J", "11.4 kJ"),
        (0, "s", "0 s"), (0.0354, "s", "35.4 ms"), (428, "s", "428 s"), (5400, "s", "90 min"), (36_000, "s", "10 h"),
        (10.7e9, "MAC", "10.7 GMAC"), (None, "J", "–"), (2.5e15, "B", "2,500 TB"),
    ],
)  # fmt: skip
def test_quantities(value: float | None, kind: str, text: str) -> None:
    assert quantity(value, kind).replace("\N{NO-BREAK SPACE}", " ") == text


def test_shares_differences_and_counts() -> None:
    assert percent(0.8283) == "82.8\N{NO-BREAK SPACE}%"
    assert percent(None) == "–"
    assert [points(-0.058), points(0.0123), points(-0.0004), points(-0.058, signed=False)] == [
        "−5.8",
        "+1.2",
        "0.0",
        "5.8",
    ]
    assert [count(3.0), count(2.6667), count(12_000), count(None)] == ["3", "2.7", "12,000", "–"]
    assert [number(0.00512), number(-1234), number(20)] == ["0.00512", "−1,234", "20"]
