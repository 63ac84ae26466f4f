"""Badly scaled features: a good model, or a warning or an error with the cause; never a useless model in silence."""

from __future__ import annotations

import json
import re
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

import scale_cases
from manyclass import (
    BoundMajorization,
    CalibratedLeastSquaresClassifier,
    GeneralizedLeastSquaresClassifier,
    LinearClassifier,
    LinearRegressor,
    LogLinearModel,
    OutOfCore,
    StagewiseClassifier,
    StagewiseRegressor,
    certify,
)
from manyclass.distributed import run_threads
from manyclass.io.store import RowStore, write_store
from manyclass.objective.losses import CLASSIFICATION
from scale_cases import BAD, CLASSES, DISTRIBUTED, REAL, ROWS, attempt, half_score, require_overcome_or_named
from test_communicators import launch

ESTIMATORS = {
    "multinomial": (LinearClassifier(loss="multinomial"), CLASSES),
    "crammer_singer": (LinearClassifier(loss="crammer_singer"), CLASSES),
    "squared_hinge": (LinearClassifier(loss="squared_hinge"), CLASSES),
    "squared": (LinearRegressor(), REAL),
    "elastic_net": (LinearRegressor(l1_ratio=0.5), REAL),
    "generalized": (GeneralizedLeastSquaresClassifier(), CLASSES),
    "calibrated": (CalibratedLeastSquaresClassifier(), CLASSES),
    "stagewise": (StagewiseClassifier(), CLASSES),
    "stagewise_regressor": (StagewiseRegressor(), REAL),
}


def overcome_or_named(score):
    require_overcome_or_named(*attempt(score))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("bad", BAD)
def test_a_bad_scale_is_overcome_or_named(bad, name, sparse):
    estimator, y = ESTIMATORS[name]
    rows = sp.csr_matrix(BAD[bad]) if sparse else BAD[bad]
    overcome_or_named(lambda: clone(estimator).set_params(random_state=0).fit(rows, y).score(rows, y))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("rank", ["full", 2])
@pytest.mark.parametrize("bad", BAD)
def test_a_bad_scale_of_joint_features(bad, rank, sparse):
    rows = sp.csr_matrix(BAD[bad]) if sparse else BAD[bad]
    offsets = np.arange(0, len(ROWS) + 1, 3)
    y = np.argmax(REAL.reshape(-1, 3), axis=1)
    model = LogLinearModel(solver=BoundMajorization(rank=rank), random_state=0)
    overcome_or_named(lambda: np.mean(model.fit(rows, y, offsets=offsets).predict(rows, offsets=offsets) == y))


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("bad", BAD)
def test_a_bad_scale_of_a_row_store(bad, sparse, tmp_path):
    rows = sp.csr_matrix(BAD[bad]) if sparse else BAD[bad]
    write_store(tmp_path / "store", rows, CLASSES)
    model = LinearClassifier(solver=OutOfCore(tmp_path / "model"), random_state=0)
    overcome_or_named(lambda: model.fit(RowStore(tmp_path / "store")).score(rows, CLASSES))


@pytest.mark.parametrize("solver", DISTRIBUTED)
@pytest.mark.parametrize("bad", [*BAD, "nothing"])
def test_a_bad_scale_on_two_processes(bad, solver):
    rows = BAD.get(bad, ROWS)
    overcome_or_named(lambda: min(run_threads(2, lambda comm: half_score(comm, rows, solver), timeout=60)))


def test_bad_scales_on_processes_of_mpi():
    """Each process says the cause, also if the rows of another one are it."""
    done = launch(2, scale_cases.__file__, timeout=300)
    # What mpiexec says of the end of the job stands between.
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    cases = {(rank, solver, case) for rank in range(2) for solver in DISTRIBUTED for case in scale_cases.MPI}
    assert {(rank, solver, case) for rank, solver, case, *_ in lines} == cases, done.stderr
    for rank, solver, case, *found in lines:
        try:
            require_overcome_or_named(*found)
        except AssertionError as error:
            raise AssertionError(f"rank {rank}, {solver}, {case}: {error}") from None
    assert done.returncode
    assert re.search(r"rank 0 of 2 on \S+ .* row 0 of X has a squared norm that overflows float64: scale", done.stderr)


@pytest.mark.parametrize("bad", BAD)
def test_a_bad_scale_of_a_row_store_on_two_processes(bad, tmp_path):
    write_store(tmp_path / "store", BAD[bad], CLASSES)

    def score(comm):
        model = LinearClassifier(solver=OutOfCore(tmp_path / "model", comm=comm), random_state=0)
        return model.fit(RowStore(tmp_path / "store")).score(BAD[bad], CLASSES)

    overcome_or_named(lambda: min(run_threads(2, score, timeout=60)))


def odd_data(name):
    rng = np.random.default_rng(5)
    X, y, weights = rng.normal(size=(40, 6)), np.arange(40) % 4, None
    if name == "constant columns":
        X[:, 2:] = 3.0
    elif name == "equal columns":
        X[:] = X[:, :1]
    elif name == "one column":
        X = X[:, :1]
    elif name == "a class for each row":
        y = np.arange(40)
    elif name == "a class of one row":
        y = np.where(np.arange(40) == 7, 9, np.arange(40) % 2)
    elif name == "two rows":
        X, y = X[:2], y[:2]
    elif name == "weights over 20 orders of magnitude":
        weights = 10.0 ** rng.uniform(-20, 0, size=40)
        weights[:8] = 1.0
    elif name == "empty rows":
        X[::2] = 0.0
    return X, y, weights


ODD = ("constant columns", "equal columns", "one column", "a class for each row", "a class of one row", "two rows")
ODD += ("weights over 20 orders of magnitude", "empty rows")


@pytest.mark.parametrize("loss", CLASSIFICATION)
@pytest.mark.parametrize("odd", ODD)
def test_odd_data_end_at_the_optimum_or_say_so(odd, loss):
    X, y, weights = odd_data(odd)
    model = LinearClassifier(loss, alpha=1e-2, tol=1e-3, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, sample_weight=weights)
    found = certify(model, X, y, sample_weight=weights)
    assert caught or found.relative_gap <= 1e-3 * (1 + 1e-6)
    assert found.relative_gap <= 0.02
