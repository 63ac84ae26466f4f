"""Parameters: losses and solvers as objects, defaults that depend on the data, and answers to unknown words."""

from __future__ import annotations

import inspect
import pickle
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.datasets import load_diabetes, load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils import estimator_html_repr

import helpers
from manyclass import (
    DSMLR,
    LBFGS,
    SDCA,
    AcceleratedSDCA,
    ActiveSetSDCA,
    BoundMajorization,
    CrammerSinger,
    Huber,
    LinearClassifier,
    LinearClassifierCV,
    LinearRegressor,
    LinearRegressorCV,
    Memoir,
    Multinomial,
    StagewiseRegressor,
)
from manyclass.distributed import ThreadCommunicator, run_threads
from manyclass.objective.losses import CLASSIFICATION, REGRESSION
from manyclass.objective.penalties import L2
from manyclass.solvers import SOLVERS

COMPONENTS = {**CLASSIFICATION, **REGRESSION, **SOLVERS}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X[:400] / 16.0, y[:400]


@pytest.fixture(scope="module")
def iris():
    X, y = load_iris(return_X_y=True)
    return StandardScaler().fit_transform(X), y


# --- losses and solvers as objects ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COMPONENTS)
def test_a_component_is_as_scikit_learn_wants_it(name):
    made = COMPONENTS[name]()
    made.check()
    parameters = made.get_params()
    copy = clone(made)
    assert copy is not made
    assert type(copy) is type(made)
    assert copy.get_params() == parameters
    assert repr(made) == f"{type(made).__name__}()"
    assert type(made).__name__ in estimator_html_repr(made)
    assert pickle.loads(pickle.dumps(made)).get_params() == parameters
    assert made.set_params(**parameters) is made
    with pytest.raises(ValueError, match="Invalid parameter 'colour'"):
        made.set_params(colour="red")
    # Every parameter has a constraint, so that a wrong value is refused whatever it is.
    assert set(type(made)._parameter_constraints) == set(parameters)
    for parameter in parameters:
        with pytest.raises(ValueError, match=f"The '{parameter}' parameter of {type(made).__name__} must be"):
            clone(made).set_params(**{parameter: object()}).check()


def test_a_name_is_the_object_with_its_defaults(digits):
    X, y = digits
    for loss in ("multinomial", "crammer_singer"):
        for solver in ("sdca", "accelerated", "lbfgs"):
            args = {"alpha": 0.1, "tol": 0.05, "random_state": 0}
            named = LinearClassifier(loss, solver=solver, **args).fit(X, y)
            given = LinearClassifier(CLASSIFICATION[loss](), solver=SOLVERS[solver](), **args).fit(X, y)
            np.testing.assert_array_equal(named.coef_, given.coef_)
            assert named.solver_ == given.solver_ == solver


def test_nested_parameters_are_read_written_and_cloned():
    model = LinearClassifier(CrammerSinger(gamma=0.5), solver=SDCA(option="II"))
    parameters = model.get_params()
    assert parameters["loss__gamma"] == 0.5
    assert parameters["solver__option"] == "II"
    assert parameters["solver__sampling"] == "auto"
    copy = clone(model)
    assert copy.loss is not model.loss
    assert copy.solver is not model.solver
    copy.set_params(loss__gamma=0.25, solver__sampling="uniform", alpha=0.1)
    assert (copy.loss.gamma, copy.solver.sampling, copy.alpha) == (0.25, "uniform", 0.1)
    assert (model.loss.gamma, model.solver.sampling, model.alpha) == (0.5, "auto", None)
    # A part as a whole, and then a parameter of it, as scikit-learn orders them.
    copy.set_params(solver=AcceleratedSDCA(), solver__option="III")
    assert repr(copy.solver) == "AcceleratedSDCA(option='III')"
    with pytest.raises(ValueError, match="Invalid parameter 'depth' for estimator"):
        copy.set_params(solver__depth=3)


