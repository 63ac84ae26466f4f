"""Crammer and Singer's max-of-hinge, and its smooth form."""

from __future__ import annotations

from numbers import Real
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numba import types
from sklearn.utils._param_validation import Interval

from manyclass.kernels.jit import implements, inline, is_a
from manyclass.kernels.operations import (
    dual_step,
    loss_conjugate,
    loss_gradient,
    loss_hessian,
    loss_value,
    rival_cost,
)
from manyclass.kernels.simplex import project_rivals
from manyclass.objective.losses.base import ClassificationLoss, describe
from manyclass.objective.losses.hinges import SmoothHingeLoss

__all__ = ["CrammerSinger", "CrammerSingerLoss"]


@describe(
    name="crammer_singer",
    targets="class",
    joint=True,
    provides=("gradient", "hessian", "conjugate", "dual_step", "sparse_dual"),
)
class CrammerSingerLoss(NamedTuple):
    """phi(s; y) = max(0, max_{j != y} c_yj + s_j - s_y), smoothed by adding (gamma/2) ||b||^2 to the conjugate.

    The dual vector is a_j = -b_j for the classes j != y (the rivals), with b_j >= 0 and sum b_j <= 1, and a_y = sum
    b_j; phi*(-a) = -sum c_yj b_j + (gamma/2) sum b_j^2. With gamma > 0 the smooth loss lies below the loss with gamma =
    0, by at most gamma/2.

    ``costs``: c, an array of shape (1, K), the same for all y, or (K, K); with (), all costs are 1.
    """

    gamma: float
    costs: Any = ()


@implements(rival_cost)
def _rival_cost(loss: Any, t: Any, k: Any) -> Any:
    if not is_a(loss, CrammerSingerLoss):
        return None
    if isinstance(loss.types[1], types.Array):
        return lambda loss, t, k: loss.costs[min(t, loss.costs.shape[0] - 1), k]
    return lambda loss, t, k: type(loss.gamma)(1)


@inline
def _violations(loss, s, y, out):
    """``out_j = c_yj + s_j - s_y`` for the rivals, and for y itself a number too small to be the maximum."""
    for k in range(s.shape[0]):
        out[k] = s[k] - s[y] + s.dtype.type(rival_cost(loss, y, k))
    out[y] = s.dtype.type(-1)


@inline
def _only_largest(out):
    """Set the largest positive entry to 1 and the others to 0, in place. Returns the largest positive entry, or 0."""
    best = 0
    for k in range(out.shape[0]):
        if out[k] > out[best]:
            best = k
    top = out[best]
    for k in range(out.shape[0]):
        out[k] = out.dtype.type(0)
    if top > 0:
        out[best] = out.dtype.type(1)
        return np.float64(top)
    return 0.0


@implements(loss_value)
def _value(loss: Any, s: Any, t: Any, work: Any) -> Any:
    if not is_a(loss, CrammerSingerLoss):
        return None

    def largest_violation(loss, s, t, work):
        _violations(loss, s, t, work)
        if loss.gamma <= 0:
            return _only_largest(work)
        project_rivals(work, loss.gamma, s.dtype.type(0))
        value = 0.0
        for k in range(s.shape[0]):
            b = np.float64(work[k])
            if b > 0:
                short = np.float64(rival_cost(loss, t, k)) + np.float64(s[k]) - np.float64(s[t])
                value += b * short - 0.5 * loss.gamma * b * b
        return value

    return largest_violation


@implements(loss_gradient)
def _gradient(loss: Any, s: Any, t: Any, out: Any) -> Any:
    if not is_a(loss, CrammerSingerLoss):
        return None

    def rivals_minus_target(loss, s, t, out):
        _violations(loss, s, t, out)
        if loss.gamma <= 0:
            total = out.dtype.type(1) if _only_largest(out) > 0 else out.dtype.type(0)
        else:
            total = project_rivals(out, loss.gamma, s.dtype.type(0))
        out[t] = -total

    return rivals_minus_target


@implements(loss_hessian)
def _hessian(loss: Any, s: Any, t: Any, u: Any, out: Any) -> Any:
    if not is_a(loss, CrammerSingerLoss):
        return None

    def of_the_active(loss, s, t, u, out):
        # For the rivals with b_j > 0, the derivative of b is that of their violations divided by gamma, centered where
        # sum b = 1 binds.
        loss_gradient(loss, s, t, out)
        bound = out[t] <= -1
        mean = 0.0
        active = 0
        for k in range(s.shape[0]):
            if k != t and out[k] > 0:
                mean += np.float64(u[k]) - np.float64(u[t])
                active += 1
        mean = mean / active if bound and active else 0.0
        total = 0.0
        for k in range(s.shape[0]):
            moved = 0.0
            if k != t and out[k] > 0 and loss.gamma > 0:
                moved = (np.float64(u[k]) - np.float64(u[t]) - mean) / loss.gamma
            total += moved
            out[k] = s.dtype.type(moved)
        out[t] = s.dtype.type(-total)

    return of_the_active


