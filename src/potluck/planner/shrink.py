"""What to shrink where a method does not fit a device: the mildest change of each kind, tried dry."""

from __future__ import annotations

from typing import Any

from potluck.errors import BadInput
from potluck.planner.dry import dry_run
from potluck.runs.drive_state import NothingRan
from potluck.runs.experiment import Experiment, as_toml, override

BATCHES = (8, 4, 1)
WIDTHS = (0.5, 0.25, 0.125, 0.05, 0.02)
_SIZES = ("hidden", "backbone", "head", "channels", "width")  # settings of models that make them smaller
FEW = 1e-6  # share of a run: its first step


def unfit_in(experiment: Experiment) -> int:
    """The clients that a first round finds to have too little memory."""
    try:
        with dry_run(experiment, FEW) as (_, session):
            return len(session.fleet.unfit)
    except NothingRan:
        return 1 << 30


def hints(experiment: Experiment, unfit: int, settings: dict[str, Any]) -> tuple[str, ...]:
    """Changes after which fewer clients are left out; `settings` are those of the model as it is built."""
    recipe = experiment.method.get("recipe", {})
    batch = recipe.get("batch", 32) if isinstance(recipe, dict) else 32
    sizes = [name for name in _SIZES if name in settings]
    batches = [[f"method.recipe.batch={one}"] for one in BATCHES if one < batch]
    widths = [
        [f"model.{name}={as_toml(_scaled(settings[name], share))}" for name in sizes] for share in WIDTHS if sizes
    ]
    both = [[*batches[-1], *width] for width in widths] if batches else []
    found = []
    for changes in (batches, widths, both):
        left, change = _mildest(experiment, unfit, changes)
        if change:
            found.append(f"{' '.join(f'--set {one}' for one in change)}: {_all_or(left)}")
        unfit = min(unfit, left)  # both together are worth saying only if they let more in
        if not left and changes is widths:
            break
    return tuple(found)


def _mildest(experiment: Experiment, unfit: int, changes: list[list[str]]) -> tuple[int, list[str]]:
    """The first of some changes, each smaller than the one before, that lets as many in as the last one does."""
    if not changes or not unfit:
        return unfit, []
    known: dict[int, int] = {}

    def left(place: int) -> int:
        if place not in known:
            try:
                known[place] = unfit_in(
                    Experiment.of(override(experiment.model_dump(exclude_unset=True), changes[place]))
                )
            except BadInput:
                known[place] = unfit
        return known[place]

    low, high = 0, len(changes) - 1
    least = left(high)
    if least >= unfit:
        return unfit, []
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if left(middle) == least else (middle + 1, high)
    return least, changes[low]


def _all_or(left: int) -> str:
    return "all clients can train" if not left else f"{left} {'client is' if left == 1 else 'clients are'} left out"


def _scaled(value: Any, share: float) -> Any:
    if isinstance(value, list | tuple):
        return [max(1, int(one * share)) for one in value]
    return max(1, int(value * share))
