"""Build HTML and SVG so that values from a run are always text, never markup.

A plain `str` is escaped everywhere; only the result of `tag` is markup. Names of clients, reasons and settings come
from outside and may contain anything.
"""

from __future__ import annotations

import re
from html import escape
from typing import TypeAlias

VOID = {"meta", "input", "br"}
# HTML allows no control characters, and UTF-8 no lone surrogates.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


class Html(str):
    """Markup that is already safe."""

    __slots__ = ()


Child: TypeAlias = "str | int | list[Html] | list[str] | None"
Attribute: TypeAlias = "str | int | float | bool | None"


def text(value: object) -> Html:
    return Html(escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(value)), quote=True))


def join(children: list[Html] | list[str]) -> Html:
    return Html("".join(child if isinstance(child, Html) else text(child) for child in children))


def tag(name: str, /, *children: Child, **attributes: Attribute) -> Html:
    """`tag("td", 3, class_="n")`: drops a trailing underscore, turns inner ones into hyphens, and leaves out None."""
    opening = name
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        key = key.rstrip("_").replace("_", "-")
        opening += f" {key}" if value is True else f' {key}="{text(value)}"'
    if name in VOID:
        return Html(f"<{opening}>")
    inside = "".join(_render(child) for child in children)
    return Html(f"<{opening}>{inside}</{name}>")


def _render(child: Child) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return child
    return join(child) if isinstance(child, list) else text(child)


def prose(sentence: str) -> Html:
    """A sentence in which `backticks` mark code."""
    parts = sentence.split("`")
    return join([tag("code", part) if i % 2 else text(part) for i, part in enumerate(parts)])


def named(value: str) -> Html:
    """A name from outside: `bdi` keeps its writing direction from changing the text around it."""
    return tag("bdi", value)
