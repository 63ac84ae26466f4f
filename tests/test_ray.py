"""``manyclass.distributed.ray.fit`` on the actors of a local cluster."""

from __future__ import annotations

import os
import signal
import threading
import time

import numpy as np
import pytest
import scipy.sparse as sp
from joblib import parallel_config
from sklearn.datasets import load_digits

from manyclass import DSMLR, LinearClassifier, LinearClassifierCV, LinearRegressor
from manyclass.distributed import PeerLostError
from manyclass.distributed.ray import fit

ray = pytest.importorskip("ray")

# What the library of the cluster itself warns of, here and there.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


@pytest.fixture(scope="module", autouse=True)
def _cluster():
    source = os.path.dirname(os.path.dirname(os.path.abspath(__import__("manyclass").__file__)))
    environment = {"env_vars": {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}}
    ray.init(
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="ERROR",
        object_store_memory=200_000_000,
        runtime_env=environment,
    )
    yield
    ray.shutdown()


@pytest.fixture(scope="module")
def rows():
    X, y = load_digits(return_X_y=True)
    return (X / 16)[:900], y[:900]


def put(rows, count=3):
    return [[ray.put(part[i::count].copy()) for i in range(count)] for part in rows]


def model(**parameters):
    return LinearClassifier(**{"alpha": 1e-3, "tol": 1e-4, "random_state": 0, **parameters})


def long_fit():
    return model(solver=DSMLR(algorithm="stochastic"), tol=0.0, max_iter=10**6)


@pytest.mark.parametrize("sparse", [False, True])
def test_it_fits_what_one_process_fits(rows, sparse):
    X, y = rows
    (parts, labels), given = put(rows), model(dtype="float64", fit_intercept=True)
    if sparse:
        parts = [ray.put(sp.csr_matrix(X[i::3])) for i in range(3)]
    found = fit(given, parts, labels, workers_per_node=2)
    expected = model(dtype="float64", fit_intercept=True, solver="ds_mlr").fit(X, y)
    assert not hasattr(given, "model_")
    assert found.get_params() == given.get_params()
    assert found.objective_ == pytest.approx(expected.objective_, rel=2e-4)
    assert np.mean(found.predict(X) == expected.predict(X)) > 0.99


def test_data_sets_with_words_as_labels_and_weights(rows):
    pandas = pytest.importorskip("pandas")
    data = pytest.importorskip("ray.data")
    X, y = rows
    frame = pandas.DataFrame(X, columns=[f"pixel{i}" for i in range(64)])
    table = frame.assign(digit=np.array(list("abcdefghij"))[y], weight=1.0 + (y == 3))
    found = fit(model(dtype="float64"), data.from_pandas([table[:500], table[500:]]), "digit", "weight")
    expected = model(dtype="float64", solver="ds_mlr").fit(frame, table["digit"], table["weight"])
    assert found.classes_.tolist() == list("abcdefghij")
    assert found.feature_names_in_.tolist() == frame.columns.tolist()
    assert found.objective_ == pytest.approx(expected.objective_, rel=1e-3)


def test_each_actor_writes_its_classes(rows, tmp_path):
    X, y = rows
    solver = DSMLR(block_classes=2)
    found = fit(model(solver=solver), *put(rows), workers_per_node=2, path=tmp_path / "model")
    assert type(found.model_).__name__ == "ShardedModel"
    assert len(found.model_.blocks) == 5
    assert np.mean(found.predict(X) == model(solver="ds_mlr").fit(X, y).predict(X)) > 0.99
    with pytest.raises(ValueError, match="path must not exist"):
        fit(model(), *put(rows), path=tmp_path / "model")


@pytest.mark.parametrize(
    ("change", "error", "needle"),
    [
        (lambda X, y: (LinearRegressor(), X, y), TypeError, "must be a LinearClassifier, got LinearRegressor"),
        (lambda X, y: (model(solver="sdca"), X, y), ValueError, "got 'sdca': give 'ds_mlr'"),
        (lambda X, y: (model(), np.zeros((3, 3)), y), TypeError, "X must be a list of references.*, got ndarray"),
        (lambda X, y: (model(), X, y[:1]), ValueError, "the same partitions, got 3 and 1"),
        (lambda X, y: (model(), [], []), ValueError, "got no partition"),
        (lambda X, y: (model(), X, [*y[1:], ray.put(np.zeros(2))]), ValueError, "inconsistent numbers of samples"),
    ],
)
def test_what_is_wrong_is_an_error_here(rows, change, error, needle):
    with pytest.raises(error, match=needle):
        fit(*change(*put(rows)), workers_per_node=2)


def await_fit():
    """The processes of two actors, when their fit has begun."""
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        found = [
            int(pid)
            for pid in os.listdir("/proc")
            if pid.isdecimal() and _title(pid).startswith("ray::") and "fit" in _title(pid) and _owned(int(pid))
        ]
        if len(found) == 2:
            time.sleep(5.0)
            return found
        time.sleep(0.1)
    return []


def _title(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read()
    except OSError:
        return ""


def _owned(pid):
    """Whether it is a process of this cluster: an ancestor is this one."""
    while pid > 1:
        if pid == os.getpid():
            return True
        try:
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rsplit(")", 1)[1].split()[1])
        except OSError:
            return False
    return False


@pytest.mark.skipif(not os.path.exists("/proc"), reason="looks for processes as Linux lists them")
def test_an_actor_that_is_killed_ends_the_fit(rows):
    def kill():
        for pid in await_fit()[1:]:
            os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    begun = time.monotonic()
    with pytest.raises(PeerLostError, match=r"rank \d, the actor on node \S+, was lost: .*connect\S+ \S+ rank \d"):
        fit(long_fit(), *put(rows), workers_per_node=2)
    assert time.monotonic() - begun < 150
    killer.join()


@pytest.mark.skipif(not os.path.exists("/proc"), reason="looks for processes as Linux lists them")
def test_an_interrupt_ends_the_fit_with_the_model_reached(rows):
    """Ctrl-C in a notebook."""

    def interrupt():
        if await_fit():
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    found = fit(long_fit(), *put(rows), workers_per_node=2)
    interrupting.join()
    assert found.history_.outcome == "interrupted"  # maybe before its first iteration: actors begin slowly
    assert found.predict(rows[0]).shape == rows[1].shape


def test_the_backend_of_joblib_fits_classes_and_folds_with_the_same_bits():
    rng = np.random.default_rng(0)
    X = sp.random(900, 60, 0.2, format="csr", random_state=0)
    y = np.concatenate([np.arange(150), rng.integers(0, 150, 750)])
    model = LinearClassifier("squared_hinge", alpha=1e-3, random_state=0)
    search = LinearClassifierCV(n_alphas=3, cv=2, random_state=0)
    weights, scores = model.fit(X, y).coef_.copy(), search.fit(X, y % 3).scores_path_.copy()
    pytest.importorskip("ray.util.joblib").register_ray()
    with parallel_config("ray", n_jobs=2):
        np.testing.assert_array_equal(model.fit(X, y).coef_, weights)
        np.testing.assert_array_equal(search.fit(X, y % 3).scores_path_, scores)
