"""``fit(checkpoint=)``: a fit that was stopped goes on, with every solver."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_diabetes, load_digits
from sklearn.exceptions import ConvergenceWarning

from manyclass import (
    DSMLR,
    SDCA,
    SGD,
    ActiveSetSDCA,
    BoundMajorization,
    CrammerSinger,
    LinearClassifier,
    LinearRegressor,
    Memoir,
    OutOfCore,
)
from manyclass.io.store import RowStore, write_store
from manyclass.solvers import SOLVERS, Solver
from registry import SOLVERS as IN_MEMORY

#: The loss of a solver, where it does not take the default.
LOSS_OF: dict[str, Any] = {
    "sdca_active": "crammer_singer",
    "sdca_dp": "crammer_singer",
    "cd": "log_loss",
    "interior_point": "hinge",
    "memoir": CrammerSinger(gamma=0),
}

#: Every solver, and parameters of some that change what is to be kept.
CASES: dict[str, Solver] = {
    **IN_MEMORY,
    "sdca-uniform": SDCA(sampling="uniform"),
    "sdca_active-lsh": ActiveSetSDCA(search="lsh"),
    "sdca_active-sparse": ActiveSetSDCA(storage="sparse"),
    "sgd-average": SGD(average=True),
    "bound-batch": BoundMajorization(stochastic=False),
    "bound-low rank": BoundMajorization(rank=4),
    "bound-literal": BoundMajorization(schedule="literal", eta=0.5),
    "ds_mlr-stochastic": DSMLR(algorithm="stochastic"),
    "ds_mlr-two workers": DSMLR(n_workers=2),
    "ds_mlr-queue": DSMLR(n_workers=2, schedule="queue"),
    "memoir-last": Memoir(average=False),
    "memoir-lsh": Memoir(search="lsh"),
}


@pytest.fixture(scope="module")
def rows():
    X, y = load_digits(return_X_y=True)
    return sp.csr_matrix(X[:300] / 16.0), y[:300]


def model_of(case: str, **parameters: Any) -> LinearClassifier:
    solver = CASES[case]
    return LinearClassifier(
        LOSS_OF.get(solver.name, "multinomial"), solver=solver, alpha=1e-3, random_state=0
    ).set_params(**parameters)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("stops", [(1, 3), (3,)], ids=["after 1 and 3", "after 3"])
@pytest.mark.parametrize("case", CASES)
def test_a_fit_that_was_stopped_goes_on(rows, tmp_path, case, stops):
    X, y = rows
    path = tmp_path / "fit.ckpt"
    # No tolerance is met in six iterations: what has been done by then is compared, and the last certificate.
    whole = model_of(case, tol=0.0, max_iter=6).fit(X, y)
    for stop in stops:
        part = model_of(case, tol=0.0, max_iter=stop).fit(X, y, checkpoint=path, checkpoint_seconds=0.0)
        assert path.exists()
    assert part.n_iter_ == 3
    rest = model_of(case, tol=0.0, max_iter=6).fit(X, y, checkpoint=path)
    assert rest.n_iter_ == 6
    assert rest.solver_ == whole.solver_
    assert rest.history_.last.iteration == 6
    # To begin again may cost a pass; it is counted.
    assert rest.history_.last.passes >= whole.history_.last.passes
    if CASES[case].reproducible:
        np.testing.assert_array_equal(rest.coef_, whole.coef_)
        np.testing.assert_array_equal(rest.intercept_, whole.intercept_)
        np.testing.assert_equal(rest.objective_, whole.objective_)
        np.testing.assert_equal(rest.duality_gap_, whole.duality_gap_)
    elif CASES[case].certified:
        assert rest.history_.last.dual <= whole.objective_
        assert whole.history_.last.dual <= rest.objective_


def no_iteration(*_):
    """What a solver whose run is finished is not asked for."""
    pytest.fail("an iteration")
    yield


@pytest.mark.parametrize("case", [name for name, solver in CASES.items() if solver.certified])
def test_the_checkpoint_of_a_finished_fit_goes_when_the_model_is_saved(rows, tmp_path, case, monkeypatch):
    X, y = rows
    path, saved = tmp_path / "fit.ckpt", tmp_path / "model"
    parameters = {"alpha": 0.1, "tol": 0.05, "max_iter": 2000}
    with pytest.warns(ConvergenceWarning, match="max_iter was reached"):
        part = model_of(case, **{**parameters, "tol": 1e-14, "max_iter": 1}).fit(X, y, checkpoint=path)
    part.save(saved)
    assert path.exists()  # of a fit that may go on
    model = model_of(case, **parameters).fit(X, y, checkpoint=path, checkpoint_seconds=0.0)
    assert model.duality_gap_ <= 0.05
    assert path.exists()
    # A process that is killed here has lost nothing: the next one has the model at once.
    monkeypatch.setattr(type(CASES[case]), "iterate", no_iteration)
    again = model_of(case, **parameters).fit(X, y, checkpoint=path)
    np.testing.assert_array_equal(again.coef_, model.coef_)
    np.testing.assert_array_equal(again.intercept_, model.intercept_)
    assert (again.n_iter_, again.duality_gap_) == (model.n_iter_, model.duality_gap_)
    assert again.history_.outcome == "converged"
    again.save(saved)
    assert list(tmp_path.iterdir()) == [saved]
    again.save(saved)


def test_the_checkpoint_stays_where_the_model_cannot_be_saved(rows, tmp_path):
    X, y = rows
    path = tmp_path / "fit.ckpt"
    model = model_of("sdca", alpha=0.1, tol=0.05).fit(X, y, checkpoint=path)
    with pytest.raises(OSError, match="nowhere"):
        model.save(tmp_path / "nowhere" / "model")
    assert path.exists()
    model.save(tmp_path / "model")
    assert not path.exists()


def test_memoir_leaves_its_checkpoint_to_go_on_from(rows, tmp_path):
    X, y = rows
    path = tmp_path / "fit.ckpt"
    first = model_of("memoir", max_iter=2).fit(X, y, checkpoint=path)
    first.save(tmp_path / "model")
    second = model_of("memoir", max_iter=4).fit(X, y, checkpoint=path)
    assert (first.n_iter_, second.n_iter_) == (2, 4)
    assert [record.info["loss"] for record in second.history_][:2] == [record.info["loss"] for record in first.history_]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_another_fit_is_refused(rows, tmp_path):
    X, y = rows
    path = tmp_path / "fit.ckpt"
    parameters = {"tol": 0.0, "max_iter": 2}
    model_of("sdca", **parameters).fit(X, y, checkpoint=path)
    weights = np.linspace(0.5, 1.5, len(y))
    for model, data, more in (
        (model_of("sdca", alpha=1e-2), (X, y), {}),
        (model_of("sdca", random_state=1), (X, y), {}),
        (model_of("sdca", l1_ratio=0.5), (X, y), {}),
        (model_of("sdca", fit_intercept=False), (X, y), {}),
        (model_of("sdca", dtype=np.float32), (X, y), {}),
        (model_of("sdca", loss="softmax_hinge"), (X, y), {}),
        (model_of("sdca-uniform"), (X, y), {}),
        (model_of("accelerated"), (X, y), {}),
        (model_of("sdca"), (X, (y + 1) % 10), {}),
        (model_of("sdca"), (X * 0.5, y), {}),
        (model_of("sdca"), (X[:-1], y[:-1]), {}),
        (model_of("sdca"), (X, y), {"sample_weight": weights}),
    ):
        with pytest.raises(ValueError, match=r"checkpoint .*fit\.ckpt belongs to another run.*same data, parameters"):
            model.set_params(**parameters).fit(*data, checkpoint=path, **more)
    # What does not change the problem may change.
    found = model_of("sdca", tol=0.5, max_iter=5, n_jobs=2, verbose=0).fit(X, y, checkpoint=path)
    assert found.history_.outcome == "converged"
    path.write_bytes(b"no checkpoint")
    with pytest.raises(ValueError, match="cannot be read"):
        model_of("sdca").fit(X, y, checkpoint=path)


class Interrupted(SDCA):
    """Ctrl-C within the third epoch."""

    def _epoch(self, epoch, state, order, live):
        if int(state["iteration"]) == 2:
            super()._epoch(epoch, state, order[:50], live)
            raise KeyboardInterrupt
        super()._epoch(epoch, state, order, live)


def test_an_interrupted_fit_goes_on(rows, tmp_path, monkeypatch):
    X, y = rows
    path = tmp_path / "fit.ckpt"
    with monkeypatch.context() as patch:
        patch.setitem(SOLVERS, "sdca", Interrupted)
        model = model_of("sdca", solver="sdca", tol=1e-6, max_iter=500)
        with pytest.warns(ConvergenceWarning, match="interrupted"):
            model.fit(X, y, checkpoint=path)
    assert model.history_.outcome == "interrupted"
    assert model.n_iter_ == 2
    assert path.exists()
    found = model_of("sdca", tol=1e-6, max_iter=500).fit(X, y, checkpoint=path)
    whole = model_of("sdca", tol=1e-6, max_iter=500).fit(X, y)
    assert found.duality_gap_ <= 1e-6
    assert found.objective_ == pytest.approx(whole.objective_, rel=2e-6)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("solver", ["auto", "sdca", "accelerated", "lbfgs"])
def test_a_regressor_goes_on(tmp_path, solver):
    X, y = load_diabetes(return_X_y=True)
    path = tmp_path / "fit.ckpt"
    model = LinearRegressor(solver=solver, alpha=1e-4, tol=0.0, random_state=0)
    whole = model.set_params(max_iter=5).fit(X, y).coef_.copy()
    model.set_params(max_iter=2).fit(X, y, checkpoint=path)
    rest = model.set_params(max_iter=5).fit(X, y, checkpoint=str(path))
    np.testing.assert_array_equal(rest.coef_, whole)
    assert rest.n_iter_ == 5


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_many_outputs_are_kept_as_a_whole(rows, tmp_path):
    """Without a checkpoint they are fitted a range at a time, which keeps no state."""
    X, _ = rows
    y = np.arange(300) % 140
    path = tmp_path / "fit.ckpt"
    args = {"loss": "squared_hinge", "fit_intercept": False, "alpha": 1e-2, "random_state": 0}
    LinearClassifier(max_iter=2, tol=0.0, **args).fit(X, y, checkpoint=path)
    assert path.exists()
    found = LinearClassifier(tol=1e-3, max_iter=500, **args).fit(X, y, checkpoint=path)
    assert found.duality_gap_ <= 1e-3
    assert found.objective_ == pytest.approx(LinearClassifier(**args).fit(X, y).objective_, rel=2e-3)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("case", ["sdca", "ds_mlr", "memoir"])  # the last two have a column for each of the classes
def test_two_classes_go_on(rows, tmp_path, case):
    X, y = rows
    X, y = X[y < 2], y[y < 2]
    path = tmp_path / "fit.ckpt"
    whole = model_of(case, tol=0.0, max_iter=3).fit(X, y)
    model_of(case, tol=0.0, max_iter=1).fit(X, y, checkpoint=path)
    rest = model_of(case, tol=0.0, max_iter=3).fit(X, y, checkpoint=path)
    np.testing.assert_array_equal(rest.coef_, whole.coef_)
    assert rest.coef_.shape == (1, 64)


@pytest.mark.parametrize("options", [{}, {"early_stopping": True}, {"alpha": "auto"}], ids=["plain", "early", "auto"])
@pytest.mark.parametrize("make", [LinearClassifier, LinearRegressor])
def test_a_fit_without_a_seed_goes_on_with_that_of_its_checkpoint(tmp_path, make, options):
    X, y = load_digits(return_X_y=True)
    options = {"alpha": 1e-4, "solver": "sdca", "tol": 1e-6, "max_iter": 1000, **options}
    path = tmp_path / "run"
    np.random.seed(1)  # noqa: NPY002 - what fits without a random_state draw from
    first = make(**options).fit(X / 16, y, checkpoint=path, callback=lambda progress: progress.iteration == 2)
    whole = make(**options).fit(X / 16, y, checkpoint=path)
    assert first.n_iter_ == 2 < whole.n_iter_
    assert whole.alpha_ == first.alpha_
    assert whole.history_[0].numbers()[:3] == pytest.approx(first.history_[0].numbers()[:3], rel=1e-9)
    with pytest.raises(ValueError, match="belongs to another run"):
        make(**options, random_state=0).fit(X / 16, y, checkpoint=path)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_a_fit_of_a_store_without_a_seed_goes_on(tmp_path):
    X, y = load_digits(return_X_y=True)
    write_store(tmp_path / "store", (X / 16).astype(np.float32), y, shard_rows=500)
    store = RowStore(tmp_path / "store")
    model = LinearClassifier(solver=OutOfCore(tmp_path / "blocks", block_classes=4), tol=1e-9, max_iter=2)
    first = model.fit(store, checkpoint=tmp_path / "run").history_.last
    model.set_params(max_iter=4).fit(store, checkpoint=tmp_path / "run")
    assert [record.iteration for record in model.history_] == [2, 4]
    assert model.history_[0].numbers()[2] == first.numbers()[2]
