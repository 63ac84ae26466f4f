"""``manyclass fit``: from every format to a model, its options, its interrupts, its refusals."""

from __future__ import annotations

import csv

import numpy as np
import pytest
from scipy.sparse import csr_matrix
from sklearn.metrics import d2_log_loss_score

from manyclass import (
    CalibratedLeastSquaresClassifier,
    CrammerSinger,
    GeneralizedLeastSquaresClassifier,
    Huber,
    LinearClassifier,
    LinearClassifierCV,
    LinearRegressor,
    StagewiseClassifier,
    load,
)
from manyclass.cli import fit as command
from manyclass.io import Dataset, TextVectorizer, read, write, write_svmlight
from manyclass.objective.losses import CLASSIFICATION
from manyclass.runtime.memory import human
from manyclass.solvers import LBFGS, SDCA, AcceleratedSDCA, Memoir
from test_cli_support import KINDS, digits, fitted, label_sets, left, make, refused, run, table, texts

# --- from every format to the model of the library --------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_every_format_gives_the_model_of_the_library(capsys, tmp_path, kind):
    path = make(kind, tmp_path)
    model, ran = fitted(capsys, path, "-o", tmp_path / "m", "--alpha", "1e-3", "--seed", "3")
    data = read(path)
    loss = "log_loss" if kind == "xmc" else "multinomial"
    expected = LinearClassifier(loss, alpha=1e-3, random_state=3).fit(data.X, data.y).model_
    np.testing.assert_array_equal(model.weights, expected.weights)
    np.testing.assert_array_equal(model.intercept, expected.intercept)
    np.testing.assert_array_equal(model.classes, expected.classes)
    assert (model.task, model.link) == (expected.task, expected.link)
    assert (model.vectorizer is None) == (kind not in ("csv", "tsv"))
    assert f"read {path} in " in ran.err
    assert f"({data.format})" in ran.err
    for note in data.notes:
        assert note in ran.err
    assert "memory besides the data: " in ran.err
    assert "certified" in ran.out
    facts = model.record["data"]
    assert (facts["format"], facts["rows"], facts["zero_based"]) == (data.format, data.n_samples, data.zero_based)
    counts = data.y.sum(axis=0).tolist()[0] if kind == "xmc" else np.unique(data.y, return_counts=True)[1].tolist()
    assert facts["class_counts"] == counts


@pytest.mark.parametrize("loss", CLASSIFICATION)
def test_every_loss(capsys, tmp_path, loss):
    words = ["--loss", loss, "--alpha", "0.01", "--max-iter", "1000"]
    model, ran = fitted(capsys, make("svm", tmp_path), "-o", tmp_path / "m", *words)
    assert model.record["relative_gap"] <= 1e-3
    assert model.parameters["loss"] == loss
    assert f"{loss}, alpha = 0.01" in ran.out
    X, y = digits()
    assert np.mean(model.predict(X) == y) > 0.95


def test_numbers_to_predict(capsys, tmp_path):
    X, _ = digits()
    y = np.asarray(X @ np.linspace(-1, 1, X.shape[1])) + 0.25
    path = tmp_path / "data.svm"
    write_svmlight(path, X, y)
    model, ran = fitted(capsys, path, "-o", tmp_path / "m", "--alpha", "1e-2", "--max-iter", "2000")
    assert model.task == "regression"
    assert "R2 on the training data" in ran.out
    data = read(path, task="regression")
    facts = {line[:30].strip(): line[30:].strip() for line in ran.lines}
    assert facts["deviance explained"] == f"{facts['R2 on the training data']} on the training data"
    expected = LinearRegressor(alpha=1e-2, max_iter=2000, random_state=0).fit(data.X, data.y)
    np.testing.assert_array_equal(model.weights[:, 0], expected.coef_)
    refused(run(capsys, "fit", path, "-o", tmp_path / "n", "--loss", "hinge"), "numbers to predict", "--loss squared")
    as_names, _ = fitted(capsys, path, "-o", tmp_path / "n", "--task", "classification", "--max-iter", "1", "--quiet")
    assert as_names.classes.dtype.kind == "U"


