"""Regularization paths: models for a decreasing sequence of alphas, each fit warm-started from the last."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning

from manyclass.estimators.deviance import deviance_explained
from manyclass.estimators.walk import alpha_grid, check, check_estimator, check_grid, problem_of, walk
from manyclass.models.linear import LinearModel
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.memory import require

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PathPoint", "RegularizationPath", "regularization_path"]


@dataclass(frozen=True)
class PathPoint:
    """The fit for one alpha.

    Attributes
    ----------
    alpha : float
        Strength of the penalty.
    objective : float
        Objective of the model for this alpha.
    relative_gap : float
        Relative duality gap, an upper bound on the relative suboptimality; NaN if the solver computes none.
    deviance_explained : float
        1 - deviance / deviance of the intercept alone, on the rows of the fit: glmnet's ``%dev`` as a fraction, and R
        squared for the squared loss. NaN for losses other than squared, multinomial and log_loss.
    n_features : int
        Number of features with a non-zero weight in any output.
    n_nonzero : int
        Number of non-zero weights.
    epochs : int
        Number of iterations of this fit.
    seconds : float
        Time of the solver, without evaluations and compilation.
    outcome : str
        Why the fit ended: "converged", "max_iter", "precision" or "diverged", see `manyclass.optimize.loop.Outcome`.
    """

    alpha: float
    objective: float
    relative_gap: float
    deviance_explained: float
    n_features: int
    n_nonzero: int
    epochs: int
    seconds: float
    outcome: str


@dataclass(frozen=True, eq=False, repr=False)
class RegularizationPath:
    """Models for a decreasing sequence of alphas, the result of `regularization_path`.

    Parameters
    ----------
    points : list of PathPoint
        Statistics of each fit.
    models : list of LinearModel
        The model for each alpha; its weights are a CSR matrix if the penalty has an l1 part.
    l1_ratio, tol : float
        Parameters of the estimator.
    interrupted : bool, default=False
        Whether Ctrl-C ended the path before its last alpha.

    Attributes
    ----------
    alphas, objectives, gaps : ndarray of shape (n_alphas,)
        The alphas, decreasing; the objective and the relative duality gap of each model.
    deviance_explained : ndarray of shape (n_alphas,)
        Fraction of the deviance that each model explains, see `PathPoint`.
    n_features, n_nonzero, epochs, seconds : ndarray of shape (n_alphas,)
        Features with a non-zero weight in any output (the degrees of freedom of the Lasso with one output), non-zero
        weights, iterations, seconds.
    coefs : list of ndarray or CSR matrix of shape (n_outputs, n_features)
        Weights, for the columns of X as they are.
    intercepts : ndarray of shape (n_alphas, n_outputs)
        Intercepts.

    See Also
    --------
    regularization_path : Fits it; `model` has the model of an alpha, `table` and `plot` show the path.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from manyclass import LinearRegressor, regularization_path
    >>> X, y = load_diabetes(return_X_y=True)
    >>> path = regularization_path(LinearRegressor(l1_ratio=0.9, random_state=0), X, y, n_alphas=10, eps=0.1)
    >>> len(path), bool(path.gaps.max() <= 1e-3)
    (10, True)
    >>> path.deviance_explained[[0, 4, 9]].round(2)  # R squared
    array([0.  , 0.04, 0.16])
    >>> path.model(path.alphas[-1]).predict(X[:3]).shape
    (3,)
    """

    points: list[PathPoint]
    models: list[LinearModel] = field(repr=False)
    l1_ratio: float
    tol: float
    interrupted: bool = False

    def __len__(self) -> int:
        return len(self.points)

    def __repr__(self) -> str:
        first, last = self.points[0], self.points[-1]
        least, most = int(self.n_features.min()), int(self.n_features.max())
        return (
            f"RegularizationPath({len(self)} alphas from {first.alpha:.3g} to {last.alpha:.3g}, "
            f"l1_ratio={self.l1_ratio:g}, {least} to {most} of {self.models[0].n_features} features, "
            f"{'no certificates' if np.isnan(self.gaps).all() else f'relative gaps at most {self.gaps.max():.1e}'}"
            f"{', interrupted' if self.interrupted else ''})"
        )

    # --- columns ----------------------------------------------------------------------------------------------------

    def column(self, name: str) -> Array:
        """One attribute of all `points`, as an array.

        Parameters
        ----------
        name : str
            Name of an attribute of `PathPoint`.

        Returns
        -------
        ndarray of shape (n_alphas,)
            The values, in the order of the alphas.
        """
        return np.array([getattr(point, name) for point in self.points])

    @property
    def alphas(self) -> Array:
        """The alphas, decreasing."""
        return self.column("alpha")

    @property
    def objectives(self) -> Array:
        """The objective of each model for its alpha."""
        return self.column("objective")

    @property
    def gaps(self) -> Array:
        """Relative duality gaps."""
        return self.column("relative_gap")

    @property
    def deviance_explained(self) -> Array:
        """Fraction of the deviance that each model explains."""
        return self.column("deviance_explained")

    @property
    def n_features(self) -> Array:
        """Number of features with a non-zero weight in any output."""
        return self.column("n_features")

    @property
    def n_nonzero(self) -> Array:
        """Number of non-zero weights."""
        return self.column("n_nonzero")

    @property
    def epochs(self) -> Array:
        """Number of iterations of each fit."""
        return self.column("epochs")

    @property
    def seconds(self) -> Array:
        """Solver time of each fit in seconds."""
        return self.column("seconds")

    @property
    def coefs(self) -> list[Any]:
        """Weights of each model, (n_outputs, n_features): CSR matrices with an l1 part, else arrays (views)."""
        return [_transposed(model.weights) for model in self.models]

    @property
    def intercepts(self) -> Array:
        """Intercepts, (n_alphas, n_outputs)."""
        return np.stack([model.intercept for model in self.models])

    def model(self, alpha: float) -> LinearModel:
        """The model for one of the `alphas`.

        Parameters
        ----------
        alpha : float
            One of `alphas`, to nine digits.

        Returns
        -------
        LinearModel
            The model for this alpha.

        Raises
        ------
        ValueError
            If the path has no such alpha.
        """
        alphas = self.alphas
        nearest = int(np.argmin(np.abs(np.log(alphas) - np.log(alpha)))) if alpha > 0 else 0
        if not np.isclose(alphas[nearest], alpha, rtol=1e-9, atol=0.0):
            raise ValueError(
                f"alpha must be one of the {len(alphas)} alphas of this path, got {alpha!r}: the nearest is "
                f"{float(alphas[nearest])!r}; pass alphas={[float(alpha)]} with those you need to regularization_path, "
                "as no model is interpolated"
            )
        return self.models[nearest]

    def table(self) -> str:
        """The points as a text table, one line per alpha.

        Returns
        -------
        str
            The table, with a header line.
        """
        lines = [
            f"{'alpha':>11} {'features':>9} {'non-zero':>10} {'% deviance':>10} {'objective':>14} {'relative gap':>13} "
            f"{'epochs':>7} {'seconds':>9}"
        ]
        lines += [
            f"{p.alpha:>11.4g} {p.n_features:>9} {p.n_nonzero:>10} {100 * p.deviance_explained:>10.2f} "
            f"{p.objective:>14.8g} {p.relative_gap:>13.2e} {p.epochs:>7} {p.seconds:>9.3f}"
            for p in self.points
        ]
        return "\n".join(lines)

    def plot(self, ax: Axes | None = None, *, max_features: int = 30) -> Axes:
        """Plot the weights against alpha, and below them the number of features and the gaps; requires matplotlib.

        A line is the weight of a feature, or, with several outputs, the Euclidean norm of its weights.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on, whose lower part is used for the second panel; by default those of a new figure.
        max_features : int, default=30
            Maximum number of lines: the features with the largest weights on the path.

        Returns
        -------
        matplotlib Axes
            The axes with the weights.

        Raises
        ------
        ImportError
            If matplotlib is missing; the message says what to install.
        """
        from manyclass.estimators.path_plot import plot_path

        return plot_path(self, ax, max_features)


def regularization_path(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    alphas: Any = None,
    n_alphas: int = 50,
    eps: float | None = None,
    sample_weight: Any = None,
) -> RegularizationPath:
    """Fit an estimator for a decreasing sequence of alphas, each fit warm-started from the last.

    Parameters
    ----------
    estimator : LinearClassifier or LinearRegressor
        The estimator; its alpha and warm_start are ignored. It is not changed.
    X : array or CSR matrix of shape (n_samples, n_features)
        See `fit` of the estimator.
    y : array
        See `fit` of the estimator.
    alphas : array of shape (n_alphas,), optional
        Positive numbers in any order; duplicates are removed. None: ``n_alphas`` values on a logarithmic scale.
    n_alphas : int, default=50
        Number of alphas if ``alphas`` is None, >= 1.
    eps : float, optional
        Smallest alpha divided by the largest if ``alphas`` is None, in (0, 1). None: 1e-3 with an l1 part, 1e-4
        without. With ``l1_ratio > 0`` the largest alpha is the smallest for which all weights are zero (close to it for
        losses with a kink). With ``l1_ratio = 0`` no alpha makes all weights zero; the largest is then the total
        variance of the features divided by the smoothness constant of the loss, so that, with the squared loss, every
        coefficient in the basis of principal components is shrunk to half or less.
    sample_weight : array of shape (n_samples,), optional
        Weights of the rows, >= 0.

    Returns
    -------
    RegularizationPath
        The path; after Ctrl-C, the alphas whose fits were finished.

    Raises
    ------
    ValueError
        If ``estimator`` is of another class, ``alphas``, ``n_alphas`` or ``eps`` is out of range, or a fit raises it.
    MemoryError
        If dense weights for all alphas would need more memory than is available.
    KeyboardInterrupt
        On Ctrl-C before the first fit is finished.

    Warns
    -----
    ConvergenceWarning
        Once, if fits did not reach tol or the path was interrupted.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manyclass import LinearClassifier, regularization_path
    >>> X, y = load_digits(return_X_y=True)
    >>> path = regularization_path(LinearClassifier(l1_ratio=0.9, random_state=0), X / 16, y, n_alphas=5, eps=0.1)
    >>> bool((path.n_features[1:] >= path.n_features[:-1]).all())
    True
    """
    check_estimator(estimator)
    given = check_grid(alphas, n_alphas, eps)
    data = check(estimator, X, y, sample_weight)
    problem = problem_of(estimator, data)
    grid = alpha_grid(estimator, data, n_alphas, eps, problem) if given is None else given
    sparse = float(estimator.l1_ratio) > 0
    reached: list[tuple[PathPoint, LinearModel]] = []
    interrupted = False
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # one warning for all: below
        try:
            for fitted in walk(estimator, data, grid):
                if fitted.history_.outcome == "interrupted":
                    raise KeyboardInterrupt
                model = _kept(fitted.model_, sparse, data.feature_names)
                if not (reached or sparse):
                    require({"weights of the path": model.nbytes * (len(grid) - 1)}, "fewer alphas, or l1_ratio > 0")
                reached.append((_point(fitted, model, problem), model))
        except KeyboardInterrupt:
            if not reached:
                raise
            interrupted = True
    points, models = (list(part) for part in zip(*reached))
    path = RegularizationPath(points, models, float(estimator.l1_ratio), float(estimator.tol), interrupted)
    _warn(path, len(grid), fitted._certified)
    return path


def _kept(model: LinearModel, sparse: bool, names: Array | None) -> LinearModel:
    """A copy of the model: the solver overwrites the weights in the next fit."""
    if sparse:
        return replace(model.sparsify(), feature_names=names)
    weights: Any = model.weights
    return replace(model, weights=weights.copy(), feature_names=names)


def _point(fitted: Any, model: LinearModel, problem: Problem) -> PathPoint:
    weights: Any = model.weights
    used = np.diff(weights.indptr) > 0 if model.is_sparse else weights.any(axis=1)
    return PathPoint(
        alpha=float(fitted.alpha),
        objective=float(fitted.objective_),
        relative_gap=float(fitted.duality_gap_),
        deviance_explained=deviance_explained(fitted, problem),
        n_features=int(np.count_nonzero(used)),
        n_nonzero=model.n_nonzero,
        epochs=int(fitted.n_iter_),
        seconds=float(fitted.history_.last.seconds),
        outcome=str(fitted.history_.outcome),
    )


def _warn(path: RegularizationPath, asked: int, certified: bool) -> None:
    if path.interrupted:
        warnings.warn(
            f"the path was interrupted: {len(path)} of {asked} alphas are done", ConvergenceWarning, stacklevel=3
        )
    missed = np.flatnonzero(~(path.gaps <= path.tol)) if certified else ()
    if len(missed):
        worst = path.points[missed[np.argmax(path.gaps[missed])]]
        warnings.warn(
            f"{len(missed)} of {len(path)} fits of the path ended above tol={path.tol:g}; the largest relative gap is "
            f"{worst.relative_gap:.1e}, at alpha={worst.alpha:.3g}: raise max_iter, eps or tol",
            ConvergenceWarning,
            stacklevel=3,
        )


def _transposed(weights: Any) -> Any:
    return weights.T.tocsr() if sp.issparse(weights) else weights.T
