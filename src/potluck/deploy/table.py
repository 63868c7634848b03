"""A table of clients for `potluck deploy init --clients`: one row per machine, with its samples and its device."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from pathlib import Path

from potluck.deploy.layout import Start
from potluck.errors import BadInput, Code, must_be, no_file, unknown

COLUMNS = ("name", "data", "device", "access_point", "rows")


def read_clients(
    path: Path | None, names: Sequence[str] = (), rows: int | None = None
) -> tuple[dict[str, Start], dict[str, int]]:
    """Read what clients start with, and how many rows each may have, from a CSV table; `rows` is for those in `names`.

    It has the column `name`, and if you like `data`, `device`, `access_point` and `rows`; cells may be empty.
    """
    most: dict[str, int] = {} if rows is None else dict.fromkeys(names, rows)
    if path is None:
        return {}, most
    try:
        with path.open(newline="", encoding="utf-8-sig") as file:
            head = file.readline()
            file.seek(0)
            lines = list(csv.DictReader(file, delimiter=max(",;\t", key=head.count)))
    except FileNotFoundError:
        raise no_file(Code.DEPLOY_FOLDER, "--clients", path) from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise BadInput(Code.DEPLOY_FOLDER, f"--clients: {str(path)!r} is not a CSV table in UTF-8 ({error}).") from None
    if not lines:
        raise must_be(Code.DEPLOY_FOLDER, "--clients", "a table with a row per client", shown=f"no rows in {path}")
    for column in lines[0]:
        if column not in COLUMNS:
            raise unknown(Code.DEPLOY_FOLDER, f"--clients: a column of {path}", column, COLUMNS)
    if "name" not in lines[0]:
        raise BadInput(Code.DEPLOY_FOLDER, f"--clients: {path} needs a column 'name'.")
    found: dict[str, Start] = {}
    for number, row in enumerate(lines, start=1):
        cells = {column: (value or "").strip() for column, value in row.items()}
        name = cells.pop("name")
        if name in found:
            raise BadInput(Code.DEPLOY_NAME, f"--clients: {path} has {name!r} twice, again in data row {number}.")
        count = cells.pop("rows", "")
        if count and not (count.isdecimal() and 1 <= int(count) <= 10**9):
            raise must_be(Code.DEPLOY_FOLDER, f"--clients: rows of {name!r}", "a whole number of 1 or more", count)
        if count:
            most[name] = int(count)
        found[name] = Start(**cells)
    return found, most
