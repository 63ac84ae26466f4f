"""``manyclass.distributed.dask.fit`` on the workers of a local cluster."""

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

from manyclass import DSMLR, LinearClassifier, LinearClassifierCV, LinearRegressor, OutOfCore, load
from manyclass.distributed import PeerLostError
from manyclass.distributed.dask import fit

distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")

# What the library of the cluster itself warns of, here and there.
pytestmark = [
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore:Sending large graph:UserWarning"),
]


@pytest.fixture(scope="module")
def rows():
    X, y = load_digits(return_X_y=True)
    return (X / 16)[:900], y[:900]


def cluster(size=2, processes=True):
    return distributed.LocalCluster(
        n_workers=size, threads_per_worker=1, processes=processes, dashboard_address=":0", memory_limit=None
    )


@pytest.fixture(scope="module")
def client():
    with cluster() as made, distributed.Client(made) as found:
        yield found


def model(**parameters):
    return LinearClassifier(**{"alpha": 1e-3, "tol": 1e-4, "random_state": 0, **parameters})


@pytest.mark.parametrize("kind", ["dense", "sparse", "columns", "futures"])
def test_it_fits_what_one_process_fits(client, rows, kind):
    X, y = rows
    chunked, labels = da.from_array(X, chunks=(200, 64)), da.from_array(y, chunks=200)
    if kind == "sparse":
        chunked = chunked.map_blocks(sp.csr_matrix)
    elif kind == "columns":  # blocks of columns, and other blocks of rows
        chunked, labels = da.from_array(X, chunks=(300, 20)), da.from_array(y, chunks=450)
    elif kind == "futures":
        chunked, labels = (client.scatter([part[:500], part[500:]]) for part in rows)
    given = model(dtype="float64", fit_intercept=True)
    found = fit(given, chunked, labels, client=client)
    expected = model(dtype="float64", fit_intercept=True, solver="ds_mlr").fit(X, y)
    assert not hasattr(given, "model_")
    assert found.get_params() == given.get_params()
    assert found.objective_ == pytest.approx(expected.objective_, rel=2e-4)
    assert found.duality_gap_ <= 1e-4
    assert np.mean(found.predict(X) == expected.predict(X)) > 0.99


@pytest.mark.parametrize("saved", [False, True])
def test_crammer_singer_has_a_solver_of_its_own(client, rows, saved, tmp_path):
    X, y = rows
    X, y = X[:300], y[:300]
    given = {"loss": "crammer_singer", "alpha": 0.1, "tol": 1e-3, "fit_intercept": False}
    path = tmp_path / "model" if saved else None
    found = fit(model(**given), *spread(client, (X, y)), client=client, path=path)
    expected = model(**given).fit(X, y)
    assert found.solver_ == "sdca_dp"
    assert found.objective_ == pytest.approx(expected.objective_, rel=2e-3)
    assert np.mean(found.predict(X) == expected.predict(X)) > 0.99
    assert not saved or load(path).predict(X).tolist() == found.predict(X).tolist()


def test_rows_stay_where_they_are(client, rows):
    """Nothing but headers, blocks of classes and the result leaves a worker."""
    X, y = rows
    wide = np.tile(X, (4, 40))
    chunked = client.persist(da.from_array(wide, chunks=(900, -1)))
    labels = client.persist(da.from_array(np.tile(y, 4), chunks=900))
    distributed.wait([chunked, labels])
    before = client.who_has(chunked)

    def sent(dask_worker):
        return dask_worker.transfer_outgoing_bytes_total

    sizes = client.run(sent)
    fit(model(solver=DSMLR(), max_iter=2, tol=0.5), chunked, labels, client=client)
    assert client.who_has(chunked) == before
    assert sum(client.run(sent).values()) - sum(sizes.values()) < wide.nbytes / 8


