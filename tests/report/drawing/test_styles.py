"""Methods can be told apart, also by those who see colours otherwise."""

from __future__ import annotations

from importlib import resources
from itertools import combinations

import numpy as np
import pytest

from potluck import demo
from potluck.report.drawing import sketch_png
from potluck.report.drawing.markers import marker
from potluck.report.drawing.styles import COLOURS, GREY, MARKERS, styles_of

# How colours are seen without one kind of cone, on linear RGB (Machado, Oliveira and Fernandes 2009, severity 1).
SEEN = {
    "all cones": np.eye(3),
    "protanopia": np.array([
        [0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998],
    ]),
    "deuteranopia": np.array([
        [0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881],
    ]),
    "tritanopia": np.array([
        [1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900],
    ]),
}  # fmt: skip
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])


def linear(colour: str) -> np.ndarray:
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb: np.ndarray) -> np.ndarray:
    xyz = TO_XYZ @ np.clip(rgb, 0, 1) / TO_XYZ.sum(1)
    f = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def contrast(a: str, b: str) -> float:
    dim, bright = sorted(float(TO_XYZ[1] @ linear(colour)) for colour in (a, b))
    return (bright + 0.05) / (dim + 0.05)


@pytest.mark.parametrize("seen", SEEN)
def test_colours_keep_apart(seen: str) -> None:
    colours = (*COLOURS, GREY)
    shown = {colour: lab(SEEN[seen] @ linear(colour)) for colour in colours}
    apart = {(a, b): float(np.linalg.norm(shown[a] - shown[b])) for a, b in combinations(colours, 2)}
    assert min(apart.values()) > 10, min(apart, key=lambda pair: apart[pair])


def test_colours_stand_out_from_the_page() -> None:
    """The light and the dark one: a method has one colour on both."""
    for page in ("#ffffff", "#14171c"):
        assert min(contrast(colour, page) for colour in (*COLOURS, GREY)) > 3


def test_styles_do_not_depend_on_the_order_and_are_all_different() -> None:
    methods = [(f"m{i:02}", f"m{i:02}") for i in range(20)] + [("local", "local"), ("centralised", "centralised")]
    found = styles_of(methods)
    assert styles_of(reversed(methods)) == found
    assert len(set(found.values())) == len(methods)
    assert found["local"].hue == found["centralised"].hue == -1


def test_the_methods_of_the_demo_have_a_marker_each() -> None:
    """Without colour, on paper, nothing else tells them apart."""
    names = {run.method for run in demo.plan("runs", seeds=1).runs} | {"centralised"}
    found = styles_of((name, name) for name in names)
    assert len({style.marker for style in found.values()}) == len(names)
    many = styles_of((f"m{i}", f"m{i}") for i in range(len(MARKERS)))
    assert len({style.marker for style in many.values()}) == len(MARKERS)
    found |= many
    sheet = resources.files("potluck.report.html").joinpath("page.css").read_text(encoding="utf-8")
    for style in found.values():
        assert marker(style, 0, 0)  # the page draws it
        assert style.marker == "square" or f".d.{style.marker} {{" in sheet  # and so do its tables
        assert style.marker in sketch_png.MARKERS  # and the figures