def test_estimators_show_the_parameters_of_their_parts():
    model = LinearClassifier(CrammerSinger(gamma=0.5), solver=SDCA(option="II"), alpha=1e-2)
    shown = " ".join(repr(model).split())
    assert shown == "LinearClassifier(alpha=0.01, loss=CrammerSinger(gamma=0.5), solver=SDCA(option='II'))"
    assert repr(LinearRegressor(Huber(epsilon=2.0))) == "LinearRegressor(loss=Huber(epsilon=2.0))"
    for shown in (estimator_html_repr(model), estimator_html_repr(make_pipeline(StandardScaler(), model))):
        for part in ("LinearClassifier", "CrammerSinger", "SDCA", "gamma", "option"):
            assert part in shown
    assert "LinearClassifierCV" in estimator_html_repr(LinearClassifierCV(CrammerSinger()))


@pytest.mark.parametrize("search", [LinearClassifier, LinearClassifierCV])
def test_a_fit_leaves_the_objects_alone(digits, search):
    X, y = digits
    loss, solver = CrammerSinger(gamma=0.5), ActiveSetSDCA(search="lsh", epochs=3)
    more = {"alphas": [0.1], "cv": 2} if search is LinearClassifierCV else {"alpha": 0.1}
    model = search(loss, solver=solver, max_iter=200, tol=0.05, random_state=0, **more)
    state = vars(loss).copy(), vars(solver).copy()
    model.fit(X, y)
    assert model.loss is loss
    assert model.solver is solver
    assert (vars(loss), vars(solver)) == state
    assert model.model_.parameters["solver__epochs"] == 3
    assert model.model_.parameters["loss__gamma"] == 0.5
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    assert again.get_params()["solver__epochs"] == 3
    # One object serves several estimators, and another fit of the same is the same.
    np.testing.assert_array_equal(search(loss, solver=solver, **_common(model)).fit(X, y).coef_, model.coef_)


def _common(model: Any) -> dict[str, Any]:
    return {name: value for name, value in model.get_params(deep=False).items() if name not in ("loss", "solver")}


def test_a_grid_reaches_into_losses_and_solvers(digits):
    X, y = digits
    model = LinearClassifier(CrammerSinger(), solver=SDCA(), alpha=1e-2, tol=1e-2, random_state=0)
    search = GridSearchCV(model, {"solver__option": ["I", "II"], "loss__gamma": [0.1, 1.0]}, cv=2).fit(X, y)
    assert len(search.cv_results_["params"]) == 4
    best = search.best_estimator_
    assert (best.solver.option, best.loss.gamma) == tuple(
        search.best_params_[name] for name in ("solver__option", "loss__gamma")
    )
    assert best.score(X, y) > 0.9
    assert (model.solver.option, model.loss.gamma) == ("I", 0.1)
    whole = {"loss": ["multinomial", CrammerSinger(gamma=1.0)], "solver": ["sdca", LBFGS(history_size=5)]}
    search = GridSearchCV(clone(model), whole, cv=2).fit(X, y)
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    pipe = make_pipeline(StandardScaler(), clone(model))
    assert GridSearchCV(pipe, {"linearclassifier__loss__gamma": [0.1, 1.0]}, cv=2).fit(X, y).best_score_ > 0.8


def test_a_clone_talks_to_the_same_ranks():
    def job(comm: ThreadCommunicator) -> bool:
        return clone(LinearClassifier(solver=DSMLR(comm=comm))).solver.comm is comm

    assert run_threads(2, job) == [True, True]


# --- alpha=None -------------------------------------------------------------------------------------------------------


def objective(formula: helpers.Formula, data: helpers.Data, W: Any, b: Any) -> float:
    """What scikit-learn minimizes with C = 1, over the sum of the weights."""
    total = len(data.X) if data.weights is None else data.weights.sum()
    return helpers.objective(formula, data, L2(), 1.0 / total, W, b)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("solver", ["auto", "bound"])
