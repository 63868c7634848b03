"""`potluck methods`: the methods there are, and the settings of one."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from potluck.cli import flags, text
from potluck.cli.settings import Setting, groups_of, settings_of

if TYPE_CHECKING:
    from potluck.spaces import Space


def methods(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="show this method and its settings")] = None,
    as_json: flags.Json = False,
) -> None:
    """List the methods. With a name, show one method: the settings that matter most first, then all others.

    Your own method goes by the path of its file (mine.py) or by its import path (package.module).
    """
    if name is None:
        _list(as_json)
    else:
        _detail(name, as_json)


def _list(as_json: bool) -> None:
    from potluck.methods import METHODS

    lines = {name: _first_line(module) for name, module in METHODS.items()} | _of_packages()
    if as_json:
        text.as_json(lines)
        return
    table = text.sheet("method", "what it does")
    for name, line in lines.items():
        table.add_row(name, Text(line))
    text.show(table)
    text.show("\n`potluck methods NAME` shows the settings of one method.")


def _of_packages() -> dict[str, str]:
    """What installed packages add; one that cannot be used is listed with the reason."""
    from potluck.errors import BadInput
    from potluck.methods import METHODS, load
    from potluck.plugins import plugins

    lines = {}
    for name, one in plugins("methods", METHODS).items():
        try:
            lines[f"{name} (refused)" if one.clash else name] = f"{load(name).summary} (package {one.package})"
        except BadInput as error:
            lines[f"{name} (refused)" if one.clash else name] = f"broken: {error}"
    return lines


def _detail(name: str, as_json: bool) -> None:
    from potluck.methods import load
    from potluck.runs.needs import described

    method = load(name)
    needs = described(method)
    about, settings = inspect.getdoc(method.module) or name, settings_of(method.config)
    known = {each.name: each for each in settings}
    key = [known[one] for one in method.key_settings if one in known]
    if as_json:
        rows = [dataclasses.asdict(each) for each in settings]
        space = {setting: str(dimension) for setting, dimension in method.space.items()}
        found = {"method": name, "about": about, "key_settings": [one.name for one in key], "settings": rows}
        text.as_json({**found, "space": space, "needs": needs})
        return
    text.show(Text(about))
    text.show("")
    if needs:
        text.show(Text("Filled in where you set nothing, because its system needs it:"))
        for setting, value in needs.items():
            text.show(Text(f"  {setting} = {value}"))
        text.show("")
    text.show(_table(key, settings, groups_of(method.config)))
    if method.space:
        text.show("")
        text.show(_space(method.space))


def _table(key: Sequence[Setting], settings: Sequence[Setting], groups: dict[str, str]) -> Table:
    """The settings that matter most, then the others, those of a group under its name."""
    table = text.sheet("setting", "default", "meaning")
    sections: dict[str, list[Setting]] = {"": []}
    for each in settings:
        if each not in key:
            sections.setdefault(each.group, []).append(each)
    _add(table, "most important", "", key)
    _add(table, "others", "", sections.pop(""))
    for group, members in sections.items():
        _add(table, f"method.{group}", groups.get(group, ""), members)
    return table


def _space(space: Space) -> Table:
    table = text.sheet("`potluck tune` chooses", "from")
    for name, dimension in space.items():
        table.add_row(f"method.{name}", str(dimension))
    return table


def _add(table: Table, title: str, about: str, settings: Sequence[Setting]) -> None:
    if not settings:
        return
    if table.row_count:
        table.add_row()
    table.add_row(Text(title, style="bold"), "", Text(about, style="bold"))
    for each in settings:
        table.add_row(f"method.{each.name}", each.default, Text(each.meaning))


def _first_line(module: str) -> str:
    """The first line of a module's docstring, read from its file: importing every method for a list would be slow."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    docstring = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0]
