"""Held-out rows and callbacks of a fit: early stopping, scikit-learn's callbacks, and a plain function."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeAlias, TypeVar

import numpy as np
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils._param_validation import Interval
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import _check_feature_names, _check_n_features, column_or_1d

from manyclass.distributed import Communicator, SerialCommunicator
from manyclass.estimators.alpha_search import FRACTION as SEARCHED
from manyclass.estimators.base import LinearEstimator, check_rows
from manyclass.estimators.elsewhere import check_foreign
from manyclass.estimators.frames import check_frame, plain_labels
from manyclass.estimators.labels import is_indicator, read_indicator
from manyclass.estimators.ranks import mean_beside_all, together
from manyclass.estimators.soft import is_soft, likely
from manyclass.kernels.rows import check_sparse
from manyclass.objective.history import FitProgress
from manyclass.objective.problem import Array, Problem
from manyclass.optimize.columns import WIDTH, minimize_columns
from manyclass.optimize.loop import Result
from manyclass.optimize.validation import FRACTION, Judge, Validation, held_out_rows
from manyclass.runtime.arrays import detached, is_foreign, plain_array

if TYPE_CHECKING:
    from manyclass.solvers import Solver

__all__ = ["STOPS", "Watch", "Watched", "WatchedEstimator"]

R = TypeVar("R")
#: A function of an estimator and of what ``weights()`` of a `FitProgress` returns, which sets its model.
Settle: TypeAlias = Callable[[Any, Any], None]
#: Constraint on ``early_stopping``.
STOPS = ["boolean", Interval(Integral, 1, None, closed="left")]

#: Patience of early stopping in iterations: scikit-learn's default.
_PATIENCE = 5


class Watch(NamedTuple):
    """The arguments of ``fit`` that say what is to be watched, and the data for scikit-learn's callbacks."""

    X_val: Any
    y_val: Any
    callback: Callable[[FitProgress], Any] | None
    X: Any
    y: Any
    sample_weight: Any
    #: Class numbers, or an indicator, of the rows of the fit, where the targets of the problem are others.
    labels: Any = None
    #: The rows that early stopping holds out, where they are drawn already.
    held: Array | None = None
    #: The processes of the fit, and whether another one than this has held-out rows.
    comm: Communicator = SerialCommunicator()
    elsewhere: bool = False

    @property
    def given(self) -> bool:
        """Whether held-out rows are given in this process."""
        return self.X_val is not None or self.y_val is not None

    @property
    def judges(self) -> bool:
        """Whether held-out rows are given in any process."""
        return self.given or self.elsewhere

    def shared(self, estimator: Watched, comm: Communicator, who: str) -> Watch:
        """The same for a fit on several processes or on a row store; ``who`` names its solver in errors.

        All processes call this together: what one of them watches, they watch together, see `together`.

        Raises
        ------
        ValueError
            In all processes: for scikit-learn's callbacks, which get rows and a fitted estimator, where no process has
            all of these in memory; for an ``early_stopping`` that differs.
        """
        patience = -1 if estimator._patience is None else estimator._patience
        asked = [self.given, self.callback is not None, bool(getattr(estimator, "_skl_callbacks", ()))]
        facts = comm.allreduce(np.array([*asked, patience, -patience], np.int64), "max")
        given, called, follows, most, least = facts.tolist()
        if follows:
            raise ValueError(
                f"{who} does not support set_callbacks, whose callbacks get all rows and a fitted estimator in memory: "
                "set none, and pass fit(callback=f)"
            )
        if most != -least:
            raise ValueError(
                f"early_stopping must be the same in every process, got {estimator.early_stopping!r} in this one and "
                "another value elsewhere: create the estimator with the same parameters everywhere"
            )
        callback = together(comm, self.callback) if called and comm.size > 1 else self.callback
        return self._replace(callback=callback, comm=comm, elsewhere=bool(given))


def _interrupt(progress: FitProgress) -> None:
    """End a fit as Ctrl-C does, after an iteration at the best alpha of a search that Ctrl-C has ended."""
    raise KeyboardInterrupt


def _has_callbacks(estimator: Any) -> bool:
    # A cross-validation fits other estimators.
    return find_spec("sklearn.callback") is not None and not hasattr(estimator, "_plain")