def test_no_alpha_is_scikit_learns_c_of_one(iris, weighted, classes, solver):
    X, y = iris
    X, y = X[y < classes], y[y < classes]
    weights = np.random.default_rng(0).choice([0.5, 1.0, 3.0], len(y)) if weighted else None
    args = {"tol": 1e-8, "max_iter": 20_000, "random_state": 0, "solver": solver}
    ours = LinearClassifier(**args).fit(X, y, sample_weight=weights)
    expected = 1.0 / (len(y) if weights is None else weights.sum())
    assert ours.alpha is None
    assert ours.alpha_ == pytest.approx(expected, rel=1e-14)
    assert ours.model_.parameters["alpha"] == ours.alpha_
    same = LinearClassifier(alpha=ours.alpha_, **args).fit(X, y, sample_weight=weights)
    np.testing.assert_array_equal(ours.coef_, same.coef_)
    theirs = LogisticRegression(C=1.0, tol=1e-9, max_iter=10_000).fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-3)
    if classes == 3:
        data, formula = helpers.Data(X, y, 3, weights), helpers.multinomial
    else:
        data, formula = helpers.Data(X, np.where(y, 1.0, -1.0)[:, None], 1, weights), helpers.log_loss
    own = objective(formula, data, ours.coef_.T, ours.intercept_)
    assert own == pytest.approx(objective(formula, data, theirs.coef_.T, theirs.intercept_), rel=1e-7)
    assert ours.objective_ == pytest.approx(own, rel=1e-9)


def test_no_alpha_counts_class_weights_as_scikit_learn_does(iris):
    X, y = iris
    by_class = {0: 1.0, 1: 2.0, 2: 4.0}
    ours = LinearClassifier(class_weight=by_class, tol=1e-8, max_iter=20_000, random_state=0).fit(X, y)
    assert ours.alpha_ == pytest.approx(1 / 350)
    theirs = LogisticRegression(C=1.0, class_weight=by_class, tol=1e-9, max_iter=10_000).fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=2e-3)


def test_no_alpha_of_a_regressor_is_ridge_of_one():
    X, y = load_diabetes(return_X_y=True)
    weights = np.random.default_rng(0).choice([0.5, 1.0, 3.0], len(y))
    for given in (None, weights):
        ours = LinearRegressor(tol=1e-10, max_iter=20_000, random_state=0).fit(X, y, sample_weight=given)
        assert ours.alpha_ == pytest.approx(1 / (len(y) if given is None else given.sum()))
        theirs = Ridge(alpha=1.0).fit(X, y, sample_weight=given)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=1e-3)


def test_no_alpha_follows_the_rows(iris):
    X, y = iris
    model = LinearClassifier(random_state=0)
    assert model.fit(X, y).alpha_ == 1 / 150
    assert model.fit(X[::2], y[::2]).alpha_ == 1 / 75


# --- fit_intercept="auto" ---------------------------------------------------------------------------------------------


def many(n_classes: int) -> tuple[Any, Any]:
    """Sparse rows, two of each class, and forty more of the first one: classes that have intercepts of their own."""
    y = np.concatenate([np.arange(n_classes), np.arange(n_classes), np.zeros(40, int)])
    return sp.random(len(y), 30, 0.1, "csr", random_state=0), y


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("form", ["sparse", "dense"])
@pytest.mark.parametrize("loss", ["multinomial", "crammer_singer", "squared_hinge"])
def test_sparse_rows_of_very_many_classes_get_no_intercept(loss, form):
    for n_classes in (999, 1000):
        X, y = many(n_classes)
        X = X if form == "sparse" else X.toarray()
        args = {"alpha": 0.1, "max_iter": 2, "random_state": 0}
        without = form == "sparse" and n_classes >= 1000
        model = LinearClassifier(loss, **args).fit(X, y)
        assert model.intercept_.any() != without
        said = LinearClassifier(loss, fit_intercept=not without, **args).fit(X, y)
        np.testing.assert_array_equal(model.coef_, said.coef_)
        np.testing.assert_array_equal(model.intercept_, said.intercept_)
    assert LinearClassifier(loss, fit_intercept=True, **args).fit(X, y).intercept_.any()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_label_sets_count_as_classes():
    X, y = many(1000)
    Y = sp.csr_matrix((np.ones(len(y), int), (np.arange(len(y)), y)))
    for labels, without in ((Y, True), (Y[:, :999], False)):
        model = LinearClassifier("squared_hinge", alpha=0.1, max_iter=2, random_state=0).fit(X, labels)
        assert model.intercept_.any() != without


