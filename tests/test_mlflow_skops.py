"""Estimators in files of skops, and in the runs of MLflow."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.pipeline import make_pipeline

from manyclass import SDCA, CrammerSinger, LinearClassifier, StagewiseClassifier

ESTIMATORS = [
    LinearClassifier(random_state=0),
    LinearClassifier(CrammerSinger(gamma=0.5), alpha=0.1, tol=0.1, solver=SDCA(), random_state=0),
    StagewiseClassifier(n_blocks=1, random_state=0),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_skops_keeps_fitted_estimators(estimator, tmp_path):
    files = pytest.importorskip("skops.io")
    X, y = load_iris(return_X_y=True)
    fitted = clone(estimator).fit(X, y)
    files.dump(fitted, tmp_path / "model.skops")
    asked = files.get_untrusted_types(file=tmp_path / "model.skops")
    assert asked
    assert all(name.startswith("manyclass.") for name in asked)
    found = files.load(tmp_path / "model.skops", trusted=asked)
    assert np.array_equal(found.decision_function(X), fitted.decision_function(X))
    assert found.get_params().keys() == fitted.get_params().keys()


@pytest.mark.filterwarnings("ignore")  # of MLflow's own calls
def test_mlflow_logs_a_pipeline_by_itself(tmp_path, monkeypatch):
    """autolog knows scikit-learn's estimators only, and a pipeline is one."""
    pytest.importorskip("skops")
    mlflow = pytest.importorskip("mlflow")
    sklearn = pytest.importorskip("mlflow.sklearn")
    monkeypatch.chdir(tmp_path)
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/runs.db")
    X, y = load_iris(return_X_y=True)
    sklearn.autolog(log_models=False)
    try:
        with mlflow.start_run() as run:
            fitted = make_pipeline(LinearClassifier(alpha=0.01, random_state=0)).fit(X, y)
            trusted = pytest.importorskip("skops.io").get_untrusted_types(data=_dumped(fitted))
            kept = sklearn.log_model(
                fitted, name="model", serialization_format="skops", skops_trusted_types=trusted, input_example=X[:2]
            )
    finally:
        sklearn.autolog(disable=True)
    logged = mlflow.get_run(run.info.run_id).data
    assert logged.params["linearclassifier__alpha"] == "0.01"
    assert logged.metrics["training_accuracy_score"] == fitted.score(X, y)
    assert np.array_equal(sklearn.load_model(kept.model_uri).predict(X), fitted.predict(X))


def _dumped(fitted):
    import skops.io

    return skops.io.dumps(fitted)
