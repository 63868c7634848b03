"""`potluck methods models datasets data devices`: what there is, each with one line and its settings."""

from __future__ import annotations

import ast
import dataclasses
import importlib.util
import inspect
import io
import tokenize
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.text import Text

from potluck.cli import flags, say
from potluck.errors import BadInput, Code

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
        say.as_json(lines)
        return
    table = say.sheet("method", "what it does")
    for name, line in lines.items():
        table.add_row(name, Text(line))
    say.show(table)
    say.show("\n`potluck methods NAME` shows the settings of one.")


def _detail(name: str, as_json: bool) -> None:
    from potluck.methods import load

    method = load(name)
    about, settings = inspect.getdoc(method.module) or name, settings_of(method.config)
    if as_json:
        say.as_json({"method": name, "about": about, "settings": [dataclasses.asdict(each) for each in settings]})
        return
    table = say.sheet("setting", "default", "meaning")
    for each in settings:
        table.add_row(f"method.{each.name}", each.default, Text(each.meaning))
    say.show(Text(about))
    say.show("")
    say.show(table)


def _first_line(module: str) -> str:
    """The first line of a module's docstring, read from its file: nothing heavy is imported for a list."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        return ""
    text = ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


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


def models(as_json: flags.Json = False) -> None:
    """List the models with their settings.

    A model of your own is an nn.Module by import path, package.module:Class.
    """
    from potluck import models as zoo

    if as_json:
        say.as_json({name: dataclasses.asdict(entry) for name, entry in zoo.catalogue().items()})
        return
    say.show(zoo.table())


def datasets(as_json: flags.Json = False) -> None:
    """List the public sets, and which of them are on this machine.

    They are looked for in the folder that POTLUCK_DATA names, in ../shared/datasets and in the user's cache. Data
    of your own goes by its path, or by package.module:function.
    """
    from potluck.data.load import names

    rows = {name: (line, *_place(name)) for name, line in names().items()}
    if as_json:
        say.as_json({name: {"about": line, "here": here, "where": where} for name, (line, here, where) in rows.items()})
        return
    table = say.sheet("data set", "here", "what it is", "where")
    for name, (line, here, where) in rows.items():
        table.add_row(name, Text("yes", style="green") if here else "no", Text(line), Text(where))
    say.show(table)


def _place(name: str) -> tuple[bool, str]:
    """Whether a set is here; where it is, or where it comes from."""
    from potluck.data import exercises
    from potluck.data.load import MADE, find
    from potluck.data.public import PUBLIC

    if name == MADE:
        return True, "made when asked for"
    path = find(name)
    if path is None and name == "watch_exercises":
        path = exercises.installed()
    return (True, str(path)) if path is not None else (False, f"comes from {PUBLIC[name].origin}")


def data(
    source: Annotated[str, typer.Argument(metavar="DATA", help="a public set, a path, or package.module:function")],
    settings: flags.Set = None,
    clients: flags.Clients = None,
    seed: flags.Seed = None,
    picture: Annotated[
        Path | None, typer.Option("--picture", metavar="FILE.png", help="draw clients by classes as a PNG")
    ] = None,
    as_json: flags.Json = False,
) -> None:
    """The data card: which client holds how much of which class, how it is split, and whether anything leaks.

    `--set partition.kind=...` deals the data out in another way; see docs/reference/experiment.md.
    """
    from potluck.data import card
    from potluck.runs.build import federation_of
    from potluck.runs.experiment import Experiment, override

    if picture is not None and not picture.parent.is_dir():
        raise BadInput(
            Code.OUTPUT_PLACE, f"--picture: {str(picture)!r} given, a file in a folder that exists is needed."
        )
    values, _ = flags.gathered(None, data=source, clients=clients, seed=seed)
    federation = federation_of(Experiment.of(override(values, settings or [])))
    if picture is not None:
        card.picture(federation, picture)
    if as_json:
        say.as_json(card.figures(federation))
        return
    say.show(card.render(federation))
    if picture is not None:
        say.show(f"picture {picture}")


def devices(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="one device or link with the source of each figure")
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE.toml", help="devices and links of your own, beside these"),
    ] = None,
) -> None:
    """List devices, links and fleets; with a name, one of them and where each figure comes from."""
    from potluck import devices as catalogue

    own_devices, own_links = ({}, {}) if file is None else catalogue.read_devices(file)
    shown = catalogue.table(own_devices, own_links) if name is None else catalogue.details(name, own_devices, own_links)
    say.show(shown)
