"""``manyclass fit``: what it refuses, and when."""

from __future__ import annotations

import pytest

from manyclass.objective.problem import Certificate
from manyclass.solvers import SDCA
from test_cli_support import fitted, left, make, refused, run


@pytest.mark.parametrize(
    ("words", "needle"),
    [
        (["--alpha", "-1"], "alpha"),
        (["--alpha", "nan"], "alpha"),
        (["--l1-ratio", "1.1"], "l1-ratio"),
        (["--loss", "logistic"], "did you mean 'log_loss'?"),
        (["--loss", "perceptron"], "loss must be one of 'multinomial', 'crammer_singer'"),
        (["--solver", "saga"], "solver must be one of 'sdca'"),
        (["--loss", "huber", "--set", "loss.epsilon=0"], "'epsilon' parameter of Huber"),
        (["--loss", "crammer_singer", "--set", "loss.gamma=-1"], "'gamma' parameter of CrammerSinger"),
        (["--loss", "crammer_singer", "--set", "loss.gama=1"], "loss.gama: no such parameter: did you mean 'gamma'?"),
        (["--set", "loss.gamma=1"], "--set loss.gamma needs the loss that has it: give --loss as well, one of "),
        (["--set", "solver.option=II"], "give --solver as well"),
        (["--solver", "sdca", "--set", "solver.option=VI"], "'option' parameter of SDCA"),
        (["--solver", "lbfgs", "--set", "solver.option=II"], "There are history_size"),
        (["--solver", "cd", "--set", "solver.option=II"], "There are none"),
        (["--set", "tol.x=1"], "tol has no parameters"),
        (["--set", "colour=red"], "LinearClassifier has no parameter 'colour'. It has alpha"),
        (["--set", "C=1"], "C is 1 / (alpha * n_samples)"),
        (["--set", "tol"], "--set takes NAME=VALUE, got 'tol'"),
        (["--tol", "1", "--set", "tol=1"], "--set tol and --tol are the same"),
        (["--features", "fourier:9"], "LinearClassifier has no parameter 'features'"),
        (["--tol", "-1"], "tol"),
        (["--max-iter", "0"], "max-iter"),
        (["--n-jobs", "0"], "n-jobs"),
        (["--loss", "squared", "--class-weight", "balanced"], "--class-weight"),
        (["--loss", "squared", "--solver", "memoir"], "for classification losses"),
        (["--alpha", "1", "--alphas", "1,2"], "give one of them"),
        (["--cv", "3"], "--cv chooses one of --alphas"),
        (["--alphas", "1,x"], "invalid list of positive numbers value"),
        (["--alphas", "1,-1"], "invalid list of positive numbers value"),
        (["--resume"], "name it with --checkpoint"),
        (["--checkpoint", "no/c"], "--checkpoint no/c: the folder no does not exist"),
        (["--checkpoint", "."], "--checkpoint . is a folder"),
        (["--checkpoint", "c", "--checkpoint-seconds", "-1"], "--checkpoint-seconds must be at least 0"),
        (["--checkpoint", "data.svm"], "--checkpoint data.svm is the input itself"),
        (["--checkpoint", "c", "--alphas", "1,2"], "at one --alpha"),
        (["--checkpoint", "c", "--estimator", "stagewise"], "--estimator linear"),
        (["--plot", "g.png", "--solver", "memoir"], "memoir has none"),
        (["--history", "no/h.csv"], "--history no/h.csv: the folder no does not exist"),
        (["--plot", "no/h.png"], "--plot no/h.png: the folder no does not exist"),
        (["-o", "no/m"], "-o no/m: the folder no does not exist"),
        (["-o", "."], "is a folder"),
        (["-o", "-"], "not written to standard output"),
    ],
)
def test_wrong_options_are_refused_before_the_data_are_read(capsys, monkeypatch, tmp_path, words, needle):
    path = make("svm", tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("manyclass.io.read", lambda *_, **__: pytest.fail("read"))
    refused(run(capsys, "fit", path, "-o", "m", *words), needle)
    assert left(tmp_path) == {"data.svm"}


@pytest.mark.parametrize(
    ("name", "content", "needles"),
    [
        ("a.svm", "1 1:2\n0 1:x\n", ["a.svm, line 2: the value in '1:x'"]),
        ("a.svm", "1 1:2\n0 2:1 -1:3\n", ["line 2", "negative"]),
        ("a.svm", "1 1:2\n0 1:nan\n", ["line 2", "finite"]),
        ("a.svm", "", ["a.svm: the file is empty"]),
        ("a.txt", "what is this\n", ["its format cannot be detected"]),
        ("a.svm", "1 1:2\n1 1:3\n", ["one class only"]),
        ("a.svm", " 1:2\n 1:3\n", ["has no labels"]),
        ("a.txt", "2 3 4\n0 0:1\n", ["a.txt, line 2: the file ends after 1 row"]),
        ("a.csv", "a,b,c\n1,2,3\n", ["a.csv, line 1: the column of texts is not known", "--text-column"]),
        ("a.csv", "text,label\nx y\n", ["a.csv, line 2: 1 fields; expected 2"]),
        ("a.npz", "PK\x03\x04", ["a.npz: cannot be read as a sparse matrix"]),
        ("a.npy", "\x93NUMPY", ["a.npy: "]),
    ],
)
def test_wrong_files_are_refused_with_their_place(capsys, tmp_path, name, content, needles):
    (tmp_path / name).write_bytes(content.encode("latin-1"))
    refused(run(capsys, "fit", tmp_path / name, "-o", tmp_path / "m"), *needles)
    assert left(tmp_path) == {name}


def test_the_input_is_not_overwritten_but_an_old_model_is(capsys, tmp_path):
    path = make("svm", tmp_path)
    before = path.read_bytes()
    refused(run(capsys, "fit", path, "-o", path), "is the input itself")
    assert path.read_bytes() == before
    (tmp_path / "m").write_text("an old model")
    assert fitted(capsys, path, "-o", tmp_path / "m")[0].task == "multiclass"


def test_a_fit_that_would_not_fit_is_refused(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr("manyclass.runtime.memory.available", lambda: 10_000)
    for dtype in ("float32", "float64"):
        ran = run(capsys, "fit", make("svm", tmp_path), "-o", tmp_path / "m", "--dtype", dtype)
        refused(ran, "this fit needs", "to make it fit")
        assert ("--dtype float32" in ran.err) == (dtype == "float64")  # advice that is followed already is none
    assert left(tmp_path) == {"data.svm"}


def test_values_too_large_for_the_type_are_refused(capsys, tmp_path):
    path = tmp_path / "data.svm"
    path.write_text("0 1:1e20\n1 2:1e20\n")
    refused(run(capsys, "fit", path, "-o", tmp_path / "m"), "row 0 of X", "--dtype float64")
    assert left(tmp_path) == {"data.svm"}


def test_a_run_that_diverged_leaves_no_model(capsys, monkeypatch, tmp_path):
    def certificate(self, problem, state, *, final):
        return Certificate(float("inf"), 0.0)

    monkeypatch.setattr(SDCA, "certificate", certificate)
    words = ["-o", tmp_path / "m", "--solver", "sdca"]
    refused(run(capsys, "fit", make("svm", tmp_path), *words), "no longer a finite number")
    assert left(tmp_path) == {"data.svm"}
