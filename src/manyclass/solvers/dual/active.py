"""Prox-SDCA for the Crammer-Singer loss with many classes: sparse dual variables on active sets of rival classes.

A rival of a sample is a class other than its own. At the optimum few rivals of a sample have a positive dual variable.
So each sample has an active set of rivals, and the exact dual steps of an epoch change only their columns of W. Every
``epochs`` epochs an exact pass scores all classes and adds the worst violators to the active sets; those without a
positive dual variable two epochs later are removed. W is fixed during that pass, which therefore gives the objective of
the full problem: the certificate costs nothing extra. The dual point is feasible for any active sets, so that the
certificate is always valid.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from numbers import Integral, Real
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
from sklearn.utils._param_validation import Interval, StrOptions

from manyclass.distributed import SerialCommunicator
from manyclass.kernels import active as kernels, proposals
from manyclass.kernels.meeting import APART, GIVEN_UP
from manyclass.kernels.mixed import MixedWeights, make_mixed
from manyclass.kernels.rows import CSRRows, n_stored
from manyclass.mips import PROPOSERS, SearchIndex, proposer
from manyclass.objective.losses import CrammerSingerLoss, SmoothHingeLoss
from manyclass.objective.penalties import L1
from manyclass.objective.problem import Array, Certificate, Problem
from manyclass.runtime.threads import ranges, run, together
from manyclass.solvers.base import Progress, Solver, State, row_matrix
from manyclass.solvers.dual._asked import ask
from manyclass.solvers.dual._image import STORAGES, DenseImage, image_of, make_image
from manyclass.solvers.dual._rivals import balance, classes_of, merge
from manyclass.solvers.dual._rounds import Rounds, add_measured, fault, nothing_common, rounds_of
from manyclass.solvers.dual.sdca import IN_ROUNDS, SDCA, Epoch

__all__ = ["ActiveSetSDCA", "has_many_rivals"]

#: Rows per task of an exact pass.
_ROWS = 512
#: Samples after which a kernel returns to Python, which handles Ctrl-C.
_SLICE = 1 << 18
#: Features that occur in more classes than this are not used to find the first rivals.
_SHARED = 500
#: Part of the entries of the centroids from which on rivals are found by an exact pass with the centroids as weights.
_FULL = 0.2
#: Number of epochs after which a rival without a positive dual variable is removed.
_TRIAL = 2
#: Relative gap above which rounding errors of the updates of the dual image do not matter.
_NEAR = 0.1
#: Minimum number of classes for which active sets are used: with fewer, dense rows of scores vectorize better. For
#: sparse rows also the minimum number of classes per stored value of a row: long rows change many classes at once.
_MANY, _MANY_PER_VALUE = 100, 4


#: Arrays of the state whose length changes.
_GROWING = frozenset({"rivals", "b", "keys"})


def has_many_rivals(problem: Problem) -> bool:
    """Whether active sets of rivals are expected to be faster than `SDCA`, and the penalty has the l2 part they need.

    The thresholds are rules of thumb: no stored rows of benchmarks support them.
    """
    if not isinstance(problem.loss, CrammerSingerLoss) or isinstance(problem.penalty, L1):
        return False
    rows = problem.rows
    values = n_stored(rows) / max(problem.n_samples, 1) if isinstance(rows, CSRRows) else 0.0
    return problem.n_outputs >= max(_MANY, _MANY_PER_VALUE * values)


class ActiveSetSDCA(SDCA):
    """Active-set Prox-SDCA for `CrammerSingerLoss` with many classes.

    Parameters
    ----------
    first : int, default=16
        Number of rivals per sample at the start, >= 1: the classes with the most similar centroids.
    more : int, default=16
        Maximum number of rivals that a pass adds per sample, >= 1.
    epochs : int, default=6
        Epochs between two passes that add rivals, >= 1. The first pass is after the first epoch, because the first
        rivals, of the centroids, are poor ones; there is another one half of ``epochs`` later.
    slack : float, default=0.5
        A rival is added if its score is at most this much, >= 0, below the largest violation of its sample; the gamma
        of the loss is used if that is larger.
    storage : {"auto", "dense", "sparse"}, default="auto"
        How the weights are stored during the fit: an array, or, for sparse rows, a table of the nonzero weights.
        "auto": the table if the array would exceed 128 MiB. With the table the fitted weights are sparse.
    search : {"exact", "lsh", "graph"} or SearchIndex, default="exact"
        How rivals are found. "exact": by scoring all classes, which also gives the certificate. Otherwise by an index
        (see `manyclass.mips`; an object is copied), which is built from the current weights each time. The certificates
        that the fitting loop requests are exact passes in any case, and add rivals too.
    sampling : {"auto", "permutation", "rounds"}, default="auto"
        As for `SDCA`, with rounds of 32 samples, whose threads divide the features among each other; they need sparse
        rows with sorted features. "auto": "rounds" for 10 000 such rows and more, unless they share most features.

    Raises
    ------
    ValueError
        If a parameter is invalid, or ``storage="sparse"`` with dense rows.
    """

    name = "sdca_active"
    summary = "Prox-SDCA with sparse dual variables on active sets; Crammer-Singer with many classes"
    synonyms: ClassVar[tuple[str, ...]] = ("active_set", "active_set_sdca")
    needs_loss = frozenset({"sparse_dual"})
    needs_penalty = frozenset({"conjugate"})
    takes_shift = False
    default_max_iter = 300
    _index: SearchIndex | None = None
    option = "I"
    output = "last"
    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        "first": [Interval(Integral, 1, None, closed="left")],
        "more": [Interval(Integral, 1, None, closed="left")],
        "epochs": [Interval(Integral, 1, None, closed="left")],
        "slack": [Interval(Real, 0, None, closed="left")],
        "storage": [StrOptions(set(STORAGES))],
        "search": [StrOptions(set(PROPOSERS)), SearchIndex],
        "sampling": [StrOptions({*IN_ROUNDS, "permutation"})],
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
        sampling: str = "auto",
    ) -> None:
        self.first = first
        self.more = more
        self.epochs = epochs
        self.slack = slack
        self.storage = storage
        self.search = search
        self.sampling = sampling

    @property
    def certifies(self) -> bool:  # type: ignore[override]
        """Whether the search for rivals also gives the certificate."""
        return self.search == "exact"

    def prepare(self, problem: Problem) -> Solver:
        """A checked copy; for two classes, which have one margin and no choice of rivals, `SDCA`."""
        if isinstance(problem.loss, SmoothHingeLoss) and problem.n_outputs == 1:
            self.check()
            return SDCA().prepare(problem)
        copy: ActiveSetSDCA = Solver.prepare(self, problem)
        copy._index = proposer(self.search)
        return copy

    def check_problem(self, problem: Problem) -> None:
        if isinstance(problem.penalty, L1):
            raise ValueError(
                f"solver {self.name!r} needs a penalty with an l2 part, which its dual steps are scaled by, got a pure "
                "l1 penalty: choose solver='accelerated' (as 'auto' does), or l1_ratio < 1"
            )
        super().check_problem(problem)
        if self.storage == "sparse" and not isinstance(problem.rows, CSRRows):
            raise ValueError("storage='sparse' needs sparse rows, got dense rows: give storage='auto' or 'dense'")

    def _check_rounds(self, problem: Problem) -> None:
        if self.sampling == "rounds" and (needs := fault(problem, by_features=True)):
            raise ValueError(f"sampling='rounds' needs {needs}; sampling='auto' takes rounds where they serve")

    def _rounds(self, problem: Problem) -> Rounds | None:
        if self.sampling not in IN_ROUNDS:
            return None
        return rounds_of(problem, wanted=self.sampling == "rounds", few_change=True)

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
            "common": nothing_common(),
        }
        merge(state, self._first_rivals(problem, state))
        return state

    def nbytes(self, problem: Problem) -> dict[str, int]:
        size = problem.dtype.itemsize
        per_row = self.first + 2 * self.more
        image = make_image(self.storage, problem)
        return {
            "weights" if isinstance(image, DenseImage) else "weights (sparse, estimated)": image.nbytes(problem),
            # Twice: `merge` holds the old and the new lists.
            "sparse dual variables": 2 * problem.n_samples * (8 + per_row * (4 + size)),
        }

    def unpack(self, problem: Problem, state: State, arrays: dict[str, Array]) -> None:
        """As in the base class, but for the lists of rivals and the table of weights, which grow."""
        for name in _GROWING & arrays.keys() & state.keys():
            if (arrays[name].ndim, arrays[name].dtype) == (1, state[name].dtype):
                state[name] = np.empty_like(arrays[name])
        super().unpack(problem, state, arrays)
        self.check_arrays(problem, state)

    def check_arrays(self, problem: Problem, state: State) -> None:
        """Raise a ValueError if a table or lists of rivals that were read are not those of this problem."""
        image_of(state).check(problem, state)
        bounds, rivals = state["indptr"], state["rivals"]
        ordered = bounds[0] == 0 and (np.diff(bounds) >= 0).all() and bounds[-1] == len(rivals) == len(state["b"])
        if not ordered or not ((rivals >= 0) & (rivals < problem.n_outputs)).all():
            raise ValueError("the lists of rivals are not those of this problem")

    def weights(self, problem: Problem, state: State) -> tuple[Any, Array]:
        return image_of(state).weights(problem, state), state["bias"]

    def iterate(self, problem: Problem, state: State, seed: int) -> Iterator[Progress]:
        for progress in super().iterate(problem, state, seed):
            if not self.passes_after(progress.iteration):
                pass
            elif self._index is not None:
                self._ask(problem, state, self._index)
            else:
                progress = replace(progress, bound=self._certify(problem, state))
            yield progress

    def passes_after(self, number: int) -> bool:
        """Whether new rivals are searched for after this epoch."""
        return (number - 1) % self.epochs == 0 or number - 1 == self.epochs // 2

    def _due(self, problem: Problem, state: State, seed: int, number: int) -> Array:
        if number == int(state["proposed"]) + _TRIAL:
            # The cost of an epoch is proportional to the number of active rivals. A rival that is removed too early
            # becomes a violator, which a later pass adds again.
            merge(state, np.zeros((problem.n_samples, 0), np.int32))
        return super()._due(problem, state, seed, number)

    def _epoch(self, epoch: Epoch, state: State, order: Array, live: Array) -> None:
        measured = np.zeros(2)
        for begin, end in ranges(len(order), _SLICE):
            measured += _step(epoch, state, order[begin:end], live)
        add_measured(state, measured)

    def _certify(self, problem: Problem, state: State) -> Certificate:
        """The certificate of a pass; the dual image is recomputed only if its rounding errors could matter."""
        final = float(state["gap"]) <= 3 * _NEAR  # a pass is likely to find it near now
        found, rivals = self._measure(problem, state, final=final)
        if not final and found.relative_gap <= _NEAR:
            found, rivals = self._measure(problem, state, final=True)
        self._accept(state, rivals)
        return found

    def certificate(self, problem: Problem, state: State, *, final: bool) -> Certificate:
        """One exact pass: computes the duality gap, and adds the violators to the active sets."""
        certificate, rivals = self._measure(problem, state, final=final)
        self._accept(state, rivals)
        return certificate

    def _measure(self, problem: Problem, state: State, *, final: bool) -> tuple[Certificate, Array]:
        """One exact pass: returns the duality gap and the violators, of shape (n, more)."""
        if problem.intercept:
            self._balance(problem, state)
            state["pull"] = np.zeros_like(state["pull"])
        image = image_of(state)
        if final or problem.intercept:
            self._rebuild(problem, state)
        losses, rivals = self._propose(problem, state, image.scored(problem, state), self.more)
        conjugates = kernels.sparse_conjugates(
            classes_of(problem), problem.sample_weight, problem.loss, state["indptr"], state["rivals"], state["b"]
        )
        n, losses, conjugates, g, conjugate = self._over_all(problem, losses, conjugates, *image.sums(problem, state))
        certificate = problem.bounds(
            primal=losses / n + problem.lam * g, dual=-conjugates / n - problem.lam * conjugate
        )
        state["gap"] = np.asarray(certificate.relative_gap)
        return certificate, rivals

    def _balance(self, problem: Problem, state: State) -> None:
        """Make the dual variables feasible for an intercept."""
        balance(problem, state, np.asarray(problem.sample_weight), problem.n_samples, SerialCommunicator())

    def _rebuild(self, problem: Problem, state: State) -> None:
        """Recompute the dual image from the dual variables."""
        image_of(state).rebuild(problem, state)

    def _over_all(
        self, problem: Problem, losses: float, conjugates: float, g: float, conjugate: float
    ) -> tuple[float, float, float, float, float]:
        """Rows, losses and conjugates of all rows, g(W) and g*(V), from those here."""
        return problem.n_samples, losses, conjugates, g, conjugate

    def value(self, problem: Problem, W: Any, intercept: Array) -> float:
        if not sp.issparse(W):
            return super().value(problem, W, intercept)
        state: State = {
            "bias": intercept,
            "indptr": np.zeros(problem.n_samples + 1, np.int64),
            "rivals": np.zeros(0, np.int32),
            "b": np.zeros(0, problem.dtype),
        }
        losses, _ = self._propose(problem, state, make_mixed(W), 1)
        return problem.objective(losses, problem.penalty_value(W.data[:, None]))

    def _propose(self, problem: Problem, state: State, scored: Any, most: int) -> tuple[float, Array]:
        """One exact pass with the dual image or the weights ``scored``: the sum of the losses, and the violators."""
        found = np.empty((problem.n_samples, min(most, problem.n_outputs - 1)), np.int32)
        # A rival less than gamma below the largest violation may have a positive dual variable at the optimum.
        slack = max(self.slack, float(_gamma(problem)))
        given = problem.rows, classes_of(problem), problem.sample_weight, problem.loss
        lists = state["bias"], state["indptr"], state["rivals"], state["b"], slack

        def task(begin: int, end: int) -> Any:
            if isinstance(scored, MixedWeights):
                return proposals.propose_mixed(*given, scored, *lists, found, begin, end)
            return proposals.propose(*given, problem.penalty, scored, *lists, found, begin, end)

        parts = run(task, ranges(problem.n_samples, _ROWS), problem.n_threads)
        return float(np.sum(parts)), found

    def _ask(self, problem: Problem, state: State, index: SearchIndex) -> None:
        """Add the violators among the rivals that the index returns."""
        image = image_of(state)
        asked = ask(index, problem, image.weights(problem, state), state["bias"], 2 * self.more)
        found = np.empty((problem.n_samples, self.more), np.int32)
        proposals.keep_violators(
            problem.rows,
            classes_of(problem),
            problem.loss,
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
        merge(state, found)
        state["proposed"] = state["iteration"]
        state["idle"][:] = 0  # shrinking starts again: there are new rivals, and V may have been recomputed

    def _first_rivals(self, problem: Problem, state: State) -> Array:
        """The classes with the most similar centroids: at W = 0 all classes violate the margin equally."""
        y, K, rows = classes_of(problem), problem.n_outputs, problem.rows
        share = (1.0 / np.maximum(np.bincount(y, minlength=K), 1)).astype(problem.dtype)
        found = np.empty((problem.n_samples, min(self.first, K - 1)), np.int32)
        if isinstance(rows, CSRRows):
            member = sp.csr_matrix(
                (share[y], y, np.arange(problem.n_samples + 1)), shape=(problem.n_samples, K), dtype=problem.dtype
            )
            centroids = (row_matrix(problem).T.tocsr() @ member).tocsr()
            if centroids.nnz > _FULL * problem.n_features * K:
                return self._propose(problem, state, make_mixed(centroids), self.first)[1]
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
        # Dense rows have dense centroids: an exact pass with the centroids as weights finds the rivals.
        V = state["V"]
        np.add.at(V.T, y, np.asarray(rows.x, problem.dtype) * share[y][:, None])
        found = self._propose(problem, state, image_of(state).scored(problem, state), self.first)[1]
        V[:] = 0
        return found


def _step(epoch: Epoch, state: State, order: Array, live: Array) -> Array:
    """Take dual steps on the samples of ``order``. Returns what `active_epoch` measures, summed over its rounds."""
    problem, image, rounds = epoch.problem, image_of(state), epoch.rounds
    size, threads = (rounds.size, rounds.threads(problem)) if rounds else (1, 1)
    edges = rounds.edges if rounds else np.zeros(0, np.int64)
    norms, excess, common = rounds.raised(problem, order, state) if rounds else (problem.norms, problem.norms, 0.0)
    every, measured = rounds.looks(len(order)) if rounds else (len(order) + 1, np.zeros((1, 2)))
    most = int(np.diff(state["indptr"]).max(initial=0)) + 1
    scores = np.empty((len(edges) + 1, size, most), problem.dtype)
    steps = np.empty((size, most), problem.dtype)
    needed, arrived = np.zeros((2, APART * threads), np.int64)
    done, ends = 0, [0] * threads
    while done < len(order):
        view = image.view(state)
        arrived[:] = 0

        def part(me: int, view: Any = view, done: int = done) -> None:
            ends[me] = kernels.active_epoch(
                problem.rows,
                classes_of(problem),
                problem.sample_weight,
                norms,
                excess,
                order,
                done,
                size,
                problem.loss,
                problem.penalty,
                view,
                live,
                state["indptr"],
                state["rivals"],
                state["b"],
                state["idle"],
                problem.inv_lam_n * epoch.times,
                epoch.bias_step * epoch.times,
                epoch.bias_step * epoch.times * common * (size - 1),
                edges,
                scores,
                steps,
                needed,
                every,
                measured,
                arrived,
                me,
                threads,
            )

        together(part, threads, give_up=lambda: arrived.fill(GIVEN_UP))
        done = ends[0]
        if done < len(order):
            image.enlarge(problem, state)
    return np.asarray(measured.sum(axis=0))


def _gamma(problem: Problem) -> float:
    gamma: float = problem.loss.gamma
    return gamma
