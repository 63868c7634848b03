"""Federated learning in the manner of scikit-learn: estimators of classes and of numbers, with `fit` and `predict`.

>>> from potluck.sklearn import FederatedClassifier
>>> found = FederatedClassifier(method="fedavg", rounds=10).fit(x, y, clients=person)   # doctest: +SKIP
>>> found.predict(x_new)                                                                # doctest: +SKIP
>>> found.predict(x_new, clients=person_new)  # each row by the model of its client       # doctest: +SKIP
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d

from potluck.errors import BadInput, Code, must_be, unknown

if TYPE_CHECKING:
    from potluck.runs.results import Personal, Run

__all__ = ["FederatedClassifier", "FederatedRegressor"]

Array = NDArray[Any]


class _Federated(BaseEstimator):  # type: ignore[misc]
    """What both estimators share: the settings, the run, and which model answers a row."""

    _task = "auto"

    def __init__(
        self,
        method: str = "fedavg",
        model: str | None = None,
        rounds: int = 20,
        n_clients: int = 10,
        fleet: Any = "pc",
        standardise: str = "global",
        test_share: float = 0.2,
        settings: Mapping[str, Any] | None = None,
        out: str | None = None,
        random_state: int = 0,
    ) -> None:
        self.method = method
        self.model = model
        self.rounds = rounds
        self.n_clients = n_clients
        self.fleet = fleet
        self.standardise = standardise
        self.test_share = test_share
        self.settings = settings
        self.out = out
        self.random_state = random_state

    def _train(self, x: Array, y: Array, clients: Any) -> None:
        self.n_features_in_ = x.shape[1]
        self._shape = x.shape[1:]
        arrays: dict[str, Any] = {"x": x, "y": y}
        if clients is not None:
            given = column_or_1d(clients)
            check_consistent_length(x, given)
            arrays["subject"] = given.astype(str)
        with tempfile.TemporaryDirectory() as place:
            path = Path(place) / "samples.npz"
            np.savez(path, **arrays)
            self._keep(self._run(path, Path(place), named=clients is not None))

    def _run(self, data: Path, place: Path, named: bool) -> Run:
        from potluck.runs.drive import start
        from potluck.runs.experiment import Experiment

        values: dict[str, Any] = {
            "data": {"source": str(data), "standardise": self.standardise},
            "task": {"name": self._task},
            "method": {"name": self.method},
            "fleet": {"devices": self.fleet},
            "partition": {"test_share": self.test_share},
            "stop": {"rounds": self.rounds},
            "run": {"seed": int(self.random_state), "out": str(self.out or place / "runs")},
        }
        if self.model is not None:
            values["model"] = {"name": self.model}
        if not named:
            values["partition"] |= {"kind": "iid", "clients": self.n_clients}
        for key, value in (self.settings or {}).items():
            section, dot, name = str(key).partition(".")
            if not dot:
                raise must_be(Code.SETTING_VALUE, "settings", "keys such as 'method.recipe.lr'", key)
            inside, names = values.setdefault(section, {}), name.split(".")
            for part in names[:-1]:
                inside = inside.setdefault(part, {})
            inside[names[-1]] = value
        return start(Experiment.of(values), None)

    def _keep(self, run: Run) -> None:
        """Keep the models in memory: the run's folder may be a temporary one."""
        self.summary_ = run.summary
        self.clients_ = np.array(run.with_models)
        self._shared: Personal | None = run.shared() if run.has_shared else None
        self._personal = {client: run.personal(client) for client in run.with_models}
        if self.out is not None:
            self.run_ = run

    def _answers(self, X: Any, clients: Any) -> Array:
        """The scores of each row by the shared model, or by the model of its client."""
        check_is_fitted(self, "clients_")
        x = _samples(X)
        if x.shape[1:] != self._shape:  # in scikit-learn's words
            raise ValueError(
                f"X has {x.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} features "
                f"as input (shape {self._shape})"
            )
        if clients is None:
            return np.asarray(self._general().scores(x))
        names = column_or_1d(clients).astype(str)
        check_consistent_length(x, names)
        parts = [(names == name, self._of(str(name))) for name in np.unique(names)]
        out = np.empty((len(x), parts[0][1].model.classes), dtype=np.float32)
        for mine, model in parts:
            out[mine] = model.scores(x[mine])
        return out

    def _general(self) -> Personal:
        if self._shared is None:
            raise BadInput(
                Code.ARGUMENT,
                f"clients: must name the client of each row, because {self.method!r} has no model for all clients.",
            )
        if self._shared.unscaled:
            raise BadInput(
                Code.ARGUMENT,
                "clients: must name the client of each row, because each standardises by its own samples. "
                "standardise='global' gives one model for all.",
            )
        return self._shared

    def _of(self, client: str) -> Personal:
        if client in self._personal:
            return self._personal[client]
        if self._shared is None:
            raise unknown(Code.UNKNOWN_CLIENT, "clients", client, self._personal)
        return self._general()