def test_a_solver_that_fits_no_intercept_is_not_asked_for_one(digits):
    X, y = digits
    args = {"loss": CrammerSinger(gamma=0), "solver": "memoir", "alpha": 1e-4, "max_iter": 2, "random_state": 0}
    assert not LinearClassifier(**args).fit(X, y).intercept_.any()
    with pytest.raises(ValueError, match=r"solver 'memoir' fits no intercept, got .*: give fit_intercept=False"):
        LinearClassifier(fit_intercept=True, **args).fit(X, y)


def test_a_regressor_has_an_intercept():
    X, y = load_diabetes(return_X_y=True)
    for rows in (X, sp.csr_matrix(X)):
        assert LinearRegressor(random_state=0).fit(rows, y).intercept_ == pytest.approx(152.1, abs=1)
    assert LinearRegressor(fit_intercept=False, random_state=0).fit(X, y).intercept_ == 0


# --- words of other libraries -----------------------------------------------------------------------------------------

UNKNOWN = [
    ({"C": 1.0}, r"has no parameter 'C': here it is alpha: C is 1 / \(alpha \* n_samples\), and alpha=None is C=1\."),
    ({"penalty": "l1"}, "has no parameter 'penalty': here it is l1_ratio: 0 is l2, 1 is l1"),
    ({"multi_class": "ovr"}, "here it is loss: 'multinomial' is softmax regression, 'log_loss' one-vs-rest"),
    ({"gamma": 0.1}, r"an object for the loss, such as loss=CrammerSinger\(gamma=0.1\)"),
    ({"option": "II"}, r"an object for the solver: solver=SDCA\(option='II'\)"),
    ({"search": "graph"}, r"solver=ActiveSetSDCA\(search='graph'\)"),
    ({"rank": 8}, r"solver=BoundMajorization\(rank=8\)"),
    ({"n_workers": 2}, r"solver=DSMLR\(n_workers=2\)"),
    ({"validation_fraction": 0.1}, "early_stopping=True, for a tenth of the rows, or fit"),
    ({"n_iter_no_change": 5}, "early_stopping=10, for a number of iterations"),
    ({"seed": 0}, "has no parameter 'seed': here it is random_state"),
    ({"epochs": 5}, "here it is max_iter"),
    ({"maxiter": 5}, "has no parameter 'maxiter': did you mean 'max_iter'\\? It has alpha, class_weight"),
    ({"colour": "red"}, r"has no parameter 'colour'\. It has alpha, class_weight, dtype"),
]


@pytest.mark.parametrize(("parameters", "message"), UNKNOWN, ids=[next(iter(p)) for p, _ in UNKNOWN])
def test_an_unknown_parameter_is_answered_with_the_one_that_is_meant(parameters, message):
    with pytest.raises(TypeError, match=rf"^LinearClassifier {message}" if "has no" in message else message):
        LinearClassifier(**parameters)


@pytest.mark.parametrize("estimator", [LinearRegressor, LinearClassifierCV, LinearRegressorCV])
def test_every_linear_estimator_answers(estimator):
    with pytest.raises(TypeError, match=f"^{estimator.__name__} has no parameter 'C': here it is alpha"):
        estimator(C=1.0)
    with pytest.raises(TypeError, match="has no parameter 'max_itr': did you mean 'max_iter'"):
        estimator(max_itr=3)


@pytest.mark.parametrize("parent", [LinearClassifier, LinearRegressor, StagewiseRegressor])
def test_a_subclass_without_a_constructor_shows_the_parameters(parent):
    """To help() and to scikit-learn's checks, which read the signature of the class."""
    own = type("Own", (parent,), {})
    assert [*inspect.signature(own).parameters] == [*inspect.signature(parent).parameters]
    assert set(inspect.signature(own).parameters) == set(own().get_params(deep=False))


def test_the_objects_that_errors_propose_exist():
    """What the answers above tell a user to write is accepted."""
    for made in (
        CrammerSinger(gamma=0.1),
        Huber(epsilon=1.35),
        SDCA(option="II"),
        SDCA(sampling="importance"),
        ActiveSetSDCA(search="graph"),
        BoundMajorization(rank=8),
        DSMLR(n_workers=2),
        Memoir(truncation="touched"),
        SOLVERS["sgd"](eta0=0.1),
    ):
        made.check()