@pytest.mark.parametrize(
    ("words", "parameters"),
    [
        ("--loss huber --set loss.epsilon=0.2", {"loss": Huber(epsilon=0.2)}),
        ("--l1-ratio 1", {"loss": "squared", "l1_ratio": 1.0}),
        ("--loss huber --l1-ratio 1 --solver sdca", {"loss": "huber", "l1_ratio": 1.0, "solver": "sdca"}),
    ],
)
def test_robust_and_sparse_regression(capsys, tmp_path, words, parameters):
    X, _ = digits()
    y = np.asarray(X[:, :20] @ np.linspace(-1, 1, 20)) + 0.25
    y[::10] += 50.0
    path = tmp_path / "data.svm"
    write_svmlight(path, X, y)
    words = [*words.split(), "--alpha", "0.1", "--max-iter", "2000", "--dtype", "float64"]
    model, ran = fitted(capsys, path, "-o", tmp_path / "m", *words)
    data = read(path, task="regression")
    expected = LinearRegressor(alpha=0.1, max_iter=2000, random_state=0, dtype=np.float64, **parameters)
    expected.fit(data.X, data.y)
    np.testing.assert_array_equal(model.predict(data.X), expected.predict(data.X))
    assert {name: model.parameters[name] for name in parameters} == {
        name: value if isinstance(value, str | float) else str(value) for name, value in parameters.items()
    }
    assert f"solver {expected.solver_}; memory besides the data: " in ran.err
    assert model.is_sparse == ("--l1-ratio" in words)


def test_whole_numbers_are_predicted_if_the_loss_says_so(capsys, tmp_path):
    model, _ = fitted(capsys, make("svm", tmp_path), "-o", tmp_path / "m", "--loss", "squared", "--max-iter", "1000")
    assert (model.task, model.n_outputs, model.classes) == ("regression", 1, None)


def test_two_classes_have_one_column(capsys, tmp_path):
    X, y = digits()
    write_svmlight(tmp_path / "data.svm", X, np.where(y < 5, "low", "high"))
    model, _ = fitted(capsys, tmp_path / "data.svm", "-o", tmp_path / "m")
    assert (model.task, model.n_outputs, model.classes.tolist()) == ("binary", 1, ["high", "low"])


def test_label_sets_keep_their_names(capsys, tmp_path):
    X, Y = label_sets()
    names = np.array(["ash", "birch", "cedar", "fir", "oak", "pine"])
    write_svmlight(tmp_path / "data.svm", X, Y, label_names=names)
    model, ran = fitted(capsys, tmp_path / "data.svm", "-o", tmp_path / "m", "--loss", "squared_hinge")
    assert model.task == "multilabel"
    assert model.classes.tolist() == names.tolist()
    assert model.record["data"]["class_counts"] == np.asarray(Y.sum(axis=0)).ravel().tolist()
    assert "P@1 on the training data" in ran.out
    refused(
        run(capsys, "fit", tmp_path / "data.svm", "-o", tmp_path / "n", "--loss", "multinomial"), "one-vs-rest loss"
    )
    assert "n" not in left(tmp_path)


def test_one_label_in_every_set_means_classes(capsys, tmp_path):
    X, y = digits()
    write(tmp_path / "data.xmc", Dataset(X, csr_matrix(np.eye(12, dtype=np.int8)[y])))
    model, ran = fitted(capsys, tmp_path / "data.xmc", "-o", tmp_path / "m")
    assert (model.task, model.classes.tolist()) == ("multiclass", list(range(10)))
    assert "taken as classes" in ran.err
    sets, _ = fitted(capsys, tmp_path / "data.xmc", "-o", tmp_path / "m", "--task", "multilabel")
    assert (sets.task, sets.n_outputs) == ("multilabel", 12)


def test_labels_from_another_file(capsys, tmp_path):
    X, y = digits()
    write(tmp_path / "data.npz", Dataset(X))
    (tmp_path / "names.txt").write_text("".join(f"class {label}\n" for label in y))
    refused(run(capsys, "fit", tmp_path / "data.npz", "-o", tmp_path / "m"), "has no labels", "--labels")
    model, _ = fitted(capsys, tmp_path / "data.npz", "-o", tmp_path / "m", "--labels", tmp_path / "names.txt")
    assert model.classes.tolist() == [f"class {label}" for label in range(10)]


# --- options ---------------------------------------------------------------------------------------------------------


