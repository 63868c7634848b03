"""What a task measures and optimises: against equations by hand, and against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from sklearn import metrics as known

from potluck import keys, learn
from potluck.errors import BadInput
from potluck.fleet import Data
from potluck.metrics import ACCURACY, RMSE, alike, distance, margin, score, scored_by, tie, unit, within, words
from potluck.models import build
from potluck.tasks import Anomaly, Classification, Forecasting, MultiLabel, Ordinal, Regression, Task, of_plain, plain

ALL: list[Task] = [
    Classification(classes=3, weights=(1.0, 2.0, 0.5)),
    Classification("macro_f1", classes=4),
    Ordinal(classes=5),
    MultiLabel(labels=3),
    Regression(centre=(10.0, 0.0), spread=(2.0, 1.0)),
    Forecasting(centre=(3.0,), spread=(4.0,)),
    Anomaly(size=6),
]


def figures(task: Task, out: torch.Tensor, y: torch.Tensor) -> dict[str, float]:
    """The metrics of one client whose rows all count, with two rows of padding behind them."""
    padded = [torch.cat([one, one[:2]])[None] for one in (out, y)]
    weight = torch.cat([torch.ones(len(y)), torch.zeros(2)])[None]
    sums = task.tally(padded[0], padded[1], weight)
    return {name: float(value[0]) for name, value in task.figures(sums.numpy()).items()}


def noise(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(size=shape).astype(np.float32))


def test_classification_is_bit_for_bit_what_it_was() -> None:
    task, out, y = Classification(classes=4), noise(50, 4), torch.arange(50) % 4
    assert torch.equal(task.losses(out, y), F.cross_entropy(out, y, reduction="none"))
    assert torch.equal(task.closeness(out, y), (out.argmax(-1) == y).float())
    assert torch.equal(task.slopes(out, y), torch.softmax(out, -1) - F.one_hot(y, 4).float())
    assert figures(task, out, y)["accuracy"] == float((out.argmax(-1) == y).sum()) / 50
    assert task.fused
    assert build("mlp", (3,), 4).task == task


def test_imbalanced_classes() -> None:
    y = torch.tensor([0] * 40 + [1] * 8 + [2] * 2)
    out = noise(50, 4) + 1.5 * F.one_hot(y, 4)  # class 3 has no rows
    said = out.argmax(-1)
    found = figures(Classification(classes=4), out, y)
    assert found["accuracy"] == pytest.approx(known.accuracy_score(y, said))
    with pytest.warns(UserWarning, match="y_pred contains classes"):
        assert found["balanced_accuracy"] == pytest.approx(known.balanced_accuracy_score(y, said))
    each = known.f1_score(y, said, labels=[0, 1, 2], average="macro", zero_division=0)
    assert found["macro_f1"] == pytest.approx(each)


def test_weights_of_classes_multiply_the_loss() -> None:
    task, out, y = Classification(classes=2, weights=(0.5, 3.0)), noise(6, 2), torch.tensor([0, 1, 1, 0, 1, 0])
    wanted = F.cross_entropy(out, y, reduction="none") * torch.tensor([0.5, 3.0])[y]
    assert torch.equal(task.losses(out, y), wanted)
    assert torch.allclose(task.slopes(out, y), Task.slopes(task, out, y), atol=1e-6)
    assert not task.fused


def test_regression_by_hand() -> None:
    task = Regression(centre=(100.0,), spread=(10.0,))
    out, y = torch.tensor([[0.0], [1.0], [-0.5]]), torch.tensor([103.0, 106.0, 95.0])
    assert task.scores(out.numpy())[:, 0] == pytest.approx([100.0, 110.0, 95.0])
    found = figures(task, out, y)  # errors -3, 4, 0
    assert found["rmse"] == pytest.approx((25 / 3) ** 0.5)
    assert found["mae"] == pytest.approx(7 / 3)
    assert task.losses(torch.tensor([[0.0], [5.0]]), torch.tensor([105.0, 110.0])).tolist() == [0.125, 3.5]  # Huber


def test_a_model_that_diverged_has_a_finite_error() -> None:
    found = figures(Regression(), torch.tensor([[float("nan")], [float("inf")]]), torch.zeros(2))
    assert np.isfinite(found["rmse"])
    assert found["rmse"] >= 1e18


def test_the_fast_path_trains_as_the_plain_one() -> None:
    task = Regression(centre=(5.0, 1.0), spread=(2.0, 0.5))
    model = build("mlp", (4,), 2, {"hidden": [5]}, task)
    x = noise(20, 4)
    data = Data(x, torch.stack([5 + 3 * x[:, 0], 1 - x[:, 1]], 1), torch.ones(20))
    weights = model.init(0)

    def trained() -> dict[str, torch.Tensor]:
        def one(w: dict[str, torch.Tensor], d: Data, key: torch.Tensor) -> dict[str, torch.Tensor]:
            return dict(learn.sgd(model, w, d, key=key, lr=0.1, epochs=2, batch=4, momentum=0.5))

        return one(weights, data, keys.key(3))

    with learn.plain():
        slow = trained()
    fast = trained()
    assert all(torch.allclose(fast[name], slow[name], atol=1e-5) for name in slow)
    assert not torch.allclose(fast[next(iter(weights))], weights[next(iter(weights))])


def test_ordinal_levels() -> None:
    task, y = Ordinal(classes=4), torch.tensor([0, 1, 2, 3, 3, 1, 0, 2])
    said = torch.tensor([0, 2, 2, 3, 1, 1, 1, 2])
    out = torch.where(torch.arange(3) < said[:, None], 2.0, -2.0)
    found = figures(task, out, y)
    assert found["mae"] == pytest.approx(float((said - y).abs().double().mean()))
    assert found["accuracy"] == 5 / 8
    assert found["kappa"] == pytest.approx(known.cohen_kappa_score(y, said, weights="quadratic"))
    above = (y[:, None] > torch.arange(3)).float()
    assert torch.allclose(task.losses(out, y), F.binary_cross_entropy_with_logits(out, above, reduction="none").mean(1))


def test_several_labels() -> None:
    task, out = MultiLabel(labels=3), noise(40, 3)
    y = (noise(40, 3, seed=1) + out > 0).float()
    said = (out > 0).numpy()
    found = figures(task, out, y)
    assert found["macro_f1"] == pytest.approx(known.f1_score(y, said, average="macro"))
    assert found["micro_f1"] == pytest.approx(known.f1_score(y, said, average="micro"))
    assert found["exact_match"] == pytest.approx(known.accuracy_score(y, said))


def test_anomalies_are_ranked() -> None:
    task, y = Anomaly(size=3), torch.tensor([0] * 60 + [1] * 20)
    out = noise(80, 3) * (1 + 0.7 * y[:, None])
    odd = out.square().mean(-1)
    found = figures(task, out, y)
    assert found["auroc"] == pytest.approx(known.roc_auc_score(y, odd), abs=0.01)  # scores of one bin count as equal
    assert found["auprc"] == pytest.approx(known.average_precision_score(y, odd), abs=0.01)
    assert figures(task, out[:60], y[:60])["auroc"] == 0.5  # nothing to rank
    assert figures(task, out * float("nan"), y)["auroc"] == 0.5  # a model that diverged tells nothing


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.kind)
def test_sums_of_clients_add_up(task: Task) -> None:
    """The figures of all rows are those of the clients' sums, so no row needs to leave a client."""
    y = torch.zeros(30) if isinstance(task, Forecasting) else task.blank(30)
    y = (noise(*y.shape, seed=2) > 0).to(y.dtype)
    out = noise(30, task.outputs)
    parts = [task.tally(out[None, a:b], y[None, a:b], torch.ones(1, b - a)) for a, b in ((0, 7), (7, 30))]
    whole = task.tally(out[None], y[None], torch.ones(1, 30))
    assert torch.allclose(parts[0] + parts[1], whole)


