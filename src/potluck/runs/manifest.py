"""The manifest: what a checkpoint belongs to. A run goes on only with the files it was saved with.

Every checkpoint holds one: the settings that decide the figures, a fingerprint of the data, the versions, and a digest
of the rows of run.db up to its step. `check_settings` and `check_files` say which of them differs.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from potluck.errors import BadInput, Code
from potluck.runs.experiment import Experiment
from potluck.runs.record import digest, reading
from potluck.runs.session import Session
from potluck.runs.summary import versions
from potluck.settings import flat_values

# These settings do not change the figures of a run, so they may differ when it goes on.
INDIFFERENT = ("name", "out", "workers", "checkpoint_seconds", "memory_mb", "filled")
LONGER = ("stop", "budget")  # a run may be continued past its end


def figures_of(experiment: Experiment) -> dict[str, Any]:
    """Return the settings that decide a run's figures, by section.key."""
    return {
        f"{section}.{key}": value
        for section, part in experiment.model_dump(exclude_none=True).items()
        for key, value in part.items()
        if not (section == "run" and key in INDIFFERENT)
    }


def manifest(session: Session, step: int, rows: str) -> dict[str, Any]:
    """What a checkpoint at this step belongs to; `rows` is the digest of the database."""
    return {
        "settings": _settings(session.experiment),
        "data": session.fingerprint,
        "versions": versions(),
        "step": step,
        "rows": rows,
    }


def check_settings(folder: Path, experiment: Experiment, saved: Mapping[str, Any] | None) -> None:
    """Raise BadInput for a setting that is not what it was when the run was saved."""
    if saved is None:
        return
    there, here = saved["settings"], _settings(experiment)
    usual = _settings(Experiment.of({"data": {"source": "made"}, "method": {"name": "fedavg"}}))
    later = {
        name for name in here.keys() - there.keys() if here[name] == usual.get(name)
    }  # settings of a later release
    for name in sorted((there.keys() | here.keys()) - later):
        if there.get(name) != here.get(name):
            raise BadInput(
                Code.RUN_DAMAGED,
                f"experiment: {str(folder / 'experiment.toml')!r} has {name} = {_shown(here.get(name))}, but the run "
                f"was saved with {_shown(there.get(name))}. Put it back, or start a new run.",
            )


def check_files(folder: Path, session: Session, saved: Mapping[str, Any] | None) -> list[str]:
    """Raise BadInput where the data or run.db is not what the checkpoint was saved with; return notes."""
    if saved is None:
        return ["The checkpoint is of an older version, so the run's files are not compared with it."]
    if saved["data"] != session.fingerprint:
        source = session.experiment.data.source
        raise BadInput(
            Code.RUN_DAMAGED,
            f"data: {source!r} holds other samples than when the run was saved. Put them back, or start a new run.",
        )
    _check_rows(folder / "run.db", saved)
    there, here = saved["versions"], versions()
    return [
        f"The run was saved with {name} {there.get(name)} and goes on with {here.get(name)}: its bits may differ."
        for name in sorted(there.keys() | here.keys())
        if there.get(name) != here.get(name)
    ]


def _check_rows(path: Path, saved: Mapping[str, Any]) -> None:
    if not path.is_file():
        raise BadInput(Code.RUN_DAMAGED, f"run.db: there is no file {str(path)!r}, but the run has a checkpoint.")
    with reading(path) as db:
        (last,) = db.execute("SELECT max(step) FROM steps").fetchone()
        found = digest(db, "", -1, int(saved["step"]))
    if found != saved["rows"]:
        lacks = f"ends at step {last}" if last is None or last < saved["step"] else "has other rows"
        raise BadInput(
            Code.RUN_DAMAGED,
            f"run.db: {str(path)!r} {lacks}, but the checkpoint was saved with it at step {saved['step']}. "
            "Put the file back, or start a new run.",
        )


def _settings(experiment: Experiment) -> dict[str, Any]:
    """The settings by dotted name, as plain values that survive a checkpoint."""
    found = {name: value for name, value in figures_of(experiment).items() if name.partition(".")[0] not in LONGER}
    return flat_values(found)


def _shown(value: Any) -> str:
    text = "nothing" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
