"""The settings of a Config class, each with its default and the comment that explains it in its file."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import io
import tokenize
from typing import Any

# What the settings mean that most methods share; a method's own comment is added to it.
SHARED = {
    "cohort": "clients asked per round, 0 for everybody",
    "epochs": "passes of a client over its own data per task",
    "batch": "samples per local step",
    "lr": "step size of local training",
    "momentum": "of local training",
    "seed": "the run's own seed unless set",
}

_FOR_TOOLS = ("# fmt:", "# type:", "# noqa")


@dataclasses.dataclass(frozen=True)
class Setting:
    name: str
    kind: str
    default: str
    meaning: str


def settings_of(config: type) -> list[Setting]:
    """The fields of a Config with the comments that stand beside them in its file."""
    comments: dict[str, str] = {}
    for part in reversed([part for part in config.__mro__ if dataclasses.is_dataclass(part)]):
        comments |= _comments(part)  # settings that methods share stand in a class above
    found = []
    for field in dataclasses.fields(config):
        own = comments.get(field.name, "")
        shared = SHARED.get(field.name, "")
        brief = len(own.split()) <= 4  # a symbol of the paper's rather than an explanation
        meaning = f"{shared} ({own})" if own and shared and brief else own or shared
        found.append(Setting(field.name, str(field.type), _default(field), meaning))
    return found


def _default(field: dataclasses.Field[Any]) -> str:
    if field.default is not dataclasses.MISSING:
        value = field.default
    elif field.default_factory is not dataclasses.MISSING:
        value = field.default_factory()
    else:
        return "must be given"
    return (
        "not set"
        if value is None
        else str(value).lower()
        if isinstance(value, bool)
        else f"{value!r}".replace("'", '"')
    )


def _comments(config: type) -> dict[str, str]:
    """The comment beside each field, or, where there is none, those on the lines right above it."""
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
