"""HTML and SVG put together so that nothing from a run can be anything but text.

A plain `str` is escaped wherever it goes; only what `tag` made is markup. Names of clients, reasons of refusals and
settings come from elsewhere and may hold anything.
"""

from __future__ import annotations

import re
from html import escape
from typing import TypeAlias

VOID = {"meta", "input", "br"}
# Control characters have no place in HTML, and a lone surrogate none in UTF-8.
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
    """`tag("td", 3, class_="n")`; a trailing underscore goes, an inner one becomes a hyphen, None is left out."""
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


def named(value: str) -> Html:
    """A name from elsewhere: its writing direction stays its own, so it cannot turn the words around it."""
    return tag("bdi", value)
