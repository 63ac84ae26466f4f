"""``manyclass fit --solver ds_mlr``: workers, refusals, and several processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits

from manyclass import load
from manyclass.cli import _ranks
from manyclass.io import read
from manyclass.io.store import write_store
from manyclass.runtime.launchers import VARIABLES
from test_cli_support import make, refused, run
from test_communicators import launch

SOLVER = ("--solver", "ds_mlr")


@pytest.mark.parametrize(
    ("words", "needle"),
    [
        (["--resume", *SOLVER], "--checkpoint"),
        (["--set", "solver.n_workers=0", *SOLVER], "'n_workers' parameter of DSMLR"),
        (["--set", "solver.block_classes=0", *SOLVER], "'block_classes' parameter of DSMLR"),
        (["--set", "solver.schedule=star", *SOLVER], "ring"),
        (["--silence", "0", *SOLVER], "--silence"),
        (["--stall", "-1", *SOLVER], "--stall"),
        (["--checkpoint", "c", "--checkpoint-seconds", "-1", *SOLVER], "--checkpoint-seconds"),
        (["--loss", "hinge", *SOLVER], "ds_mlr"),
    ],
)
def test_options_that_do_not_go_together_are_refused(capsys, tmp_path, words, needle):
    ran = run(capsys, "fit", make("svm", tmp_path), "-o", tmp_path / "m", *words)
    refused(ran, needle)


def test_processes_with_other_options_are_refused_before_they_read(tmp_path):
    fit = ["-m", "manyclass", "fit", "no-such-file.svm", *SOLVER, "-o"]
    others = [":", "-n", "1", sys.executable, "-m", "mpi4py", *fit, str(tmp_path / "b"), "--quiet", "--alpha", "2"]
    done = launch(1, *fit, str(tmp_path / "a"), "--alpha", "1", *others)
    assert done.returncode != 0
    assert "alpha must be the same in every process, got 1.0 in rank 0 and 2.0 in rank 1" in done.stderr
    assert "no-such-file" not in done.stderr


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are of POSIX")
def test_a_checkpoint_that_is_a_pipe_is_refused(capsys, tmp_path):
    os.mkfifo(tmp_path / "pipe")
    ran = run(capsys, "fit", make("svm", tmp_path), "-o", tmp_path / "m", *SOLVER, "--checkpoint", tmp_path / "pipe")
    refused(ran, "is a pipe: give the name of a folder")


def test_a_checkpoint_is_not_overwritten_and_is_resumed(capsys, tmp_path):
    path, kept = make("svm", tmp_path), tmp_path / "state"
    command = ["fit", path, "-o", tmp_path / "m", *SOLVER, "--tol", "1e-7", "--dtype", "float64", "--alpha", "1e-3"]
    keep = ["--checkpoint", kept, "--checkpoint-seconds", "0"]
    ran = run(capsys, *command, *keep, "--max-iter", "4")
    assert ran.code == 0, ran.err
    assert (kept / "manifest.json").exists()
    refused(run(capsys, *command, *keep), "--resume")
    ran = run(capsys, *command, *keep, "--set", "solver.n_workers=2", "--resume")
    assert ran.code == 0, ran.err
    assert f"going on after epoch 4 from {kept}" in ran.err
    assert not kept.exists()
    whole = run(capsys, *command[:3], tmp_path / "whole", *command[4:])
    found, expected = (load(tmp_path / name) for name in ("m", "whole"))
    assert whole.code == 0
    np.testing.assert_allclose(found.weights, expected.weights, atol=1e-3)


# --- several processes -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, (0, 1)),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, (2, 4)),
        ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3"}, (1, 3)),
        ({"SLURM_PROCID": "5", "SLURM_STEP_NUM_TASKS": "6"}, (5, 6)),
        ({"SLURM_PROCID": "0"}, (0, 1)),
        ({"MV2_COMM_WORLD_RANK": "3", "MV2_COMM_WORLD_SIZE": "4"}, (3, 4)),
        ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        ({"PMI_RANK": "", "PMI_SIZE": "4"}, (0, 1)),
    ],
)
def test_launchers_tell_rank_and_size(monkeypatch, environment, expected):
    for names in VARIABLES:
        for name in names:
            monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert _ranks.launched() == expected


@pytest.mark.parametrize("rank", [0, 1])
def test_what_is_wrong_for_several_processes_is_said_by_the_first(capsys, monkeypatch, tmp_path, rank):
    for library in ("OMP", "OPENBLAS", "MKL"):
        monkeypatch.setenv(f"{library}_NUM_THREADS", "1")
    monkeypatch.setenv("PMI_RANK", str(rank))
    monkeypatch.setenv("PMI_SIZE", "2")
    path = make("svm", tmp_path)
    for words, needle in (
        (["fit", path, "-o", tmp_path / "m"], "--solver ds_mlr"),
        (["fit", path, "-o", tmp_path / "m", *SOLVER, "--alphas", "1,2"], "give an --alpha"),
        (["info", path], "only fit is for several"),
        (["fit", path], "required: -o"),
        (["fit", path, "-o", tmp_path, *SOLVER], "several processes write a folder, give it a new name"),
        (["fit", path, "-o", tmp_path / "m", *SOLVER, "--sparsify", "0"], "--sparsify is not for several processes"),
    ):
        ran = run(capsys, *words)
        assert ran.code == 2
        assert (needle in ran.err) == (rank == 0)
        assert bool(ran.err) == (rank == 0)


@pytest.mark.parametrize("rank", ["0", "1"])
def test_processes_that_mpi_does_not_connect_are_refused(rank, tmp_path):
    """Each would fit alone, and overwrite the model of the other."""
    path = make("svm", tmp_path)
    command = [sys.executable, "-m", "manyclass", "fit", str(path), "-o", str(tmp_path / "m"), *SOLVER]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PMI", "OMPI", "SLURM"))}
    done = subprocess.run(
        command, env={**clean, "RANK": rank, "WORLD_SIZE": "2"}, capture_output=True, text=True, timeout=100
    )
    assert done.returncode == 2, done.stderr
    said = f"--comm 'mpi': RANK tells process {rank} of 2, but MPI connects this one as rank 0 of 1"
    assert (said in done.stderr) == (rank == "0")
    assert not (tmp_path / "m").exists()


def test_a_process_of_an_unknown_number_is_refused(capsys, monkeypatch, tmp_path):
    for names in VARIABLES:
        for name in names:
            monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PMIX_RANK", "3")
    ran = run(capsys, "fit", make("svm", tmp_path), "-o", tmp_path / "m")
    refused(ran, "this is process 3 of several (PMIX_RANK), and their number is not known")


def test_without_mpi_the_command_says_what_to_install(capsys, monkeypatch, tmp_path):
    for library in ("OMP", "OPENBLAS", "MKL"):
        monkeypatch.setenv(f"{library}_NUM_THREADS", "1")
    monkeypatch.setenv("PMI_RANK", "0")
    monkeypatch.setenv("PMI_SIZE", "2")
    monkeypatch.setitem(sys.modules, "mpi4py", None)
    ran = run(capsys, "fit", make("svm", tmp_path), "-o", tmp_path / "m", *SOLVER)
    assert ran.code == 2
    assert "    python -m pip install 'manyclass[mpi]'\n    mpiexec -n 4 python -m mpi4py" in ran.err


def test_processes_fit_what_threads_fit(capsys, tmp_path):
    path = make("svm", tmp_path)
    command = [*SOLVER, "--tol", "1e-6", "--dtype", "float64", "--alpha", "1e-3"]
    done = launch(2, "-m", "manyclass", "fit", str(path), "-o", str(tmp_path / "short"), *command, "--max-iter", "2")
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("--max-iter was reached") == 1
    done = launch(2, "-m", "manyclass", "fit", str(path), "-o", str(tmp_path / "two"), *command)
    assert done.returncode == 0, done.stderr
    ran = run(capsys, "fit", path, "-o", tmp_path / "one", *command, "--set", "solver.n_workers=2")
    assert ran.code == 0, ran.err
    two, one = load(tmp_path / "two"), load(tmp_path / "one")
    data = read(path)
    np.testing.assert_allclose(two.scores(data.X), one.scores(data.X), atol=1e-9)
    assert two.parameters["solver"] == "DSMLR()"
    # One process speaks.
    assert done.stdout.count("objective") == 1
    assert len(re.findall("^read ", done.stderr, re.M)) == 1


def test_processes_read_their_own_rows_of_a_store(capsys, tmp_path):
    path, store = make("svm", tmp_path), tmp_path / "rows.store"
    assert run(capsys, "convert", path, "-o", store, "--shard-rows", "7").code == 0
    command = [*SOLVER, "--tol", "1e-6", "--dtype", "float64", "--alpha", "1e-3"]
    done = launch(2, "-m", "manyclass", "fit", str(store), "-o", str(tmp_path / "two"), *command)
    assert done.returncode == 0, done.stderr
    ran = run(capsys, "fit", path, "-o", tmp_path / "one", *command, "--set", "solver.n_workers=2")
    assert ran.code == 0, ran.err
    two, one = load(tmp_path / "two"), load(tmp_path / "one")
    data = read(path)
    np.testing.assert_allclose(two.scores(data.X), one.scores(data.X), atol=1e-9)
    assert two.classes.tolist() == one.classes.tolist()
    for name in ("rows", "class_counts"):
        np.testing.assert_array_equal(two.record["data"][name], one.record["data"][name])
    judged = [line for line in ran.out.splitlines() if "on the training data" in line]
    judged.remove(next(line for line in judged if "deviance" in line))  # of all rows, which one process has alone
    assert judged
    assert judged == [line for line in done.stdout.splitlines() if "on the training data" in line]
    assert "154 rows, 64 features" in done.stderr
    assert "rows of the first of 2 processes, the others read theirs" in done.stderr
    assert len(two.blocks) == 2


def test_processes_fit_a_store_together(tmp_path):
    X, y = load_digits(return_X_y=True)
    write_store(tmp_path / "s", (X / 16).astype(np.float32), y, shard_rows=500)
    words = ["fit", tmp_path / "s", "-o", tmp_path / "m", "--solver", "out_of_core", "--set", "solver.block_classes=4"]
    done = launch(2, "-m", "manyclass", *map(str, words), "--alpha", "1e-2", "--history", str(tmp_path / "h.csv"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("relative gap") == 1
    model = load(tmp_path / "m")
    assert model.record["ranks"] == 2
    assert model.record["relative_gap"] < 0.1
    assert model.parameters["solver"] == "OutOfCore(block_classes=4)"
    assert np.mean(model.predict((X / 16).astype(np.float32)) == y) > 0.9


def test_what_is_wrong_on_all_processes_is_said_once(tmp_path):
    done = launch(2, "-m", "manyclass", "fit", str(tmp_path / "none.svm"), "-o", str(tmp_path / "m"), *SOLVER)
    assert done.returncode != 0
    said = [line for line in done.stderr.split("\n") if line.startswith("manyclass: error: ")]
    assert len(said) == 1
    assert re.match(
        r"manyclass: error: rank 0 of 2 on \S+ \(epoch 0, step 0\) gave up: .*none.svm: No such file", said[0]
    )


def test_an_interrupt_of_one_process_stops_all_and_keeps_the_model(capsys, tmp_path):
    """As that of mpiexec, which hands it on."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal, sys\n"
        "from manyclass.cli.main import main\n"
        "from manyclass.solvers import DSMLR\n"
        "inner = DSMLR._descend\n"
        "def descend(self, extent, team, state):\n"
        "    if state['iteration'] == 4 and self.comm.rank == 1: os.kill(os.getpid(), signal.SIGINT)\n"
        "    inner(self, extent, team, state)\n"
        "DSMLR._descend = descend\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    path, kept = make("svm", tmp_path), tmp_path / "state"
    command = ["fit", str(path), "-o", str(tmp_path / "m"), *SOLVER, "--tol", "1e-7"]
    command += ["--dtype", "float64", "--checkpoint", str(kept)]
    done = launch(2, str(program), *command)
    assert done.returncode == 0, done.stderr
    assert "interrupted after 5 epochs: the model reached so far is kept" in done.stderr
    assert load(tmp_path / "m").n_features
    assert (kept / "manifest.json").exists()


