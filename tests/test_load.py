"""Many fits, at once and one after the other, and predictions under load.

`nox -s load` runs 10 000 fits, and with `MANYCLASS_LOAD_SECONDS=3600` an hour of predictions. The tests run
100 fits and a second of predictions.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.model_selection import GridSearchCV

import manyclass

FITS = int(os.environ.get("MANYCLASS_LOAD", "100"))
SECONDS = float(os.environ.get("MANYCLASS_LOAD_SECONDS", "1"))
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


def held():
    """Bytes of memory, open files and threads of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE"), len(os.listdir("/proc/self/fd")), len(os.listdir("/proc/self/task"))


def test_an_optuna_study_on_threads_is_that_of_one_thread():
    """Trials of a grid, so that both studies try the same values; fits with threads of their own inside."""
    optuna = pytest.importorskip("optuna")
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    grid = {"alpha": [1.0, 0.5, 0.2, 0.1, 0.05], "loss": ["multinomial", "squared_hinge"]}

    def objective(trial):
        alpha, loss = (trial.suggest_categorical(name, values) for name, values in grid.items())
        fitted = manyclass.LinearClassifier(
            loss, solver="sdca", alpha=alpha, max_iter=500, tol=0.1, random_state=0, n_jobs=2
        ).fit(X, Y)
        trial.set_user_attr("coef", fitted.coef_.tolist())
        return fitted.score(X, Y)

    def study(n_jobs):
        found = optuna.create_study(direction="maximize", sampler=optuna.samplers.GridSampler(grid, seed=0))
        found.optimize(objective, n_trials=10, n_jobs=n_jobs)
        return {tuple(t.params.values()): (t.value, t.user_attrs["coef"]) for t in found.trials}

    alone, parted = study(1), study(2)
    assert len(alone) == 10
    assert parted == alone


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_fits_leave_neither_memory_nor_files_nor_threads():
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


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_predictions_under_load_take_no_more_memory_files_or_threads_with_time(tmp_path, capsys):
    """Four threads ask a mapped model for labels, the best classes and probabilities, of one row to 300 at a time. What
    is held is recorded 60 times; each record of the second half is compared with the peak of the first."""
    rng, width, n_classes = np.random.default_rng(0), 2000, 500
    weights = rng.normal(size=(width, n_classes)).astype(np.float32)
    path = tmp_path / "served.model"
    bias, classes = np.zeros(n_classes, np.float32), np.arange(n_classes)
    manyclass.LinearModel(weights, bias, classes, task="multiclass", link="softmax").save(path)
    served = manyclass.load(path)
    sizes = [1, 2, 7, 31, 300]
    sparse = [sp.random(n, width, 0.02, "csr", random_state=n, dtype=np.float32) for n in sizes]
    asked = [*sparse, *(rows.toarray() for rows in sparse)]
    ways = {
        "predict": served.predict,
        "topk": lambda X: served.topk(X, 5)[0],
        "topk_probabilities": lambda X: served.topk_probabilities(X, 5)[1],
        "probabilities": served.probabilities,
    }
    known = {(name, k): way(X) for name, way in ways.items() for k, X in enumerate(asked)}
    until = time.monotonic() + SECONDS
    calls: Counter[str] = Counter()

    def ask(seed):
        rng, count = np.random.default_rng(seed), Counter()
        while time.monotonic() < until:
            name, k = list(ways)[rng.integers(len(ways))], int(rng.integers(len(asked)))
            np.testing.assert_array_equal(ways[name](asked[k]), known[name, k])
            count[name] += 1
        calls.update(count)

    records = []
    with ThreadPoolExecutor(4) as pool:
        jobs = [pool.submit(ask, seed) for seed in range(4)]
        for k in range(60):
            time.sleep(max(0.0, until - time.monotonic()) / (60 - k))
            records.append(held())
        for job in jobs:
            job.result()
    memory, files, threads = (list(column) for column in zip(*records, strict=True))
    with capsys.disabled():
        for k in range(0, 60, 6) if SECONDS >= 60 else ():
            at = (k + 1) * SECONDS / 60
            sys.stdout.write(f"\n{at:6.0f} s: {memory[k] / 2**20:.1f} MiB, {files[k]} files, {threads[k]} threads")
        if SECONDS >= 60:
            sys.stdout.write(f"\n{SECONDS:6.0f} s: {memory[-1] / 2**20:.1f} MiB, {dict(calls)}\n")
    assert set(calls) == set(ways)
    assert max(files[30:]) <= max(files[:30])
    assert max(threads[30:]) <= max(threads[:30])
    assert max(memory[30:]) - max(memory[:30]) < 1 << 20
