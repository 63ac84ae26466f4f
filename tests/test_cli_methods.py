"""``manyclass fit --method``: each method gives the model of its estimator; what does not fit is refused."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from manyclass import StagedModel, estimators, features, load
from manyclass.cli import methods
from manyclass.io import Dataset, read, write
from test_cli_support import digits, left, make, refused, run

CASES = {
    "bound": (["--alpha", "1e-3"], {"alpha": 1e-3}),
    "ds_mlr": (["--alpha", "1e-3", "--n-workers", "2"], {"alpha": 1e-3, "n_workers": 2}),
    "least_squares": (["--set", "link=softmax", "--alpha", "1e-2"], {"link": "softmax", "alpha": 1e-2}),
    "calibrated": (["--features", "fourier:40", "--max-iter", "3"], {"features": 40, "max_iter": 3}),
    "stagewise": (
        ["--features", "fourier:30", "--prepare", "pca:8", "--set", "n_blocks=2", "--set", "update=calibrated"],
        {"features": 30, "prepare": 8, "n_blocks": 2, "update": "calibrated"},
    ),
    "memoir": (
        ["--alpha", "1e-4", "--l1-ratio", "1", "--set", "max_iter=3"],
        {"alpha": 1e-4, "l1_ratio": 1.0, "max_iter": 3},
    ),
}
CLASSES = {
    "bound": estimators.BoundMajorizationClassifier,
    "ds_mlr": estimators.DSMLRClassifier,
    "least_squares": estimators.GeneralizedLeastSquaresClassifier,
    "calibrated": estimators.CalibratedLeastSquaresClassifier,
    "stagewise": estimators.StagewiseClassifier,
    "memoir": estimators.MemoirClassifier,
}


def estimator_of(method, parameters):
    made = dict(parameters)
    if "features" in made:
        made["features"] = features.RandomFourier(made["features"])
    if "prepare" in made:
        made["prepare"] = features.PrincipalComponents(made["prepare"])
    return CLASSES[method](**made, random_state=0)


def test_every_method_is_known():
    assert set(methods.METHODS) == {"sdca", "blocks", *CLASSES}
    for name in methods.BLOCKS.values():
        assert hasattr(features, name)


@pytest.mark.parametrize("method", CASES)
def test_a_method_gives_the_model_of_its_estimator(capsys, tmp_path, method):
    path = make("svm", tmp_path)
    words, parameters = CASES[method]
    model = tmp_path / "m"
    ran = run(capsys, "fit", path, "-o", model, "--method", method, *words, "--history", tmp_path / "h.csv")
    assert ran.code == 0, ran.err
    data = read(path)
    expected = estimator_of(method, parameters).fit(data.X, data.y)
    found = load(model)
    np.testing.assert_array_equal(found.scores(data.X), expected.model_.scores(data.X))
    np.testing.assert_array_equal(found.classes, expected.classes_)
    with open(tmp_path / "h.csv", newline="") as file:
        assert list(csv.DictReader(file))
    assert "method" in ran.err
    assert method in ran.err

    ran = run(capsys, "predict", model, path)
    assert ran.lines == [str(label) for label in expected.predict(data.X)]
    ran = run(capsys, "score", model, path)
    assert ran.code == 0
    ran = run(capsys, "info", model)
    assert ran.code == 0
    assert ("stages" in ran.out) is isinstance(found, StagedModel)
    assert "multiclass" in ran.out


def test_numbers_to_predict(capsys, tmp_path):
    X, y = digits()
    write(tmp_path / "d.svm", Dataset(X, y + 0.5))
    ran = run(capsys, "fit", tmp_path / "d.svm", "-o", tmp_path / "m", "--method", "stagewise", "--set", "n_blocks=2")
    assert ran.code == 0, ran.err
    assert load(tmp_path / "m").task == "regression"
    refused(run(capsys, "fit", tmp_path / "d.svm", "-o", tmp_path / "m", "--method", "bound"), "takes classes")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--features", "fourier:10"], "--features is for other methods than sdca"),
        (["--set", "a=1"], "--set is for other methods than sdca"),
        (["--method", "bound", "--solver", "sdca"], "--solver is for --method sdca"),
        (["--method", "bound", "--l1-ratio", "0.5"], "--l1-ratio is for --method sdca"),
        (["--method", "bound", "--features", "fourier:10"], "--method bound has no parameter 'features'"),
        (["--method", "bound", "--set", "rank"], "--set takes NAME=VALUE, got 'rank'"),
        (["--method", "bound", "--set", "colour=red"], "has no parameter 'colour'"),
        (["--method", "bound", "--set", "rank=0"], "rank must be"),
        (["--method", "stagewise", "--features", "wavelet:10"], "--features must be KIND:N"),
        (["--method", "stagewise", "--features", "fourier:0"], "--features must be KIND:N"),
        (["--method", "stagewise", "--plot", "a.png"], "--plot shows a certified gap"),
    ],
)
def test_what_does_not_fit_is_refused(capsys, tmp_path, words, message):
    path = make("svm", tmp_path)
    before = left(tmp_path)
    refused(run(capsys, "fit", path, "-o", tmp_path / "m", *words), message)
    assert left(tmp_path) == before


def test_values():
    assert methods.settings(["a=1", "b=1e-3", "c=true", "d=None", "e=x", "f=1e-2,1"]) == {
        "a": 1,
        "b": 1e-3,
        "c": True,
        "d": None,
        "e": "x",
        "f": [0.01, 1],
    }
