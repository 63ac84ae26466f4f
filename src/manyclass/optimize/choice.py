"""``solver="auto"``: a rule, based on measurements, that depends on the problem only."""

from __future__ import annotations

from manyclass.kernels.rows import DenseRows
from manyclass.kernels.targets import RealTargets
from manyclass.objective.array_problem import ArrayProblem
from manyclass.objective.losses import (
    LogisticLoss,
    MultinomialLoss,
    SoftLogisticLoss,
    SoftMultinomialLoss,
    SquaredHingeLoss,
)
from manyclass.objective.penalties import L1, L2
from manyclass.objective.problem import Problem
from manyclass.optimize.columns import WIDTH
from manyclass.solvers import (
    LBFGS,
    SDCA,
    AcceleratedSDCA,
    ActiveSetSDCA,
    AsyncSDCA,
    CoordinateDescent,
    InteriorPoint,
    PreconditionedLBFGS,
    SlightL2,
    Solver,
)
from manyclass.solvers.dual.active import has_many_rivals
from manyclass.solvers.dual.condition import condition, is_ill_conditioned
from manyclass.solvers.dual.interior import suits_interior_point

__all__ = ["choose", "in_ranges"]

#: Maximum size in bytes of the arrays of acceleration, several times those of `SDCA`.
_LARGE = 2**33

#: Maximum number of outputs for which coordinate descent, which fits them one by one, is used with an l1 part.
_FEW = 10
#: Maximum number of weights for which L-BFGS, which keeps twenty arrays of them, is used with a prior.
_FEW_WEIGHTS = 10**7
#: `PreconditionedLBFGS` for dense rows: the losses with which it was compared; the least n d K, under which every one
#: takes hundredths of a second; most features, for the memory of their second moments; fewest rows per feature; most
#: features per output, which is what the moments cost in passes over the data, and the same for an ill-conditioned
#: problem, which SDCA needs more passes for, the more the worse its condition: a tenth of R^2 / (gamma lam n) features
#: per output, if that is more (3200 features of patches of CIFAR-10, softmax, alpha 1e-3, 1e-4, 1e-5: 12, 29, 23 s;
#: acceleration 7, 23, over 240 s). Generated rows of unit length, 2000 x 50 x 3 to 40000 x 256 x 100, and
#: MNIST, alpha 1e-3 to 1e-6, seconds of one core.
_COMPARED = (MultinomialLoss, SoftMultinomialLoss, LogisticLoss, SoftLogisticLoss, SquaredHingeLoss)
_LEAST_WORK, _MOST_FEATURES, _ROWS_PER_FEATURE, _FEATURES_PER_OUTPUT, _IF_ILL = 10**7, 4096, 2, 32, 100
#: Ill-conditioned problems with less than three times the least n d K must have a condition above the first number and
#: few features (`_FEW_FEATURES`), or d^2 / n at most the second number, for which there is no least n d K: an iteration
#: takes milliseconds beside its products.
#: USPS (d^2 / n = 9), softmax, alpha 1e-4 and 1e-6: 0.5 and 1.4 s, acceleration 0.25 and 1.5; letter and pendigits
#: (0.02, 0.03), three smooth losses, 1e-4 to 1e-6: a fifth to nine tenths of its time; segment, covtype and optdigits
#: (0.2 to 1): a half to three times of it.
_HARD_IF_SMALL, _VERY_FEW = 1e3, 0.1
#: The squared hinge, whose active rows change, where features are not that few: one output, or so many outputs, each
#: with few rows of its own, and so many rows per feature. Two threads, alpha 1e-4 and 1e-6 without an intercept, then
#: with one: 30 000 rows of MNIST, ten outputs 3.7, 18, 3.5, 16 s, acceleration 1.6, 15, 1.8, 10 s; an 8 against the
#: rest of them 1.1, 2.4, 1.1, 3.6 for 1.3, 4.8, 1.5, 6.2 s; 25 000 embeddings of 1024 features, 100 classes 1.0, 1.0,
#: 2.7, 8.5 for 3.4, 7.7, 3.0, 11.5 s.
_OUTPUTS_OF_HINGE, _ROWS_OF_HINGE = 50, 40
#: Or, ill-conditioned, for so few features that a matrix for each class costs some iterations, however few outputs:
#: d^2 / n is at most this. An 8 against the rest of MNIST, softmax and squared hinge, alpha 1e-4 and 1e-6: two to three
#: times as fast as acceleration.
_FEW_FEATURES = 20


