"""How each method is drawn, the same in every chart and on paper: a colour, a marker and a dash.

The six hues and the grey differ enough under simulated protanopia, deuteranopia and tritanopia, on white and in dark
mode (test_styles.py measures it). Without colour the marker distinguishes methods.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from potluck.report.figures.sentence import ALONE, POOLED

LIGHT = ("#0072B2", "#D97706", "#7A1F00", "#9333EA", "#12A37F", "#2B1B8A")
DARK = ("#4FA8E8", "#F59A23", "#FFE9C2", "#B26BFF", "#14B88A", "#E5484D")
GREY_LIGHT, GREY_DARK = "#6B7280", "#8B95A5"  # for the baselines local and centralised
MARKERS = ("circle", "square", "diamond", "up", "down", "plus", "cross")
GREY_MARKERS = ("left", "right")
DASHES = ("", "6 3", "2 3")


@dataclass(frozen=True)
class Style:
    hue: int  # index into the colours; -1 for grey
    marker: str
    dash: str

    @property
    def light(self) -> str:
        return GREY_LIGHT if self.hue < 0 else LIGHT[self.hue]

    @property
    def css(self) -> str:
        """The classes of the page's style sheet."""
        return f"h{'g' if self.hue < 0 else self.hue} {self.marker}"


def styles_of(methods: Iterable[tuple[str, str]]) -> dict[str, Style]:
    """Styles by label, from (label, method name); the order of the methods does not matter."""
    found: dict[str, Style] = {}
    plain = grey = 0
    for label, name in sorted(methods):
        if name in (ALONE, POOLED):
            found[label] = Style(-1, GREY_MARKERS[grey % len(GREY_MARKERS)], "6 3" if name == POOLED else "")
            grey += 1
        else:
            found[label] = Style(
                plain % len(LIGHT), MARKERS[plain % len(MARKERS)], DASHES[plain // len(LIGHT) % len(DASHES)]
            )
            plain += 1
    return found
