"""Which array or column is the label, the client, the recording, the time or the split: by name, or as asked.

A name in EXACT counts at once. Without one, a single name in NEAR counts, and a note says so. Two near names of one
role raise BadInput that asks which one is meant. Setting `data.columns` comes before all names. In a table, `y` beside
`x` is an axis where there is a `z` or another column that says label.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from potluck.data.dataset import Taken
from potluck.data.intake.spec import NOTHING, Columns
from potluck.data.intake.tables import is_number
from potluck.errors import BadInput, Code, nearest, unknown

FIELD = {"label": "y", "client": "subject", "recording": "group", "time": "t", "split": "split", "features": "x"}
EXACT = {
    "label": ("label", "y"),
    "client": ("client", "subject"),
    "recording": ("group",),
    "time": ("t",),
    "split": ("split",),
    "features": ("x",),
}
NEAR: dict[str, tuple[str, ...]] = {
    role: tuple(words.split())
    for role, words in {
        "label": "y label labels target targets class class_id category ground_truth activity activity_id activities "
        "activity_name gesture label_id label_name y_true",
        "client": "subject client user person participant patient volunteer wearer speaker node device machine "
        "household subjects clients users persons people participants subject_name user_name username userid "
        "subjectid engine_id unit_id",
        "recording": "group groups recording recordings session sessions trial trials segment segments take episode "
        "run_id sequence_id series_id visit",
        "time": "t time times timestamp timestamps time_stamp ts date datetime date_time clock utc unix_time unixtime "
        "epoch_time local_time event_time elapsed elapsed_time seconds_elapsed seconds secs milliseconds millis",
        "split": "split subset is_test train_test set",
        "features": "data features inputs samples windows signals",
    }.items()
}
_UNITS = ("s", "sec", "seconds", "ms", "us", "ns", "milliseconds", "millis")
SHOWN = 20


@dataclass
class Found:
    """The names of each role, what every name was taken for, and the notes on it."""

    what: str  # array or column
    names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    axis: str = ""  # a column `y` that is an axis and no label
    taken: list[Taken] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def take(self, role: str, names: Sequence[str], why: str) -> None:
        self.names[role] = tuple(names)
        self.taken += [Taken(name, role, why) for name in names]

    def ignore(self, name: str, why: str) -> None:
        self.taken.append(Taken(name, "ignored", why))

    @property
    def used(self) -> set[str]:
        return {one.name for one in self.taken}


def setting(role: str) -> str:
    """The key of a role in `[data.columns]`, which is its flag too."""
    return "group" if role == "recording" else role


def plain(name: str) -> str:
    """A name in lower case with underscores: `Person-ID` and `personId` are person_id."""
    spaced = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip())
    return re.sub(r"[^a-z0-9]+", "_", spaced.lower()).strip("_")


def near(name: str, role: str) -> bool:
    """Whether a name says a role: one of NEAR, also with `_id`, and for times with a unit."""
    word = plain(name)
    if word in NEAR[role] or (role in ("client", "recording") and word.removesuffix("_id") in NEAR[role]):
        return True
    stem, _, unit = word.rpartition("_")
    return role == "time" and unit in _UNITS and stem in NEAR[role]


def says(name: str) -> str | None:
    """The role that a name says, or None."""
    return next((role for role in FIELD if role != "features" and near(name, role)), None)


def assign(
    origin: str,
    names: Sequence[str],
    columns: Columns,
    fits: Callable[[str, str], bool],
    wanted: Sequence[str],
    what: str,
) -> Found:
    """Find the names of the wanted roles. `fits(role, name)` says whether it can be that; `what` is array or column."""
    found = Found(what, axis=_axis(names) if what == "column" and columns.label is None else "")
    for role in wanted:
        asked = getattr(columns, setting(role))
        if asked is not None:
            take_asked(found, role, asked, names, origin)
    for role in wanted:
        if getattr(columns, setting(role)) is None:
            left = [name for name in names if name not in found.used and (role != "label" or name != found.axis)]
            _by_name(found, role, left, origin, fits, what)
    if found.axis and "label" in found.names:
        found.notes.append(
            f"The column {found.axis!r} is an axis like 'x', not the label (data.columns.label says otherwise)."
        )
    return found


def _axis(names: Sequence[str]) -> str:
    """The column `y` where it is an axis: `x` is there too, and `z` or another column that says label."""
    by_word = {plain(name): name for name in names}
    other = any(near(name, "label") for word, name in by_word.items() if word != "y")
    return by_word["y"] if {"x", "y"} <= by_word.keys() and ("z" in by_word or other) else ""


def take_asked(found: Found, role: str, asked: Sequence[str], names: Sequence[str], origin: str) -> None:
    key = f"data.columns.{setting(role)}"
    if tuple(asked) == (NOTHING,) and NOTHING not in names:
        return
    for name in asked:
        if name not in names:
            raise unknown(Code.DATA_ARRAY, f"{origin}: {key}", name, names)
        before = next((one for one in found.taken if one.name == name), None)
        if before is not None:
            raise BadInput(Code.DATA_ARRAY, f"{origin}: {key}: {name!r} is the {before.role} already.")
    found.take(role, asked, f"{key} says so")


def _by_name(
    found: Found, role: str, names: Sequence[str], origin: str, fits: Callable[[str, str], bool], what: str
) -> None:
    exact = EXACT[role] if what == "column" else (FIELD[role],)
    if role == "label" and found.axis:
        exact = ("label",)
    sure = [name for name in names if name.strip().lower() in exact and fits(role, name)]
    if what == "array":
        sure = [name for name in names if name in exact]
    if len(sure) > 1:
        raise BadInput(
            Code.DATA_ARRAY, f"{origin}: the {what}s {' and '.join(sure)} both say {FIELD[role]}; {_choose(role)}."
        )
    if sure:
        found.take(role, sure, f"its name is {sure[0]!r}")
        return
    close = [name for name in names if _close(name, role) and fits(role, name)]
    if len(close) > 1:
        raise BadInput(
            Code.DATA_ARRAY, f"{origin}: {' and '.join(map(repr, close))} could be the {role}; {_choose(role)}."
        )
    if close:
        found.take(role, close, f"its name means {role}, and no {what} is named {' or '.join(map(repr, exact))}")
        found.notes.append(
            f"The {what} {close[0]!r} is taken for the {role} because of its name "
            f"(data.columns.{setting(role)} names another, or 'none')."
            if role not in ("label", "features")
            else f"The {what} {close[0]!r} is taken for the {role} because of its name "
            f"(data.columns.{setting(role)} names another)."
        )


def _close(name: str, role: str) -> bool:
    return plain(name) in ("x", *NEAR[role]) if role == "features" else near(name, role)


def _choose(role: str) -> str:
    key = setting(role)
    return f"say which with --{key} NAME of `potluck data`, or --set data.columns.{key}=NAME"


def missing(origin: str, role: str, names: Sequence[str], what: str) -> BadInput:
    """Refuse data without a required role: say what there is and how to name it."""
    shown = [repr(name) for name in names[:SHOWN]] + ([f"{len(names)} in all"] if len(names) > SHOWN else [])
    exact = " or ".join(map(repr, EXACT[role])) if what == "column" else repr(FIELD[role])
    close = nearest(FIELD[role] if what == "array" else role, names, like=0.6)
    hint = f", did you mean {close!r} to be it?" if close else "."
    purpose = " with the labels" if what == "column" else ""
    article = "a" if what == "column" else "the"
    first = " If these are values, give the file a header." if names and all(map(is_number, names)) else ""
    return BadInput(
        Code.DATA_ARRAY,
        f"{origin}: {article} {what} {exact}{purpose} is missing{hint} Found: {', '.join(shown) or 'nothing'}. "
        f"Name it with --set data.columns.{setting(role)}=NAME.{first}",
    )
