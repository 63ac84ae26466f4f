"""``manyclass fit`` that is ended before its end: by Ctrl-C, by SIGTERM, and going on from what was kept."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import contextmanager

import numpy as np
import pytest

from manyclass import LinearClassifier, LinearModel
from manyclass.cli import fit as command
from manyclass.runtime.files import atomic_path
from manyclass.solvers import SDCA, SOLVERS
from test_cli_support import digits, fitted, left, make, refused, run
from test_estimators_checkpoint import no_iteration


def interrupt_after(monkeypatch, epochs):
    real = SDCA.iterate

    def iterate(self, problem, state, seed):
        for progress in real(self, problem, state, seed):
            yield progress
            if progress.iteration >= epochs:
                raise KeyboardInterrupt

    monkeypatch.setattr(SDCA, "iterate", iterate)


def test_ctrl_c_keeps_the_model_reached(capsys, monkeypatch, tmp_path):
    interrupt_after(monkeypatch, 3)
    words = ["--tol", "1e-6", "--solver", "sdca"]
    model, ran = fitted(capsys, make("svm", tmp_path), "-o", tmp_path / "m", *words)
    assert "interrupted after 3 epochs: the model reached so far is kept" in ran.err
    assert "warm_start" not in ran.err
    assert "certified" in ran.out
    X, y = digits()
    expected = LinearClassifier(random_state=0, tol=1e-6, solver="sdca")
    with pytest.warns(match="interrupted"):
        expected.fit(X, y)
    np.testing.assert_array_equal(model.weights, expected.model_.weights)
    assert model.record["outcome"] == "interrupted"


def test_ctrl_c_before_the_first_epoch_keeps_nothing(capsys, monkeypatch, tmp_path):
    def iterate(*_):
        raise KeyboardInterrupt
        yield

    monkeypatch.setattr(SDCA, "iterate", iterate)
    ran = run(capsys, "fit", make("svm", tmp_path), "-o", tmp_path / "m", "--solver", "sdca")
    assert ran.code == 130
    assert left(tmp_path) == {"data.svm"}


def test_ctrl_c_while_the_model_is_judged(capsys, monkeypatch, tmp_path):
    def evaluate(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "evaluate", evaluate)
    ran = run(capsys, "fit", make("svm", tmp_path), "-o", tmp_path / "m")
    assert ran.code == 0
    assert f"{tmp_path / 'm'} is written" in ran.err
    assert LinearModel.load(tmp_path / "m").task == "multiclass"


def test_ctrl_c_while_the_model_is_written(capsys, monkeypatch, tmp_path):
    @contextmanager
    def interrupted(path):
        with atomic_path(path) as temporary:
            yield temporary
            assert temporary.stat().st_size > 1000
            raise KeyboardInterrupt

    monkeypatch.setattr("manyclass.io.tensors.atomic_path", interrupted)
    ran = run(capsys, "fit", make("svm", tmp_path), "-o", tmp_path / "m")
    assert ran.code == 130
    assert left(tmp_path) == {"data.svm"}


# --- SIGTERM ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("background", [False, True])
def test_sigterm_keeps_the_model_as_ctrl_c_does(capsys, tmp_path, background):
    """A job in the background has no SIGINT."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal, sys\n"
        f"if {background}: signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "from manyclass.cli.main import main\n"
        "from manyclass.solvers import SDCA\n"
        "inner = SDCA.iterate\n"
        "def iterate(self, problem, state, seed):\n"
        "    for progress in inner(self, problem, state, seed):\n"
        "        yield progress\n"
        "        if progress.iteration == 3: os.kill(os.getpid(), signal.SIGTERM)\n"
        "SDCA.iterate = iterate\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    words = ["fit", str(make("svm", tmp_path)), "-o", str(tmp_path / "m"), "--solver", "sdca", "--tol", "1e-6"]
    words += ["--checkpoint", str(tmp_path / "state")]
    done = subprocess.run([sys.executable, str(program), *words], capture_output=True, text=True, timeout=300)
    assert done.returncode == 143, done.stderr
    assert "interrupted after 3 epochs: the model reached so far is kept" in done.stderr
    assert "certified" in done.stdout
    assert LinearModel.load(tmp_path / "m").record["n_iter"] == 3
    ran = run(capsys, *words, "--resume")
    assert ran.code == 0
    assert "going on after epoch 3" in ran.err
    assert LinearModel.load(tmp_path / "m").record["outcome"] in ("converged", "precision")


