"""Many fits: at once, and one after the other. `nox -s load` runs 10 000; the tests run 100."""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV

import manyclass

FITS = int(os.environ.get("MANYCLASS_LOAD", "100"))
X = sp.random(40, 8, 0.5, "csr", random_state=0, dtype=np.float32)
Y = np.arange(40) % 4


def fit(k):
    return manyclass.LinearClassifier(solver="sdca", max_iter=60, tol=0.1, random_state=k % 8).fit(X, Y)


def test_eight_threads_fit_load_and_predict_as_one_does(tmp_path):
    path = tmp_path / "it.model"
    alone = [fit(k).coef_ for k in range(8)]
    fit(0).save(path)
    expected = manyclass.load(path).predict(X)

    def job(k):
        np.testing.assert_array_equal(fit(k).coef_, alone[k % 8])
        np.testing.assert_array_equal(manyclass.load(path, mmap=bool(k % 2)).predict(X), expected)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(job, range(FITS)))


def wide_fit(k):
    """A fit with threads of its own, and its predictions."""
    model = manyclass.LinearClassifier(solver="sdca", max_iter=20, tol=0.1, random_state=k, n_jobs=2).fit(X, Y)
    return model.coef_, model.predict(X)


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
def test_processes_of_every_start_method_fit_as_their_parent_does(method):
    """The parent has fitted already: its threads are not there in a forked child."""
    expected = [wide_fit(k) for k in range(3)]
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context(method)) as pool:
        found = [job.result(timeout=200) for job in [pool.submit(wide_fit, k) for k in range(3)]]
    for (coef, labels), (known, same) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(coef, known)
        np.testing.assert_array_equal(labels, same)


def test_grid_search_on_processes_chooses_as_without():
    estimator = manyclass.LinearClassifier(solver="sdca", max_iter=200, tol=1e-2, random_state=0, n_jobs=2)
    grid = {"alpha": [1.0, 1e-1, 1e-2]}
    alone, parted = (GridSearchCV(estimator, grid, cv=2, n_jobs=n).fit(X, Y) for n in (None, 2))
    np.testing.assert_array_equal(parted.cv_results_["mean_test_score"], alone.cv_results_["mean_test_score"])
    np.testing.assert_array_equal(parted.best_estimator_.coef_, alone.best_estimator_.coef_)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_fits_leave_neither_memory_nor_files_nor_threads():
    def held():
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd")), threading.active_count()

    for k in range(50):
        fit(k)
    memory, files, threads = held()
    for k in range(FITS):
        fit(k)
    later = held()
    assert later[1] <= files
    assert later[2] <= threads
    # A model has 160 bytes, its record some KiB: what all of them would leave is more than this in 10 000 fits.
    assert later[0] - memory < 8 << 20