class FederatedClassifier(ClassifierMixin, _Federated):  # type: ignore[misc]
    """A classifier that clients train together, each on its own rows.

    `X` is (n, features), a series (n, steps, channels) or images. `clients` of `fit` says whose each row is. Without
    it, the rows are dealt out at random to `n_clients`. All arguments are settings of an experiment;
    `settings` takes any other, such as `{"method.recipe.lr": 0.05, "fleet.devices": "mixed"}`.

    After `fit`: `classes_`, `clients_` (the names), `summary_` (accuracies and costs on the rows that each client keeps
    for its test, `test_share` of them) and, with `out`, `run_`, the run's folder opened.
    """

    def fit(self, X: Any, y: Any, clients: Any = None) -> FederatedClassifier:
        """Train. `clients` names the client of each row: any labels, such as the people who were recorded."""
        x = _samples(X)
        y = column_or_1d(y, warn=True)
        check_consistent_length(x, y)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise must_be(Code.DATA_LABELS, "y", "of two classes or more", shown=f"{len(self.classes_)} class")
        self._train(x, labels.astype(np.int64), clients)
        return self

    def predict_proba(self, X: Any, clients: Any = None) -> Array:
        """Class probabilities (SVM: scores) by the shared model, or of each row by the model of its client.

        A client that took no part in the training gets the shared model.
        """
        return self._answers(X, clients)

    def predict(self, X: Any, clients: Any = None) -> Array:
        """The class of each row, by the shared model or by the models of the clients."""
        found = self.predict_proba(X, clients).argmax(-1)
        return np.asarray(self.classes_[found])

    def score(self, X: Any, y: Any, sample_weight: Any = None, clients: Any = None) -> float:
        """The accuracy, by the shared model or by the models of the clients."""
        from sklearn.metrics import accuracy_score

        return float(accuracy_score(y, self.predict(X, clients), sample_weight=sample_weight))


class FederatedRegressor(RegressorMixin, _Federated):  # type: ignore[misc]
    """As `FederatedClassifier`, for one number per row; `summary_` has `rmse` and `mae` in place of accuracies."""

    _task = "regression"

    def fit(self, X: Any, y: Any, clients: Any = None) -> FederatedRegressor:
        """Train. `clients` names the client of each row."""
        x = _samples(X)
        y = column_or_1d(y, warn=True)
        check_consistent_length(x, y)
        self._train(x, check_array(y, ensure_2d=False, dtype=np.float32), clients)
        return self

    def predict(self, X: Any, clients: Any = None) -> Array:
        """The number of each row, by the shared model or by the models of the clients."""
        return np.asarray(self._answers(X, clients)[:, 0])

    def score(self, X: Any, y: Any, sample_weight: Any = None, clients: Any = None) -> float:
        """R², by the shared model or by the models of the clients."""
        from sklearn.metrics import r2_score

        return float(r2_score(y, self.predict(X, clients), sample_weight=sample_weight))


def _samples(given: Any) -> Array:
    """Samples as an array of numbers, sample axis first; missing values may be NaN where the settings allow it."""
    return np.asarray(check_array(given, allow_nd=True, dtype="numeric", ensure_all_finite="allow-nan"))