def test_a_process_that_is_killed_while_it_saves_leaves_no_model_and_the_same_command_goes_on(tmp_path):
    """On another number of processes."""
    program = tmp_path / "program.py"
    program.write_text(
        "import os, signal, sys\n"
        "from manyclass.cli.main import main\n"
        "from manyclass.models import partitioned\n"
        "if os.environ.get('PMI_RANK') == '1':\n"
        "    partitioned.write_block = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    path, kept = make("svm", tmp_path), tmp_path / "state"
    command = ["fit", str(path), "-o", str(tmp_path / "m"), *SOLVER, "--checkpoint", str(kept), "--resume"]
    command += ["--set", "solver.block_classes=1", "--tol", "1e-3"]
    done = launch(2, str(program), *command)
    assert done.returncode != 0
    assert "rank 1 of 2" in done.stderr
    assert not (tmp_path / "m").exists()
    assert (kept / "manifest.json").exists()
    done = launch(3, "-m", "manyclass", *command)
    assert done.returncode == 0, done.stderr
    assert "going on after epoch" in done.stderr
    model = load(tmp_path / "m")
    model.verify()
    assert len(model.blocks) == model.n_outputs > 2
    assert not kept.exists()
    assert not [file for file in tmp_path.iterdir() if file.name.endswith(".tmp")]
