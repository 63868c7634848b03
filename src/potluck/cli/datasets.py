"""`potluck datasets`: the public datasets, and which of them are on this machine."""

from __future__ import annotations

from rich.text import Text

from potluck.cli import flags, text


def datasets(as_json: flags.Json = False) -> None:
    """List the public datasets, and which of them are on this machine.

    Potluck searches the folder that POTLUCK_DATA names, ../shared/datasets and the user's cache. Your own data goes by
    its path, or by package.module:function.
    """
    from potluck.data.load import names

    rows = {name: (line, *_place(name)) for name, line in names().items()}
    if as_json:
        text.as_json(
            {name: {"about": line, "here": here, "where": where} for name, (line, here, where) in rows.items()}
        )
        return
    table = text.sheet("dataset", "here", "what it is", "where")
    for name, (line, here, where) in rows.items():
        table.add_row(name, Text("yes", style="green") if here else "no", Text(line), Text(where))
    text.show(table)


def _place(name: str) -> tuple[bool, str]:
    """Whether a dataset is on this machine; where it is, or where it comes from."""
    from potluck.data import exercises
    from potluck.data.load import MADE, additions, find
    from potluck.data.public import PUBLIC

    added = additions().get(name)
    if added is not None:
        trouble = added.trouble
        return not trouble, f"broken: {trouble}" if trouble else added.entry.value
    if name == MADE:
        return True, "generated when it is used"
    path = find(name)
    if path is None and name == "watch_exercises":
        path = exercises.installed()
    return (True, str(path)) if path is not None else (False, f"from {PUBLIC[name].origin}")