def test_options_reach_the_estimator(capsys, tmp_path):
    words = "--loss crammer_singer --alpha 0.01 --l1-ratio 0.2 --set loss.gamma=0.5 --no-intercept --solver sdca"
    words += " --class-weight balanced --tol 0.01 --max-iter 500 --n-jobs 2 --seed 7 --dtype float64"
    model, ran = fitted(capsys, make("svm", tmp_path), "-o", tmp_path / "m", *words.split())
    given = {
        "loss": "CrammerSinger(gamma=0.5)", "alpha": 0.01, "l1_ratio": 0.2, "loss__gamma": 0.5, "fit_intercept": False,
        "class_weight": "balanced", "solver": "sdca", "tol": 0.01, "max_iter": 500, "n_jobs": 2, "random_state": 7,
        "dtype": "float64",
    }  # fmt: skip
    assert {name: model.parameters[name] for name in given} == given
    assert model.dtype == np.float64
    assert not model.intercept.any()
    assert 0 < model.record["relative_gap"] <= 0.01
    assert "crammer_singer (gamma=0.5), alpha = 0.01" in ran.out


def test_without_alpha_it_is_one_over_the_rows(capsys, tmp_path):
    model, ran = fitted(capsys, make("svm", tmp_path), "-o", tmp_path / "m")
    assert model.parameters["alpha"] == 1 / 300
    assert "multinomial, alpha = 0.00333333 = 1 / rows (--alpha auto chooses one)" in ran.out


def test_alpha_chosen_on_held_out_rows(capsys, tmp_path):
    path = make("svm", tmp_path)
    model, ran = fitted(capsys, path, "-o", tmp_path / "m", "--alpha", "auto")
    data = read(path)
    expected = LinearClassifier(alpha="auto", random_state=0).fit(data.X, data.y)
    np.testing.assert_array_equal(model.weights, expected.model_.weights)
    assert f"alpha = {expected.alpha_:g}, the best of {len(expected.validation_scores_)}" in ran.out
    assert " at alpha = 1 / rows; memory besides the data: " in ran.err


@pytest.mark.parametrize(
    ("words", "given", "solver"),
    [
        ("--solver accelerated", {"solver": "accelerated"}, "accelerated"),
        ("--solver lbfgs --set solver.history_size=5", {"solver": LBFGS(history_size=5)}, "lbfgs"),
        (
            "--solver sdca --set solver.option=II --set solver.sampling=importance",
            {"solver": SDCA(option="II", sampling="importance")},
            "sdca",
        ),
        (
            "--loss log_loss --l1-ratio 1 --solver accelerated --set solver.option=III",
            {"l1_ratio": 1.0, "solver": AcceleratedSDCA(option="III")},
            "accelerated + slight l2",
        ),
    ],
)
def test_solvers_and_their_parameters(capsys, tmp_path, words, given, solver):
    words = [*words.split(), "--alpha", "1e-3", "--max-iter", "3000", "--dtype", "float64"]
    model, ran = fitted(capsys, make("svm", tmp_path), "-o", tmp_path / "m", *words)
    assert {name: model.parameters[name] for name in given} == {
        name: value if isinstance(value, str | float) else str(value) for name, value in given.items()
    }
    assert f"solver {solver}; " in ran.err
    assert model.record["relative_gap"] <= 1e-3
    X, y = digits()
    loss = model.parameters["loss"]
    again = LinearClassifier(loss, alpha=1e-3, max_iter=3000, random_state=0, dtype=np.float64, **given).fit(X, y)
    assert again.solver_ == solver == model.record["solver"]
    np.testing.assert_array_equal(model.predict(X), again.predict(X))
    assert model.record["objective"] == again.objective_


def test_memoir_minimizes_the_plain_loss_of_crammer_and_singer(capsys, tmp_path):
    path = make("svm", tmp_path)
    words = ["--solver", "memoir", "--l1-ratio", "1", "--alpha", "1e-4", "--set", "solver.batch_size=20"]
    model, ran = fitted(capsys, path, "-o", tmp_path / "m", *words)
    X, y = digits()
    given = {"solver": Memoir(batch_size=20), "alpha": 1e-4, "l1_ratio": 1, "random_state": 0}
    expected = LinearClassifier(CrammerSinger(gamma=0), **given).fit(X, y)
    np.testing.assert_array_equal(model.scores(X), expected.model_.scores(X))
    assert "solver memoir without --loss: crammer_singer with gamma=0" in ran.err
    assert "relative gap" not in ran.out
    words += ["--loss", "crammer_singer"]
    hint = "give --loss crammer_singer --set loss.gamma=0"
    refused(run(capsys, "fit", path, "-o", tmp_path / "n", *words), "gamma=0.1", hint)


