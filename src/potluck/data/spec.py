"""The settings of `[partition]`: how a dataset is dealt out to clients and split."""

from __future__ import annotations

import math
from dataclasses import dataclass

from potluck.errors import BadInput, Code, must_be, unknown

PARTITIONS = {
    "auto": "subject where the data has one, else iid",
    "subject": "one client per person, node or machine",
    "iid": "rows at random; with `samples`, drawn for each client on demand, so that a million clients cost little",
    "dirichlet": "each class dealt by Dirichlet(alpha) proportions",
    "classes": "classes_per_client classes each",
    "gamma": "any two clients share a part gamma of their classes (FedCFC)",
    "sizes": "unbalanced: log-normal sizes of spread sigma, or the list `sizes` of training rows",
    "longtail": "class sizes fall geometrically to `ratio`, label-sorted rows dealt tau at a time (FedCFC)",
    "scenario": "the five clients of EchoPFL's scenarios A to D",
}
SPLITS = {
    "auto": "whole groups; the end of a recording if there is only one; at random without groups",
    "given": "the split that comes with the data",
    "random": "at random within each client, classes in proportion",
    "group": "whole recordings, trials or runs",
    "tail": "the end of each recording, with a gap before it",
    "stretch": "a stretch of each recording, with gaps beside it, another one in the next recording",
}
SCENARIOS = ("A", "B", "C", "D")
_LAZY = ("iid", "dirichlet", "classes")
DEFAULT_CLIENTS = 10
MOST_CLIENTS = 1_000_000


@dataclass(frozen=True)
class PartitionSpec:
    kind: str = "auto"
    clients: int | None = None  # None: all subjects, the length of `sizes`, five for a scenario, else ten
    alpha: float = 0.5  # dirichlet
    classes_per_client: int = 2  # classes
    gamma: float = 0.5  # gamma
    sigma: float | None = None  # spread of log-normal sizes; by default 1 for `sizes` and 0 for `classes`
    sizes: tuple[int, ...] | None = None  # training rows per client: `sizes`, or to thin out `subject`, `scenario`
    tau: int = 10  # longtail: rows dealt at a time
    ratio: float = 0.01  # longtail: smallest class over largest
    scenario: str = "A"  # scenario
    samples: int | None = None  # training rows per client, drawn lazily, rows shared between clients
    most_rows: int | None = None  # labelled rows of a client, training and validation together; the rest is not used
    seed: int | None = None  # None: the seed of the run
    split: str = "auto"
    test_share: float = 0.25
    valid_share: float = 0.0  # share of the rows that are not test rows
    gap: int | None = None  # tail, stretch: rows left out beside the test part; None: as many as overlap
    min_samples: int = 2  # clients with fewer rows are left out

    def __post_init__(self) -> None:
        if self.kind not in PARTITIONS:
            raise unknown(Code.SETTING_VALUE, "partition.kind", self.kind, PARTITIONS)
        if self.split not in SPLITS:
            raise unknown(Code.SETTING_VALUE, "partition.split", self.split, SPLITS)
        if self.scenario not in SCENARIOS:
            raise unknown(Code.SETTING_VALUE, "partition.scenario", self.scenario, SCENARIOS)
        _at_least("clients", self.clients, 1)
        if self.clients is not None and self.clients > MOST_CLIENTS:
            raise must_be(Code.SETTING_VALUE, "partition.clients", f"at most {MOST_CLIENTS}", self.clients)
        _at_least("samples", self.samples, 1)
        _at_least("most_rows", self.most_rows, 2 if self.valid_share else 1)
        _at_least("classes_per_client", self.classes_per_client, 1)
        _at_least("tau", self.tau, 1)
        _at_least("gap", self.gap, 0)
        _at_least("min_samples", self.min_samples, 2)
        _between("alpha", self.alpha, 0.0, math.inf, open_low=True)
        _between("gamma", self.gamma, 0.0, 1.0)
        _between("ratio", self.ratio, 0.0, 1.0, open_low=True)
        _between("test_share", self.test_share, 0.0, 1.0, open_low=True, open_high=True)
        _between("valid_share", self.valid_share, 0.0, 1.0, open_high=True)
        if self.sigma is not None:
            _between("sigma", self.sigma, 0.0, 10.0)
        if self.sizes is not None:
            object.__setattr__(self, "sizes", tuple(self.sizes))  # TOML files give a list
            self._check_sizes(self.sizes)
        if self.samples is not None and self.kind not in (*_LAZY, "auto"):
            raise BadInput(
                Code.SETTINGS_CLASH,
                f"partition.samples: works with the kinds {', '.join(_LAZY)}, got kind {self.kind!r}.",
            )
        if self.most_rows is not None and self.samples is not None:
            raise BadInput(Code.SETTINGS_CLASH, "partition.most_rows: must be left out with partition.samples.")
        if self.kind == "scenario" and self.clients not in (None, 5):
            raise must_be(Code.SETTINGS_CLASH, "partition.clients", "5 for a scenario", self.clients)

    def _check_sizes(self, sizes: tuple[int, ...]) -> None:
        if self.kind not in ("sizes", "subject", "scenario", "auto"):
            allowed = "sizes, subject or scenario"
            raise BadInput(
                Code.SETTINGS_CLASH, f"partition.sizes: works with the kinds {allowed}, got kind {self.kind!r}."
            )
        if not sizes or not all(isinstance(n, int) and n >= 1 for n in sizes):
            wanted = "whole numbers of training rows, each 1 or more"
            raise must_be(Code.SETTING_VALUE, "partition.sizes", wanted, list(sizes))
        if self.kind == "scenario" and len(sizes) != 5:
            wanted = "5 sizes, because a scenario has 5 clients"
            raise must_be(Code.SETTINGS_CLASH, "partition.sizes", wanted, shown=str(len(sizes)))
        if self.clients not in (None, len(sizes)):
            wanted = f"one size for each of the {self.clients} clients"
            raise must_be(Code.SETTINGS_CLASH, "partition.sizes", wanted, shown=f"{len(sizes)} sizes")


def _at_least(field: str, value: int | None, low: int) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, int):
        raise must_be(Code.SETTING_VALUE, f"partition.{field}", "a whole number", value)
    if value < low:
        raise must_be(Code.SETTING_VALUE, f"partition.{field}", f"{low} or more", value)


def _between(
    field: str, value: float, low: float, high: float, *, open_low: bool = False, open_high: bool = False
) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise must_be(Code.SETTING_VALUE, f"partition.{field}", "a number", value)
    over = value > low if open_low else value >= low
    under = value < high if open_high or math.isinf(high) else value <= high
    if not (over and under):
        bounds = f"{'above' if open_low else 'at least'} {low:g}"
        if not math.isinf(high):
            bounds += f" and {'below' if open_high else 'at most'} {high:g}"
        raise must_be(Code.SETTING_VALUE, f"partition.{field}", bounds, value)