def test_data_frames_weights_and_labels_that_are_words(client, rows):
    pandas = pytest.importorskip("pandas")
    dd = pytest.importorskip("dask.dataframe")
    X, y = rows
    frame = pandas.DataFrame(X, columns=[f"pixel{i}" for i in range(64)])
    words = pandas.Series(np.array(list("abcdefghij"))[y])
    weights = pandas.Series(1.0 + (y == 3))
    parts = (dd.from_pandas(part, npartitions=3) for part in (frame, words, weights))
    found = fit(model(dtype="float64"), *parts, client=client)
    expected = model(dtype="float64", solver="ds_mlr").fit(frame, words, weights)
    assert found.classes_.tolist() == list("abcdefghij")
    assert found.feature_names_in_.tolist() == frame.columns.tolist()
    assert found.objective_ == pytest.approx(expected.objective_, rel=1e-3)


def test_each_worker_writes_its_classes(client, rows, tmp_path):
    X, y = rows
    solver = DSMLR(block_classes=2)
    found = fit(model(solver=solver), *spread(client, rows), client=client, path=tmp_path / "model")
    assert type(found.model_).__name__ == "ShardedModel"
    assert len(found.model_.blocks) == 5
    found.model_.verify()
    expected = model(solver="ds_mlr").fit(X, y)
    assert np.mean(found.predict(X) == expected.predict(X)) > 0.99
    blocks = da.from_array(X, chunks=(300, -1)).map_blocks(found.predict, drop_axis=1, dtype=y.dtype)
    assert np.array_equal(blocks.compute(), found.predict(X))
    with pytest.raises(ValueError, match="path must not exist"):
        fit(model(), *spread(client, rows), client=client, path=tmp_path / "model")


def long_fit():
    return model(solver=DSMLR(algorithm="stochastic"), tol=0.0, max_iter=10**6)


def spread(client, rows):
    """A part of the rows on each worker: lists of futures."""
    workers = sorted(client.nthreads())
    cuts = [len(rows[1]) * i // len(workers) for i in range(len(workers) + 1)]
    return [
        [client.scatter(part[lo:hi], workers=[w]) for lo, hi, w in zip(cuts[:-1], cuts[1:], workers)] for part in rows
    ]


def two(rows):
    X, y = rows
    return da.from_array(X, chunks=(450, -1)), da.from_array(y, chunks=450)


def test_workers_of_one_process_and_a_worker_without_rows(rows):
    X, y = rows
    with cluster(3, processes=False) as made, distributed.Client(made) as client:
        found = fit(model(), *two(rows), client=client)
        assert found.score(X, y) > 0.95
        one = fit(model(), da.from_array(X, chunks=(-1, -1)), da.from_array(y, chunks=-1), client=client)
        assert one.score(X, y) > 0.95
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("manyclass")]