@pytest.mark.parametrize("valid", [False, True])
def test_the_best_of_several_alphas(capsys, tmp_path, valid):
    X, y = digits(900)
    write(tmp_path / "train.npz", Dataset(X[:600], y[:600]))
    write(tmp_path / "valid.npz", Dataset(X[600:], y[600:]))
    alphas = [1e-1, 1e-2, 1e-3]
    words = ["--alphas", "0.01,0.1,1e-3"]
    words += ["--valid", tmp_path / "valid.npz"] if valid else ["--cv", "3"]
    model, ran = fitted(capsys, tmp_path / "train.npz", "-o", tmp_path / "m", *words)
    if not valid:
        expected = LinearClassifierCV(alphas=alphas, cv=3, random_state=0).fit(X[:600], y[:600])
        np.testing.assert_array_equal(model.weights, expected.model_.weights)
        assert f"alpha = {expected.alpha_:g}" in ran.out
        assert "deviance explained" in ran.out
        return
    fits = [LinearClassifier(alpha=alpha, random_state=0).fit(X[:600], y[:600]) for alpha in alphas]
    scores = [fit.score(X[600:], y[600:]) for fit in fits]
    said = [line for line in ran.err.splitlines() if line.startswith("alpha = ")]
    assert [float(line.split()[2].rstrip(":")) for line in said] == alphas
    np.testing.assert_allclose([float(line.split()[4]) for line in said], scores, atol=0.01)
    best = alphas[int(np.argmax([float(line.split()[4]) for line in said]))]
    assert model.parameters["alpha"] == best
    assert ("a smaller one may be better" in ran.err) == (best == 1e-3)


def test_sparsify(capsys, tmp_path):
    path = make("svm", tmp_path)
    dense, _ = fitted(capsys, path, "-o", tmp_path / "dense")
    sparse, ran = fitted(capsys, path, "-o", tmp_path / "sparse", "--sparsify", "0.5")
    assert "deviance" not in ran.out  # that of the weights before
    assert sparse.is_sparse
    np.testing.assert_array_equal(sparse.weights.toarray(), np.where(np.abs(dense.weights) > 0.5, dense.weights, 0))
    refused(run(capsys, "fit", path, "-o", tmp_path / "x", "--sparsify", "-1"), "--sparsify")


def test_history_and_plot(capsys, tmp_path):
    words = ["--history", tmp_path / "h.csv", "--plot", tmp_path / "gap.png"]
    model, _ = fitted(capsys, make("svm", tmp_path), "-o", tmp_path / "m", *words)
    with (tmp_path / "h.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["relative_gap"]) for row in rows] == [
        record["relative_gap"] for record in model.record["history"]["records"]
    ]
    assert (tmp_path / "gap.png").read_bytes().startswith(b"\x89PNG")
    assert left(tmp_path) == {"data.svm", "m", "h.csv", "gap.png"}
    fitted(capsys, make("svm", tmp_path), "-o", tmp_path / "m", "--plot", tmp_path / "gap.svg", "--quiet")
    assert b"<svg" in (tmp_path / "gap.svg").read_bytes()
    refused(run(capsys, "fit", tmp_path / "data.svm", "-o", tmp_path / "m", "--plot", tmp_path / "g.bmp"), ".png")


