"""Many fits: at once, and one after the other. `nox -s load` runs 10 000; the tests run 100."""

from __future__ import annotations

import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp

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
