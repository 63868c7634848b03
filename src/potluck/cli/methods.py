"""`potluck methods`: the methods there are, and the settings of one."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
from pathlib import Path
from typing import Annotated

import typer
from rich.text import Text

from potluck.cli import flags, text
from potluck.cli.settings import settings_of


def methods(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="show one method with all its settings")] = None,
    as_json: flags.Json = False,
) -> None:
    """List the methods; with a name, one of them with all its settings.

    A method of your own goes by its import path, package.module.
    """
    if name is None:
        _list(as_json)
    else:
        _detail(name, as_json)


def _list(as_json: bool) -> None:
    from potluck.methods import METHODS

    lines = {name: _first_line(module) for name, module in METHODS.items()}
    if as_json:
        text.as_json(lines)
        return
    table = text.sheet("method", "what it does")
    for name, line in lines.items():
        table.add_row(name, Text(line))
    text.show(table)
    text.show("\n`potluck methods NAME` shows the settings of one.")


def _detail(name: str, as_json: bool) -> None:
    from potluck.methods import load

    method = load(name)
    about, settings = inspect.getdoc(method.module) or name, settings_of(method.config)
    if as_json:
        text.as_json({"method": name, "about": about, "settings": [dataclasses.asdict(each) for each in settings]})
        return
    table = text.sheet("setting", "default", "meaning")
    for each in settings:
        table.add_row(f"method.{each.name}", each.default, Text(each.meaning))
    text.show(Text(about))
    text.show("")
    text.show(table)


def _first_line(module: str) -> str:
    """The first line of a module's docstring, read from its file: nothing heavy is imported for a list."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]