STRANGE = [
    ({"loss": "logistic"}, "got 'logistic': did you mean 'log_loss'"),
    ({"loss": "softmax"}, "did you mean 'multinomial'"),
    ({"loss": "cross_entropy"}, "did you mean 'multinomial'"),
    ({"loss": "Cross-Entropy"}, "did you mean 'multinomial'"),
    ({"loss": "svm"}, "did you mean 'hinge'"),
    ({"loss": "multinominal"}, "did you mean 'multinomial'"),
    ({"loss": "squared_hing"}, "did you mean 'squared_hinge'"),
    ({"solver": "liblinear"}, "did you mean 'cd'"),
    ({"solver": "liblinear_dual"}, "did you mean 'sdca'"),
    ({"solver": "saga"}, "did you mean 'sgd'"),
    ({"solver": "newton-cg"}, "did you mean 'newton'"),
    ({"solver": "asgd"}, "did you mean 'sgd'"),
    ({"solver": "majorise"}, "did you mean 'generalized_least_squares'"),
    ({"solver": "bbm"}, "did you mean 'bound'"),
    ({"solver": "L-BFGS"}, "did you mean 'lbfgs'"),
    ({"solver": "sdca_activ"}, "did you mean 'sdca_active'"),
    ({"solver": "aut"}, "did you mean 'auto'"),
    ({"solver": "simplex"}, r"got 'simplex'$"),
    ({"loss": Multinomial}, "loss must be one of 'multinomial'.*an object such as Multinomial"),
    ({"solver": SDCA}, r"solver must be one of 'auto', 'sdca'.*an object such as SDCA\(\)"),
    ({"solver": CrammerSinger()}, r"solver must be one of .* got CrammerSinger\(\)$"),
]


@pytest.mark.parametrize(("parameters", "message"), STRANGE, ids=[str(p) for p, _ in STRANGE])
def test_an_unknown_name_is_answered_with_the_nearest(digits, parameters, message):
    with pytest.raises(ValueError, match=message):
        LinearClassifier(**parameters).fit(*digits)


def test_every_synonym_is_answered_with_its_own():
    X = np.eye(3)
    for kind, known, estimator, y in (
        ("loss", CLASSIFICATION, LinearClassifier, [0, 1, 2]),
        ("loss", REGRESSION, LinearRegressor, [0.0, 1.0, 2.0]),
        ("solver", SOLVERS, LinearClassifier, [0, 1, 2]),
    ):
        told = {word: name for name, component in known.items() for word in component.synonyms}
        assert not told.keys() & known.keys()
        assert len(told) == sum(len(component.synonyms) for component in known.values())  # one meaning each
        for word, name in told.items():
            with pytest.raises(ValueError, match=f"got '{word}': did you mean '{name}'"):
                estimator(**{kind: word}).fit(X, y)


def test_losses_of_the_other_kind_are_refused(digits):
    X, y = digits
    with pytest.raises(ValueError, match=r"loss must be one of 'multinomial'.*got Huber\(\)"):
        LinearClassifier(Huber()).fit(X, y)
    with pytest.raises(ValueError, match=r"loss must be one of 'squared', 'huber'.*got CrammerSinger\(\)"):
        LinearRegressor(CrammerSinger()).fit(X, y)
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        LinearRegressor("huber", max_iter=1, tol=1e-12).fit(X, y)


@pytest.mark.parametrize(("name", "key"), [("loss", "loss__gamma"), ("solver", "solver__option")])
def test_a_parameter_of_a_name_asks_for_the_object(name, key):
    model = LinearClassifier("crammer_singer", solver="sdca")
    with pytest.raises(ValueError, match=rf"^{key} is a parameter of an object, and {name} is the string"):
        model.set_params(**{key: 0})
    assert LinearClassifier(CrammerSinger(), solver=SDCA()).set_params(loss__gamma=0.5).loss.gamma == 0.5
