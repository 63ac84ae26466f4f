"""Many independent outputs, a range at a time: the optimum and the certificate of the whole."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import normalize

from helpers import make_data, make_problem
from manyclass import LinearClassifier, LinearRegressor
from manyclass.objective.losses import MultinomialLoss
from manyclass.objective.penalties import ElasticNet
from manyclass.optimize.columns import minimize_columns
from manyclass.optimize.loop import Outcome, minimize
from manyclass.solvers import SDCA, AcceleratedSDCA
from registry import LOSSES

SEPARABLE = [name for name, case in LOSSES.items() if not case.loss.joint]


@pytest.mark.parametrize("name", SEPARABLE)
@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("view", ["csr", "dense"])
def test_ranges_reach_the_optimum_of_the_whole(name, intercept, view):
    case = LOSSES[name]
    data = make_data(case.loss.targets, n=60, d=6, K=11, seed=1, weighted=True)
    problem = make_problem(case.loss, data, view=view, reg=ElasticNet(0.1), intercept=intercept)
    tol = 1e-8 if case.loss.smoothness else 1e-4
    whole = minimize(problem, SDCA(), tol=tol, max_iter=50_000)
    parts = minimize_columns(problem, SDCA(), tol=tol, max_iter=50_000, width=4)
    assert parts.outcome is Outcome.CONVERGED
    assert parts.certificate.relative_gap <= tol
    assert parts.certificate.primal == pytest.approx(whole.certificate.primal, rel=1.1 * tol)
    # The certificate is of these very weights, and the parts' duals bound the whole's optimum.
    assert problem.value(parts.weights, parts.intercept) == pytest.approx(parts.certificate.primal, rel=1e-10)
    assert parts.certificate.dual <= whole.certificate.primal + 1e-12
    assert len(parts.history) == 3


@pytest.mark.parametrize("solver", [SDCA, AcceleratedSDCA])
def test_threads_change_nothing(solver):
    case = LOSSES["squared_hinge"]
    data = make_data("sign", n=80, d=7, K=20, seed=2)
    one, two = (
        minimize_columns(make_problem(case.loss, data, n_threads=n), solver(), tol=1e-6, width=4) for n in (1, 2)
    )
    np.testing.assert_array_equal(one.weights, two.weights)
    assert (one.certificate.primal, one.certificate.dual) == (two.certificate.primal, two.certificate.dual)


def rare(n=400, d=40, K=50, seed=3):
    """Every class is rare: to most rows it is as good as none."""
    rng = np.random.default_rng(seed)
    X = normalize(sp.random(n, d, 0.05, "csr", random_state=rng))
    y = np.arange(n) % K
    return X, y


def test_the_start_from_no_positives_saves_epochs():
    X, y = rare(n=3000, d=300, K=300)
    data = make_data("sign", n=3000, d=300, K=40)
    data = data._replace(X=X.toarray(), T=np.where(y[:, None] == np.arange(40), 1.0, -1.0))
    problem = make_problem(LOSSES["squared_hinge"].loss, data, lam=1e-3)
    cold = minimize(problem, SDCA(), tol=1e-3)
    warm = minimize_columns(problem, SDCA(), tol=1e-3, width=20)
    assert warm.outcome is Outcome.CONVERGED
    assert warm.n_iter < cold.n_iter
    assert warm.certificate.primal == pytest.approx(cold.certificate.primal, rel=2e-3)


def test_an_interrupt_keeps_the_ranges_that_are_done():
    data = make_data("sign", n=60, d=5, K=12, seed=4)
    problem = make_problem(LOSSES["log_loss"].loss, data)
    made = 0

    class Interrupted(SDCA):
        def iterate(self, problem, state, seed):
            nonlocal made
            made += 1
            for progress in super().iterate(problem, state, seed):
                if made == 3:
                    raise KeyboardInterrupt
                yield progress

    whole = minimize_columns(problem, SDCA(), tol=1e-3, width=4)
    with pytest.warns(ConvergenceWarning, match="interrupted.*: 2 of 3 ranges"):
        found = minimize_columns(problem, Interrupted(), tol=1e-3, width=4)
    assert found.outcome is Outcome.INTERRUPTED
    assert np.abs(found.weights[:, :8]).max() > 0
    assert np.abs(found.weights[:, 8:]).max() == 0
    assert found.certificate.primal == pytest.approx(problem.value(found.weights, found.intercept))
    assert found.certificate.dual <= whole.certificate.primal


def test_what_falls_short_is_told_once():
    data = make_data("sign", n=60, d=5, K=12, seed=5)
    problem = make_problem(LOSSES["log_loss"].loss, data, lam=1e-4)
    with pytest.warns(ConvergenceWarning, match=r"3 of 3 ranges of outputs were fitted, 3 of them without") as caught:
        found = minimize_columns(problem, SDCA(), tol=1e-9, max_iter=2, width=4)
    assert len(caught) == 1
    assert found.outcome is Outcome.MAX_ITER
    with pytest.raises(ValueError, match="loss must be separable, got"):
        minimize_columns(make_problem(MultinomialLoss(), make_data("class")), SDCA())


def test_estimators_take_ranges_where_there_are_many_outputs():
    X, y = rare(n=600, K=150)
    model = LinearClassifier("squared_hinge", alpha=1e-3, random_state=0, fit_intercept=False).fit(X, y)
    assert len(model.history_) == 3
    assert model.duality_gap_ <= 1e-3
    assert model.coef_.shape == (150, 40)
    warm = LinearClassifier("squared_hinge", alpha=1e-3, random_state=0, fit_intercept=False, warm_start=True).fit(X, y)
    assert warm.objective_ == pytest.approx(model.objective_, rel=2e-3)
    assert warm.fit(X, y).n_iter_ <= 2
    Y = np.random.default_rng(0).normal(size=(600, 140))
    regression = LinearRegressor(alpha=1e-2, random_state=0).fit(X, Y)
    assert regression.coef_.shape == (140, 40)
    assert regression.duality_gap_ <= 1e-3


def test_an_interrupt_of_the_start_is_heard(monkeypatch):
    data = make_data("sign", n=60, d=5, K=12, seed=4)
    problem = make_problem(LOSSES["squared_hinge"].loss, data)

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(SDCA, "_epoch", interrupted)
    with pytest.warns(ConvergenceWarning, match="interrupted.*: 0 of 3 ranges"):
        found = minimize_columns(problem, SDCA(), width=4)
    assert found.outcome is Outcome.INTERRUPTED
    assert not found.weights.any()
    assert found.certificate.primal == pytest.approx(problem.value(found.weights, found.intercept))


@pytest.mark.parametrize("order", [(0, 4), (4, 0)])
def test_the_whole_ends_as_its_worst_range(order, monkeypatch):
    """Whichever is done last."""
    from manyclass.optimize import columns

    ends = {0: Outcome.MAX_ITER, 4: Outcome.PRECISION}
    data = make_data("sign", n=40, d=5, K=8, seed=6)
    problem = make_problem(LOSSES["log_loss"].loss, data)
    whole = columns.minimize
    upcoming = iter(order)

    def ended(*args, **options):
        found = whole(*args, **options)
        return columns.replace(found, outcome=ends[next(upcoming)]) if found.weights.shape[1] == 4 else found

    monkeypatch.setattr(columns, "minimize", ended)
    monkeypatch.setattr(columns, "ranges", lambda n, size: [(lo, lo + 4) for lo in order])
    with pytest.warns(ConvergenceWarning, match="max_iter was reached"):
        assert minimize_columns(problem, SDCA(), width=4).outcome is Outcome.MAX_ITER