@pytest.mark.parametrize(
    "words", [["--alpha", "auto"], ["--alphas", "0.01,0.001", "--cv", "2"], ["--alphas", "0.01,0.001"]]
)
def test_the_plot_of_a_chosen_alpha_has_its_scores(capsys, monkeypatch, tmp_path, words):
    figures = []
    monkeypatch.setattr("manyclass.cli._fitted.save_figure", lambda figure, path: figures.append(figure))
    path = make("svm", tmp_path)
    words = [path, "-o", tmp_path / "m", "--plot", tmp_path / "g.png", "--max-iter", "500", *words]
    fitted(capsys, *words, *([] if "--cv" in words or "auto" in words else ["--valid", path]))
    gaps, scores = figures[0].axes
    assert gaps.get_title().startswith("multinomial, alpha = ")
    assert scores.get_xlabel() == "alpha"
    assert scores.get_ylabel().startswith("score on ")
    best = next(line for line in scores.get_lines() if line.get_label().startswith("best"))
    assert f"alpha = {best.get_xdata()[0]:g}" in gaps.get_title()
    assert len(scores.containers[0].lines[0].get_xdata()) >= 2


def test_a_plot_without_matplotlib_is_refused_at_once(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(command, "has_matplotlib", lambda: False)
    path = make("svm", tmp_path)
    refused(run(capsys, "fit", path, "-o", tmp_path / "m", "--plot", tmp_path / "g.png"), "manyclass[plot]")
    assert left(tmp_path) == {"data.svm"}


def test_quiet(capsys, tmp_path):
    assert run(capsys, "fit", make("svm", tmp_path), "-o", tmp_path / "m", "--quiet") == (0, "", "")
    assert left(tmp_path) == {"data.svm", "m"}


def test_not_converged_is_said_and_kept(capsys, tmp_path):
    model, ran = fitted(capsys, make("svm", tmp_path), "-o", tmp_path / "m", "--max-iter", "2", "--quiet")
    assert ran.out == ""
    assert ran.err.startswith("manyclass: warning: --max-iter was reached")
    assert model.record["n_iter"] == 2


def test_the_table_says_what_the_model_has(capsys, tmp_path):
    model, ran = fitted(capsys, make("svm", tmp_path), "-o", tmp_path / "m", "--max-iter", "2")
    facts = {line[:30].strip(): line[30:].strip() for line in ran.lines}
    X, y = digits()
    assert facts["accuracy on the training data"] == f"{np.mean(model.predict(X) == y):.4f}"
    assert facts["objective"] == f"{model.record['objective']:.8g}"
    assert facts["relative gap"] == f"{model.record['relative_gap']:.2e} (certified; 0.001 was asked for)"
    d2 = d2_log_loss_score(y, model.probabilities(X))
    assert float(facts["deviance explained"].removesuffix(" on the training data")) == pytest.approx(d2, abs=1e-4)
    assert facts["epochs"] == "2"
    assert [part.split()[0] for part in facts["seconds"].split(", ")] == ["read", "compile", "solve"]
    assert facts["model"] == f"{tmp_path / 'm'}, {human((tmp_path / 'm').stat().st_size)}"


def test_what_a_fit_will_take_is_what_the_driver_asks_for(capsys, monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr("manyclass.solvers.base.require", lambda needs, remedy: asked.append(needs))
    for number, loss in enumerate(("multinomial", "crammer_singer", "hinge", "squared")):
        _, ran = fitted(capsys, make("svm", tmp_path), "-o", tmp_path / "m", "--loss", loss, "--max-iter", "1000")
        line = next(line for line in ran.err.splitlines() if "; memory besides the data: " in line)
        assert line.startswith("solver ")
        for name, size in asked[number].items():
            assert f"{name} {human(size)}" in line


def test_a_fit_of_gigabytes_says_what_takes_less(capsys, monkeypatch, tmp_path):
    path, less = make("svm", tmp_path), "that is much; less take: "
    _, ran = fitted(capsys, path, "-o", tmp_path / "m")
    assert less not in ran.err
    monkeypatch.setattr("manyclass.cli._advice._MUCH", 1000)
    _, ran = fitted(capsys, path, "-o", tmp_path / "m")
    line = next(line for line in ran.err.splitlines() if less in line)
    assert "--solver memoir" in line
    assert "--solver out_of_core" in line


# --- validation ------------------------------------------------------------------------------------------------------


def test_validation(capsys, tmp_path):
    X, y = digits(500)
    write_svmlight(tmp_path / "train.svm", X[:300], y[:300])
    write_svmlight(tmp_path / "valid.svm", X[300:], y[300:])
    model, ran = fitted(capsys, tmp_path / "train.svm", "-o", tmp_path / "m", "--valid", tmp_path / "valid.svm")
    expected = np.mean(model.predict(read(tmp_path / "valid.svm", n_features=model.n_features).X) == y[300:])
    assert "accuracy on valid.svm " in ran.out
    assert f"{expected:.4f}" in ran.out
    assert "warning" not in ran.err


def test_early_stopping_judges_on_the_validation_data(capsys, tmp_path):
    X, y = digits(500)
    path, valid = tmp_path / "train.svm", tmp_path / "valid.svm"
    write_svmlight(path, X[:300], y[:300])
    write_svmlight(valid, X[300:], y[300:])
    words = ["--solver", "lbfgs", "--alpha", "1e-9", "--tol", "1e-9", "--early-stopping", "3"]
    model, ran = fitted(capsys, path, "-o", tmp_path / "m", "--valid", valid, *words)
    data, held = read(path), read(valid, n_features=model.n_features)
    expected = LinearClassifier(solver="lbfgs", alpha=1e-9, tol=1e-9, early_stopping=3, random_state=0)
    expected.fit(data.X, data.y, X_val=held.X, y_val=held.y)
    np.testing.assert_array_equal(model.weights, expected.model_.weights)
    assert model.record["outcome"] == "patience"
    best = expected.history_.best
    assert f"{best.score:.4f}, after epoch {best.iteration}" in " ".join(ran.out.split())
    own, _ = fitted(capsys, path, "-o", tmp_path / "own", *words)
    assert own.record["outcome"] == "patience"
    assert own.parameters["early_stopping"] == 3


@pytest.mark.parametrize(
    ("name", "estimator"),
    [
        ("stagewise", StagewiseClassifier(early_stopping=True, patience=2)),
        ("calibrated", CalibratedLeastSquaresClassifier(early_stopping=True, patience=2)),
        ("least_squares", GeneralizedLeastSquaresClassifier(early_stopping=2)),
    ],
)
def test_early_stopping_of_every_estimator_judges_on_the_validation_data(capsys, tmp_path, name, estimator):
    X, y = digits(300)
    path, valid = tmp_path / "train.svm", tmp_path / "valid.svm"
    write_svmlight(path, X[:200], y[:200])
    write_svmlight(valid, X[200:], y[200:])
    words = ["--estimator", name, "--valid", valid, "--early-stopping", "2"]
    ran = run(capsys, "fit", path, "-o", tmp_path / "m", *words)
    assert ran.code == 0, ran.err
    model = load(tmp_path / "m")
    data, held = read(path), read(valid, n_features=model.n_features)
    estimator.set_params(random_state=0).fit(data.X, data.y, X_val=held.X, y_val=held.y)
    np.testing.assert_array_equal(model.scores(held.X), estimator.model_.scores(held.X))
    assert "accuracy on valid.svm " in ran.out
    assert "warning" not in ran.err


def test_validation_counts_unseen_classes(capsys, tmp_path):
    X, y = digits()
    few = y < 8
    write_svmlight(tmp_path / "train.svm", X[few], y[few])
    write_svmlight(tmp_path / "valid.svm", X, y)
    words = ["--valid", tmp_path / "valid.svm", "--n-features", "64"]
    model, ran = fitted(capsys, tmp_path / "train.svm", "-o", tmp_path / "m", *words)
    assert f"2 labels of {tmp_path / 'valid.svm'} never seen in training, on {(~few).sum()} rows" in ran.err
    assert f"{np.mean(model.predict(X) == y):.4f}" in ran.out


@pytest.mark.parametrize(
    ("lines", "needle"),
    [
        ("3 1:0.5\n", "numbers"),
        (" 1:0.5\n", "has no labels"),
        ("3 99:1\n", "99:1"),
        ("3 1:x\n", "line 1"),
    ],
)
def test_wrong_validation_data_are_found_before_the_training(capsys, monkeypatch, tmp_path, lines, needle):
    monkeypatch.setattr(LinearClassifier, "fit", lambda *_: pytest.fail("trained"))
    monkeypatch.setattr(LinearRegressor, "fit", lambda *_: pytest.fail("trained"))
    path = make("svm", tmp_path)
    if needle == "numbers":
        path.write_text(path.read_text().replace("0 ", "0.5 ", 1))
        lines = "yes 1:0.5\n"
        needle = "is not a finite number"
    (tmp_path / "valid.svm").write_text(lines)
    before = left(tmp_path)
    refused(run(capsys, "fit", path, "-o", tmp_path / "m", "--valid", tmp_path / "valid.svm"), needle)
    assert left(tmp_path) == before


def test_validation_features_beyond_those_of_the_training(capsys, tmp_path):
    path = make("svm", tmp_path)
    (tmp_path / "valid.svm").write_text("3 1:0.5 99:1\n")
    words = ["fit", path, "-o", tmp_path / "m", "--valid", tmp_path / "valid.svm"]
    refused(run(capsys, *words), "valid.svm, line 1", "99:1", "features", "--extra-features ignore")
    assert run(capsys, *words, "--extra-features", "ignore").code == 0
    assert run(capsys, *words, "--n-features", "99").code == 0


# --- texts -----------------------------------------------------------------------------------------------------------


def test_texts_end_to_end(capsys, tmp_path):
    rows, labels = texts()
    path = table(tmp_path / "data.csv", {"id": [str(i) for i in range(60)], "words": rows, "queue": labels})
    model_path = tmp_path / "m"
    words = "--text-column words --label-column queue --analyzer char_wb --ngrams 2 3 --min-df 2 --case-sensitive"
    model, _ = fitted(capsys, path, "-o", model_path, *words.split(), "--raw-counts", "--valid", path)
    vectorizer = TextVectorizer(analyzer="char_wb", ngram_range=(2, 3), min_df=2, lowercase=False, sublinear_tf=False)
    X = vectorizer.fit_transform(rows)
    expected = LinearClassifier(random_state=0).fit(X, labels)
    np.testing.assert_array_equal(model.weights, expected.model_.weights)
    new = table(tmp_path / "new.csv", {"words": ["my card is lost", "the interest of my house"]})
    ran = run(capsys, "predict", model_path, new)
    assert ran.lines == expected.predict(vectorizer.transform(["my card is lost", "the interest of my house"])).tolist()
    assert ran.lines == ["card", "loan"]


def test_validation_columns_have_the_names_of_those_of_the_training(capsys, tmp_path):
    rows, labels = texts()
    path = table(tmp_path / "data.csv", {"title": rows, "queue": labels})
    junk = ["card"] * 60
    valid = table(tmp_path / "valid.csv", {"text": junk, "label": junk, "queue": labels, "title": rows})
    words = ["fit", path, "-o", tmp_path / "m", "--valid"]
    for named in (["--text-column", "title"], ["--text-column", "0", "--label-column", "1", "--header"]):
        ran = run(capsys, *words, valid, *named)
        assert ran.code == 0, ran.err
        assert "accuracy on valid.csv  1.0000" in ran.out
    other = table(tmp_path / "other.csv", {"text": rows, "queue": labels})
    refused(run(capsys, *words, other, "--text-column", "title"), "other.csv", "'text', 'queue'", "column 'title'")
    other = table(tmp_path / "other.csv", {"title": rows, "label": labels})
    refused(run(capsys, *words, other, "--text-column", "title"), "other.csv", "'title', 'label'", "column 'queue'")


def test_hashed_texts(capsys, tmp_path):
    words = ["--vectorizer", "hashing", "--hash-features", "512"]
    model, _ = fitted(capsys, make("tsv", tmp_path), "-o", tmp_path / "m", *words)
    assert model.n_features == 512
    assert model.vectorizer[0]["kind"] == "hashing"


def test_options_on_texts_need_texts(capsys, tmp_path):
    path = make("svm", tmp_path)
    refused(
        run(capsys, "fit", path, "-o", tmp_path / "m", "--vectorizer", "hashing"), "options on texts", "is svmlight"
    )
    refused(run(capsys, "fit", path, "-o", tmp_path / "m", "--text-column", "body"), "--text-column", "svmlight")


def test_a_delimiter_can_be_spelt(capsys, tmp_path):
    rows, labels = texts()
    path = table(tmp_path / "data.csv", {"text": rows, "queue": labels}, "\t")
    model, _ = fitted(capsys, path, "-o", tmp_path / "m", "--delimiter", "\\t", "--no-quotes", "--header")
    assert model.classes.tolist() == ["account", "card", "loan"]
