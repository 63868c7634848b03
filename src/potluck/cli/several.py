"""What `potluck compare` and `potluck tune` share: the runs of several methods, planned from a file and flags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from potluck.cli import flags
from potluck.cli.progress.line import Quiet

if TYPE_CHECKING:
    from potluck.runs.compare import Plan


@dataclass(frozen=True)
class Several:
    """The planned runs, and what the file says of tuning."""

    plan: Plan
    methods: list[str]
    tuning: Mapping[str, Any]  # the file's section [tune]
    space: list[str]  # what the file says to choose from

    @property
    def stem(self) -> str:
        """The data's name, for folders and titles."""
        return Path(self.plan.runs[0].experiment.data.source.partition(":")[0]).stem or "data"


def several(
    watcher: Quiet, experiment: Path | None, methods: list[str] | None, seeds: int, settings: Sequence[str] | None,
    *, budget: list[str] | None, cohort: int | None, **given: Any,
) -> Several:  # fmt: skip
    """Plan the runs of these methods, or of those that the file names; say the notes of the plan."""
    from potluck.runs import compare as comparisons
    from potluck.tune.request import of_file

    values, notes = flags.gathered(experiment, **given)
    if budget and given["rounds"] is None:  # a budget replaces the rounds of the file
        values["stop"] = {key: value for key, value in flags.section_of(values, "stop").items() if key != "rounds"}
    values, tuning, space = of_file(flags.with_budget(values, budget))
    values, named, own = comparisons.of_file(values)
    methods = methods or named
    settings = [*(one for one in own if one.partition(":")[0] in methods), *(settings or [])]
    if cohort is not None:
        values["method"] = {**flags.section_of(values, "method"), "cohort": cohort}
    planned = comparisons.plan(values, methods, seeds, settings)
    for note in [*notes, *planned.notes]:
        watcher.say(note)
    return Several(planned, methods, tuning, list(space))
