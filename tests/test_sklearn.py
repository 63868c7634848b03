"""The estimator behaves as scikit-learn's do, and its models are those of the run."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures

from potluck.errors import BadInput
from potluck.sklearn import FederatedClassifier, FederatedRegressor

SMALL: dict[str, Any] = {"model": "softmax", "rounds": 3, "n_clients": 3}


def task(clients: int = 3) -> tuple[Any, Any, Any]:
    """Two classes that a line separates, and whose rows they are."""
    generator = np.random.Generator(np.random.Philox(1))
    y = np.arange(150) % 2
    x = generator.normal(3.0 * y[:, None], 1.0, (150, 4))
    return x, np.array(["sit", "walk"])[y], np.array([f"p{k % clients}" for k in range(150)])


def test_fit_and_predict_in_one_line() -> None:
    x, y, _ = task()
    found = FederatedClassifier(**SMALL).fit(x, y)
    assert found.score(x, y) > 0.9
    assert list(found.classes_) == ["sit", "walk"]
    assert found.n_features_in_ == 4
    assert np.allclose(found.predict_proba(x).sum(1), 1.0, atol=1e-5)
    assert found.summary_["clients"] == 3


def test_each_row_by_the_model_of_its_client() -> None:
    x, y, person = task()
    found = FederatedClassifier("ftl", **SMALL, standardise="client").fit(x, y, clients=person)
    assert list(found.clients_) == ["p0", "p1", "p2"]
    mixed = found.predict_proba(x[:6], clients=person[:6])
    for k in range(6):
        assert np.array_equal(mixed[k], found._personal[person[k]].scores(x[k : k + 1])[0])
    with pytest.raises(BadInput, match="standardise='global' gives one model for all"):
        found.predict(x)


def test_a_method_without_a_shared_model_needs_the_clients() -> None:
    x, y, person = task()
    found = FederatedClassifier("local", **SMALL).fit(x, y, clients=person)
    assert found.score(x, y, clients=person) > 0.9
    with pytest.raises(BadInput, match="has no model for all clients"):
        found.predict(x)
    with pytest.raises(BadInput, match="'p9' is not known"):
        found.predict(x[:1], clients=["p9"])


def test_the_basics_of_an_estimator(tmp_path: Path) -> None:
    x, y, _ = task()
    one = FederatedClassifier(**SMALL, settings={"method.recipe.lr": 0.2}, out=str(tmp_path))
    assert clone(one).get_params() == one.get_params()
    with pytest.raises(NotFittedError):
        one.predict(x)
    one.fit(x, y)
    assert "lr = 0.2" in (one.run_.folder / "experiment.toml").read_text()
    again = pickle.loads(pickle.dumps(one))  # noqa: S301 (our own bytes)
    assert np.array_equal(again.predict_proba(x), one.predict_proba(x))
    with pytest.raises(ValueError, match="X has 3 features, but FederatedClassifier is expecting 4 features"):
        one.predict(x[:, :3])
    with pytest.raises(BadInput, match="of two classes or more"):
        clone(one).fit(x, np.zeros(len(x), dtype=int))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        clone(one).fit(x, y[:-1])


def test_it_fits_into_pipelines_and_cross_validation() -> None:
    x, y, _ = task()
    whole = make_pipeline(PolynomialFeatures(2), FederatedClassifier(**{**SMALL, "rounds": 2}))
    assert cross_val_score(whole, x, y, cv=2).mean() > 0.8


def test_numbers_are_predicted_in_their_units() -> None:
    x, _, person = task()
    y = 40.0 + 10.0 * x[:, 0]
    settings = {"method.recipe.lr": 0.1, "method.recipe.batch": 8}
    found = FederatedRegressor("ftl", model="softmax", rounds=20, settings=settings).fit(x, y, clients=person)
    assert found.score(x, y) > 0.9
    assert found.score(x, y, clients=person) > 0.9
    assert found.predict(x).shape == (150,)
    assert found.summary_["rmse"]["mean"] < 0.3 * y.std()
    assert cross_val_score(FederatedRegressor("fedavg", **SMALL), x, y, cv=2).shape == (2,)
    with pytest.raises(ValueError, match="FederatedRegressor is expecting 4 features"):
        found.predict(x[:, :2])


def test_the_same_seed_gives_the_same_model() -> None:
    x, y, _ = task()
    first, second = (FederatedClassifier(**SMALL, random_state=4).fit(x, y) for _ in range(2))
    assert np.array_equal(first.predict_proba(x), second.predict_proba(x))


def test_series_are_samples_too() -> None:
    x, y, _ = task()
    found = FederatedClassifier(**SMALL).fit(x.reshape(150, 2, 2), y)
    assert found.predict(x.reshape(150, 2, 2)).shape == (150,)
