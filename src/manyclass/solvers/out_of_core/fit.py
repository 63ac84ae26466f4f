"""A fit of softmax regression to a row store, in one of the processes that run it together."""

from __future__ import annotations

import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from sklearn.utils.class_weight import compute_class_weight

from manyclass.distributed import Communicator
from manyclass.kernels.jit import compile_clock
from manyclass.kernels.rows import check_largest, make_rows
from manyclass.kernels.scoring import row_fault
from manyclass.models.sharded import ShardedModel
from manyclass.models.splitting import ShardedModelWriter, block_width
from manyclass.objective.history import History, Record, Reporter
from manyclass.objective.problem import Certificate
from manyclass.runtime.files import refuse_existing
from manyclass.runtime.memory import human, require
from manyclass.solvers.base import StoreFit, StoreTask
from manyclass.solvers.out_of_core.certificate import Rows, certify, resolution
from manyclass.solvers.out_of_core.state import LogSums, Work
from manyclass.solvers.out_of_core.steps import Schedule, batch_of, curvature, steps_of, visit

if TYPE_CHECKING:
    from manyclass.solvers.out_of_core.solver import OutOfCore

__all__ = ["BlockFit"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Exponents of the step size schedule with and without averaging, see `manyclass.solvers.primal.sgd.SGD.power`.
_AVERAGED, _PLAIN = 0.75, 1.0


class _Survey(NamedTuple):
    """What a first pass over the rows computes."""

    steps: Array  # steps of an epoch, by rank
    scale: float  # factor of the sample weights
    alpha: float  # strength of the penalty
    lam: float  # the same, but doubled for two classes, which have two columns here
    rate: float  # the first step size
    gain: float  # mean squared norm of the rows; 0 without an intercept
    mean_norm: float  # mean squared norm of the rows


class BlockFit:
    """A fit on one rank; the constructor checks everything before any work is done.

    Raises
    ------
    ValueError
        If the path of the model exists, or the checkpoint belongs to another fit.
    FileNotFoundError
        If the parent folder of the model or of the checkpoint does not exist.
    MemoryError
        If memory or disk space does not suffice.
    """

    def __init__(self, solver: OutOfCore, task: StoreTask, comm: Communicator) -> None:
        self.solver, self.task, self.store, self.comm = solver, task, task.store, comm
        self.path = Path(str(solver.path))
        work = self.path.with_name(f".{self.path.name}.work") if task.checkpoint is None else Path(task.checkpoint)
        self.max_iter = solver.default_max_iter if task.max_iter is None else task.max_iter
        for folder in (self.path, work):
            if not folder.absolute().parent.is_dir():
                raise FileNotFoundError(f"cannot write {folder}: the folder {folder.parent} does not exist; create it")
        # All ranks use the same seed, even if random_state is None.
        self.seed = int(comm.allreduce(np.array([task.seed], np.int64), "max")[0])
        d, K = self.store.shape[1], self.store.n_outputs
        width = block_width(d, K, task.dtype, solver.block_classes, solver.block_bytes)
        self.bounds = [*range(0, K, width), K]
        self.rounds = -(-(len(self.bounds) - 1) // comm.size)
        #: Steps of an epoch; in each of them a rank visits at most one block.
        self.steps = comm.size * self.rounds
        self.view = self.store.parts(comm.rank, comm.size)
        self.batch = batch_of(len(self.store), self.store.layout == "dense")
        self._require_room(width * d)
        identity = {
            "store": [
                *(*self.store.shape, self.store.n_stored, self.store.n_outputs),
                *(self.store.files[-1].sha256, self.store.files[0].sha256),
            ],
            "dtype": task.dtype.name,
            "blocks": len(self.bounds) - 1,
            "alpha": task.alpha,
            "fit_intercept": task.intercept,
            **({} if task.class_weight is None else {"class_weight": repr(task.class_weight)}),
            "average": solver.average,
            "window_bytes": solver.window_bytes,
            "random_state": self.seed,
        }
        self.work = Work(work, identity, self.bounds, d, task.dtype, self.steps, comm.size)
        self.work.resume()
        if comm.rank == 0 and not self.work.has_left(self.path):
            refuse_existing(self.path)

    def _require_room(self, cells: int) -> None:
        """Raise a MemoryError if memory or disk space does not suffice, for blocks of ``cells`` weights."""
        solver, size = self.solver, self.task.dtype.itemsize
        states = (2 if solver.average else 1) * cells * size
        require(
            {
                "a block of weights": max(states, cells * (size + 8) if solver.certificate else 0),
                "windows of rows": 3 * solver.window_bytes,
                "sums of rows": 24 * len(self.view),
            },
            "smaller block_bytes or window_bytes",
        )
        if self.comm.rank == 0:
            # A block is rewritten before its old file is removed; at the end the model is written in addition.
            whole = self.store.shape[1] * self.store.n_outputs * size
            whole = whole * (3 if solver.average else 2) + states + 4 * len(self.store) * (len(self.bounds) - 1)
            free = shutil.disk_usage(self.path.absolute().parent).free
            if whole > free:
                raise MemoryError(
                    f"this fit needs {human(whole)} of disk space for {self.path}, where {human(free)} are free: use "
                    "another disk, or average=False"
                )

    # --- the run ----------------------------------------------------------------------------------------------------

    def run(self) -> StoreFit:
        """Run the fit, and write the model; after Ctrl-C that of the weights reached."""
        self.started = time.perf_counter()
        comm, work = self.comm, self.work
        if comm.rank == 0:
            work.path.mkdir(exist_ok=True)
        comm.barrier()
        self.history = History([Record.of(row) for row in work.history], outcome="max_iter")
        self.together = saved = False
        try:
            self.by_class = self._by_class()
            self.survey = self._survey()
            self.rows = Rows(self.view, self.solver.window_bytes, self.survey.scale, len(self.store), self.by_class)
            try:
                self._descend()
            except KeyboardInterrupt:
                if (comm.size > 1 and not self.together) or not work.done:
                    raise
                self.history.outcome = "interrupted"
            comm.barrier()
            if comm.rank == 0:
                self._keep()
            comm.barrier()
            saved = True
        finally:
            # A checkpoint that the user asked for remains, unless the fit has converged.
            if comm.rank == 0 and (self.task.checkpoint is None or (saved and self.history.outcome == "converged")):
                work.remove()
        model = ShardedModel.open(self.path)
        survey, epochs = self.survey, work.done // self.steps
        return StoreFit(model, self.history, self._certificate(), survey.alpha, epochs, survey.mean_norm)

    def _descend(self) -> None:
        """Run the remaining epochs, and compute the certificates."""
        work, certificate, history = self.work, self.solver.certificate, self.history
        widths = [hi - lo for lo, hi in zip(self.bounds[:-1], self.bounds[1:])]
        sums = self._sums(widths)
        self.seconds = history.last.seconds if len(history) else 0.0
        with Reporter(self.task.verbose if self.comm.rank == 0 else 0, self.task.tol, self.max_iter) as shown:
            while work.done < self.max_iter * self.steps:
                begun, compiled = time.perf_counter(), compile_clock.seconds
                self._epoch(sums)
                self.seconds += time.perf_counter() - begun - (compile_clock.seconds - compiled)
                shown.iterated(work.done // self.steps)
                if certificate == "epoch":
                    self._evaluate(shown)
                    if history.outcome == "converged":
                        return
            if certificate is not None and not self._evaluated():
                self._evaluate(shown)

    def _sums(self, widths: list[int]) -> LogSums:
        """The log-sum-exps of the rows of this rank; taken from the files of another number of ranks, if it was."""
        work, comm, view = self.work, self.comm, self.view
        # A fit that was interrupted in its first epoch has changed some blocks.
        other = work.sums_of != comm.size
        file = work.sums_file(comm.rank, comm.size)
        sums = LogSums(file, len(view), widths, fresh=other or not work.begun)
        if other:
            for rank in range(work.sums_of):
                part = self.store.parts(rank, work.sums_of)
                first, last = max(view.begin, part.begin), min(view.end, part.end)
                if first < last:
                    rows = first - view.begin, first - part.begin, last - part.begin
                    sums.take(work.sums_file(rank, work.sums_of), len(part), *rows)
            comm.barrier()
            if comm.rank == 0:
                work.write()  # from now on the sums of this number of ranks are those of the weights
            work.sums_of = comm.size
            comm.barrier()
        return sums

    def _by_class(self) -> Array | None:
        """The weight of each class, of the rows of all ranks."""
        asked, store = self.task.class_weight, self.store
        if asked is None:
            return None
        if asked != "balanced":
            return np.asarray(compute_class_weight(asked, classes=store.classes, y=store.classes))
        counts = np.zeros(store.n_outputs, np.int64)
        for window in self.view.windows(self.solver.window_bytes):
            counts += np.bincount(window.y, minlength=store.n_outputs)
        counts = self.comm.allreduce(counts)
        return np.asarray(len(store) / (store.n_outputs * np.maximum(counts, 1)))

    def _survey(self) -> _Survey:
        """One pass over the rows: checks them, and computes norms, number of steps and first step size."""
        comm, task, dense, batch = self.comm, self.task, self.store.layout == "dense", self.batch
        weighed = Rows(self.view, self.solver.window_bytes, 1.0, len(self.store), self.by_class)
        steps = np.zeros(comm.size, np.int64)
        n, size = len(self.store), len(self.store) * self.store.shape[1]
        weight = squares = features = ones = largest = 0.0
        for window in self.view.windows(self.solver.window_bytes):
            rows = window.end - window.begin
            fault = row_fault(make_rows(window.X), 0, rows, self.store.shape[1])
            if fault:
                raise ValueError(
                    f"rows must be finite and valid, but {self.store.path} has {fault} in the window from row "
                    f"{window.begin} on: write the store again from correct data"
                )
            steps[comm.rank] += steps_of(rows, batch)
            c = weighed.weights(window)
            weight += float(c.sum())
            values = window.X if dense else window.X.data
            largest = max(largest, float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
            check_largest(max(largest, 1.0), size, task.dtype)  # whether it is too small, all windows tell
            squares += float(np.vdot(values, values)) if values.dtype == np.float64 else _squares(values)
            found = curvature(window.X, c, batch)
            features, ones = max(features, found[0]), max(ones, found[1])
        steps = comm.allreduce(steps)
        weight, squares = comm.allreduce(np.array([weight, squares])).tolist()
        features, ones, largest = comm.allreduce(np.array([features, ones, largest]), "max").tolist()
        check_largest(largest, size, task.dtype)
        if not weight > 0:
            raise ValueError(
                f"sample weights must have a positive sum, got only zeros in {self.store.path}: write the store again "
                "with other weights"
            )
        mean = squares / n
        gain = mean if task.intercept else 0.0
        scale = n / weight
        alpha = 1.0 / weight if task.alpha is None else task.alpha
        lam = 2.0 * alpha if self.store.n_outputs == 2 else alpha
        rate = 1.0 / (scale * (features + gain * ones) + batch * lam)
        return _Survey(steps, scale, alpha, lam, rate, gain, mean)

    # --- an epoch ---------------------------------------------------------------------------------------------------

    def _assigned(self, rank: int, step: int) -> int | None:
        """The block that a rank visits in a step of an epoch; None if there is none."""
        size = self.comm.size
        block = (rank + step // self.rounds) % size + step % self.rounds * size
        return block if block < self.work.n_blocks else None

    def _epoch(self, sums: LogSums) -> None:
        """Run the remaining steps of the current epoch."""
        comm, work = self.comm, self.work
        epoch = work.done // self.steps
        while work.done < (epoch + 1) * self.steps:
            try:
                comm.heed()
            except KeyboardInterrupt:  # raised in all ranks after the same step
                self.together = True
                raise
            step = work.done % self.steps
            comm.where = (epoch, step)
            block = self._assigned(comm.rank, step)
            if block is not None:
                # Number of stochastic steps that the block has taken on other ranks in this epoch.
                turns = range(step // self.rounds)
                before = sum(int(self.survey.steps[(block - turn) % comm.size]) for turn in turns)
                self._visit(block, epoch, before, sums)
            comm.barrier()
            visited = [self._assigned(rank, step) for rank in range(comm.size)]
            work.settle([found for found in visited if found is not None], write=comm.rank == 0)
            comm.barrier()

    def _visit(self, block: int, epoch: int, before: int, sums: LogSums) -> None:
        """Take stochastic steps on a block with all rows of this rank."""
        solver, view, survey = self.solver, self.view, self.survey
        averaging = solver.average and epoch > 0
        state = self.work.load(block, averaging=averaging)
        whole = int(survey.steps.sum())
        schedule = Schedule(
            rate=survey.rate,
            decay=survey.lam * survey.rate * self.batch,
            power=_AVERAGED if solver.average else _PLAIN,
            lam=survey.lam,
            gain=survey.gain,
            batch=self.batch,
        )
        cuts = view.cuts(solver.window_bytes)
        order = np.random.default_rng([self.seed, epoch, self.comm.rank]).permutation(len(cuts))
        done = before
        for place, window in zip(order, view.windows(solver.window_bytes, order.tolist())):
            rows = window.end - window.begin
            begin, end = window.begin - view.begin, window.end - view.begin
            rng = np.random.default_rng([self.seed, epoch, self.comm.rank, int(place)])
            own = visit(
                window.X,
                window.y,
                self.bounds[block],
                self.rows.weights(window),
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
            raise ValueError("the weights must be finite, got NaN or infinity: scale the features, or use float64")
        self.work.save(block, state)

    # --- results ----------------------------------------------------------------------------------------------------

    def _evaluated(self) -> bool:
        """Whether the last record is for the current weights."""
        return len(self.history) > 0 and self.history.last.iteration * self.steps == self.work.done

    def _evaluate(self, shown: Reporter) -> None:
        """Record the certificate of the current weights; sets the outcome if it reaches ``tol``."""
        epoch, lam, intercept = self.work.done // self.steps, self.survey.lam, self.task.intercept
        found = certify(self.rows, self.bounds, self.work.result, lam, intercept, self.comm)
        record = Record(
            epoch,
            float(epoch * self.work.n_blocks),
            *(found.primal, found.dual, found.gap, found.relative_gap),
            self.seconds,
            time.perf_counter() - self.started,
        )
        self.history.records.append(record)
        self.work.history.append([*map(float, record.numbers())])
        shown.evaluated(record)
        if found.relative_gap <= self.task.tol:
            self.history.outcome = "converged"

    def _certificate(self) -> Certificate:
        """The certificate of the current weights; NaN if it was not computed."""
        if not self._evaluated():
            return Certificate(float("nan"), float("nan"))
        return Certificate(self.history.last.primal, self.history.last.dual, resolution(self.task.dtype))

    def _keep(self) -> None:
        """Write the model; replaces one that this fit has written before."""
        store, path, found = self.store, self.path, self._certificate()
        known = self._evaluated()
        record: dict[str, Any] = {
            "solver": "out_of_core",
            "outcome": self.history.outcome,
            "objective": found.primal if known else None,
            "relative_gap": found.relative_gap if known else None,
            "n_iter": self.work.done // self.steps,
            "history": self.history.to_dict(),
            "ranks": self.comm.size,
            "data": {
                "source": store.path.name,
                "format": "store",
                "zero_based": store.zero_based if store.source_format == "svmlight" else None,
                "rows": len(store),
                "notes": list(store.notes),
                "table": None if store.table is None else store.table.to_dict(),
            },
        }
        vectorizer = store.vectorizer
        if self.work.has_left(path):
            shutil.rmtree(path)
        with ShardedModelWriter(
            path,
            store.shape[1],
            classes=store.classes,
            task="multiclass",
            link="softmax",
            parameters={**self.task.parameters, "alpha": self.survey.alpha},
            record=record,
            feature_names=store.feature_names,
            vectorizer=None if vectorizer is None else vectorizer.to_state(),
        ) as writer:
            for block in range(self.work.n_blocks):
                writer.add(*self.work.result(block))
        self.work.leave(path)


def _squares(values: Array) -> float:
    flat = values.reshape(-1)
    step = 1 << 20
    return float(sum(np.square(flat[b : b + step], dtype=np.float64).sum() for b in range(0, flat.size, step)))
