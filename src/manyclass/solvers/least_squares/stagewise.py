"""Algorithm 3: one block of features after another, each fitted to what the blocks before it have left."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

import numpy as np

from manyclass.objective.links.calibrated import Basis, Calibration
from manyclass.runtime.threads import ranges
from manyclass.solvers.least_squares.arrays import Array
from manyclass.solvers.least_squares.calibrated import fit_calibration, squared_error
from manyclass.solvers.least_squares.design import Design
from manyclass.solvers.least_squares.generalized import Link, apply_link, generalized_steps

__all__ = ["BlockFit", "StageRecord", "StagewiseRun", "Update", "calibrated", "linear", "logistic"]

#: Rows whose losses are summed at a time.
_ROWS = 8192


@dataclass(frozen=True, eq=False)
class BlockFit:
    """A fitted stage: features, their weights (the last row the intercept's), what becomes of the scores then."""

    block: Any
    weights: Array
    calibration: Calibration | None = None


#: (design, targets, scores, alpha, earlier weights of the same block or None) -> what the weights grow by, and the
#: calibration that the scores get after; the scores are brought up to date in place.
Update = Callable[[Design, Array, Array, float, "Array | None"], tuple[Array, "Calibration | None"]]


def linear(
    design: Design, targets: Array, scores: Array, alpha: float, before: Array | None
) -> tuple[Array, Calibration | None]:
    """Ridge regression of the residuals on a block: two passes.

    Where the block has weights from an earlier pass, the ridge is on their sum: the passes then descend on the ridge
    problem of all blocks together.
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
    """A linear update, then predictions refitted on functions of themselves and projected: Algorithm 2, one round."""

    def update(
        design: Design, targets: Array, scores: Array, alpha: float, before: Array | None
    ) -> tuple[Array, Calibration | None]:
        W, _ = linear(design, targets, scores, alpha, None)
        calibration = fit_calibration(basis, scores, targets, design.weights, domain=domain)
        calibration(scores, out=scores)
        return W, calibration

    return update


def logistic(link: Link, lipschitz: float, steps: int, tol: float) -> Update:
    """Algorithm 1 on a block, with the scores so far as offsets: at most ``steps`` steps, one pass each, and two more.

    The matrix is that of the block alone: L Sigma_block + alpha I bounds the curvature along its weights.
    """

    def update(
        design: Design, targets: Array, scores: Array, alpha: float, before: Array | None
    ) -> tuple[Array, Calibration | None]:
        residuals = np.empty_like(scores)
        for begin, end in ranges(len(scores), _ROWS):
            residuals[begin:end] = apply_link(link, scores[begin:end]) - targets[begin:end]
        moments = design.moments(alpha / lipschitz, residuals)
        first = moments.cross
        # Offsets without the block's own part, so that its ridge is on all its weights.
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
    """What is known after a stage.

    Attributes
    ----------
    member, stage : int
        Which of the averaged models, and how many blocks it has been given, from 1 on.
    n_features : int
        Features of the block.
    loss : float
        Mean loss of the member on the rows it is fitted on: squared error, or that of the link.
    validation_error : float
        Rate of errors (mean squared error of a regression) on the validation part; NaN without one.
    seconds : float
        Since the start of the fit.
    """

    member: int
    stage: int
    n_features: int
    loss: float
    validation_error: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, fit for JSON: None for what is not known."""
        return {name: None if value != value else value for name, value in asdict(self).items()}


@dataclass
class StagewiseRun:
    """Fits one model block by block, and keeps the best prefix.

    Parameters
    ----------
    targets : ndarray of shape (n, K)
    scores : ndarray of shape (n, K)
        Where the fit starts; changed in place.
    alpha : float
    update : callable
        See `Update`.
    additive : bool
        Whether scores are sums over the blocks: a block that comes again adds to its weights.
    design : callable
        The `Design` of a fitted block, with the sample weights of the fit.
    loss : callable
        Mean loss of scores.
    judge : callable, optional
        Error on the validation part of scores; smaller is better.
    weights : ndarray of shape (n,), optional
        Of the fit, of mean 1; zero on the validation part.
    patience : int
        Stages without a better validation error after which the fit ends.
    stages : list of BlockFit
        From an earlier fit.
    """

    targets: Array
    scores: Array
    alpha: float
    update: Update
    additive: bool
    design: Callable[[Any], Design]
    loss: Callable[[Array], float]
    judge: Callable[[Array], float] | None = None
    weights: Array | None = None
    patience: int = 10
    stages: list[BlockFit] = field(default_factory=list)
    best: list[BlockFit] = field(default_factory=list)
    best_error: float = math.inf
    since_best: int = 0

    def __post_init__(self) -> None:
        self.best = list(self.stages)
        if self.stages and self.judge is not None:
            self.best_error = self.judge(self.scores)

    def run(self, blocks: Iterator[Any]) -> Iterator[tuple[int, float, float]]:
        """Fit the blocks that come; yields the number of features, the loss and the validation error after each.

        A block that has come before (the same object) is fitted again. `best` is right between any two steps, so that
        a run can be broken off.
        """
        for block in blocks:
            design = self.design(block)
            at = next((i for i, stage in enumerate(self.stages) if stage.block is block), None)
            again = self.additive and at is not None
            before = self.stages[at].weights if again and at is not None else None
            grown, calibration = self.update(design, self.targets, self.scores, self.alpha, before)
            design.release()
            if not np.isfinite(grown).all():
                raise ValueError("the weights of a stage are not finite: raise alpha, or scale the features")
            if before is not None and at is not None:
                self.stages[at] = BlockFit(block, before + grown)
            else:
                self.stages.append(BlockFit(block, grown, calibration))
            loss = self.loss(self.scores)
            error = math.nan if self.judge is None else self.judge(self.scores)
            if self.judge is None or error < self.best_error:
                self.best, self.best_error, self.since_best = list(self.stages), error, 0
            else:
                self.since_best += 1
            yield design.n_features, loss, error
            if self.since_best >= self.patience:
                return


def link_loss(name: str) -> Callable[[Array, Array, Array | None], float]:
    """Mean loss of scores, by the name of the link: ||y - s||^2, or the negative log-likelihood."""
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


def report(record: StageRecord, verbose: int, stream: TextIO | None = None) -> None:
    """A line for people, on standard error; nothing when ``verbose`` is 0."""
    if not verbose:
        return
    stream = sys.stderr if stream is None else stream
    error = "" if math.isnan(record.validation_error) else f"  validation error {record.validation_error:.4f}"
    stream.write(
        f"model {record.member}  stage {record.stage:>4}  loss {record.loss:.6g}{error}  {record.seconds:.1f} s\n"
    )
    stream.flush()


def clock() -> Callable[[], float]:
    """Seconds since now."""
    begun = time.perf_counter()
    return lambda: time.perf_counter() - begun