class Watched:
    """Mixin of the estimators whose fits can be watched: held-out rows, early stopping, callbacks."""

    early_stopping: Any
    classes_: Array
    n_features_in_: int

    @property
    def _patience(self) -> int | None:
        """The number of iterations that ``early_stopping`` asks for; None if it is off, also as ``numpy.False_``."""
        if isinstance(self.early_stopping, bool | np.bool_):
            return int(getattr(self, "patience", _PATIENCE)) if self.early_stopping else None
        return int(self.early_stopping)

    # --- held-out rows ----------------------------------------------------------------------------------------------

    def _held_out_rows(self, X_val: Any, y_val: Any, task: str, n_outputs: int) -> tuple[Any, Any]:
        """The held-out rows that were given, checked as those of the fit, and what is right for them."""
        if X_val is None or y_val is None:
            one, other = ("y_val", "X_val") if X_val is None else ("X_val", "y_val")
            raise ValueError(f"{one} was given without {other}: pass both, or neither")
        X, y_val = self._held_out_matrix(X_val), plain_labels(plain_array(y_val), "y_val")
        check_sparse(y_val, "y_val")
        check_consistent_length(X, y_val)
        return X, self._truth(task, n_outputs, y_val)

    def _judge(self, watch: Watch, task: str, n_outputs: int, n_threads: int) -> Judge:
        """The judge on the held-out rows that were given, in this process or in another one."""
        rows: tuple[Any, Any] = np.empty((0, self.n_features_in_)), np.empty(0, np.int64)
        if watch.given:
            rows = self._held_out_rows(watch.X_val, watch.y_val, task, n_outputs)
        return Judge(*rows, None, n_threads, watch.comm)

    def _held_out_matrix(self, X_val: Any) -> Any:
        """X_val, checked as X; another library's array stays where it is."""
        if is_foreign(X_val):
            check_foreign(X_val, "X_val")
            if X_val.shape[1] != self.n_features_in_:
                raise ValueError(f"X_val must have {self.n_features_in_} features, as X, got {X_val.shape[1]}")
            return detached(X_val)
        X_val = plain_array(X_val)
        ordered = check_sparse(X_val, "X_val")
        check_frame(X_val, "X_val")
        _check_feature_names(self, X_val, reset=False)
        X = check_array(X_val, accept_sparse="csr", dtype=[np.float64, np.float32], input_name="X_val")
        _check_n_features(self, X, reset=False)
        return check_rows(X, ordered)

    def _truth(self, task: str, K: int, y_val: Any) -> Any:
        """What is right for the held-out rows, see `truth_of`; classes that y does not have have the number -1."""
        if task == "regression":
            y = np.asarray(check_array(y_val, ensure_2d=False, dtype=np.float64, input_name="y_val"))
            y = y.reshape(len(y), -1)
            if y.shape[1] != K:
                raise ValueError(f"y_val must have {K} targets for each row, as y, got {y.shape[1]}")
            return y
        if is_soft(y_val, task != "multilabel"):
            if y_val.shape[1] != K + (task == "binary"):
                raise ValueError(f"y_val must have {K + (task == 'binary')} columns, as y, got {y_val.shape[1]}")
            return likely(y_val, task != "multilabel")
        if task == "multilabel":
            if not is_indicator(y_val):
                raise ValueError("y_val must be a multi-label indicator, as y, got labels: pass 0/1 columns")
            truth = read_indicator(y_val)
            if truth.shape[1] != K:
                raise ValueError(f"y_val must have {K} columns, as y, got {truth.shape[1]}")
            return truth
        number = {label: k for k, label in enumerate(self.classes_.tolist())}
        truth = np.array([number.get(label, -1) for label in column_or_1d(y_val, warn=True).tolist()], np.int64)
        if (truth < 0).all():
            raise ValueError(
                f"y_val has none of the classes of y, such as {next(iter(number))!r}: pass labels of the same type"
            )
        return truth

    # --- scikit-learn's callbacks -----------------------------------------------------------------------------------

    @available_if(_has_callbacks)  # type: ignore[untyped-decorator]
    def set_callbacks(self, *callbacks: Any) -> Any:
        """Set callbacks that follow scikit-learn's protocol, such as ``sklearn.callback.ProgressBar()``.

        Requires scikit-learn 1.9, where the protocol is experimental. Each iteration of a fit is a task "iteration"; a
        callback whose ``on_fit_task_end`` returns True ends the fit. Not for row stores and fits on several processes:
        these callbacks get all rows and a fitted estimator in memory, which no process has there.

        Parameters
        ----------
        *callbacks : callback instances
            The callbacks of the following fits; none removes those that were set.

        Returns
        -------
        estimator
            The estimator itself.
        """
        from sklearn.callback import CallbackSupportMixin

        return CallbackSupportMixin.set_callbacks(self, *callbacks)

    def _run_watched(
        self, run: Callable[..., R], parts: Callable[[R], Any], settle: Settle, watch: Watch, n_iter: int | None
    ) -> Callable[[], R]:
        """The fit ``run``, which takes a callback and returns a result, with the callbacks that are asked for.

        ``settle`` sets the model of an estimator from what ``weights()`` of a `FitProgress` returns, or ``parts`` of
        the result.
        """
        if not getattr(self, "_skl_callbacks", ()):
            return partial(run, callback=watch.callback)
        from sklearn.callback import with_callbacks

        return partial(with_callbacks(Watched._called_back), self, run, parts, settle, watch, n_iter)

    def _called_back(
        self, run: Callable[..., R], parts: Callable[[R], Any], settle: Settle, watch: Watch, n_iter: int | None
    ) -> R:
        """Run the fit with scikit-learn's callbacks: a task for the fit, and one for each iteration."""
        from sklearn.callback import CallbackSupportMixin

        weight = watch.sample_weight
        told = {
            "estimator": self,
            "X": watch.X,
            "y": watch.y,
            "metadata": None if weight is None else {"sample_weight": weight},
        }
        root = CallbackSupportMixin._init_callback_context(self, max_subtasks=n_iter)
        root.call_on_fit_task_begin(**told)

        def begin() -> Any:
            return root.subcontext(task_name="iteration").call_on_fit_task_begin(**told)

        def fitted(weights: Callable[[], Any]) -> dict[str, Any]:
            """The attributes that an estimator with these weights has."""
            trial = copy.copy(self)
            settle(trial, weights())
            return {name: value for name, value in vars(trial).items() if vars(self).get(name) is not value}

        task = begin()

        def each(progress: FitProgress) -> bool:
            nonlocal task
            stop = watch.callback is not None and bool(watch.callback(progress))
            ended = task.call_on_fit_task_end(**told, reconstruction_attributes=partial(fitted, progress.weights))
            stop = bool(ended) or stop
            if not (stop or progress.finished):
                task = begin()
            return stop

        result = run(callback=each)
        attributes = partial(fitted, partial(parts, result))
        root.call_on_fit_task_end(**told, reconstruction_attributes=attributes)
        return result


