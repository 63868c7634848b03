"""`potluck datasets`: the public data sets, and which of them are on this machine."""

from __future__ import annotations

from rich.text import Text

from potluck.cli import flags, text


def datasets(as_json: flags.Json = False) -> None:
    """List the public sets, and which of them are on this doctor_checks.

    They are looked for in the folder that POTLUCK_DATA names, in ../shared/datasets and in the user's cache. Data
    of your own goes by its path, or by package.module:function.
    """
    from potluck.data.load import names

    rows = {name: (line, *_place(name)) for name, line in names().items()}
    if as_json:
        text.as_json(
            {name: {"about": line, "here": here, "where": where} for name, (line, here, where) in rows.items()}
        )
        return
    table = text.sheet("data set", "here", "what it is", "where")
    for name, (line, here, where) in rows.items():
        table.add_row(name, Text("yes", style="green") if here else "no", Text(line), Text(where))
    text.show(table)


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
