"""One call that makes a plan: from settings, wishes and sizes to a `Plan`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from potluck.planner import sizes
from potluck.planner.plan import MOST_TASKS, WITH_DATA, WITHOUT_DATA, Effort, Plan, plan
from potluck.planner.wish import Wish
from potluck.runs.experiment import override

CLIENTS = 30  # where neither data nor a flag says how many


def made(
    values: Mapping[str, Any],
    methods: Sequence[str] = (),
    wishes: Iterable[str] = (),
    settings: Sequence[str] = (),
    shape: Sequence[int] = (128, 9),
    classes: int = 6,
    rows: int = 100,
    seeds: int = 3,
    look: bool = True,
    say: Callable[[str], None] = lambda what: None,
) -> Plan:
    """Plan an experiment given as nested settings; without `data.source`, data of this shape and size stands for it."""
    settled = override(values, settings)
    only_sizes = "source" not in settled.get("data", {})
    if only_sizes:
        settled = _without_data(settled, shape, classes, rows)
    return plan(
        settled,
        methods or (WITHOUT_DATA if only_sizes else WITH_DATA),
        Wish.of(wishes),
        [],
        Effort(seeds, MOST_TASKS, look),
        only_sizes,
        say,
    )


def _without_data(values: dict[str, Any], shape: Sequence[int], classes: int, rows: int) -> dict[str, Any]:
    """The settings with data of these sizes, dealt out evenly."""
    partition = {"kind": "iid", "clients": CLIENTS, "test_share": 0.1, **values.get("partition", {})}
    total = max(classes, round(rows * int(partition["clients"]) / (1 - float(partition["test_share"]))))
    source = sizes.source(shape, classes, total)
    return {**values, "data": {**values.get("data", {}), "source": source}, "partition": partition}