class WatchedEstimator(Watched, LinearEstimator):
    """Base class of the linear estimators whose fits can be watched."""

    _parameter_constraints: ClassVar[dict[str, list[Any]]] = {
        **LinearEstimator._parameter_constraints,
        "early_stopping": STOPS,
    }

    def _finish(self, W: Any, intercept: Array, facts: dict[str, Any], record: dict[str, Any]) -> None:
        """Set the model."""
        raise NotImplementedError

    def _watched(
        self,
        problem: Problem,
        solver: Solver | None,
        facts: dict[str, Any],
        watch: Watch,
        settings: dict[str, Any],
        checkpoint: Any,
    ) -> Callable[[], Result]:
        """The fitting loop, watched as asked for, with alpha chosen; not called here, to keep the call stack of a fit
        short.

        Early stopping after a search for alpha holds out rows that the search did, whose warm start has not seen them.
        """
        patience, search, comm = self._patience, None, watch.comm
        judge: Judge | None = None
        if watch.judges:
            judge = self._judge(watch, facts["task"], problem.n_outputs, problem.n_threads)
        if self.alpha == "auto":
            problem, search = self._choose_alpha(problem, solver, settings)
            if search.interrupted:
                watch = watch._replace(callback=_interrupt)
        if judge is None and patience is not None:
            if search is None or search.held is None:
                rng = np.random.default_rng([settings["seed"], problem.n_samples])
                wanted_by = f"early_stopping={self.early_stopping!r}"
                held = watch.held
                if held is None:
                    given = problem.targets, problem.sample_weight
                    held = held_out_rows(*given, rng, FRACTION, wanted_by, comm)
            else:
                held = search.held[:: round(SEARCHED / FRACTION)]
            scale = getattr(solver, "scale", 1.0)
            judge = Judge.of(problem, held, watch.labels, comm, scale)
            weights = np.array(problem.sample_weight, np.float64)
            weights[held] = 0.0  # no rows are copied
            problem = replace(problem, sample_weight=weights)
            if comm.size > 1 and solver is not None and solver.partitions_rows:
                distributed: Any = solver
                distributed.scale = mean_beside_all(comm, scale * weights, problem.n_samples)
        if judge is not None:
            settings["validation"] = Validation(judge, patience)
        loop = self._loop(problem, solver, checkpoint, search and search.state, whole=patience is not None)
        run = partial(loop, **settings)
        n_iter = settings["max_iter"] or loop.args[1].default_max_iter  # type: ignore[attr-defined]
        if loop.func is minimize_columns:  # type: ignore[attr-defined]
            n_iter = -(-problem.n_outputs // WIDTH)

        def settle(trial: Any, weights: tuple[Any, Array]) -> None:
            trial._finish(weights[0].copy(), weights[1], facts, {})

        return self._run_watched(run, lambda result: (result.weights, result.intercept), settle, watch, n_iter)