def test_sigterm_ends_every_command(capsys, monkeypatch, tmp_path):
    path = make("svm", tmp_path)
    (tmp_path / "b.npz").write_bytes(b"old")
    before = left(tmp_path)

    @contextmanager
    def terminated(target):
        with atomic_path(target) as temporary:
            yield temporary
            os.kill(os.getpid(), signal.SIGTERM)

    monkeypatch.setattr("manyclass.io.streams.atomic_path", terminated)
    ran = run(capsys, "convert", path, "-o", tmp_path / "b.npz")
    assert ran.code == 143
    assert ran.err.splitlines()[-1] == "manyclass: error: terminated: nothing was kept"
    assert (tmp_path / "b.npz").read_bytes() == b"old"
    assert left(tmp_path) == before


def test_sigterm_before_anything_is_reached(capsys, monkeypatch, tmp_path):
    def terminated(*_, **__):
        os.kill(os.getpid(), signal.SIGTERM)

    path = make("svm", tmp_path)
    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("manyclass.io.read", terminated)
    ran = run(capsys, "fit", path, "-o", tmp_path / "m")
    assert ran.code == 143
    assert ran.err.splitlines()[-1] == "manyclass: error: terminated: nothing was kept"
    assert left(tmp_path) == {"data.svm"}
    assert signal.getsignal(signal.SIGTERM) is before


# --- checkpoints -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("solver", ["sdca", "lbfgs", "bound", "memoir"])
def test_a_fit_goes_on_to_the_same_bits(capsys, tmp_path, solver):
    path, kept = make("svm", tmp_path), tmp_path / "state"
    common = ["--solver", solver, "--tol", "1e-9", "--dtype", "float64", "--quiet"]
    whole, _ = fitted(capsys, path, "-o", tmp_path / "whole", *common, "--max-iter", "6")
    keep = [*common[:-1], "--checkpoint", kept]
    _, ran = fitted(capsys, path, "-o", tmp_path / "m", *keep, "--resume", "--max-iter", "3")
    assert f"--resume: nothing is kept in {kept} yet, the fit starts afresh" in ran.err
    refused(run(capsys, "fit", path, "-o", tmp_path / "m", *keep), "go on from it with --resume")
    model, ran = fitted(capsys, path, "-o", tmp_path / "m", *keep, "--resume", "--max-iter", "6")
    assert f"going on after epoch 3 from {kept}" in ran.err
    np.testing.assert_array_equal(model.weights, whole.weights)
    assert model.record["n_iter"] == 6


def test_ctrl_c_keeps_a_checkpoint(capsys, monkeypatch, tmp_path):
    path, kept = make("svm", tmp_path), tmp_path / "state"
    words = ["--solver", "sdca", "--tol", "1e-4", "--checkpoint", kept, "--resume"]
    with monkeypatch.context() as patched:
        interrupt_after(patched, 3)
        fitted(capsys, path, "-o", tmp_path / "m", *words)
    model, ran = fitted(capsys, path, "-o", tmp_path / "m", *words)
    assert f"going on after epoch 3 from {kept}" in ran.err
    assert model.record["outcome"] == "converged"
    assert not kept.exists()


@pytest.mark.parametrize("solver", ["sdca", "ds_mlr"])
def test_a_process_killed_before_the_model_is_written_loses_nothing(capsys, monkeypatch, tmp_path, solver):
    path, kept = make("svm", tmp_path), tmp_path / "state"
    words = ["fit", path, "-o", tmp_path / "m", "--solver", solver, "--checkpoint", kept, "--dtype", "float64"]

    def killed(*_):
        raise SystemExit("killed")

    with monkeypatch.context() as patched:
        patched.setattr(LinearModel, "save", killed)
        with pytest.raises(SystemExit, match="killed"):
            run(capsys, *words)
    assert kept.exists()
    assert not (tmp_path / "m").exists()
    with monkeypatch.context() as patched:
        patched.setattr(SOLVERS[solver], "iterate", no_iteration)
        ran = run(capsys, *words, "--resume")
    assert ran.code == 0, ran.err
    assert not kept.exists()
    whole, _ = fitted(capsys, path, "-o", tmp_path / "whole", "--solver", solver, "--dtype", "float64")
    model = LinearModel.load(tmp_path / "m")
    np.testing.assert_array_equal(model.weights, whole.weights)
    assert model.record["outcome"] == "converged"
    assert model.record["n_iter"] == whole.record["n_iter"]


def test_what_is_no_checkpoint_is_refused(capsys, tmp_path):
    path, kept = make("svm", tmp_path), tmp_path / "state"
    kept.write_text("something else")
    for words in (["--resume"], []):
        ran = run(capsys, "fit", path, "-o", tmp_path / "m", "--checkpoint", kept, *words)
        refused(ran, f"--checkpoint {kept} is not the state of a run")
    assert kept.read_text() == "something else"
