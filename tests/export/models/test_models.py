"""Exported models: every network as ONNX and C gives PyTorch's scores from raw samples; files say how to use them."""

from __future__ import annotations

import shutil
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import potluck
from potluck.errors import BadInput, Code
from potluck.export import export
from potluck.export.models import checks
from potluck.export.models.c_file import c_files, identifier, operations
from potluck.export.models.whole import whole_graph
from potluck.models import build
from potluck.runs.results import Personal, Run
from potluck.tasks import Anomaly, Forecasting, MultiLabel, Ordinal, Regression, Task

SHAPES = {"features": (6,), "series": (12, 3), "image": (3, 8, 8)}
CASES: list[tuple[str, str, dict[str, Any]]] = [
    ("svm", "features", {}),
    ("mlp", "series", {"hidden": [5, 4], "activation": "tanh"}),
    ("cnn", "image", {"channels": [4, 6], "norm": "batch", "hidden": [5]}),
    ("cnn", "image", {"channels": [4], "norm": "group", "groups": 2, "stride": 2}),
    ("cnn1d", "series", {"channels": [4], "kernel": 3, "stride": 2, "padding": 1}),
    ("convnet", "series", {"width": 4, "features": 6}),
    ("compact", "image", {"width": 4, "blocks": 2, "classifier": "medium"}),
    ("resnet18", "image", {"width": 2}),
    ("gru", "series", {"hidden": 4, "layers": 2}),
    ("lstm", "series", {"hidden": 4}),
    ("rnn", "series", {"hidden": 4}),
    ("bilstm", "series", {"hidden": 4}),
    ("cfc", "series", {"hidden": 4, "backbone": 6, "head": 5}),
    ("cfc", "features", {"hidden": 4, "layers": [1, 2, 2], "gate": "gated", "activation": "silu"}),
]


TASKS: list[Task] = [
    Regression("", (40.0,), (25.0,)),
    Forecasting("", (1.0, -2.0), (0.5, 3.0)),
    Ordinal("", 5),
    MultiLabel("", 3),
    Anomaly("", 36),
]


def trained(name: str, kind: str, settings: dict[str, Any], task: Task | None = None) -> Personal:
    """A model with statistics of its own, and samples as colour bytes where it takes images."""
    shape = SHAPES[kind]
    model = build(name, shape, 4 if task is None else task.outputs, settings, task)
    generator = torch.Generator().manual_seed(1)
    weights = {
        key: value + torch.rand(value.shape, generator=generator) if "running" in key else value
        for key, value in model.init(0).items()
    }
    image = kind == "image"
    channels = shape[0] if image else shape[-1]
    scale = (torch.rand(channels, generator=generator), torch.rand(channels, generator=generator) + 0.5)
    return Personal("s01", model, weights, {"kind": kind, "channels_last": image, "bytes": image}, scale)


@pytest.mark.parametrize(("name", "kind", "settings"), CASES)
def test_onnx_gives_the_scores_of_pytorch(name: str, kind: str, settings: dict[str, Any]) -> None:
    onnx_file = pytest.importorskip("potluck.export.models.onnx_file", reason="needs `pip install potluck[onnx]`")
    one = trained(name, kind, settings)
    x = checks.samples(one)
    if kind != "image":
        x[0].flat[0] = np.nan  # not measured: the mean of the client
    data = onnx_file.onnx_bytes(whole_graph(one), {})
    assert np.abs(checks.run_onnx(data, x) - one.scores(x)).max() < 5e-5


@pytest.mark.skipif(not any(map(shutil.which, checks.COMPILERS)), reason="needs a C compiler")
@pytest.mark.parametrize(("name", "kind", "settings"), CASES)
def test_c_gives_the_scores_of_pytorch(name: str, kind: str, settings: dict[str, Any], tmp_path: Path) -> None:
    one = trained(name, kind, settings)
    x = checks.samples(one)
    if kind != "image":
        x[0].flat[0] = np.nan
    header, source = c_files(whole_graph(one), "s01", {"about": "a test"})
    (tmp_path / "s01.h").write_text(header)
    (tmp_path / "s01.c").write_text(source)
    assert np.abs(checks.run_c(tmp_path, "s01", x) - one.scores(x)).max() < 5e-5


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.kind)
def test_every_task_goes_out_in_its_own_units(task: Task, tmp_path: Path) -> None:
    """Numbers in the data's units, probabilities of levels and labels, the anomaly score: in ONNX and in C."""
    one = trained("mlp", "series", {"hidden": [5]}, task)
    x, wanted = checks.samples(one), one.scores(checks.samples(one))
    assert wanted.shape == (len(x), 1 if isinstance(task, Anomaly) else task.outputs)
    header, source = c_files(whole_graph(one), "s01", {}, task)
    (tmp_path / "s01.h").write_text(header)
    (tmp_path / "s01.c").write_text(source)
    assert ("s01_predict" in header) == isinstance(task, Ordinal)  # a level; the others are their scores
    close = 1e-5 * max(1.0, np.abs(wanted).max())
    if any(map(shutil.which, checks.COMPILERS)):
        assert np.abs(checks.run_c(tmp_path, "s01", x) - wanted).max() < close
    onnx_file = pytest.importorskip("potluck.export.models.onnx_file", reason="needs `pip install potluck[onnx]`")
    data = onnx_file.onnx_bytes(whole_graph(one), {}, task)
    assert np.abs(checks.run_onnx(data, x) - wanted).max() < close
    if isinstance(task, Ordinal):
        levels = checks.run_onnx(data, x, "level")
        assert levels.tolist() == one.predict(x).tolist()
        assert len(set(levels.tolist())) > 1


