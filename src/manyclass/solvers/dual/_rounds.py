"""Epochs of dual ascent in rounds, which threads share: see `manyclass.kernels.rounds`."""

from __future__ import annotations

from typing import Any

import numpy as np

from manyclass.kernels import rounds as kernels
from manyclass.kernels.meeting import APART, GIVEN_UP
from manyclass.kernels.rows import CSRRows
from manyclass.objective.problem import Array, Problem
from manyclass.runtime.threads import cores, together
from manyclass.solvers.base import State

__all__ = ["LONG", "Rounds", "add_measured", "fault", "nothing_common", "rounds_of"]

#: Minimum number of outputs from which scores and updates are divided by outputs, not by features.
_MANY = 128
#: Rows that are drawn to find out how much the rows of a round have in common.
_SAMPLE = 4096
#: Rounds are not used where the mean of v_i is more than this times that of ||x_i||^2; of long rounds. The latter is
#: 1.4 on ICD-10-CM, 26 on the digits, which need 1.5 to 1.8 times the epochs in rounds.
_MOST, _MOST_OF_LONG = 1.5, 8.0
#: Rows of a round that threads divide by features, and the least number of rows: of fewer, rounds are a large part.
LONG, _ENOUGH = 32, 10_000
#: What steps of a round have in common is taken to be this many times what it was in the epochs before, whose weight
#: halves with each epoch, and a hundredth of the bound at least.
_MORE, _LEAST = 2.0, 0.01
#: What is assumed before the first epoch: active sets had 0 to 3 % of the bound on three data sets, with an intercept
#: or not.
_COMMON = 0.05
#: Rounds of an epoch in which it is measured; of fewer, all.
_LOOKS = 64


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

    def raised(self, problem: Problem, order: Array, state: State) -> tuple[Array, Array, float]:
        """Norms for an epoch that visits the samples of ``order``, v_i - ||x_i||^2, and the part of it that they have.

        The bound v_i is for steps that point in one direction: the part of it that the last epochs had (sums of what
        was measured in ``state["common"]``), twice, is what the norms are raised by.
        """
        excess = self.norms_of(problem, order) - problem.norms
        crossed, bound = state["common"].tolist()
        common = min(1.0, max(_LEAST, _MORE * crossed / bound))
        return problem.norms + problem.dtype.type(common) * excess, excess, common

    def looks(self, n: int) -> tuple[int, Array]:
        """In every how many rounds of n samples their steps are compared, and where the results are written."""
        every = max(1, n // (self.size * _LOOKS))
        return every, np.zeros((n // (self.size * every) + 1, 2))

    def steps(self, problem: Problem, loss: Any, bias_step: float, state: State, order: Array, live: Array) -> Array:
        """One step on each sample of ``order``; returns what they had in common, and the bound on it."""
        V, threads = state["V"], self.threads(problem)
        norms, excess, common = self.raised(problem, order, state)
        every, measured = self.looks(len(order))
        line = 64 // V.itemsize
        first = -V.ctypes.data % 64 // V.itemsize  # each thread has whole cache lines
        cuts = [first + V.shape[1] * part // threads // line * line for part in range(1, threads)]
        scores = np.empty((len(self.edges) + 1, self.size, V.shape[1]), V.dtype)
        steps = np.zeros(scores.shape[1:], V.dtype)
        arrived = np.zeros(APART * threads, np.int64)
        together(
            lambda me: kernels.sdca_rounds(
                problem.rows,
                problem.targets,
                problem.sample_weight,
                norms,
                excess,
                order,
                loss,
                problem.penalty,
                V,
                live,
                state["dual"],
                state["idle"],
                problem.inv_lam_n,
                bias_step,
                bias_step * common * (self.size - 1),
                self.edges,
                np.array([0, *cuts, V.shape[1]]),
                scores,
                steps,
                every,
                measured,
                arrived,
                me,
                threads,
            ),
            threads,
            give_up=lambda: arrived.fill(GIVEN_UP),
        )
        return np.asarray(measured.sum(axis=0))


def nothing_common() -> Array:
    """The entry "common" of a state before the first epoch: sums that any measured ones replace."""
    return np.array([_COMMON, 1.0]) * 1e-30


def add_measured(state: State, measured: Array) -> None:
    """Take what the steps of an epoch had in common into account."""
    if measured[1] > 0:
        state["common"] = 0.5 * state["common"] + measured


def rounds_of(problem: Problem, *, wanted: bool, few_change: bool = False) -> Rounds | None:
    """The rounds of a problem that can have them; unless they are ``wanted``, only where they cost little.

    This is so with many outputs, whose weights a thread reads and writes in whole cache lines. If a step changes few of
    them (``few_change``), or if they are few, threads divide the features, and rounds are longer.
    """
    by_features = few_change or problem.n_outputs < _MANY
    size = LONG if by_features else kernels.ROUND
    if not wanted:
        if by_features and (not few_change or problem.n_samples < _ENOUGH):
            return None
        if fault(problem, by_features=by_features):
            return None
        order = np.random.default_rng(0).permutation(problem.n_samples)[:_SAMPLE].astype(np.int32)
        alone = problem.norms[order].sum(dtype=np.float64)
        shared = _shared_norms(problem, order, size)[order].sum(dtype=np.float64)
        if shared > (_MOST_OF_LONG if few_change else _MOST) * alone:
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
    """v_i of the samples of ``order``, and ||x_i||^2 of others."""
    norms = np.array(problem.norms)
    kernels.shared_norms(problem.rows, order, size, np.zeros(problem.n_features, np.int32), norms)
    return norms
