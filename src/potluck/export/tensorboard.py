"""Export runs to TensorBoard: a folder of event files per run.

The step is the round. TensorBoard's clock is given the virtual time, so that its "relative" axis counts virtual
seconds.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import HistogramProto, Summary, SummaryMetadata
from tensorboard.compat.proto.tensor_pb2 import TensorProto
from tensorboard.compat.proto.tensor_shape_pb2 import TensorShapeProto
from tensorboard.compat.proto.types_pb2 import DT_STRING
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from potluck.export import folder_of, names_of
from potluck.export.figures import columns, evaluations
from potluck.metrics import Metric
from potluck.runs.record import read
from potluck.runs.results import Run

BINS = np.linspace(0.0, 1.0, 21)


def write(runs: Sequence[Run], to: str, out: str) -> list[str]:
    folder = folder_of(out)
    return [_run(run, folder / name) for run, name in zip(runs, names_of(runs), strict=True)]


def _run(run: Run, folder: Path) -> str:
    for old in folder.glob("events.out.tfevents.*"):
        old.unlink()  # otherwise TensorBoard would show the run twice
    writer = EventFileWriter(str(folder), filename_suffix=".potluck")
    try:
        toml = (run.folder / "experiment.toml").read_text(encoding="utf-8")
        indented = "\n".join(f"    {line}" for line in toml.splitlines())  # a block of code in TensorBoard's Markdown
        writer.add_event(Event(wall_time=0.0, step=0, summary=Summary(value=[_text("experiment", indented)])))
        names, metric = columns(run), run.metric
        for row in evaluations(run):
            values = [
                Summary.Value(tag=tag, simple_value=float(row[column]))
                for tag, column in names.items()
                if row[column] is not None
            ]
            values.append(Summary.Value(tag=f"{metric.name}/clients", histo=_histogram(run, row["step"], metric)))
            writer.add_event(Event(wall_time=row["virtual"], step=row["round"], summary=Summary(value=values)))
    finally:
        writer.close()
    return str(folder)


def _histogram(run: Run, step: int, metric: Metric) -> Any:
    """A histogram of the clients' scores: shares in steps of five per cent, errors in twenty steps."""
    rows = read(run.folder / "run.db", "SELECT accuracy FROM accuracies WHERE step = ?", step)
    shares = np.array([row["accuracy"] for row in rows if row["accuracy"] is not None], dtype=float)
    bins = BINS if metric.share or not len(shares) else BINS * (float(shares.max()) or 1.0)
    counts, _ = np.histogram(shares, bins)
    return HistogramProto(
        min=float(shares.min(initial=1.0)),
        max=float(shares.max(initial=0.0)),
        num=len(shares),
        sum=float(shares.sum()),
        sum_squares=float((shares**2).sum()),
        bucket_limit=bins[1:].tolist(),
        bucket=counts.tolist(),
    )


def _text(tag: str, text: str) -> Any:
    content = TensorProto(dtype=DT_STRING, string_val=[text.encode()], tensor_shape=TensorShapeProto())
    metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
    return Summary.Value(tag=f"{tag}/text_summary", metadata=metadata, tensor=content)