@pytest.mark.parametrize("task", ALL, ids=lambda task: task.kind)
def test_a_task_is_a_plain_value(task: Task) -> None:
    assert of_plain(plain(task)) == task
    slope = task.slopes(noise(5, task.outputs), task.blank(5))
    assert slope.shape == (5, task.outputs)
    assert task.opinion(noise(5, task.outputs)).shape[0] == 5


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"kind": "sorting"}, "task.name: 'sorting' is not known"),
        ({"kind": "regression", "classes": 3}, "task regression: 'classes' is not known"),
        ({"kind": "regression", "centre": [0.0], "spread": [0.0]}, "task.spread: must be above 0 and finite"),
        ({"kind": "classification", "metric": "rmse"}, "task.metric: 'rmse' is not known"),
    ],
)
def test_other_values_are_refused(values: dict[str, object], sentence: str) -> None:
    with pytest.raises(BadInput, match=sentence):
        of_plain(values)


def test_scores_are_written_as_people_read_them() -> None:
    assert (score(0.5), distance(-0.02), unit(), words(True)) == (
        "50.0\N{NO-BREAK SPACE}%",
        "−2.0",
        " points",
        "Accuracy",
    )
    assert (margin(0.01, 0.9), within(-0.1, 1.2), tie(20, 0.5, 0.6)) == (0.01, (0.0, 1.0), 0.05)
    with scored_by(RMSE):
        assert (score(-13.27), distance(-2.119), unit(), words(True)) == ("13.3", "−2.12", "", "RMSE")
        assert margin(0.01, -20.0) == pytest.approx(0.2)
        assert (within(-3.0, 1.0), tie(20, -10.0, -8.0), alike()) == ((-3.0, 0.0), 0.1, "at most 1 % apart")
    assert ACCURACY.gains(0.5, None)
    assert RMSE.gains(4.0, 5.0)
    assert RMSE.best(6.0, 5.0) == 5.0
    assert RMSE.reached(4.0, 5.0)
