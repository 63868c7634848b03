"""The group of all commands. It imports a command when it is asked for, so that the others cost no time."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any, Final

import typer
from typer.main import get_group

from potluck.cli.commands import COMMANDS
from potluck.cli.errors import Commands
from potluck.cli.overview import overview

MARKUP: Final = "markdown"


def load(name: str) -> Any:
    """The command or group of this name, as Typer makes it from the module of the same name."""
    entry, function = COMMANDS[name], name.replace("-", "_")
    module = import_module(f"potluck.cli.{function}")
    for part in entry.parts:
        import_module(f"potluck.cli.{part}")
    one = typer.Typer(rich_markup_mode=MARKUP)
    if entry.example is None:
        one.add_typer(module.app, name=name)
    else:
        one.command(name, epilog=f"Example: {entry.example}")(getattr(module, function))
    return get_group(one).commands[name]


class Known(Mapping[str, Any]):
    """All commands by name; each is imported when it is read."""

    def __init__(self) -> None:
        self._read: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in COMMANDS:
            raise KeyError(name)
        if name not in self._read:
            self._read[name] = load(name)
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)


class AllCommands(Commands):
    """Potluck's commands, with an overview that imports none of them."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.commands = Known()  # type: ignore[assignment]  # nobody adds a command to it

    def list_commands(self, ctx: Any) -> list[str]:
        return list(COMMANDS)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        options = {
            ", ".join(sorted((*option.opts, *option.secondary_opts), key=len, reverse=True)): getattr(
                option, "help", None
            )
            or ""
            for option in self.get_params(ctx)
        }
        commands = {name: entry.about.replace("`", "") for name, entry in COMMANDS.items()}
        usage = f"{ctx.command_path} [OPTIONS] COMMAND [ARGS]..."
        boxes = {"Options": options, "Commands": commands}
        formatter.write(overview(usage, self.help or "", boxes, self.epilog or ""))
