"""A sparse matrix whose arrays do not fit together is refused before compiled code reads it.

SciPy accepts ``shape=`` too narrow for the indices and checks no indices of its own accord; compiled code that trusts
them reads and writes memory that is not ours.
"""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp

import manyclass
from manyclass.io import Dataset, write
from manyclass.io.store import write_store
from manyclass.mips import ExactSearch

RNG = np.random.default_rng(0)
X = sp.random(60, 12, 0.4, "csr", random_state=0)
Y = RNG.integers(0, 3, 60)


def narrow(X):
    """The slip of a user: a shape that the indices do not fit in."""
    return type(X)((X.data, X.indices, X.indptr), shape=(X.shape[0], X.shape[1] - 4))


def negative(X):
    indices = X.indices.copy()
    indices[7] = -3
    return _parts(X, indices=indices)


def distant(X):
    indices = X.indices.copy()
    indices[7] = 2**30
    return _parts(X, indices=indices)


def falling(X):
    indptr = X.indptr.copy()
    indptr[3] = -7
    return _parts(X, indptr=indptr)


def too_long(X):
    indptr = X.indptr.copy()
    indptr[-1] += 5
    return _parts(X, indptr=indptr)


def by_columns(X):
    """Compressed columns: SciPy itself would convert them."""
    found = sp.csc_matrix(X)
    found.indices[5] = 10**6
    return found


def _parts(X, **arrays):
    found = X.copy()
    for name, array in arrays.items():
        setattr(found, name, array)
    return found


FAULTS = [narrow, negative, distant, falling, too_long, by_columns]
ESTIMATORS = {
    "LinearClassifier": lambda: manyclass.LinearClassifier(max_iter=2),
    "LinearClassifier(squared_hinge)": lambda: manyclass.LinearClassifier("squared_hinge", max_iter=2),
    "LinearRegressor": lambda: manyclass.LinearRegressor(max_iter=2),
    "LinearClassifierCV": lambda: manyclass.LinearClassifierCV(alphas=[0.1], max_iter=2),
    "LinearRegressorCV": lambda: manyclass.LinearRegressorCV(alphas=[0.1], max_iter=2),
    "bound": lambda: manyclass.LinearClassifier(solver="bound", max_iter=2),
    "ds_mlr": lambda: manyclass.LinearClassifier(solver="ds_mlr", max_iter=2),
    "memoir": lambda: manyclass.LinearClassifier(manyclass.CrammerSinger(gamma=0), solver="memoir", max_iter=1),
    "GeneralizedLeastSquaresClassifier": lambda: manyclass.GeneralizedLeastSquaresClassifier(),
    "CalibratedLeastSquaresClassifier": lambda: manyclass.CalibratedLeastSquaresClassifier(max_iter=2),
    "StagewiseClassifier": lambda: manyclass.StagewiseClassifier(manyclass.RandomFourier(4), n_blocks=1),
    "StagewiseRegressor": lambda: manyclass.StagewiseRegressor(manyclass.RandomFourier(4), n_blocks=1),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ESTIMATORS)
def test_fit_refuses(name, fault):
    with pytest.raises(ValueError, match="X is a damaged sparse matrix of shape"):
        ESTIMATORS[name]().fit(fault(X), Y)


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault is not narrow])
@pytest.mark.parametrize("name", ["LinearClassifier", "memoir", "StagewiseClassifier"])
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_predict_refuses(name, fault):
    model = ESTIMATORS[name]().fit(X, Y)
    with pytest.raises(ValueError, match="X is a damaged sparse matrix of shape"):
        model.predict(fault(X))


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("name", ["bound", "memoir"])
def test_partial_fit_refuses(name, fault):
    with pytest.raises(ValueError, match="X is a damaged sparse matrix of shape"):
        ESTIMATORS[name]().partial_fit(fault(X), Y)


@pytest.mark.parametrize("fault", FAULTS)
def test_indicators_are_looked_at(fault):
    labels = sp.csr_matrix(sp.random(60, 12, 0.3, "csr", random_state=1) > 0, dtype=np.int8)
    with pytest.raises(ValueError, match="y is a damaged sparse matrix"):
        manyclass.LinearClassifier("log_loss").fit(X, fault(labels))


@pytest.mark.parametrize("fault", FAULTS)
def test_features_stores_indexes_and_writers_refuse(fault, tmp_path):
    damaged = fault(X)
    for attempt in (
        lambda: manyclass.RandomFourier(4).fit(damaged),
        lambda: write_store(tmp_path / "rows.store", damaged, Y),
        lambda: ExactSearch().build(damaged),
        lambda: write(tmp_path / "rows.svm", Dataset(damaged, Y)),
        lambda: manyclass.LogLinearModel().fit(damaged, np.zeros(30, int), offsets=np.arange(0, 61, 2)),
    ):
        with pytest.raises(ValueError, match="damaged sparse matrix"):
            attempt()


def test_spare_room_behind_the_values_is_no_damage():
    """SciPy keeps such matrices, after `sum_duplicates` for one."""
    spare = sp.csr_matrix((60, 12))
    spare.indptr, spare.data = X.indptr, np.append(X.data, [0.0, 0.0])
    spare.indices = np.append(X.indices, [0, 0]).astype(X.indices.dtype)
    with_room = manyclass.LinearClassifier(random_state=0, alpha=0.1).fit(spare, Y)
    without = manyclass.LinearClassifier(random_state=0, alpha=0.1).fit(X, Y)
    np.testing.assert_array_equal(with_room.coef_, without.coef_)
