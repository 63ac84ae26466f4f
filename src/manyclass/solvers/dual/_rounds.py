"""Epochs of dual ascent in rounds, which threads share: see `manyclass.kernels.rounds`."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyclass.kernels import rounds as kernels
from manyclass.kernels.meeting import APART, GIVEN_UP
from manyclass.kernels.rows import CSRRows
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.threads import cores, together

__all__ = ["Rounds", "fault", "rounds_of"]

#: Minimum number of outputs from which scores and updates are divided by outputs, not by features.
_MANY = 128
#: Rows that are drawn to find out how much the rows of a round have in common.
_SAMPLE = 4096
#: Rounds are not used where the mean of v_i is more than this times that of ||x_i||^2; where steps change few outputs.
#: The latter is 1.4 on ICD-10-CM, 26 on the digits, which need 1.5 to 1.8 times the epochs in rounds.
_MOST, _MOST_OF_FEW = 1.5, 8.0
#: Rows of a round where steps change few outputs, and the least number of rows: of fewer, rounds are a large part.
LONG, _ENOUGH = 32, 10_000


class Rounds:
    """The rounds of a problem; they depend on the problem only, not on the number of threads.

    Attributes
    ----------
    norms : ndarray of shape (n_samples,)
        v_i for an epoch that visits all samples.
    edges : ndarray
        Bounds between the shards of features; empty if the work is divided by outputs.
    size : int
        Rows of a round.
    """

    def __init__(self, problem: Problem, *, by_features: bool, size: int = kernels.ROUND) -> None:
        self.size = size
        self.edges = np.array(problem.feature_edges(kernels.SHARDS)[1:-1] if by_features else [], np.int64)
        self.norms = _shared_norms(problem, np.arange(problem.n_samples, dtype=np.int32), size)

    def threads(self, problem: Problem) -> int:
        """The number of threads that can share an epoch: at most one per core, because they wait without sleeping."""
        most = kernels.SHARDS if len(self.edges) else min(kernels.ROUND, problem.n_columns // 64)
        return max(1, min(problem.n_threads, cores(), most))

    def norms_of(self, problem: Problem, order: Array) -> Array:
        """v_i for an epoch that visits the samples of ``order``."""
        return self.norms if len(order) == problem.n_samples else _shared_norms(problem, order, self.size)

    def steps(
        self, problem: Problem, loss: Any, bias_step: float, state: dict[str, Array], order: Array, live: Array
    ) -> None:
        """One step on each sample of ``order``."""
        V, threads, norms = state["V"], self.threads(problem), self.norms_of(problem, order)
        line = 64 // V.itemsize
        first = -V.ctypes.data % 64 // V.itemsize  # each thread has whole cache lines
        cuts = [first + V.shape[1] * part // threads // line * line for part in range(1, threads)]
        scores = np.empty((len(self.edges) + 1, kernels.ROUND, V.shape[1]), V.dtype)
        steps = np.zeros(scores.shape[1:], V.dtype)
        arrived = np.zeros(APART * threads, np.int64)
        together(
            lambda me: kernels.sdca_rounds(
                problem.rows,
                problem.targets,
                problem.sample_weight,
                norms,
                order,
                loss,
                problem.penalty,
                V,
                live,
                state["dual"],
                state["idle"],
                problem.inv_lam_n,
                bias_step,
                self.edges,
                np.array([0, *cuts, V.shape[1]]),
                scores,
                steps,
                arrived,
                me,
                threads,
            ),
            threads,
            give_up=lambda: arrived.fill(GIVEN_UP),
        )


def rounds_of(problem: Problem, bias_step: float, *, wanted: bool, few_change: bool = False) -> Rounds | None:
    """The rounds of a problem that can have them; unless they are ``wanted``, only where they cost nothing.

    This is so with many outputs, whose weights a thread reads and writes in whole cache lines, and rows that share few
    features. An intercept is a feature that all rows share. If a step changes few outputs (``few_change``), the steps
    of most rows have none in common: threads divide the features, rounds are longer, and rows may share more.
    """
    by_features = few_change or problem.n_outputs < _MANY
    size, most = (LONG, _MOST_OF_FEW) if few_change else (kernels.ROUND, _MOST)
    if not wanted:
        if by_features and (not few_change or problem.n_samples < _ENOUGH):
            return None
        if fault(problem, by_features=by_features):
            return None
        order = np.random.default_rng(0).permutation(problem.n_samples)[:_SAMPLE].astype(np.int32)
        constant = len(order) * bias_step / problem.inv_lam_n
        alone = problem.norms[order].sum(dtype=np.float64) + constant
        shared = _shared_norms(problem, order, size)[order].sum(dtype=np.float64) + size * constant
        if shared > most * alone:
            return None
    return Rounds(problem, by_features=by_features, size=size)


def fault(problem: Problem, *, by_features: bool | None = None) -> str:
    """Why the epochs of a problem cannot go in rounds; empty if they can. ``by_features``: how threads divide them."""
    if not problem.loss.joint:
        return f"a joint loss, and the outputs of {problem.loss.name!r} are separate (threads share them as they are)"
    if not isinstance(problem.rows, CSRRows):
        return "sparse rows, and these are dense"
    if by_features is None:
        by_features = problem.n_outputs < _MANY
    if by_features and not kernels.is_sorted(problem.rows):
        return "rows with sorted features: call X.sort_indices()"
    return ""


def _shared_norms(problem: Problem, order: Array, size: int) -> Array:
    norms = np.empty(problem.n_samples, problem.dtype)
    kernels.shared_norms(problem.rows, order, size, np.zeros(problem.n_features, np.int32), norms)
    return norms
