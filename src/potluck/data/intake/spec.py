"""The settings of the reading: `[data.columns]`, `data.missing`, `[data.window]` and `data.kind`."""

from __future__ import annotations

from dataclasses import dataclass

from potluck.data.dataset import KINDS
from potluck.errors import BadInput, Code, must_be, unknown

MISSING = {
    "refuse": "a missing value is an error that counts them by column",
    "drop": "rows with a missing value are left out",
    "mean": "the mean of the client's own training rows",
    "interpolate": "a straight line between the values before and after, inside each window",
    "mask": "as mean, and one more channel per incomplete channel that is 1 where a value was measured",
}
LABEL_RULES = {
    "same": "all readings of a window have one label; other windows are left out",
    "majority": "the most frequent label of the window",
    "last": "the label of the window's last reading",
}
UNITS = {"auto": 0.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}
NOTHING = "none"  # the name that says: no column has this role


@dataclass(frozen=True)
class Columns:
    """Which array or column is what; None: found by name. Several names, joined, make one client or recording."""

    features: tuple[str, ...] | None = None
    label: tuple[str, ...] | None = None
    client: tuple[str, ...] | None = None
    time: tuple[str, ...] | None = None
    group: tuple[str, ...] | None = None
    split: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for role in ("time", "split"):
            given = getattr(self, role)
            if given is not None and len(given) != 1:
                raise must_be(Code.SETTING_VALUE, f"data.columns.{role}", "one name", ",".join(given))
        for role in ("features", "label"):
            if getattr(self, role) == (NOTHING,):
                raise must_be(Code.SETTING_VALUE, f"data.columns.{role}", "a name, as it cannot be left out", NOTHING)


@dataclass(frozen=True)
class Window:
    """How recordings are cut into windows. Exactly one of `seconds` and `samples` is set."""

    seconds: float | None = None
    samples: int | None = None
    overlap: float = 0.5  # share of a window that the next one has too
    rate: float | None = None  # Hz: resample to this rate first
    label: str = "same"
    gap: float | None = None  # seconds: a longer pause breaks a window; None: five usual intervals
    unit: str = "auto"  # of the time column

    def __post_init__(self) -> None:
        if (self.seconds is None) == (self.samples is None):
            got = "neither" if self.seconds is None else "both"
            raise must_be(Code.SETTING_VALUE, "data.window", "given seconds or samples, one of them", shown=got)
        if self.label not in LABEL_RULES:
            raise unknown(Code.SETTING_VALUE, "data.window.label", self.label, LABEL_RULES)
        if self.unit not in UNITS:
            raise unknown(Code.SETTING_VALUE, "data.window.unit", self.unit, UNITS)


@dataclass(frozen=True)
class Intake:
    """How a file of the user's is read."""

    columns: Columns = Columns()
    missing: str = "refuse"
    window: Window | None = None
    kind: str = ""  # "": inferred from the axes
    task: str = "auto"  # what the labels are for (`task.name`)
    settled: bool = False  # whether it is that of a run that is over, so that nothing can be set any more
    unlabelled: bool = False  # whether rows without a label are kept, to be trained on (`task.unlabelled`)

    def __post_init__(self) -> None:
        if self.missing not in MISSING:
            raise unknown(Code.SETTING_VALUE, "data.missing", self.missing, MISSING)
        if self.kind and self.kind not in KINDS:
            raise unknown(Code.SETTING_VALUE, "data.kind", self.kind, KINDS)

    def refuse_for(self, what: str) -> None:
        """Refuse settings of the reading for data that is not read from a file."""
        given = {
            "data.columns": self.columns != Columns(),
            "data.missing": self.missing != "refuse",
            "data.window": self.window is not None,
            "data.kind": bool(self.kind),
        }
        for setting, is_set in given.items():
            if is_set:
                raise BadInput(
                    Code.SETTINGS_CLASH, f"{setting}: works with files of your own; {what} has its own form."
                )
