"""Stagewise least squares (Algorithm 3): feature blocks are fitted one after the other to the residuals so far."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from manyclass.objective.history import Record
from manyclass.objective.links.calibrated import Basis, Calibration
from manyclass.runtime.arrays import Array
from manyclass.runtime.threads import ranges
from manyclass.solvers.least_squares.calibrated import fit_calibration, squared_error
from manyclass.solvers.least_squares.design import Design
from manyclass.solvers.least_squares.generalized import Link, apply_link, generalized_steps
from manyclass.solvers.least_squares.systems import Factor

__all__ = [
    "BlockFit",
    "HeldOut",
    "StageRecord",
    "StagewiseRun",
    "Update",
    "appended",
    "calibrated",
    "clock",
    "linear",
    "link_loss",
    "logistic",
]

#: Rows that are processed at a time.
_ROWS = 8192


@dataclass(frozen=True, eq=False)
class BlockFit:
    """A fitted stage: feature block, weights (the last row is the intercept), and calibration of the scores so far."""

    block: Any
    weights: Array
    calibration: Calibration | None = None


#: A function of design, targets, scores, alpha, and earlier weights of the same block or None. It updates the scores in
#: place and returns the change of the weights, and the calibration, if any, that it has applied to the scores: after
#: adding those of the block, or before if its domain is None.
Update = Callable[[Design, Array, Array, float, "Array | None"], tuple[Array, "Calibration | None"]]


def linear(
    design: Design, targets: Array, scores: Array, alpha: float, before: Array | None
) -> tuple[Array, Calibration | None]:
    """Fit the residuals by ridge regression on a block; two passes.

    If the block was fitted before, the ridge is on the sum of its weights, so that repeated fits converge to the ridge
    solution of all blocks together.
    """
    found = design.moments(alpha, targets - scores)
    slope = found.cross if found.cross is not None else np.zeros(0)
    p = design.n_features
    if before is not None:
        slope[:p] -= alpha * before[:p]
    W = found.factor(alpha).solve(slope)
    design.add_scores(W, scores)
    return W, None


def calibrated(basis: Basis, domain: str | None) -> Update:
    """An update by one round of Algorithm 2: a linear update, then a calibration of the predictions."""

    def update(
        design: Design, targets: Array, scores: Array, alpha: float, before: Array | None
    ) -> tuple[Array, Calibration | None]:
        W, _ = linear(design, targets, scores, alpha, None)
        calibration = fit_calibration(basis, scores, targets, design.weights, domain=domain)
        calibration(scores, out=scores)
        return W, calibration

    return update


def appended(
    design: Design, targets: Array, scores: Array, alpha: float, before: Array | None
) -> tuple[Array, Calibration | None]:
    """Fit the residuals by ridge regression on a block and, as more features, the scores so far; two passes.

    With the second moments A of the block, B of block and scores, and G of the scores, the weights D of the scores
    solve (G + alpha I - B' A^-1 B) D = (cross product of scores and residuals) - B' A^-1 (cross product of the block).
    """
    n, K = scores.shape
    moments = design.moments(alpha, np.hstack([targets - scores, scores]))
    cross = np.zeros((0, 2 * K)) if moments.cross is None else np.asarray(moments.cross, np.float64)
    solved = moments.factor(alpha).solve(cross)
    gram, tilt = alpha * np.eye(K), np.zeros((K, K))
    for begin, end in ranges(n, _ROWS):
        s, y = scores[begin:end].astype(np.float64), targets[begin:end]
        weighted = s if design.weights is None else s * design.weights[begin:end, None]
        gram += weighted.T @ s / n
        tilt += weighted.T @ (y - s) / n
    gram -= cross[:, K:].T @ solved[:, K:]
    tilt -= cross[:, K:].T @ solved[:, :K]
    D = Factor(gram, _SCHUR).solve(tilt)
    W: Array = solved[:, :K] - solved[:, K:] @ D
    coefficients = np.vstack([np.zeros(K), np.eye(K) + D])
    calibration = Calibration("linear", coefficients.astype(scores.dtype), None)
    calibration(scores, out=scores)
    design.add_scores(W, scores)
    return W, calibration


#: Rounding error of the second moments of the scores less what the block explains of them, relative to its diagonal:
#: scores that the block explains, such as their constant sum, get no weight.
_SCHUR = 1e-9


def logistic(link: Link, lipschitz: float, steps: int, tol: float) -> Update:
    """An update by Algorithm 1 with the scores so far as offsets; at most ``steps`` passes, and two more.

    The matrix is L Sigma_block + alpha I, an upper bound on the Hessian with respect to the weights of the block.
    """

    def update(
        design: Design, targets: Array, scores: Array, alpha: float, before: Array | None
    ) -> tuple[Array, Calibration | None]:
        residuals = np.empty_like(scores)
        for begin, end in ranges(len(scores), _ROWS):
            residuals[begin:end] = apply_link(link, scores[begin:end]) - targets[begin:end]
        moments = design.moments(alpha / lipschitz, residuals)
        first = moments.cross
        # Offsets without the earlier weights of the block, so that the ridge is on the sum of its weights.
        offsets, start = scores, None
        if before is not None:
            offsets = scores.copy()
            design.add_scores(-before, offsets)
            start = before
        system = moments.factor(alpha, lipschitz)
        fit = generalized_steps(design, targets, link, alpha, system, offsets=offsets, start=start, first=first)
        W, longest = np.zeros(0), 0.0
        for number, step in enumerate(fit, 1):
            W, longest = step.weights, max(longest, step.decrement)
            if number >= steps or step.decrement**2 <= tol * longest**2:
                break
        grown = W if before is None else W - before
        design.add_scores(grown, scores)
        return grown, None

    return update


# --- the run --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StageRecord:
    """The record of a stage in the history.

    Attributes
    ----------
    member, stage : int
        Number of the averaged model, and number of the stage in it, from 1 on.
    n_features : int
        Number of features of the block.
    loss : float
        Mean loss of the model on its training rows: the squared error, or the loss of the link.
    validation_error : float
        Error rate (for regression, mean squared error) on the held-out rows; NaN without held-out rows.
    seconds : float
        Seconds since the start of the fit.
    """

    member: int
    stage: int
    n_features: int
    loss: float
    validation_error: float
    seconds: float

    def as_record(self, iteration: int, **info: float) -> Record:
        """The record of this iteration of the fit."""
        nan = math.nan
        numbers = (float(iteration), self.loss, nan, nan, nan, self.seconds, self.seconds)
        return Record(iteration, *numbers, {**info, "loss": self.loss})

    def to_dict(self) -> dict[str, Any]:
        """The record as a dictionary for JSON, with None for NaN."""
        return {name: None if value != value else value for name, value in asdict(self).items()}


@dataclass
class HeldOut:
    """Held-out rows of a fit in stages, and the error of their scores.

    Parameters
    ----------
    error : callable
        Returns the error of scores; smaller is better.
    rows : ndarray, optional
        Indices of the rows, if they are among those of the fit.
    design : callable, optional
        Returns the `Design` of a fitted block, for rows beside those of the fit.
    scores : ndarray, optional
        The scores of these so far; changed in place.
    """

    error: Callable[[Array], float]
    rows: Array | None = None
    design: Callable[[Any], Design] | None = None
    scores: Array | None = None

    def add(self, block: Any, weights: Array, calibration: Calibration | None) -> None:
        """Update the scores of rows beside those of the fit as an `Update` has updated those."""
        if self.design is None or self.scores is None:
            return
        if calibration is not None and calibration.domain is None:
            calibration(self.scores, out=self.scores)
        self.design(block).add_scores(weights, self.scores)
        if calibration is not None and calibration.domain is not None:
            calibration(self.scores, out=self.scores)

    def look(self, scores: Array) -> float:
        """The error, with the ``scores`` of the rows of the fit."""
        own = scores[self.rows] if self.scores is None else self.scores
        return self.error(own)


@dataclass
class StagewiseRun:
    """The fit of one model, block by block, which keeps the stages up to the best validation error.

    Parameters
    ----------
    targets : ndarray of shape (n, K)
        Targets of all rows.
    scores : ndarray of shape (n, K)
        Scores at the start of the fit; changed in place.
    alpha : float
        Strength of the penalty.
    update : callable
        Fits a block, see `Update`.
    additive : bool
        Whether scores are sums over the blocks, so that a repeated block adds to its weights.
    design : callable
        Returns the `Design` of a fitted block, with the sample weights of the fit.
    loss : callable
        Returns the mean loss of scores.
    held : HeldOut, optional
        The held-out rows, if there are any.
    weights : ndarray of shape (n,), optional
        Sample weights with mean 1, 0 on the held-out rows.
    patience : int, optional
        Number of stages without a smaller validation error after which the fit ends. None: it does not, and all stages
        are kept.
    stages : list of BlockFit
        Stages of an earlier fit to continue.
    """

    targets: Array
    scores: Array
    alpha: float
    update: Update
    additive: bool
    design: Callable[[Any], Design]
    loss: Callable[[Array], float]
    held: HeldOut | None = None
    weights: Array | None = None
    patience: int | None = None
    stages: list[BlockFit] = field(default_factory=list)
    best: list[BlockFit] = field(default_factory=list)
    best_error: float = math.inf
    since_best: int = 0

    def __post_init__(self) -> None:
        self.best = list(self.stages)
        if self.stages and self.held is not None:
            self.best_error = self.held.look(self.scores)

    @property
    def over(self) -> bool:
        """Whether the held-out rows have ended the fit."""
        return self.patience is not None and self.since_best >= self.patience

    def run(self, blocks: Iterator[tuple[Any, bool]]) -> Iterator[tuple[int, float, float, bool]]:
        """Fit the blocks of an iterator, which says of each whether it is the last.

        Yields number of features, loss, validation error, and whether the fit ends, after each. If ``additive``, a
        block that was fitted before (the same object) is updated. `best` is valid after every stage, so that a run may
        be interrupted.
        """
        for block, last in blocks:
            design = self.design(block)
            at = next((i for i, stage in enumerate(self.stages) if stage.block is block), None)
            again = self.additive and at is not None
            before = self.stages[at].weights if again and at is not None else None
            grown, calibration = self.update(design, self.targets, self.scores, self.alpha, before)
            if self.held is not None:
                self.held.add(block, grown, calibration)
            design.release()
            if not np.isfinite(grown).all():
                raise ValueError(
                    "the weights of a stage must be finite, got NaN or infinity: raise alpha, or scale the features"
                )
            if before is not None and at is not None:
                self.stages[at] = BlockFit(block, before + grown)
            elif calibration is not None and calibration.domain is None:
                if self.stages:  # else the scores were 0
                    latest = self.stages[-1]
                    self.stages[-1] = BlockFit(latest.block, latest.weights, calibration)
                self.stages.append(BlockFit(block, grown))
            else:
                self.stages.append(BlockFit(block, grown, calibration))
            loss = self.loss(self.scores)
            error = math.nan if self.held is None else self.held.look(self.scores)
            if self.patience is None or error < self.best_error:
                self.best, self.best_error, self.since_best = list(self.stages), error, 0
            else:
                self.since_best += 1
            yield design.n_features, loss, error, last or self.over
            if self.over:
                return


def link_loss(name: str) -> Callable[[Array, Array, Array | None], float]:
    """The function of targets, scores and sample weights that is the mean loss of a link: ||y - s||^2, or log loss."""
    if name == "identity":
        return lambda targets, scores, weights: squared_error(targets, scores, weights)

    def loss(targets: Array, scores: Array, weights: Array | None) -> float:
        total = 0.0
        for begin, end in ranges(len(targets), _ROWS):
            s, y = scores[begin:end].astype(np.float64), targets[begin:end]
            if name == "softmax":
                top = s.max(axis=1, keepdims=True)
                each = np.log(np.exp(s - top).sum(axis=1)) + top[:, 0] - np.einsum("ik,ik->i", s, y)
            else:
                each = (np.logaddexp(0.0, s) - s * y).sum(axis=1)
            total += float(each.sum() if weights is None else each @ weights[begin:end])
        return total / len(targets)

    return loss


def clock() -> Callable[[], float]:
    """A function that returns the seconds since this call."""
    begun = time.perf_counter()
    return lambda: time.perf_counter() - begun