@pytest.mark.parametrize("other", [{"gate": "leaky"}, {"time_bias": True}, {"mixed": True}])
def test_a_cfc_of_another_form_has_none_in_c(other: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match="no form in C") as refusal:
        whole_graph(trained("cfc", "series", {"hidden": 4, **other}))
    assert refusal.value.code is Code.MODEL_EXPORT


def test_a_difference_is_refused() -> None:
    one = trained("mlp", "features", {})
    x = checks.samples(one)
    with pytest.raises(BadInput, match=r"must be PyTorch's") as refusal:
        checks.difference(one, x, one.scores(x) + 0.01)
    assert refusal.value.code is Code.MODEL_EXPORT
    with pytest.raises(BadInput, match=r"must be PyTorch's"):
        checks.difference(one, x, np.full_like(one.scores(x), np.nan))


def test_names_are_names_in_c() -> None:
    assert identifier("s07") == "s07"
    assert identifier("7 of 9/ä") == "m_7_of_9__"
    assert "linear" in operations()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Personal models, and one for all."""
    return potluck.run({
        "data": {"source": "made"},
        "method": {"name": "ftl"},
        "model": {"name": "softmax"},
        "fleet": {"devices": "pc"},
        "stop": {"rounds": 2},
        "run": {"out": str(tmp_path_factory.mktemp("runs"))},
    })  # fmt: skip


def test_a_model_file_is_whole(run: Run, tmp_path: Path) -> None:
    """Weights, standardisation, layout and names are in the one file."""
    client = run.clients[3]
    (line,) = export([run], "safetensors", str(tmp_path), [client])
    assert "as PyTorch" in line
    one = potluck.open_model(tmp_path / run.name / f"{client}.safetensors")
    x = checks.samples(run.personal(client))
    assert np.array_equal(one.scores(x), run.personal(client).scores(x))
    assert one.about["export"]["class_names"] == [row["name"] for row in run.table("classes")]


def test_all_models_are_written_unless_some_are_named(run: Run, tmp_path: Path) -> None:
    lines = export([run], "safetensors", str(tmp_path))
    assert len(lines) == len(run.clients) + run.has_shared
    assert {path.stem for path in (tmp_path / run.name).iterdir()} >= set(run.clients)


def test_the_shared_model_says_that_it_takes_standardised_samples(run: Run, tmp_path: Path) -> None:
    (line,) = export([run], "safetensors", str(tmp_path), shared=True)
    assert "takes standardised samples" in line
    one = potluck.open_model(tmp_path / run.name / "shared.safetensors")
    assert one.unscaled
    x = checks.samples(run.personal(run.clients[0]))
    fitted = one.fitted_to(x)
    assert not fitted.unscaled
    standardised = fitted.prepared(torch.from_numpy(x))
    assert standardised.mean((0, 1)).abs().max() < 1e-4
    assert (standardised.square().mean((0, 1)) - 1).abs().max() < 1e-3
    named = run.shared(run.clients[0])  # with the statistics of a client
    assert np.array_equal(named.scale[0], run.personal(run.clients[0]).scale[0])  # type: ignore[index]


def test_what_does_not_belong_together_is_refused(run: Run, tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"--client: works with --to safetensors, onnx, c, got 'csv'"):
        export([run], "csv", str(tmp_path), ["s01"])
    with pytest.raises(BadInput, match=r"client: 's1' is not known") as refusal:
        export([run], "c", str(tmp_path), ["s1"])
    assert refusal.value.code is Code.UNKNOWN_CLIENT


def test_a_model_that_reads_times_stays_a_model_of_potluck(run: Run, tmp_path: Path, monkeypatch: Any) -> None:
    one = run.personal(run.clients[0])
    timed = Personal(one.client, one.model, one.weights, {**one.about, "timed": True}, one.scale)
    monkeypatch.setattr(Run, "personal", lambda self, client: timed)
    with pytest.raises(BadInput, match=r"reads time stamps, which only safetensors keeps"):
        export([run], "onnx", str(tmp_path), [one.client])


@pytest.mark.slow
def test_your_own_network_goes_through_pytorchs_exporter() -> None:
    """The LTC has no graph of its own, as own networks have none."""
    onnx_file = pytest.importorskip("potluck.export.models.onnx_file")
    model = build("ltc", (4, 3), 4, {"hidden": 3, "unfold": 2})
    about = {"kind": "series", "channels_last": False, "bytes": False}
    one = Personal("s01", model, model.init(0), about, (torch.rand(3), torch.rand(3) + 0.5))
    x = checks.samples(one)
    with warnings.catch_warnings(action="ignore"):
        data = onnx_file.traced_bytes(one, (4, 3), {})
    assert np.abs(checks.run_onnx(data, x) - one.scores(x)).max() < 5e-5
    with pytest.raises(BadInput, match=r"has no form in C"):
        whole_graph(one)