@pytest.mark.parametrize(
    ("change", "error", "needle"),
    [
        (lambda X, y: (LinearRegressor(), X, y), TypeError, "must be a LinearClassifier, got LinearRegressor"),
        (lambda X, y: (model(solver="sdca"), X, y), ValueError, "got 'sdca': give 'ds_mlr'"),
        (lambda X, y: (model(solver="log_concavity"), X, y), ValueError, "got 'log_concavity': give 'ds_mlr'"),
        (lambda X, y: (model(solver=OutOfCore("m")), X, y), ValueError, "got 'out_of_core': give 'ds_mlr'"),
        (lambda X, y: (model(alpha=-1.0), X, y), ValueError, "'alpha' parameter of LinearClassifier"),
        (lambda X, y: (model(), X.compute(), y), TypeError, "X must be a Dask array.*, got ndarray"),
        (lambda X, y: (model(), X, y.to_delayed().tolist()[:1]), ValueError, "the same partitions, got 2 and 1"),
        (lambda X, y: (model(), X, da.from_array(y.compute()[:800], chunks=400)), ValueError, "inconsistent|chunks"),
        (lambda X, y: (model(), X.map_blocks(lambda part: part * np.nan), y), ValueError, "NaN"),
        (lambda X, y: (model(), X.map_blocks(lambda part: 1 // 0, dtype=float), y), ZeroDivisionError, "zero"),
    ],
)
def test_what_is_wrong_is_an_error_here(client, rows, change, error, needle):
    estimator, X, y = change(*two(rows))
    with pytest.raises(error, match=needle):
        fit(estimator, X, y, client=client)


def test_without_a_client_the_error_says_how_to_make_one(rows, monkeypatch):
    def none():
        raise ValueError("No global client found")

    monkeypatch.setattr(distributed, "get_client", none)
    with pytest.raises(ValueError, match=r"create one, as in client = distributed\.Client\(\)"):
        fit(model(), *two(rows))


def test_a_failure_on_one_worker_is_the_error(client, rows):
    """Not that of the others, which is its consequence; and the workers are of use afterwards."""
    X, y = spread(client, rows)
    wrong = [X[0], client.submit(lambda part: part[:-1], X[1])]
    with pytest.raises(ValueError, match=r"inconsistent numbers of samples"):
        fit(model(), wrong, y, client=client)
    assert fit(model(), X, y, client=client).score(*rows) > 0.95


def await_fit(client):
    """Wait until a fit runs on both workers, and its first iterations are done."""
    for _ in range(600):
        if sum("manyclass-fit" in str(keys) for keys in client.processing().values()) == 2:
            time.sleep(2.0)
            return True
        time.sleep(0.05)
    return False


def test_a_worker_that_is_killed_ends_the_fit(rows):
    with cluster() as made, distributed.Client(made) as client:
        fit(model(), *spread(client, rows), client=client)  # what is imported and compiled takes long
        victim = sorted(client.run(os.getpid).items())[1]

        def kill():
            if await_fit(client):
                os.kill(victim[1], signal.SIGKILL)

        killer = threading.Thread(target=kill)
        killer.start()
        begun = time.monotonic()
        with pytest.raises(PeerLostError, match=rf"the worker {victim[0]}, was lost: .*connection to rank 1"):
            fit(long_fit(), *spread(client, rows), client=client)
        assert time.monotonic() - begun < 60
        killer.join()


def test_a_worker_that_is_killed_before_the_workers_are_connected_ends_the_fit(rows):
    with cluster() as made, distributed.Client(made) as client:
        (_, victim), *_ = sorted(client.run(os.getpid).items())
        X, y = spread(client, rows)

        class Late(LinearClassifier):
            """On its way to one worker, it kills that."""

            def __setstate__(self, state):
                if os.getpid() == victim:
                    os.kill(victim, signal.SIGKILL)
                self.__dict__.update(state)

        with pytest.raises(PeerLostError, match=r"rank 0, the worker \S+, was lost"):
            fit(Late(alpha=1e-3), X, y, client=client)


def test_an_interrupt_ends_the_fit_with_the_model_reached(client, rows):
    """Ctrl-C in a notebook."""

    def interrupt():
        if await_fit(client):
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)

    interrupting = threading.Thread(target=interrupt)
    interrupting.start()
    found = fit(long_fit(), *spread(client, rows), client=client)
    interrupting.join()
    assert found.history_.outcome == "interrupted"
    assert found.score(*rows) > 0.5


def test_the_backend_of_joblib_fits_classes_and_folds_with_the_same_bits():
    rng = np.random.default_rng(0)
    X = sp.random(900, 60, 0.2, format="csr", random_state=0)
    y = np.concatenate([np.arange(150), rng.integers(0, 150, 750)])
    model = LinearClassifier("squared_hinge", alpha=1e-3, random_state=0)
    search = LinearClassifierCV(n_alphas=3, cv=2, random_state=0)
    weights, scores = model.fit(X, y).coef_.copy(), search.fit(X, y % 3).scores_path_.copy()
    with cluster() as workers, distributed.Client(workers), parallel_config("dask"):
        np.testing.assert_array_equal(model.fit(X, y).coef_, weights)
        np.testing.assert_array_equal(search.fit(X, y % 3).scores_path_, scores)
