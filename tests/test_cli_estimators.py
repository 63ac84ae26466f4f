"""``manyclass fit --estimator``: each gives the model of its class; what does not fit is refused."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from manyclass import StagedModel, estimators, features, load
from manyclass.cli import _estimators
from manyclass.io import Dataset, read, write
from test_cli_support import digits, left, make, refused, run

CASES = {
    "linear": (["--solver", "bound", "--set", "solver.rank=8"], {"solver": "BoundMajorization(rank=8)"}),
    "least_squares": (["--set", "link=softmax", "--alpha", "1e-2"], {"link": "softmax", "alpha": 1e-2}),
    "calibrated": (["--features", "fourier:40", "--max-iter", "3"], {"features": "fourier:40", "max_iter": 3}),
    "stagewise": (
        ["--features", "fourier:30", "--prepare", "pca:8", "--set", "n_blocks=2", "--set", "update=calibrated"],
        {"features": "fourier:30", "prepare": "pca:8", "n_blocks": 2, "update": "calibrated"},
    ),
}


def expected_of(name, parameters):
    made = dict(parameters)
    if "solver" in made:
        made["solver"] = estimators.classifier.SOLVERS["bound"](rank=8)
    return getattr(estimators, _estimators.ESTIMATORS[name][0])(**made, random_state=0)


def test_every_estimator_is_tried():
    assert _estimators.ESTIMATORS.keys() == CASES.keys()


@pytest.mark.parametrize("name", CASES)
def test_an_estimator_gives_the_model_of_its_class(capsys, tmp_path, name):
    path = make("svm", tmp_path)
    words, parameters = CASES[name]
    model = tmp_path / "m"
    ran = run(capsys, "fit", path, "-o", model, "--estimator", name, *words, "--history", tmp_path / "h.csv")
    assert ran.code == 0, ran.err
    data = read(path)
    expected = expected_of(name, parameters).fit(data.X, data.y)
    found = load(model)
    np.testing.assert_array_equal(found.scores(data.X), expected.model_.scores(data.X))
    np.testing.assert_array_equal(found.classes, expected.classes_)
    assert {key: found.parameters[key] for key in parameters} == parameters
    with open(tmp_path / "h.csv", newline="") as file:
        assert list(csv.DictReader(file))
    if name != "linear":
        assert f"fitting {name}" in ran.err
        assert name in ran.out

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
    words = ["fit", tmp_path / "d.svm", "-o", tmp_path / "m", "--estimator"]
    ran = run(capsys, *words, "stagewise", "--set", "n_blocks=2")
    assert ran.code == 0, ran.err
    assert load(tmp_path / "m").task == "regression"
    refused(run(capsys, *words, "calibrated"), "takes classes")
    refused(run(capsys, *words, "linear", "--class-weight", "balanced"), "--class-weight is for classes")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--estimator", "stagewise", "--loss", "hinge"], "StagewiseClassifier has no parameter 'loss'"),
        (["--estimator", "least_squares", "--solver", "sdca"], "has no parameter 'solver'"),
        (["--estimator", "stagewise", "--set", "n_block=3"], "did you mean 'n_blocks'?"),
        (["--estimator", "stagewise", "--set", "update=cubic"], "update"),
        (["--estimator", "stagewise", "--features", "wavelet:10"], "features must be one of 'auto', 'fourier'"),
        (["--estimator", "stagewise", "--features", "fourrier:10"], "did you mean 'fourier'?"),
        (["--estimator", "stagewise", "--features", "fourier:0"], "a number of features of at least 1"),
        (["--estimator", "stagewise", "--plot", "a.png"], "--plot shows a certified gap"),
        (["--estimator", "stagewise", "--cv", "3"], "--cv chooses one of --alphas"),
        (["--solver", "out_of_core"], "--solver out_of_core is for row stores: write"),
        (["--estimator", "forest"], "invalid choice: 'forest'"),
    ],
)
def test_what_does_not_fit_is_refused(capsys, monkeypatch, tmp_path, words, message):
    path = make("svm", tmp_path)
    before = left(tmp_path)
    monkeypatch.setattr("manyclass.io.read", lambda *_, **__: pytest.fail("read"))
    refused(run(capsys, "fit", path, "-o", tmp_path / "m", *words), message)
    assert left(tmp_path) == before


def test_parameters_of_a_block_of_features(capsys, tmp_path):
    words = [
        "--estimator",
        "stagewise",
        "--features",
        "fourier:30",
        "--set",
        "features.bandwidth=0.5",
        "--set",
        "n_blocks=2",
    ]
    ran = run(capsys, "fit", make("svm", tmp_path), "-o", tmp_path / "m", *words)
    assert ran.code == 0, ran.err
    block = features.RandomFourier(30).set_params(bandwidth=0.5)
    assert load(tmp_path / "m").parameters["features"] == str(block)


def test_values():
    assert _estimators.settings(["a=1", "b=1e-3", "c=true", "d=None", "e=x", "f=1e-2,1", "loss.g-h=2"]) == {
        "a": 1,
        "b": 1e-3,
        "c": True,
        "d": None,
        "e": "x",
        "f": [0.01, 1],
        "loss__g_h": 2,
    }
