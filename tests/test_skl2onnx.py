"""Estimators in pipelines that skl2onnx converts: onnxruntime gives the predictions of the pipeline."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_iris, make_multilabel_classification
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from manyclass import LinearClassifier, LinearClassifierCV, LinearRegressor

skl2onnx = pytest.importorskip("skl2onnx", reason="skl2onnx is not installed")
runtime = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:skl2onnx", "ignore::FutureWarning:skl2onnx")


@pytest.fixture(autouse=True)
def registered():
    from manyclass.estimators.onnx import register

    register()
    register()


def run(pipeline, X, options=None, **settings):
    made = skl2onnx.to_onnx(
        pipeline, X[:1], options=None if options is None else {id(pipeline[-1]): options}, **settings
    )
    session = runtime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"X": X})


@pytest.mark.parametrize("loss", ["multinomial", "log_loss", "squared_hinge"])
@pytest.mark.parametrize("n_classes", [3, 2])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_classifiers(loss, n_classes, dtype):
    X, y = load_iris(return_X_y=True)
    X, y = X.astype(dtype), np.array(["a", "b", "c"])[np.minimum(y, n_classes - 1)]
    pipeline = make_pipeline(StandardScaler(), LinearClassifier(loss, random_state=0)).fit(X, y)
    scores = pipeline.decision_function(X)
    scores = np.column_stack([-scores, scores]) if n_classes == 2 else scores
    label, second = run(pipeline, X, {"zipmap": False})
    assert label.tolist() == pipeline.predict(X).tolist()
    expected = scores if loss == "squared_hinge" else pipeline.predict_proba(X)
    np.testing.assert_allclose(second, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(run(pipeline, X, {"zipmap": False, "raw_scores": True})[1], scores, rtol=1e-4, atol=1e-4)
    mapped = run(pipeline, X)[1]
    np.testing.assert_allclose([[row[c] for c in "abc"[:n_classes]] for row in mapped], expected, rtol=1e-4, atol=1e-5)


def test_whole_numbers_as_labels_cross_validation_label_sets_and_regression():
    X, y = load_iris(return_X_y=True)
    X = X.astype(np.float32)
    chosen = make_pipeline(StandardScaler(), LinearClassifierCV(alphas=[1e-2, 1e-3], random_state=0)).fit(X, y + 5)
    assert run(chosen, X, {"zipmap": False})[0].tolist() == chosen.predict(X).tolist()
    floats = make_pipeline(StandardScaler(), LinearClassifier(random_state=0)).fit(X, y + 5.0)
    assert run(floats, X, {"zipmap": False})[0].tolist() == floats.predict(X).tolist()
    for target in (X[:, 0], X[:, :2]):
        fitted = make_pipeline(StandardScaler(), LinearRegressor(random_state=0)).fit(X, target)
        np.testing.assert_allclose(run(fitted, X)[0].reshape(target.shape), fitted.predict(X), rtol=1e-4, atol=1e-4)
    A, B = make_multilabel_classification(random_state=0)
    A = A.astype(np.float32)
    sets = make_pipeline(StandardScaler(), LinearClassifier("log_loss", random_state=0)).fit(A, B)
    label, chances = run(sets, A, {"zipmap": False})
    np.testing.assert_array_equal(label, sets.predict(A))
    np.testing.assert_allclose(chances, sets.predict_proba(A), rtol=1e-4, atol=1e-5)


def test_operators_that_are_too_old_are_refused():
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), LinearClassifier(random_state=0)).fit(X, y)
    with pytest.raises(ValueError, match="at least 13, got 12"):
        run(pipeline, X, {"zipmap": False}, target_opset=12)
