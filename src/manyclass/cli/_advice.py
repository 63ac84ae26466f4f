"""What to say of a fit before it begins, of its memory and time, and of one that ended well and predicts badly."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from manyclass.cli._common import CommandError, duration
from manyclass.report.advice import Facts, advise, seconds_of

if TYPE_CHECKING:
    from manyclass.io import Dataset
    from manyclass.io.store import RowStore

__all__ = ["cost_of", "facts_of", "facts_of_store", "penalty_advice", "penalty_share"]

#: Below this accuracy (P@1 for sets of labels) a fit is looked at more closely: a smaller alpha can help. On
#: 20 Newsgroups and on short texts of 900 labels the share below is 0.53 and 0.58 at 1 / rows, where a smaller alpha
#: adds 2.5 and 17 points; where it adds none it is at most 0.34 (24 fits, printed).
_ACCURACY = 0.95
#: From this share on the penalty, and not the data, keeps the model from fitting its rows.
_SHARE = 0.5
#: Bytes besides the data from which on a fit says what would take less.
_MUCH = 1 << 30
#: Seconds on one core from which on it does so, too.
_LONG = 120


def penalty_share(estimator: Any, data: Dataset) -> float:
    """How far the penalty holds the weights back: 0 if they are as good as free, 1 if the data hardly move them.

    At the optimum, the mean loss L falls along the weights W, as they are scaled, at the rate
    ``-<dL/dW, W> = alpha ((1 - l1_ratio) ||W||^2 + l1_ratio ||W||_1)``: what the penalty gains there. L is convex, so
    this is at most ``L(0) - L(W)``, the mean rate on the way from weights of 0 with the same intercept. The quotient
    of the two, in [0, 1], is near 0 where larger weights would fit no better, however badly these do, and near 1
    where the loss would go on falling. (Where the gap is not closed it may leave the interval.)

    Parameters
    ----------
    estimator : LinearClassifier
        A fitted one.
    data : Dataset
        What it was fitted on.

    Returns
    -------
    float
        1 if all weights are 0.
    """
    import numpy as np
    from scipy.sparse import csr_matrix
    from sklearn.base import clone

    from manyclass.estimators.deviance import norms

    model = estimator.model_
    squares, magnitudes = norms(model.weights)
    if magnitudes == 0:
        return 1.0
    alpha, ratio = estimator.alpha_, estimator.l1_ratio
    l2, l1 = alpha * (1 - ratio) * squares, alpha * ratio * magnitudes
    # One feature that is 0 everywhere: scores are the intercept, and no second array of weights is made.
    problem, _ = clone(estimator)._build(csr_matrix((data.n_samples, 1), dtype=data.X.dtype), data.y, None)
    bias = np.asarray(model.intercept, np.float64)
    at_zero = problem.value(np.zeros((1, bias.size), problem.dtype), bias)
    gained = at_zero - (estimator.objective_ - l2 / 2 - l1)
    return float((l2 + l1) / gained) if gained > 0 else 0.0


def penalty_advice(estimator: Any, data: Dataset, metrics: dict[str, Any], where: str) -> str | None:
    """A sentence on a penalty that is too strong; None if the model predicts well, or the penalty is not to blame.

    The rule: accuracy (P@1 for sets of labels) below 0.95, and a `penalty_share` of 0.5 or more.
    """
    from manyclass.estimators import LinearClassifier
    from manyclass.models.linear import LinearModel

    name, called = ("precision@1", "P@1") if estimator.model_.task == "multilabel" else ("accuracy", "accuracy")
    stands_whole = type(estimator) is LinearClassifier and isinstance(estimator.model_, LinearModel)
    if not stands_whole or metrics.get(name, 1.0) >= _ACCURACY:
        return None
    if penalty_share(estimator, data) < _SHARE:
        return None
    return (
        f"the penalty holds the weights back, and the model may fit badly ({called} {metrics[name]:.2f} {where}): try "
        f"an --alpha smaller than {estimator.alpha_:g} (--alpha auto chooses one), or scale the features"
    )


def facts_of(data: Dataset) -> Facts:
    """What `advise` needs to know of some data.

    Raises
    ------
    CommandError
        If the rows have no labels.
    """
    from scipy.sparse import issparse

    from manyclass.runtime.memory import available

    facts = data.summary()
    if facts["targets"] == "none":
        raise CommandError("the rows have no labels, and a loss is chosen by them: name their file with --labels")
    return Facts(
        n_samples=facts["rows"],
        n_features=facts["features"],
        n_stored=facts["non_zeros"],
        n_outputs=facts.get("outputs", 1) if facts["targets"] == "numbers" else facts["classes"],
        targets=facts["targets"],
        sparse=issparse(data.X),
        available=available(),
        itemsize=data.X.dtype.itemsize,
    )


def facts_of_store(store: RowStore) -> Facts:
    """The same of a row store, from its manifest."""
    from manyclass.runtime.memory import available

    if store.kind == "none":
        raise CommandError(f"{store.path} has no labels, and a loss is chosen by them: write it from labeled data")
    n, d = store.shape
    sparse = store.layout == "csr"
    return Facts(n, d, store.n_stored, store.n_outputs, store.kind, sparse, available(), store.dtype.itemsize)


def cost_of(estimator: Any, data: Dataset) -> list[str]:
    """What a fit will take besides the data, and what suits the data better where that is gigabytes or minutes.

    Parameters
    ----------
    estimator : object
        To be fitted.
    data : Dataset

    Returns
    -------
    list of str
        Lines; none of an estimator without a solver.
    """
    from sklearn.base import clone

    from manyclass.estimators import LinearClassifier, LinearRegressor
    from manyclass.optimize.choice import choose
    from manyclass.runtime.memory import available, human

    if type(estimator) not in (LinearClassifier, LinearRegressor):
        return []
    own, at = clone(estimator), ""
    if own.alpha == "auto":
        own.alpha, at = None, " at alpha = 1 / rows"
    asked = own._asked_solver()
    problem, _ = own._build(data.X, data.y, None, *([asked] if isinstance(own, LinearClassifier) else []))
    solver = (choose(problem) if asked is None else asked).prepare(problem)
    sizes = solver.nbytes(problem)
    parts = ", ".join(f"{name} {human(size)}" for name, size in sizes.items())
    there = available()
    first = f"solver {solver.name}{at}; memory besides the data: {parts or 'what the weights that are not zero take'}"
    lines = [first + ("" if there is None else f"; {human(there)} are available")]
    if sum(sizes.values()) >= _MUCH and not data.multilabel and data.y.dtype.kind != "f":
        lines.append(f"  that is much; less take: {', '.join(_smaller(solver.name, data))}")
    return lines + _time(solver.name, facts_of(data))


def _smaller(solver: str, data: Dataset) -> list[str]:
    """What takes less memory than a fit by this solver."""
    from scipy.sparse import issparse

    others = ["--vectorizer hashing or fewer features"]
    if issparse(data.X):
        others.append("--solver memoir (no certificate)")
    if solver != "sdca_active":
        others.append("--loss crammer_singer")
    return [*others, "--solver out_of_core on a store (manyclass convert)"]


def _time(solver: str, facts: Facts) -> list[str]:
    """How long a fit by this solver takes, where that is minutes, and what takes less."""
    seconds, advice = seconds_of(solver, facts), advise(facts)
    advised = f"{advice.options} (reasons: manyclass info DATA --choose)"
    if seconds is None:
        if advice.seconds < _LONG:
            return []
        return [f"  the time of {solver} cannot be told beforehand; about {duration(advice.seconds)} takes {advised}"]
    if seconds < _LONG:
        return []
    line = f"  a fit by {solver} takes about {duration(seconds)} on one core, to a factor of five"
    if 2 * advice.seconds < seconds:
        line += f"; about {duration(advice.seconds)} takes {advised}"
    return [line]
