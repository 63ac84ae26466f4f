"""Softmax regression on rows and weights that need not fit in memory."""

from __future__ import annotations

import shutil
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from manyclass.distributed import Communicator, SerialCommunicator
from manyclass.io.store.rows import RowStore
from manyclass.io.streams import StrPath
from manyclass.kernels.rows import make_rows
from manyclass.kernels.scoring import row_fault
from manyclass.models.sharded import ShardedModel
from manyclass.models.splitting import ShardedModelWriter, block_width
from manyclass.objective.history import History, Record, Reporter
from manyclass.runtime.files import refuse_existing
from manyclass.runtime.memory import human, require
from manyclass.solvers.out_of_core.certificate import Rows, certify
from manyclass.solvers.out_of_core.state import LogSums, Work
from manyclass.solvers.out_of_core.steps import Schedule, batch_of, curvature, steps_of, visit

__all__ = ["fit_blocks"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: How steps of an averaged descent fall: see `AveragedSGD`.
_AVERAGED, _PLAIN = 0.75, 1.0


class _Survey(NamedTuple):
    """What one pass over the rows tells."""

    steps: Array  # of an epoch, by rank
    scale: float  # what sample weights are multiplied with
    rate: float  # the first step
    gain: float  # mean squared norm of the rows


def fit_blocks(
    store: RowStore,
    path: StrPath,
    *,
    alpha: float = 1e-4,
    max_iter: int = 10,
    tol: float | None = None,
    fit_intercept: bool = True,
    average: bool = True,
    block_classes: int | None = None,
    block_bytes: int = 1 << 27,
    window_bytes: int = 1 << 26,
    dtype: Any = None,
    random_state: int = 0,
    work: StrPath | None = None,
    certificate: bool = True,
    comm: Communicator | None = None,
    verbose: int = 0,
) -> ShardedModel:
    """Fit softmax regression to a row store, window by window and block of classes by block of classes.

    Minimizes ``mean loss + alpha/2 ||W||^2``, as ``LinearClassifier("multinomial", alpha=alpha)`` does. In memory are
    one block of the weights (and of their mean), two windows of rows, and 8 bytes a row for the certificate. An epoch
    visits each block of classes with all rows in a new order: stochastic steps, with the other blocks known by the
    log of the sum of exp of a row's scores in them, which is kept on disk. With several ranks each has a part of the
    rows (whole shards), and in each step of the epoch blocks of its own; files of blocks are the way from rank to rank.

    Parameters
    ----------
    store : RowStore
        With classes as targets. Rows are taken in a random order within a window, and windows in a random order: a
        store whose rows are sorted by class is to be shuffled when it is written.
    path : path
        The folder of the model to make.
    alpha : float
        Strength of the penalty, above 0.
    max_iter : int
        Epochs.
    tol : float, optional
        Relative gap to stop at, looked at after each epoch. None: all epochs are run.
    fit_intercept : bool
        Whether to fit an intercept, without penalty.
    average : bool
        Take the mean of the weights from the second epoch on.
    block_classes : int, optional
        Classes of a block; by default as many as take ``block_bytes``.
    block_bytes, window_bytes : int
        Bytes of a block of the weights and of a window of rows.
    dtype : float32 or float64, optional
        Of the weights; that of the rows by default.
    random_state : int
        Seed of the order of the rows.
    work : path, optional
        Folder of the fit under way, on a disk that all ranks see; kept after an interrupt, and taken up where it is.
        By default beside the model, and removed in any case.
    certificate : bool
        Compute the duality gap at the end (up to four more passes over rows and weights).
    comm : Communicator, optional
        The ranks; one process by default. All call this with the same arguments.
    verbose : int
        1 shows progress.

    Returns
    -------
    ShardedModel
        The model in the folder ``path``.

    Raises
    ------
    ValueError
        If a parameter or the store is not what it should be, or there is something under the name of the model.
    MemoryError
        If blocks and windows do not fit in the memory there is.

    References
    ----------
    Gemulla, Nijkamp, Haas and Sismanis, "Large-scale matrix factorization with distributed stochastic gradient
    descent", KDD 2011, for the strata of ranks and blocks; Raman, Srinivasan, Matsushima, Zhang, Yun and Vishwanathan,
    "Scaling multinomial logistic regression via hybrid parallelism", KDD 2019, for blocks of classes; Xu,
    arXiv:1107.2490, for the steps and their mean.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_digits
    >>> from manyclass.io.store import RowStore, write_store
    >>> X, y = load_digits(return_X_y=True)
    >>> folder = tempfile.mkdtemp()
    >>> write_store(os.path.join(folder, "digits.store"), (X / 16).astype("float32"), y, shard_rows=500)
    >>> store = RowStore(os.path.join(folder, "digits.store"))
    >>> model = fit_blocks(store, os.path.join(folder, "digits.model"), alpha=1e-2, block_classes=4)
    >>> len(model.blocks), model.record["relative_gap"] < 0.1
    (3, True)
    """
    comm = SerialCommunicator() if comm is None else comm
    fit = _Fit(
        store, Path(path), comm, alpha=alpha, max_iter=max_iter, tol=tol, fit_intercept=fit_intercept,
        average=average, block_classes=block_classes, block_bytes=block_bytes, window_bytes=window_bytes,
        dtype=dtype, random_state=random_state, work=work, certificate=certificate, verbose=verbose,
    )  # fmt: skip
    return fit.run()


class _Fit:
    """One fit, on one rank."""

    def __init__(self, store: RowStore, path: Path, comm: Communicator, **given: Any) -> None:
        self.store, self.path, self.comm = store, path, comm
        self.given = given
        _check(store, given)
        if comm.rank == 0:
            refuse_existing(path)
            for folder in (path, Path(path if given["work"] is None else given["work"])):
                if not folder.absolute().parent.is_dir():
                    raise FileNotFoundError(f"cannot write {folder}: the folder {folder.parent} does not exist")
        self.dtype = np.dtype(store.dtype if given["dtype"] is None else given["dtype"])
        d, K = store.shape[1], store.n_outputs
        width = block_width(d, K, self.dtype, given["block_classes"], given["block_bytes"])
        self.bounds = [*range(0, K, width), K]
        self.view = store.parts(comm.rank, comm.size)
        self.batch = batch_of(len(store), store.layout == "dense")
        cells = width * d
        states = (2 if given["average"] else 1) * cells * self.dtype.itemsize
        gap = cells * (self.dtype.itemsize + 8) if given["certificate"] or given["tol"] is not None else 0
        require(
            {
                "a block of weights": max(states, gap),
                "windows of rows": 3 * given["window_bytes"],
                "sums of rows": 24 * len(self.view),
            },
            "smaller block_bytes or window_bytes",
        )
        if comm.rank == 0:
            # Files of blocks replace each other one by one; at the end the model is written beside them.
            whole = d * K * self.dtype.itemsize
            _require_disk(
                path, whole * (3 if given["average"] else 2) + states + 4 * len(store) * (len(self.bounds) - 1)
            )
        identity = {
            "store": [*store.shape, store.n_stored, store.n_outputs, store.files[-1].sha256, store.files[0].sha256],
            "ranks": comm.size,
            "dtype": self.dtype.name,
            "blocks": len(self.bounds) - 1,
            **{name: given[name] for name in ("alpha", "fit_intercept", "average", "window_bytes", "random_state")},
        }
        default = path.with_name(f".{path.name}.work")
        self.work = Work(
            default if given["work"] is None else Path(given["work"]), identity, self.bounds, d, self.dtype
        )
        self.rounds = -(-self.work.n_blocks // comm.size)
        #: Steps of an epoch.
        self.steps = comm.size * self.rounds

    # --- the run ----------------------------------------------------------------------------------------------------

    def run(self) -> ShardedModel:
        started = time.perf_counter()
        comm, given = self.comm, self.given
        if comm.rank == 0:
            self.work.path.mkdir(exist_ok=True)
        comm.barrier()
        outcome = "max_iter"
        finished = False
        try:
            self.work.resume()
            history = History([_record(row) for row in self.work.history])
            survey = self._survey()
            self.rows = Rows(self.view, given["window_bytes"], survey.scale, len(self.store))
            widths = [hi - lo for lo, hi in zip(self.bounds[:-1], self.bounds[1:])]
            sums = LogSums(
                self.work.path / f"sums-{comm.rank:05d}.bin", len(self.view), widths, fresh=not self.work.done
            )
            seconds = history.last.seconds if len(history) else 0.0
            tol = given["tol"]
            shown = Reporter(given["verbose"] if comm.rank == 0 else 0, tol or 0.0, given["max_iter"])
            try:
                with shown:
                    while self.work.done < given["max_iter"] * self.steps:
                        begun = time.perf_counter()
                        self._epoch(survey, sums)
                        seconds += time.perf_counter() - begun
                        epoch = self.work.done // self.steps
                        shown.iterated(epoch)
                        last = epoch >= given["max_iter"]
                        if tol is None and not (last and given["certificate"]):
                            continue
                        record = self._evaluate(epoch, seconds, started)
                        history.records.append(record)
                        self.work.history.append([*map(float, record.numbers())])
                        shown.evaluated(record)
                        if tol is not None and record.relative_gap <= tol:
                            outcome = "converged"
                            break
            except KeyboardInterrupt:
                if comm.size > 1 or not self.work.done:
                    raise
                outcome = "interrupted"
                warnings.warn(
                    f"interrupted after {self.work.done} of {given['max_iter'] * self.steps} steps: the model reached "
                    "so far is kept",
                    stacklevel=3,
                )
            comm.barrier()
            if comm.rank == 0:
                self._keep(outcome, history)
            comm.barrier()
            finished = outcome != "interrupted"
        finally:
            # Whatever went wrong, a folder that was asked for keeps what has been done.
            if comm.rank == 0 and (given["work"] is None or finished):
                self.work.remove()
        return ShardedModel.open(self.path)

    def _survey(self) -> _Survey:
        """One pass over the rows: whether they are fit for a fit, how large they are, how many steps they take."""
        comm, dense, batch = self.comm, self.store.layout == "dense", self.batch
        steps = np.zeros(comm.size, np.int64)
        weight = squares = features = ones = 0.0
        for window in self.view.windows(self.given["window_bytes"]):
            rows = window.end - window.begin
            fault = row_fault(make_rows(window.X), 0, rows, self.store.shape[1])
            if fault:
                raise ValueError(f"the window from row {window.begin} on of {self.store.path} has {fault}")
            steps[comm.rank] += steps_of(rows, batch)
            c = np.ones(rows) if window.weights is None else window.weights
            weight += float(c.sum())
            values = window.X if dense else window.X.data
            squares += float(np.vdot(values, values)) if values.dtype == np.float64 else _squares(values)
            found = curvature(window.X, c, batch)
            features, ones = max(features, found[0]), max(ones, found[1])
        steps = comm.allreduce(steps)
        weight, squares = comm.allreduce(np.array([weight, squares])).tolist()
        features, ones = comm.allreduce(np.array([features, ones]), "max").tolist()
        if not weight > 0:
            raise ValueError("the weights of the rows must have a positive sum, all are zero")
        n = len(self.store)
        gain = squares / n if self.given["fit_intercept"] else 0.0
        scale = n / weight
        rate = 1.0 / (scale * (features + gain * ones) + batch * self.given["alpha"])
        return _Survey(steps, scale, rate, gain)

    # --- an epoch ---------------------------------------------------------------------------------------------------

    def _assigned(self, rank: int, step: int) -> int | None:
        """The block that a rank visits in a step of an epoch."""
        size = self.comm.size
        block = (rank + step // self.rounds) % size + step % self.rounds * size
        return block if block < self.work.n_blocks else None

    def _epoch(self, survey: _Survey, sums: LogSums) -> None:
        """The steps that are left of the epoch under way."""
        comm, work = self.comm, self.work
        epoch = work.done // self.steps
        while work.done < (epoch + 1) * self.steps:
            step = work.done % self.steps
            comm.where = (epoch, step)
            block = self._assigned(comm.rank, step)
            if block is not None:
                # Steps that the block has taken on other ranks in this epoch.
                before = sum(int(survey.steps[(block - turn) % comm.size]) for turn in range(step // self.rounds))
                self._visit(block, epoch, before, survey, sums)
            comm.barrier()
            visited = [self._assigned(rank, step) for rank in range(comm.size)]
            work.settle([found for found in visited if found is not None], write=comm.rank == 0)
            comm.barrier()

    def _visit(self, block: int, epoch: int, before: int, survey: _Survey, sums: LogSums) -> None:
        """All rows of this rank and one block."""
        given, view = self.given, self.view
        averaging = given["average"] and epoch > 0
        state = self.work.load(block, averaging=averaging)
        whole = int(survey.steps.sum())
        schedule = Schedule(
            rate=survey.rate,
            decay=given["alpha"] * survey.rate * self.batch,
            power=_AVERAGED if given["average"] else _PLAIN,
            lam=given["alpha"],
            gain=survey.gain,
            batch=self.batch,
        )
        cuts = view.cuts(given["window_bytes"])
        order = np.random.default_rng([given["random_state"], epoch, self.comm.rank]).permutation(len(cuts))
        done = before
        for place, window in zip(order, view.windows(given["window_bytes"], order.tolist())):
            rows = window.end - window.begin
            begin, end = window.begin - view.begin, window.end - view.begin
            rng = np.random.default_rng([given["random_state"], epoch, self.comm.rank, int(place)])
            own = visit(
                window.X,
                window.y,
                self.bounds[block],
                self.rows.weights(window.weights, rows),
                sums.others(block, begin, end),
                rng.permutation(rows).astype(np.int32),
                state,
                schedule,
                epoch * whole + done,
                (epoch - 1.0) * whole + done + 1.0 if averaging else 0.0,
            )
            sums.put(block, begin, own)
            done += steps_of(rows, self.batch)
        if not np.isfinite(state.W).all():
            raise ValueError("the weights are no longer finite numbers: scale the features, or use dtype float64")
        self.work.save(block, state)

    # --- what is reached --------------------------------------------------------------------------------------------

    def _evaluate(self, epoch: int, seconds: float, started: float) -> Record:
        found = certify(
            self.rows, self.bounds, self.work.result, self.given["alpha"], self.given["fit_intercept"], self.comm
        )
        passes = float(epoch * self.work.n_blocks)
        elapsed = time.perf_counter() - started
        return Record(epoch, passes, found.primal, found.dual, found.gap, found.relative_gap, seconds, elapsed)

    def _keep(self, outcome: str, history: History) -> None:
        """Write the model."""
        record: dict[str, Any] = {
            "solver": "block_sgd",
            "outcome": outcome,
            "n_iter": self.work.done // self.steps,
            "history": history.to_dict(),
            "ranks": self.comm.size,
        }
        if len(history):
            last = history.last
            record.update(objective=last.primal, gap=last.gap, relative_gap=last.relative_gap)
        record["data"] = {
            "source": self.store.path.name,
            "format": "store",
            "zero_based": self.store.zero_based if self.store.source_format == "svmlight" else None,
            "rows": len(self.store),
            "notes": list(self.store.notes),
            "table": None if self.store.table is None else self.store.table.to_dict(),
        }
        kept = ("alpha", "max_iter", "tol", "fit_intercept", "average", "random_state")
        vectorizer = self.store.vectorizer
        with ShardedModelWriter(
            self.path,
            self.store.shape[1],
            classes=self.store.classes,
            task="multiclass",
            link="softmax",
            parameters={"estimator": "fit_blocks", "loss": "multinomial", **{name: self.given[name] for name in kept}},
            record=record,
            feature_names=self.store.feature_names,
            vectorizer=None if vectorizer is None else vectorizer.to_state(),
        ) as writer:
            for block in range(self.work.n_blocks):
                writer.add(*self.work.result(block))


def _require_disk(path: Path, size: int) -> None:
    """Refuse, before any work, what the disk has no room for."""
    free = shutil.disk_usage(path.absolute().parent).free
    if size > free:
        raise MemoryError(
            f"this fit writes {human(size)} beside {path}, where {human(free)} are free: take another disk, or "
            "average=False"
        )


def _record(row: list[float]) -> Record:
    return Record.of(row)


def _squares(values: Array) -> float:
    flat = values.reshape(-1)
    step = 1 << 20
    return float(sum(np.square(flat[b : b + step], dtype=np.float64).sum() for b in range(0, flat.size, step)))


def _check(store: RowStore, given: dict[str, Any]) -> None:
    """Refuse what cannot be fitted, before any work."""
    if store.kind != "classes" or store.n_outputs < 2:
        what = "one class" if store.kind == "classes" else f"targets of kind {store.kind!r}"
        raise ValueError(f"{store.path} has {what}; expected a class for each row, two different ones at least")
    if not (np.isfinite(given["alpha"]) and given["alpha"] > 0):
        raise ValueError(f"alpha must be a positive finite number, got {given['alpha']!r}")
    for name in ("max_iter", "block_bytes", "window_bytes"):
        if isinstance(given[name], bool) or not hasattr(given[name], "__index__") or given[name] < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {given[name]!r}")
    if given["tol"] is not None and not given["tol"] > 0:
        raise ValueError(f"tol must be a positive number, got {given['tol']!r}")
    if given["dtype"] is not None and np.dtype(given["dtype"]) not in (np.float32, np.float64):
        raise ValueError(f"dtype must be float32 or float64, got {given['dtype']!r}")
