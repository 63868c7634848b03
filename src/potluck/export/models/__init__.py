"""Write the models of runs for other programs: safetensors, ONNX and C, each from raw samples to scores.

Every file is compared with PyTorch before its name is printed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from potluck.errors import BadInput, Code
from potluck.export import folder_of, names_of
from potluck.export.models import checks
from potluck.export.models.networks import supported
from potluck.export.models.whole import raw_shape, whole_graph
from potluck.files import write_bytes, write_text
from potluck.runs import model_files
from potluck.runs.model_files import file_name
from potluck.runs.results import RAW, SHARED, Personal, Run, open_model

SUFFIXES = {"safetensors": ".safetensors", "onnx": ".onnx", "c": ".c"}
OUTPUTS = {  # what the scores are, by loss of classes or by task
    "cross_entropy": "probabilities",
    "hinge": "scores",
    "ordinal": "probabilities to be above each level but the last",
    "multilabel": "probabilities of labels",
    "regression": "numbers in the units of the data",
    "forecasting": "numbers in the units of the data",
    "anomaly": "the anomaly score",
}


def write(runs: Sequence[Run], to: str, out: str, clients: Sequence[str] = (), shared: bool = False) -> list[str]:
    """Write models of runs: of the clients named, the shared one if asked for; with neither, all there are."""
    folder, lines = folder_of(out), []
    for run, name in zip(runs, names_of(runs), strict=True):
        place = folder / name
        place.mkdir(exist_ok=True)
        lines += [_write(run, one, to, place) for one in chosen(run, clients, shared)]
    return lines


def chosen(run: Run, clients: Sequence[str], shared: bool) -> Iterator[Personal]:
    """The models that were asked for."""
    everything = not clients and not shared
    if shared or (everything and run.has_shared):
        yield run.shared()
    yield from (run.personal(client) for client in (run.with_models if everything else clients))


def about(run: Run, one: Personal) -> dict[str, Any]:
    """What a program needs to know to use a model."""
    task = one.model.task
    names = [row["name"] for row in run.table("classes")] or [str(k) for k in range(one.model.classes)]
    return {
        "run": run.name,
        "client": one.client or SHARED,
        "model": one.model.name,
        "input": "x".join(map(str, raw_shape(one))),
        "takes": "standardised samples" if one.unscaled else RAW,
        "output": OUTPUTS[one.model.loss if task.has_classes else task.kind],
        **({"class_names": names} if task.labelled else {}),
    }


def _write(run: Run, one: Personal, to: str, folder: Path) -> str:
    if one.about.get("timed") and to != "safetensors":
        raise BadInput(
            Code.MODEL_EXPORT,
            f"--to {to}: the model of {one.client or SHARED!r} reads time stamps, which only safetensors keeps.",
        )
    stem = file_name(one.client or (SHARED if SHARED not in run.clients else f"{SHARED}_model"))
    found = about(run, one)
    x = checks.samples(one)
    if to == "safetensors":
        path = folder / f"{stem}.safetensors"
        scale = {} if one.scale is None else {"input.mean": one.scale[0], "input.factor": one.scale[1]}
        model_files.save(path, {**one.weights, **scale}, {**one.about, "export": found})
        scores: Any = open_model(path).scores(x)
    elif to == "onnx":
        path = folder / f"{stem}.onnx"
        data = _onnx(one, {key: v if isinstance(v, str) else json.dumps(v) for key, v in found.items()})
        scores = checks.run_onnx(data, x)
        write_bytes(path, data)
    else:
        from potluck.export.models.c_file import c_files, identifier

        stem = identifier(stem)
        path = folder / f"{stem}.c"
        texts = {key: _comment(v) for key, v in found.items()}
        header, source = c_files(whole_graph(one), stem, texts, one.model.task)
        write_text(folder / f"{stem}.h", header)
        write_text(path, source)
        scores = checks.run_c(folder, stem, x)
    if scores is None:
        return f"{path}: not checked, because there is no C compiler here"
    note = "; takes standardised samples (each client has its own statistics)" if one.unscaled else ""
    return f"{path}: as PyTorch, largest difference {checks.difference(one, x, scores):.1e}{note}"


def _comment(value: Any) -> str:
    """A value as text that ends no comment of C."""
    return (value if isinstance(value, str) else ", ".join(map(str, value))).replace("*/", "* /")


def _onnx(one: Personal, found: dict[str, str]) -> bytes:
    from potluck.export.models.onnx_file import onnx_bytes, traced_bytes

    if supported(one.model):
        return onnx_bytes(whole_graph(one), found, one.model.task)
    if not one.model.task.has_classes:
        raise BadInput(
            Code.MODEL_EXPORT,
            f"--to onnx: {one.model.name!r} goes through PyTorch's exporter, which holds classifiers, "
            f"got the task {one.model.task.kind}; safetensors holds it.",
        )
    return traced_bytes(one, raw_shape(one), found)
