"""Prox-SDCA for the Crammer-Singer loss with many classes: sparse duals on active sets of rivals.

At the optimum an example has a few rivals with a positive dual; all others are out of the margin. So each example
keeps an active set, an epoch takes exact dual steps over it and touches those columns of W alone, and from time to
time one exact pass scores every class, appends the worst violators (dropped again if they have no dual after two
epochs) and, W being fixed meanwhile, gives the true objective of the full problem: the certificate is a by-product. A
block step on some coordinates keeps the dual feasible, so the certificate holds whatever the active sets are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval, StrOptions

from manyclass.kernels import active as kernels, proposals
from manyclass.kernels.rows import CSRRows, n_stored
from manyclass.mips import PROPOSERS, SearchIndex, proposer
from manyclass.objective.losses import CrammerSingerLoss, SmoothHingeLoss
from manyclass.objective.penalties import L1
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.runtime.threads import ranges, run
from manyclass.solvers.base import Progress, Solver, State
from manyclass.solvers.dual._asked import ask
from manyclass.solvers.dual._image import STORAGES, DenseImage, image_of, make_image
from manyclass.solvers.dual.sdca import SDCA, Epoch

__all__ = ["ActiveSetSDCA", "AsyncActiveSetSDCA", "has_many_rivals"]

#: Rows a thread scores at a time.
_ROWS = 512
#: Examples after which a kernel returns to Python, so that Ctrl-C is heard.
_SLICE = 1 << 18
#: A feature that more classes than this share is no help in finding first rivals.
_SHARED = 500
#: Epochs that a proposed rival has to get a positive dual.
_TRIAL = 2
#: A relative gap to which the rounding errors of some epochs' updates of the dual image are nothing.
_NEAR = 0.1
#: Classes from which active sets serve Crammer-Singer: below, whole rows of scores vectorize better. For sparse rows
#: also the least number of classes per stored value of a row: long rows touch many classes from the first epoch on.
_MANY, _MANY_PER_VALUE = 100, 4


def has_many_rivals(problem: Problem) -> bool:
    """Whether active sets of rivals pay, and can: they need an l2 part.

    Measured on texts: of 150 to 1 600 classes and 14 to 20 values a row they took 0.15 to 0.6 of the time of plain
    Prox-SDCA, with 387 classes and 150 values a row 2.2 times as long.
    """
    if not isinstance(problem.loss, CrammerSingerLoss) or isinstance(problem.penalty, L1):
        return False
    rows = problem.rows
    values = n_stored(rows) / max(problem.n_samples, 1) if isinstance(rows, CSRRows) else 0.0
    return problem.n_outputs >= max(_MANY, _MANY_PER_VALUE * values)


class ActiveSetSDCA(SDCA):
    """Active-set Prox-SDCA for `CrammerSingerLoss`.

    Parameters
    ----------
    first : int
        Rivals per example to begin with, those with the most similar class centroids.
    more : int
        Most rivals appended per example by one exact pass.
    epochs : int
        Epochs between exact passes.
    slack : float
        How far below the worst violation of its example a rival may be and still be appended; at least the gamma of
        the loss is taken.
    storage : {"auto", "dense", "sparse"}
        How the weights are held while they are fitted: a d x K array, or a table of those that are not zero, for sparse
        rows. "auto" takes the table where the array would be larger than what a processor keeps near. The weights that
        a fit returns are sparse with the table.
    search : {"exact", "lsh", "graph"} or SearchIndex, default="exact"
        What proposes rivals: exact passes over all classes, which certify as well, or an index (`manyclass.mips`; an
        object is copied) between the certificates: it is built from the live weights each time, and what it finds is
        scored on them. A certificate is by an exact pass all the same, which proposes too; it is
        given when the driver asks for one.

    Raises
    ------
    ValueError
        If ``storage`` is none of these, or "sparse" with dense rows.
    """

    name = "sdca_active"
    summary = "sparse duals on active sets of rivals; Crammer-Singer with many classes"
    synonyms: ClassVar[tuple[str, ...]] = ("active_set", "active_set_sdca")
    needs_loss = frozenset({"sparse_dual"})
    needs_penalty = frozenset({"conjugate"})
    takes_shift = False
    default_max_iter = 300
    #: Whether an update of the dual image may be lost.
    drifts = False
    _index: SearchIndex | None = None
    option = "I"
    sampling = "permutation"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "first": [Interval(Integral, 1, None, closed="left")],
        "more": [Interval(Integral, 1, None, closed="left")],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "slack": [Interval(Real, 0, None, closed="left")],
        "storage": [StrOptions(set(STORAGES))],
        "search": [StrOptions(set(PROPOSERS)), SearchIndex],
    }

    def __init__(
        self,
        *,
        first: int = 16,
        more: int = 16,
        epochs: int = 6,
        slack: float = 0.5,
        storage: str = "auto",
        search: str | SearchIndex = "exact",
    ) -> None:
        self.first = first
        self.more = more
        self.epochs = epochs
        self.slack = slack
        self.storage = storage
        self.search = search

    @property
    def certifies(self) -> bool:  # type: ignore[override]
        """An exact search for rivals gives the certificate too; an index does not."""
        return self.search == "exact"

    def prepare(self, problem: Problem) -> Solver:
        """This solver; for two classes, which have one margin and no rivals to choose from, plain Prox-SDCA."""
        if isinstance(problem.loss, SmoothHingeLoss) and problem.n_outputs == 1:
            self.check()
            return SDCA().prepare(problem)
        copy: ActiveSetSDCA = Solver.prepare(self, problem)
        copy._index = proposer(self.search)
        return copy

    def check_problem(self, problem: Problem) -> None:
        super().check_problem(problem)
        if self.storage == "sparse" and not isinstance(problem.rows, CSRRows):
            raise ValueError("storage='sparse' is for sparse rows, got dense ones: give storage='auto' or 'dense'")

    def state(self, problem: Problem) -> State:
        K = problem.n_outputs
        bias = np.zeros(K, problem.dtype)
        state: State = {
            "iteration": np.zeros((), np.int64),
            **make_image(self.storage, problem).arrays(problem),
            "bias": bias,
            "pull": np.zeros(K, problem.dtype),
            "idle": np.zeros(problem.n_samples, np.int8),
            "passes": np.zeros(()),
            "indptr": np.zeros(problem.n_samples + 1, np.int64),
            "rivals": np.zeros(0, np.int32),
            "b": np.zeros(0, problem.dtype),
            "proposed": np.zeros((), np.int64),
            "gap": np.ones(()),
        }
        _merge(state, self._first_rivals(problem, state))
        return state

    def nbytes(self, problem: Problem) -> dict[str, int]:
        size = problem.dtype.itemsize
        per_row = self.first + 2 * self.more
        image = make_image(self.storage, problem)
        return {
            "weights" if isinstance(image, DenseImage) else "weights (sparse, estimated)": image.nbytes(problem),
            # Twice: a merge holds the old and the new lists.
            "sparse duals": 2 * problem.n_samples * (8 + per_row * (4 + size)),
        }

    def weights(self, problem: Problem, state: State) -> tuple[Any, Array]:
        return image_of(state).weights(problem, state), state["bias"]

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        for progress in super().iterate(problem, state, seed):
            if progress.iteration % self.epochs:
                pass
            elif self._index is not None:
                self._ask(problem, state, self._index)
            else:
                progress = replace(progress, bound=self._certify(problem, state))
            yield progress

    def _due(self, problem: Problem, state: State, seed: int, number: int) -> Array:
        if number == int(state["proposed"]) + _TRIAL:
            # An epoch costs as much as there are rivals. One that is dropped here and would matter later will be a
            # violator then, and found by the next exact pass.
            _merge(state, np.zeros((problem.n_samples, 0), np.int32))
        return super()._due(problem, state, seed, number)

    def _epoch(self, epoch: Epoch, state: State, order: Array, live: Array) -> None:
        for begin, end in ranges(len(order), _SLICE):
            _step(epoch, state, order[begin:end], live)

    def _certify(self, problem: Problem, state: State) -> Certificate:
        """The certificate of a pass. The dual image is made afresh only where its rounding errors could show."""
        final = self.drifts or float(state["gap"]) < 1.0  # all but the first are near enough, or soon will be
        found, rivals = self._measure(problem, state, final=final)
        if not final and found.relative_gap <= _NEAR:
            found, rivals = self._measure(problem, state, final=True)
        self._accept(state, rivals)
        return found

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        """One exact pass: the gap, and the violators it finds become active."""
        certificate, rivals = self._measure(problem, state, final=final)
        self._accept(state, rivals)
        return certificate

    def _measure(self, problem: Problem, state: State, *, final: bool) -> tuple[Certificate, Array]:
        """One exact pass: the gap, and the violators."""
        if problem.intercept:
            _balance(problem, state)
            state["pull"] = np.zeros_like(state["pull"])
        image = image_of(state)
        if final or problem.intercept or self.drifts:
            image.rebuild(problem, state)
        losses, rivals = self._propose(problem, state, self.more)
        g, conjugate = image.sums(problem, state)
        conjugates = kernels.sparse_conjugates(problem.sample_weight, _gamma(problem), state["indptr"], state["b"])
        certificate = Certificate(
            primal=problem.objective(losses, g),
            dual=-conjugates / problem.n_samples - problem.lam * conjugate,
            resolution=problem.resolution,
        )
        state["gap"] = np.asarray(certificate.relative_gap)
        return certificate, rivals

    def _propose(self, problem: Problem, state: State, most: int) -> tuple[float, Array]:
        found = np.empty((problem.n_samples, min(most, problem.n_outputs - 1)), np.int32)
        # A rival that is less than gamma below the worst violation may have a positive dual at the optimum.
        slack = max(self.slack, float(_gamma(problem)))
        scored = image_of(state).scored(problem, state)
        parts = run(
            lambda begin, end: proposals.propose(
                problem.rows,
                _y(problem),
                problem.sample_weight,
                _gamma(problem),
                problem.penalty,
                scored,
                state["bias"],
                state["indptr"],
                state["rivals"],
                state["b"],
                slack,
                found,
                begin,
                end,
            ),
            ranges(problem.n_samples, _ROWS),
            problem.n_threads,
        )
        return float(np.sum(parts)), found

    def _ask(self, problem: Problem, state: State, index: SearchIndex) -> None:
        """Rivals from the index."""
        image = image_of(state)
        asked = ask(index, problem, image.weights(problem, state), state["bias"], 2 * self.more)
        found = np.empty((problem.n_samples, self.more), np.int32)
        proposals.keep_violators(
            problem.rows,
            _y(problem),
            problem.penalty,
            image.view(state),
            state["bias"],
            state["indptr"],
            state["rivals"],
            state["b"],
            asked,
            max(self.slack, float(_gamma(problem))),
            found,
        )
        self._accept(state, found)

    def _accept(self, state: State, found: Array) -> None:
        _merge(state, found)
        state["proposed"] = state["iteration"]
        state["idle"][:] = 0  # new rivals, and W may have been rebuilt

    def _first_rivals(self, problem: Problem, state: State) -> Array:
        """The classes with the most similar centroids (at W = 0 every class violates the margin alike)."""
        y, K, rows = _y(problem), problem.n_outputs, problem.rows
        share = (1.0 / np.maximum(np.bincount(y, minlength=K), 1)).astype(problem.dtype)
        found = np.empty((problem.n_samples, min(self.first, K - 1)), np.int32)
        if isinstance(rows, CSRRows):
            X = sp.csr_matrix((rows.data, rows.indices, rows.indptr), shape=(problem.n_samples, problem.n_features))
            member = sp.csr_matrix(
                (share[y], y, np.arange(problem.n_samples + 1)), shape=(problem.n_samples, K), dtype=problem.dtype
            )
            centroids = (X.T.tocsr() @ member).tocsr()
            run(
                lambda begin, end: proposals.centroid_rivals(
                    rows.data,
                    rows.indices,
                    rows.indptr,
                    y,
                    centroids.indptr,
                    centroids.indices,
                    centroids.data,
                    _SHARED,
                    K,
                    found,
                    begin,
                    end,
                ),
                ranges(problem.n_samples, _ROWS),
                problem.n_threads,
            )
            return found
        # Dense rows: the centroids are dense too, and serve as weights of one exact pass.
        V = state["V"]
        np.add.at(V.T, y, np.asarray(rows.x, problem.dtype) * share[y][:, None])
        found = self._propose(problem, state, self.first)[1]
        V[:] = 0
        return found


class AsyncActiveSetSDCA(ActiveSetSDCA):
    """`ActiveSetSDCA` on several threads that share the weights without locks.

    Each thread takes its part of every epoch's examples, and a step writes a few columns of a few rows of W only, so
    that hardly ever two threads write to one place at a time. When they do an update may be lost: a run is not
    reproducible. The dual image is computed afresh for every certificate, which is therefore true.
    """

    name = "sdca_active_async"
    drifts = True

    def _epoch(self, epoch: Epoch, state: State, order: Array, live: Array) -> None:
        threads = epoch.problem.n_threads
        for begin, end in ranges(len(order), _SLICE * threads):
            part = order[begin:end]
            left = np.empty_like(part)
            pieces = ranges(len(part), -(-len(part) // threads))
            counts = run(
                lambda lo, hi, part=part, left=left: _step(epoch, state, part[lo:hi], live, left[lo:hi]),  # type: ignore[misc]
                pieces,
                threads,
            )
            # What would have changed the shape of a sparse image, which only one may do at a time.
            for (lo, _), count in zip(pieces, counts):
                _step(epoch, state, left[lo : lo + count], live)


def _step(epoch: Epoch, state: State, order: Array, live: Array, left: Array | None = None) -> int:
    """Dual steps on the examples of ``order``; where other threads do the same, some are put off to ``left``: returns
    how many."""
    problem, image = epoch.problem, image_of(state)
    done = put_off = 0
    while done < len(order):
        more, put_off = kernels.active_epoch(
            problem.rows,
            _y(problem),
            problem.sample_weight,
            problem.norms,
            order[done:],
            _gamma(problem),
            problem.penalty,
            image.view(state),
            live,
            state["indptr"],
            state["rivals"],
            state["b"],
            state["idle"],
            problem.inv_lam_n,
            epoch.bias_step,
            left is None,
            np.zeros(0, np.int32) if left is None else left,
        )
        done += more
        if done < len(order):
            image.enlarge(state)
    return int(put_off)


def _y(problem: Problem) -> Array:
    y: Array = problem.targets.y  # type: ignore[union-attr]
    return y


def _gamma(problem: Problem) -> float:
    gamma: float = problem.loss.gamma
    return gamma


def _merge(state: State, found: Array) -> None:
    """Append the proposals; drop active rivals whose dual is zero."""
    indptr = np.empty_like(state["indptr"])
    none_i, none_b = np.zeros(0, np.int32), np.zeros(0, state["b"].dtype)
    kernels.merge_rivals(state["indptr"], state["rivals"], state["b"], found, indptr, none_i, none_b, False)
    rivals, b = np.empty(indptr[-1], np.int32), np.empty(indptr[-1], state["b"].dtype)
    kernels.merge_rivals(state["indptr"], state["rivals"], state["b"], found, indptr, rivals, b, True)
    state.update(indptr=indptr, rivals=rivals, b=b)


def _balance(problem: Problem, state: State) -> None:
    """Bring the sparse duals to sum_i c_i a_i = 0 exactly, with few new entries."""
    n, K = problem.n_samples, problem.n_outputs
    excess = np.empty(K)
    rows, classes, masses = np.empty(n + 4 * K, np.int64), np.empty(n + 4 * K, np.int32), np.empty(n + 4 * K)
    kernels.class_excess(_y(problem), problem.sample_weight, state["indptr"], state["rivals"], state["b"], excess)
    # Little from each example first: a step that is small everywhere costs the dual least.
    for cap in (0.03, 0.3, 1.0, 1.0):
        moves = kernels.plan_moves(
            _y(problem),
            problem.sample_weight,
            state["indptr"],
            state["rivals"],
            state["b"],
            excess,
            cap,
            rows,
            classes,
            masses,
        )
        if moves:
            held = sp.csr_matrix((state["b"], state["rivals"], state["indptr"]), shape=(n, K))
            moved = sp.csr_matrix((masses[:moves], (rows[:moves], classes[:moves])), shape=(n, K))
            total = (held + moved).tocsr()
            state.update(
                indptr=total.indptr.astype(np.int64),
                rivals=total.indices.astype(np.int32),
                b=np.clip(total.data, 0, 1).astype(problem.dtype),
            )
        if not np.any(excess > 1e-9 * n):
            break
