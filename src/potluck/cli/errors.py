"""What goes wrong, told in one sentence, with an exit status that scripts can trust.

2 for what a person wrote (a file, a flag, a setting), 130 for Ctrl-C, 1 for what nobody expected; never 0. A refusal
ends with the command that shows the page of its code.
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
# What Typer refuses by itself. By name: its newer versions bring classes of their own instead of Click's.
USAGE = {"MissingParameter": Code.NOT_SAID, "BadParameter": Code.FLAG_VALUE, "BadOptionUsage": Code.FLAG_VALUE}


_CLICK = (  # how Click puts it, and how everybody else here does
    (
        r"^Invalid value for '([^']+)': (\S+) is not in the range (-?\d+)<=x<=(-?\d+)",
        r"\1: \2 given, allowed is \3 to \4",
    ),
    (r"^Invalid value for '([^']+)': (\S+) is not in the range x>=(-?\d+)", r"\1: \2 given, allowed is at least \3"),
    (r"^Invalid value for '([^']+)': (.+) is not a valid integer", r"\1: \2 given, allowed is a whole number"),
    (r"^Invalid value for '([^']+)': (.+) is not a valid float", r"\1: \2 given, allowed is a number"),
)


class Stopped(Exception):
    """Ctrl-C, with the command that goes on from here."""

    def __init__(self, go_on: str | None = None) -> None:
        super().__init__("stopped" if go_on is None else f"stopped; `{go_on}` goes on from here")


class Commands(TyperGroup):
    """The commands, with every failure turned into a sentence and a status."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        ctx.meta["arguments"] = list(args)  # as typed: a command that was stopped says how to go on
        if not args and self.no_args_is_help:  # Typer shows it by way of an exception
            return super().parse_args(ctx, args)
        with told():
            return super().parse_args(ctx, args)

    def invoke(self, ctx: Any) -> Any:
        with told():
            return super().invoke(ctx)


@contextmanager
def told() -> Iterator[None]:
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
    except BrokenPipeError:  # `potluck devices | head`: whoever read has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise typer.Exit(UNEXPECTED) from None
    except Exception as error:
        usage = getattr(error, "format_message", None)  # Typer's own refusals have it, in every version of Typer
        if usage is not None:
            _refuse(f"{_plain(usage())} `{_path(error)} --help` says what is allowed.", _usage(error))
            raise typer.Exit(BAD_INPUT) from None
        if _debugging():
            traceback.print_exc()
        name, detail = type(error).__name__, " ".join(str(error).split())
        _say(f"unexpected {name}{f': {detail}' if detail else ''} (POTLUCK_DEBUG=1 shows where)")
        raise typer.Exit(UNEXPECTED) from None


def _refuse(sentence: str, code: Code) -> None:
    _say(f"{sentence} [potluck explain {code}]")


def _plain(said: str) -> str:
    """Click's words as ours are: `--jobs: 0 given, allowed is 1 to 256.`"""
    for pattern, words in _CLICK:
        said = re.sub(pattern, words, said)
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
