"""The run of a MEMOIR fit: epochs, their reports, the held-out part; and what pruning costs."""

from __future__ import annotations

import sys
import time
from dataclasses import asdict, dataclass, field
from typing import Any, TextIO

import numpy as np
import scipy.sparse as sp

from manyclass.kernels.scoring import Scorer
from manyclass.metrics import accuracy, f1
from manyclass.objective.problem import Array
from manyclass.solvers.memoir.learner import Memoir

__all__ = ["METRICS", "EpochRecord", "PruneReport", "Run", "prune"]

METRICS = ("accuracy", "f1_macro")
#: Thresholds tried between none and that which leaves nothing.
_HALVINGS = 20


@dataclass(frozen=True)
class EpochRecord:
    """What is known after an epoch.

    Attributes
    ----------
    epoch : int
        From 1 on.
    loss : float
        Mean hinge loss of the rows as they came, before they were learnt.
    update_rate : float
        The part of them that moved the weights.
    recall : float
        recall@1 of the search for rivals: 1 where it is exact, else measured on a sample of the epoch's queries.
    margin_error : float
        By how much the margins found were too large, the mean of that sample.
    nonzeros : int
        Weights that are not zero.
    nbytes : int
        Bytes of the weights as they are held while they are learnt, and of the index.
    validation : float
        The metric on the held-out part; NaN without one.
    seconds : float
        Of learning since the start of the fit, without reports.
    """

    epoch: int
    loss: float
    update_rate: float
    recall: float
    margin_error: float
    nonzeros: int
    nbytes: int
    validation: float
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, fit for JSON: None for what is not known."""
        return {name: None if value != value else value for name, value in asdict(self).items()}

    def line(self) -> str:
        """For people."""
        found = "" if self.validation != self.validation else f"  validation {self.validation:.4f}"
        search = "" if self.recall == 1 else f"  recall {self.recall:.3f}  margin error {self.margin_error:.3g}"
        return (
            f"epoch {self.epoch:>3}  loss {self.loss:.4f}  updates {self.update_rate:.3f}{search}  "
            f"weights {self.nonzeros}{found}  {self.seconds:.1f} s"
        )


@dataclass
class Run:
    """The epochs of a fit.

    Parameters
    ----------
    learner : Memoir
    max_iter, batch_size, seed, verbose : int
    held_out : tuple of rows and class numbers, optional
        What the weights are judged on after each epoch; the best are kept.
    metric : {"accuracy", "f1_macro"}
    patience : int
        Epochs without a better validation after which the run ends.
    """

    learner: Memoir
    max_iter: int
    batch_size: int
    seed: int
    verbose: int = 0
    held_out: tuple[Any, Array] | None = None
    metric: str = "accuracy"
    patience: int = 5
    n_jobs: int = 1
    records: list[EpochRecord] = field(default_factory=list)
    outcome: str = "max_iter"

    def train(self, X: Any, y: Array, weights: Array | None, stream: TextIO | None = None) -> Any:
        """Learn; returns the weights, those of the best epoch where they are judged. Ctrl-C ends the run."""
        best: tuple[float, int, Any] = (-1.0, 0, None)
        seconds, W = 0.0, None
        try:
            for epoch in range(1, self.max_iter + 1):
                # From the seed and the epoch alone, as the other solvers draw.
                order = np.random.default_rng([self.seed, epoch - 1]).permutation(len(y))
                begun = time.perf_counter()
                W = None
                met = self.learner.epoch(X, y, order, batch_size=self.batch_size, weights=weights, judge_seed=self.seed)
                seconds += time.perf_counter() - begun
                W = self.learner.weights()
                judged = float("nan") if self.held_out is None else score(W, *self.held_out, self.metric, self.n_jobs)
                self.records.append(
                    EpochRecord(
                        epoch,
                        met.loss,
                        met.updates / max(met.rows, 1),
                        met.recall,
                        met.margin_error,
                        int(W.nnz if sp.issparse(W) else np.count_nonzero(W)),
                        self.learner.nbytes,
                        judged,
                        seconds,
                    )
                )
                if self.verbose:
                    print(self.records[-1].line(), file=sys.stderr if stream is None else stream, flush=True)
                if judged > best[0]:
                    best = (judged, epoch, W)
                elif self.held_out is not None and epoch - best[1] >= self.patience:
                    self.outcome = "patience"
                    break
        except KeyboardInterrupt:
            self.outcome = "interrupted"
        if best[2] is not None:
            return best[2]
        # In the midst of the first epoch: every prefix of the steps is a model.
        return self.learner.weights() if W is None else W


def score(W: Any, X: Any, y: Array, metric: str, n_jobs: int) -> float:
    """Accuracy or macro-F1 of weights."""
    predicted = Scorer(W, np.zeros(W.shape[1], W.dtype)).best(X, 1, n_jobs)[0][:, 0]
    return float(accuracy(y, predicted) if metric == "accuracy" else f1(y, predicted, average="macro"))


@dataclass(frozen=True)
class PruneReport:
    """What pruning has done.

    Attributes
    ----------
    threshold : float
        Weights of at most this magnitude were dropped.
    nonzeros_before, nonzeros : int
    accuracy_before, accuracy, f1_macro_before, f1_macro : float
        On the rows given.
    """

    threshold: float
    nonzeros_before: int
    nonzeros: int
    accuracy_before: float
    accuracy: float
    f1_macro_before: float
    f1_macro: float


def prune(W: Any, X: Any, y: Array, threshold: float | None, max_loss: float, n_jobs: int) -> tuple[Any, PruneReport]:
    """Sparse weights without the small ones, and what that cost: `MemoirClassifier.prune`."""

    def cut(bound: float) -> Any:
        left = W.copy()
        left.data[np.abs(left.data) <= bound] = 0
        left.eliminate_zeros()
        return left

    before = {metric: score(W, X, y, metric, n_jobs) for metric in METRICS}
    if threshold is None:
        # Accuracy falls with the threshold, nearly always: halve between what is known to be good and known not to be.
        low, high = 0.0, float(np.abs(W.data).max(initial=0.0))
        for _ in range(_HALVINGS):
            middle = 0.5 * (low + high)
            good = score(cut(middle), X, y, "accuracy", n_jobs) >= before["accuracy"] - max_loss
            low, high = (middle, high) if good else (low, middle)
        threshold = low
    left = cut(threshold)
    after = {metric: score(left, X, y, metric, n_jobs) for metric in METRICS}
    return left, PruneReport(
        threshold,
        int(W.nnz),
        int(left.nnz),
        before["accuracy"],
        after["accuracy"],
        before["f1_macro"],
        after["f1_macro"],
    )
