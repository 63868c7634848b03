"""`potluck explain`: the page of an error code: what it means, its usual causes, what to do."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from potluck.cli import flags, text
from potluck.errors import FAMILIES, Code, unknown


def explain(
    code: Annotated[
        str | None, typer.Argument(metavar="CODE", help="such as PL-103; without a code, all codes are listed")
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """Explain an error by the code at its end: what it means, an example, the usual causes, what to do."""
    if code is None:
        _list(as_json)
        return
    number = code.upper().removeprefix("PL-")
    known = Code.of(f"PL-{number}")
    if known is None:
        raise unknown(Code.FLAG_VALUE, "explain", code, [str(one) for one in Code])
    found = page(known)
    if as_json:
        text.as_json({"code": str(known), "title": known.title, "page": found})
    elif text.console().is_terminal:
        from rich.markdown import Markdown  # not at the top: every command would wait for it

        text.show(Markdown(found))
    else:
        typer.echo(found, nl=False)


def page(code: Code) -> str:
    """The page of a code: from the package, or from docs/ of a checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / "_errors", package.parents[1] / "docs" / "errors"):
        path = folder / f"{code}.md"
        if path.is_file():
            text = re.sub(r"<!--.*?-->\n+", "", path.read_text(encoding="utf-8"))  # notes for the tests
            return re.sub(r'^```(\w+) title="(.+)"$', r"`\2`:\n\n```\1", text, flags=re.MULTILINE)
    return f"# {code}: {code.title}\n\nIts page is missing from this installation; reinstall potluck.\n"


def _list(as_json: bool) -> None:
    if as_json:
        text.as_json([{"code": str(code), "title": code.title} for code in Code])
        return
    for begins, family in FAMILIES.items():
        table = text.sheet("", "")
        table.show_header = False
        for code in Code:
            if str(code).startswith(begins):
                table.add_row(Text(str(code), style="bold"), code.title)
        text.line(family)
        text.show(table)
        text.line("")
