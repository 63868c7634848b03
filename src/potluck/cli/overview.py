"""The help of `potluck` itself: its flags and commands in two boxes, without the time it takes to import Rich."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping

import typer

Rows = Mapping[str, str]

ROUND, PLAIN = "╭─╮│╰╯", "+-+|++"  # corners and sides of a box


def overview(usage: str, about: str, boxes: Mapping[str, Rows], epilog: str) -> str:
    """The whole text; each box has a title and rows of a name and what it stands for."""
    width = shutil.get_terminal_size((80, 24)).columns
    parts = [*_indented(f"Usage: {usage}", width), "", *_indented(about, width), ""]
    for title, rows in boxes.items():
        parts += _box(title, rows, width)
    return "\n".join(["", *parts, "", *_indented(epilog, width), ""])


def _indented(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, initial_indent=" ", subsequent_indent=" ", break_on_hyphens=False)


def _box(title: str, rows: Rows, width: int) -> Iterator[str]:
    top_left, line, top_right, side, left, right = _drawn()
    names = max(map(len, rows))
    yield _style(f"{top_left}{line} {title} ".ljust(width - 1, line) + top_right, dim=True)
    side = _style(side, dim=True)
    for name, about in rows.items():
        for i, words in enumerate(textwrap.wrap(about, max(20, width - names - 6), break_on_hyphens=False) or [""]):
            shown = _style(name.ljust(names), bold=True, fg="cyan") if i == 0 else " " * names
            yield f"{side} {shown}  {words.ljust(width - names - 6)} {side}"
    yield _style(left + line * (width - 2) + right, dim=True)


def _drawn() -> Iterable[str]:
    try:
        ROUND.encode(sys.stdout.encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return PLAIN
    return ROUND


def _style(text: str, fg: str | None = None, bold: bool | None = None, dim: bool | None = None) -> str:
    """Colours for a terminal; Typer removes them where the text goes to a pipe or a file."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return typer.style(text, fg=fg, bold=bold, dim=dim)
