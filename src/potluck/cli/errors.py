"""Failures of commands: one sentence on standard error, and an exit status that scripts can rely on.

The status is 2 for bad input (a file, a flag, a setting), 130 for Ctrl-C, and 1 for anything unexpected. The sentence
about bad input ends with the command that explains its code.
"""

from __future__ import annotations

import os
import re
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer
from typer.core import TyperGroup

from potluck.errors import BadInput, Code

BAD_INPUT, INTERRUPTED, UNEXPECTED = 2, 130, 1
# The errors of Typer itself, by name: newer versions of Typer have their own classes instead of Click's.
USAGE = {"MissingParameter": Code.NOT_SAID, "BadParameter": Code.FLAG_VALUE, "BadOptionUsage": Code.FLAG_VALUE}


_CLICK = (  # Click's sentences, and the same in Potluck's style
    (
        r"^Invalid value for '([^']+)': (\S+) is not in the range (-?\d+)<=x<=(-?\d+)",
        r"\1: must be \3 to \4, got \2",
    ),
    (r"^Invalid value for '([^']+)': (\S+) is not in the range x>=(-?\d+)", r"\1: must be at least \3, got \2"),
    (r"^Invalid value for '([^']+)': (.+) is not a valid integer", r"\1: must be a whole number, got \2"),
    (r"^Invalid value for '([^']+)': (.+) is not a valid float", r"\1: must be a number, got \2"),
    (r"^(No such option: \S+) (Did you mean .*\?)$", r"\1. \2"),
)

_RECIPE = re.compile(r"^No such option: --(epochs|batch|lr|momentum|optimiser|clip)\b.*")
_OPTION = re.compile(r"^No such option: --([a-z-]+)\b")
_SETTABLE = ("run", "compare", "tune", "choose", "data", "plan")  # commands with --set


class Stopped(Exception):
    """Ctrl-C, with the command that continues from here."""

    def __init__(self, go_on: str | None = None) -> None:
        super().__init__("stopped" if go_on is None else f"stopped; continue with `{go_on}`")


class Commands(TyperGroup):
    """The group of all commands, which turns every failure into a sentence and an exit status."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta["arguments"] = list(args)  # as typed, so that a stopped command can say how to continue
        if not args:
            typer.echo(ctx.get_help())
            raise typer.Exit(BAD_INPUT)
        with reported():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with reported():
            return super().invoke(ctx)


@contextmanager
def reported() -> Iterator[None]:
    """Report what fails inside, and exit with its status."""
    try:
        yield
    except (typer.Exit, SystemExit):
        raise
    except (KeyboardInterrupt, typer.Abort):
        _say("stopped")
        raise typer.Exit(INTERRUPTED) from None
    except Stopped as stop:
        _say(str(stop))
        raise typer.Exit(INTERRUPTED) from None
    except BadInput as error:
        if _debugging():
            traceback.print_exc()
        _refuse(str(error), error.code)
        raise typer.Exit(BAD_INPUT) from None
    except BrokenPipeError:  # `potluck devices | head`: the reader has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(UNEXPECTED) from None
    except Exception as error:
        usage = getattr(error, "format_message", None)  # the errors of Typer itself have it, in every version
        if usage is not None:
            _refuse(f"{_plain(usage(), _path(error))} See `{_path(error)} --help`.", _usage(error))
            raise typer.Exit(BAD_INPUT) from None
        if _debugging():
            traceback.print_exc()
        name, detail = type(error).__name__, " ".join(str(error).split())
        _say(f"unexpected {name}{f': {detail}' if detail else ''} (POTLUCK_DEBUG=1 shows the traceback)")
        raise typer.Exit(UNEXPECTED) from None


def _refuse(sentence: str, code: Code) -> None:
    _say(f"{sentence} [potluck explain {code}]")


def _plain(said: str, command: str) -> str:
    """Click's sentence in Potluck's style: `--jobs: must be 1 to 256, got 0.`"""
    for pattern, words in _CLICK:
        said = re.sub(pattern, words, said)
    if command == "potluck run":  # commands that take methods as arguments have this option
        said = re.sub(r"^(No such option: --experiment)\b.*", r"\1 (the file is an argument: EXPERIMENT.toml)", said)
    if (asked := _OPTION.match(said)) and any(command.startswith(f"potluck {name}") for name in _SETTABLE):
        from potluck.runs.experiment import settings_named

        found = settings_named(asked[1].replace("-", "_"))
        if len(found) == 1:
            said = f"No such option: --{asked[1]} (use --set {found[0]}=VALUE)"
    said = _RECIPE.sub(r"No such option: --\1 (use --set method.recipe.\1=VALUE)", said)
    return said if said.endswith((".", "?")) else f"{said}."


def _usage(error: Exception) -> Code:
    names = [kind.__name__ for kind in type(error).__mro__]
    return next((USAGE[name] for name in names if name in USAGE), Code.COMMAND)


def _say(sentence: str) -> None:
    typer.echo(f"potluck: {sentence}", err=True)


def _path(error: Exception) -> str:
    ctx = getattr(error, "ctx", None)
    return "potluck" if ctx is None else str(ctx.command_path)


def _debugging() -> bool:
    return bool(os.environ.get("POTLUCK_DEBUG"))
