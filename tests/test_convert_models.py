"""Models to and from scikit-learn, and as ONNX: predictions and probabilities are those of the original."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.linear_model import Lasso, LogisticRegression, Ridge, RidgeClassifier, SGDClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import manyclass
from manyclass import LinearClassifier, LinearModel, LinearRegressor, TextVectorizer, certify
from models import model_of, rows_of
from test_cli_support import texts

ESTIMATORS = [
    LogisticRegression(max_iter=1000),
    LinearSVC(),
    LinearSVC(multi_class="crammer_singer", max_iter=100_000, random_state=0),
    RidgeClassifier(),
    SGDClassifier("log_loss", random_state=0),
    SGDClassifier(random_state=0),
]


@pytest.mark.parametrize("n_classes", [2, 3])
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_models_of_scikit_learn_predict_the_same_here_and_back(estimator, n_classes, tmp_path):
    X, y = load_iris(return_X_y=True)
    y = np.array(["a", "b", "c"])[np.minimum(y, n_classes - 1)]
    estimator.fit(X, y)
    model = LinearModel.from_sklearn(estimator)
    model.save(tmp_path / "m")
    for own in (model, manyclass.load(tmp_path / "m"), model.sparsify()):
        np.testing.assert_array_equal(own.predict(X), estimator.predict(X))
        np.testing.assert_allclose(own.decision_function(X), estimator.decision_function(X), rtol=1e-9, atol=1e-12)
        back = own.to_sklearn()
        np.testing.assert_array_equal(back.predict(sp.csr_matrix(X)), estimator.predict(X))
        np.testing.assert_allclose(back.decision_function(X), estimator.decision_function(X), rtol=1e-9, atol=1e-12)
        if hasattr(estimator, "predict_proba"):
            np.testing.assert_allclose(own.probabilities(X), estimator.predict_proba(X), atol=1e-12)
            np.testing.assert_allclose(back.predict_proba(X), estimator.predict_proba(X), atol=1e-12)


def test_regressions_label_sets_and_texts():
    X = load_iris().data
    for estimator, y in ((Ridge(), X[:, 0]), (Lasso(alpha=0.1), X[:, 0]), (Ridge(), X[:, :2])):
        model = LinearModel.from_sklearn(estimator.fit(X, y))
        np.testing.assert_allclose(model.predict(X), estimator.predict(X))
        np.testing.assert_allclose(model.to_sklearn().predict(X), estimator.predict(X))
    X, Y = make_multilabel_classification(random_state=0)
    several = RidgeClassifier().fit(X, Y)
    model = LinearModel.from_sklearn(several)
    np.testing.assert_array_equal(model.predict(X, dense=True), several.predict(X))
    with pytest.raises(ValueError, match="label sets"):
        model.to_sklearn()
    rows, labels = texts()
    pipeline = make_pipeline(TextVectorizer(), LogisticRegression()).fit(rows, labels)
    model = LinearModel.from_sklearn(pipeline)
    assert model.predict(rows).tolist() == pipeline.predict(rows).tolist() == model.to_sklearn().predict(rows).tolist()


def test_a_calibrated_model_keeps_its_probabilities():
    X, y = load_iris(return_X_y=True)
    model = LinearClassifier("squared_hinge", alpha=0.1).fit(X[::2], y[::2]).calibrate(X[1::2], y[1::2]).model_
    np.testing.assert_allclose(model.to_sklearn().predict_proba(X), model.probabilities(X), atol=1e-12)


def test_what_the_objective_was_is_kept_but_alpha():
    X, y = load_iris(return_X_y=True)
    svc = LinearSVC(fit_intercept=False, tol=1e-8).fit(X, y)
    model = LinearModel.from_sklearn(svc)
    assert certify(model, X, y, alpha=1 / len(X)).relative_gap < 1e-4
    with pytest.raises(ValueError, match="alpha must be given"):
        certify(model, X, y)


def test_others_are_refused():
    X, y = load_iris(return_X_y=True)
    with pytest.raises(ValueError, match="model must be a linear model"):
        LinearModel.from_sklearn(DecisionTreeClassifier().fit(X, y))
    with pytest.raises(ValueError, match="call fit first"):
        LinearModel.from_sklearn(LinearSVC())
    with pytest.raises(ValueError, match="a linear estimator of scikit-learn"):
        LinearModel.from_sklearn(X)
    with pytest.raises(ValueError, match="TextVectorizer"):
        LinearModel.from_sklearn(make_pipeline(StandardScaler(), LinearSVC()).fit(X, y))


@pytest.mark.parametrize(
    ("task", "link"),
    [("multiclass", "identity"), ("multiclass", "softmax"), ("multiclass", "sigmoid"), ("binary", "sigmoid"),
     ("multilabel", "sigmoid"), ("regression", "identity")],
)  # fmt: skip
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_onnx_runs_as_the_model(tmp_path, task, link, layout):
    runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    pytest.importorskip("onnx", reason="onnx is not installed")
    rng = np.random.default_rng(0)
    temperature = 1.0 if link == "identity" else 0.5
    model = model_of(rng, layout=layout, k=1 if task == "binary" else 5, task=task, link=link, temperature=temperature)
    X = rows_of(rng, 30).astype(np.float32)
    model.to_onnx(tmp_path / "m.onnx")
    session = runtime.InferenceSession(str(tmp_path / "m.onnx"), providers=["CPUExecutionProvider"])
    found = dict(zip([output.name for output in session.get_outputs()], session.run(None, {"X": X})))
    np.testing.assert_allclose(found["scores"], model.scores(X), rtol=1e-6)
    if task != "regression":
        expected = model.predict(X, dense=True) if task == "multilabel" else model.predict(X)
        np.testing.assert_array_equal(found["label"], expected)
    if link != "identity":
        np.testing.assert_allclose(found["probabilities"], model.probabilities(X), rtol=1e-5)


def test_onnx_takes_integer_labels_and_refuses_what_is_too_large(tmp_path):
    pytest.importorskip("onnx", reason="onnx is not installed")
    wide = np.broadcast_to(np.float32(0), (2**16, 2**14))
    model = object.__new__(LinearModel)
    for name, value in {"weights": wide, "classes": np.arange(2**14), "task": "multiclass"}.items():
        object.__setattr__(model, name, value)
    with pytest.raises(ValueError, match=r"at most 2 GiB.*4\.0 GiB"):
        model.to_onnx(tmp_path / "m.onnx")
    assert not (tmp_path / "m.onnx").exists()
    LinearRegressor().fit(np.eye(3), np.arange(3.0)).model_.to_onnx(tmp_path / "r.onnx")
    assert (tmp_path / "r.onnx").stat().st_size > 0


def test_onnx_keeps_labels_that_are_no_whole_numbers(tmp_path):
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    LinearModel(np.eye(3), np.zeros(3), np.array([0.5, 1.5, 2.0]), "multiclass").to_onnx(tmp_path / "m.onnx")
    constants = {each.name: each for each in onnx.load(tmp_path / "m.onnx").graph.initializer}
    assert onnx.numpy_helper.to_array(constants["labels"]).tolist() == [0.5, 1.5, 2.0]
