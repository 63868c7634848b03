"""The settings of a Config class, each with its default and the comment that explains it in its file."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import tokenize
import typing
from typing import Any

from potluck.settings import default_of, names_of

# The meaning of settings that most methods share. A brief comment of the method, such as a symbol, is added to it.
SHARED = {
    "cohort": "clients that train in each round; 0 means all clients",
    "seed": "seed of the method's own random choices; the run's seed unless set",
}
BRIEF = 4  # words

_FOR_TOOLS = ("# fmt:", "# type:", "# noqa")


@dataclasses.dataclass(frozen=True)
class Setting:
    name: str  # dotted if it belongs to a group: `recipe.lr`
    kind: str
    default: str
    meaning: str

    @property
    def group(self) -> str:
        return self.name.rpartition(".")[0]


def settings_of(config: type) -> list[Setting]:
    """Every setting of a Config class, those of its groups included; a field that is a dataclass is a group."""
    used = set(names_of(config))
    return [setting for setting in _settings(config, None, "") if setting.name in used]


def groups_of(config: type) -> dict[str, str]:
    """What each group of settings is about: the comment beside its field, or else the first line of its docstring."""
    hints = typing.get_type_hints(config)
    found = {}
    for field in dataclasses.fields(config):
        hint = hints[field.name]
        if dataclasses.is_dataclass(hint):
            docstring = (inspect.getdoc(hint) or "").partition("\n")[0]
            found[field.name] = _all_comments(config).get(field.name) or docstring
            inner = groups_of(typing.cast(type, hint))
            found |= {f"{field.name}.{name}": about for name, about in inner.items()}
    return found


def _settings(config: type, values: Any, before: str) -> list[Setting]:
    """`values` holds the defaults of a group, which may differ from those of its class."""
    hints, comments = typing.get_type_hints(config), _all_comments(config)
    found = []
    for field in dataclasses.fields(config):
        given = default_of(field) if values is None else getattr(values, field.name)
        name, hint = f"{before}{field.name}", hints[field.name]
        if dataclasses.is_dataclass(hint):
            found += _settings(typing.cast(type, hint), given, f"{name}.")
            continue
        own, shared = comments.get(field.name, ""), SHARED.get(name, "")
        meaning = f"{shared} ({own})" if own and shared and len(own.split()) <= BRIEF else own or shared
        missing = given is None and values is None and _required(field)
        found.append(Setting(name, str(field.type), "must be given" if missing else _shown(given), meaning))
    return found


def _required(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _shown(value: Any) -> str:
    if value is None:
        return "not set"
    return str(value).lower() if isinstance(value, bool) else f"{value!r}".replace("'", '"')


def _all_comments(config: type) -> dict[str, str]:
    """The comments of a class and of the dataclasses it inherits from; its own comments win."""
    found: dict[str, str] = {}
    for part in reversed([part for part in config.__mro__ if dataclasses.is_dataclass(part)]):
        found |= _comments(part)
    return found


def _comments(config: type) -> dict[str, str]:
    """The comment on the line of each field, or, if there is none, the comment lines right above it."""
    source = inspect.getsource(config)
    at_line: dict[int, str] = {}
    alone: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(_FOR_TOOLS):
            at_line[token.start[0]] = token.string.removeprefix("#").strip()
            if token.line.lstrip().startswith("#"):
                alone.add(token.start[0])
    (body,) = ast.parse(inspect.cleandoc(source)).body
    assert isinstance(body, ast.ClassDef)
    found = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            above: list[str] = []
            line = node.lineno - 1
            while line in alone:
                above.insert(0, at_line[line])
                line -= 1
            beside = [at_line[n] for n in range(node.lineno, (node.end_lineno or node.lineno) + 1) if n in at_line]
            found[node.target.id] = " ".join(beside or above)
    return found