def choose(problem: Problem) -> Solver:
    """The solver for a problem with ``solver="auto"``.

    It depends on the problem only, not on the available memory or threads, so that a seed gives the same model
    everywhere.
    """
    loss = problem.loss
    if isinstance(problem, ArrayProblem):
        return PreconditionedLBFGS() if problem.n_features <= _MOST_FEATURES else LBFGS()
    rivals = has_many_rivals(problem)
    if problem.standard is not None and isinstance(problem.penalty, L2) and loss.smoothness and not rivals:
        return LBFGS()  # without a copy of the rows; FISTA is too slow for the others
    if problem.shift is not None:  # which few solvers take
        if _suits_products(problem, is_ill_conditioned(problem)):
            return PreconditionedLBFGS()
        few = problem.n_features * problem.n_outputs <= _FEW_WEIGHTS
        return LBFGS() if few and loss.smoothness and isinstance(problem.penalty, L2) else SDCA()
    if rivals:
        return ActiveSetSDCA()
    if not isinstance(problem.penalty, L2) and not loss.joint and loss.smoothness and problem.n_outputs <= _FEW:
        return CoordinateDescent()
    if isinstance(problem.penalty, L1):
        return AcceleratedSDCA()  # SDCA converges slowly when the l2 part is small, for every loss
    if suits_interior_point(problem):
        return InteriorPoint()  # where the others take thousands of epochs
    if not loss.joint and not isinstance(problem.targets, RealTargets) and problem.n_outputs >= 2 * WIDTH:
        return SDCA()  # in ranges, warm-started from the problem without positive labels: faster than acceleration
    ill = is_ill_conditioned(problem)
    if _suits_products(problem, ill):
        return PreconditionedLBFGS()
    large = sum(AcceleratedSDCA().nbytes(problem).values()) > _LARGE
    return AcceleratedSDCA() if ill and not large else SDCA()


def _suits_products(problem: Problem, ill: bool) -> bool:
    """Whether matrix products of all rows are faster than dual ascent row by row."""
    n, d, K, loss = problem.n_samples, problem.n_features, problem.n_outputs, problem.loss
    gamma = float(loss.smoothness)
    if not (
        isinstance(problem.rows, DenseRows)
        and isinstance(problem.penalty, L2)
        and isinstance(loss, _COMPARED)
        and d <= min(_MOST_FEATURES, n // _ROWS_PER_FEATURE)
    ):
        return False
    work = n * d * K
    if ill:
        if d * d <= _VERY_FEW * n:
            return True
        hard = condition(problem, gamma)
        if work < 3 * _LEAST_WORK and (work < _LEAST_WORK or hard <= _HARD_IF_SMALL or d * d > _FEW_FEATURES * n):
            return False
        many = K >= _OUTPUTS_OF_HINGE and n >= _ROWS_OF_HINGE * d
        if isinstance(loss, SquaredHingeLoss) and K > 1 and not many:
            return False
        return d <= max(_IF_ILL, 0.1 * hard) * K or d * d <= _FEW_FEATURES * n
    if work < _LEAST_WORK:
        return False
    return isinstance(loss, MultinomialLoss | SoftMultinomialLoss) and d <= _FEATURES_PER_OUTPUT * K


def in_ranges(problem: Problem, solver: Solver) -> bool:
    """Whether the outputs are fitted one range after the other (`manyclass.optimize.columns`).

    This is so for many outputs of a separable loss and a deterministic dual solver. ``solver`` must be prepared.
    """
    if problem.loss.joint or problem.n_outputs < 2 * WIDTH or problem.shift is not None:
        return False
    return isinstance(solver, SDCA | SlightL2) and not isinstance(solver, AsyncSDCA) and solver.reproducible