@implements(loss_conjugate)
def _conjugate(loss: Any, a: Any, t: Any) -> Any:
    if not is_a(loss, CrammerSingerLoss):
        return None

    def sum_and_square(loss, a, t):
        value = 0.0
        for k in range(a.shape[0]):
            if k != t:
                b = -np.float64(a[k])
                value += 0.5 * np.float64(loss.gamma) * b * b - np.float64(rival_cost(loss, t, k)) * b
        return value

    return sum_and_square


@implements(dual_step)
def _dual_step(loss: Any, s: Any, a: Any, t: Any, q: Any, new: Any) -> Any:
    if not is_a(loss, CrammerSingerLoss):
        return None

    def project(loss, s, a, t, q, new):
        curvature = loss.gamma + q
        if curvature <= 0:
            # An empty row and gamma = 0: the dual is linear, and its maximum is at a vertex.
            _violations(loss, s, t, new)
            total = new.dtype.type(1) if _only_largest(new) > 0 else new.dtype.type(0)
        else:
            old = a[t]
            for k in range(s.shape[0]):
                new[k] = s.dtype.type(rival_cost(loss, t, k)) + s[k] - s[t] - q * a[k] + q * old
            new[t] = s.dtype.type(-1)
            total = project_rivals(new, curvature, q / curvature)
        for k in range(s.shape[0]):
            new[k] = -new[k]
        new[t] = total

    return project


class CrammerSinger(ClassificationLoss):
    """Multiclass SVM of Crammer and Singer: phi(s; y) = max(0, max_{j != y} c_yj + s_j - s_y), smoothed by gamma.

    Parameters
    ----------
    gamma : float, default=0.1
        Amount of smoothing, >= 0: the smooth loss lies below phi by at most gamma / 2. 0 gives phi itself.
    costs : array of shape (n_classes,) or (n_classes, n_classes), optional
        The costs c of errors, >= 0, in the order of ``classes_``: c_yj, where a row of class y is predicted as class j,
        or c_j, the same for all y (the paper's vector c). The diagonal of a matrix is not used. phi is an upper bound
        on the cost of the prediction. None: 1 for each error. Two classes are then fitted as two columns of weights.

    References
    ----------
    Shalev-Shwartz and Zhang, "Accelerated proximal stochastic dual coordinate ascent for regularized loss
    minimization", 2014, section 5.1, max-of-hinge. Tsochantaridis, Joachims, Hofmann and Altun, "Large margin methods
    for structured and interdependent output variables", JMLR 2005, margin re-scaling.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> from manyclass import CrammerSinger, LinearClassifier
    >>> X, y = load_digits(return_X_y=True)
    >>> model = LinearClassifier(loss=CrammerSinger(gamma=0.5), alpha=1e-2, random_state=0).fit(X / 16, y)
    >>> bool(model.duality_gap_ <= 1e-3)
    True

    A digit taken for an eight costs 10:

    >>> costs = [1, 1, 1, 1, 1, 1, 1, 1, 10, 1]
    >>> careful = LinearClassifier(loss=CrammerSinger(costs=costs), alpha=1e-2, random_state=0).fit(X / 16, y)
    >>> wrong = [int(((m.predict(X / 16) == 8) & (y != 8)).sum()) for m in (model, careful)]
    >>> wrong[1] < wrong[0] / 4
    True
    """

    name = "crammer_singer"
    summary = "multiclass SVM; the most accurate with very many classes"
    synonyms = ("multiclass_svm", "multiclass_hinge", "multi_margin")
    joint = True
    probabilities = False
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "gamma": [Interval(Real, 0, None, closed="left")],
        "costs": ["array-like", None],
    }

    def __init__(self, gamma: float = 0.1, costs: Any = None) -> None:
        self.gamma = gamma
        self.costs = costs

    def check(self) -> None:
        super().check()
        self._matrix()

    @property
    def one_margin(self) -> bool:
        """Whether two classes need one score only: with costs, their errors need different margins."""
        return self.costs is None

    def compiled(self, binary: bool = False) -> Any:
        return SmoothHingeLoss(float(self.gamma)) if binary else CrammerSingerLoss(float(self.gamma), self._matrix())

    def _matrix(self) -> Any:
        """The costs of a compiled loss."""
        if self.costs is None:
            return ()
        try:
            found = np.atleast_2d(np.asarray(self.costs, np.float64))
        except (TypeError, ValueError) as error:
            raise ValueError(f"costs must be numbers, got {self.costs!r}: pass an array of numbers") from error
        if np.ndim(self.costs) not in (1, 2) or (np.ndim(self.costs) == 2 and found.shape[0] != found.shape[1]):
            raise ValueError(
                f"costs must have shape (n_classes,) or (n_classes, n_classes), got {np.shape(self.costs)}: give a "
                "cost for each class, or for each pair of the class of a row and a predicted one"
            )
        if not (np.isfinite(found).all() and (found >= 0).all()):
            raise ValueError("costs must be finite and at least 0, got another number: correct it")
        return found
