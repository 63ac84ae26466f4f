"""A fit of softmax regression to a row store, in one of the processes that run it together."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
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
from manyclass.objective.history import History, Record, Reporter, Validated, tell
from manyclass.objective.problem import Certificate
from manyclass.runtime.files import refuse_existing
from manyclass.runtime.memory import human, require
from manyclass.solvers.base import StoreFit, StoreTask
from manyclass.solvers.out_of_core.certificate import Rows, certify, resolution
from manyclass.solvers.out_of_core.state import LogSums, StoredBlocks, Work
from manyclass.solvers.out_of_core.steps import Schedule, batch_of, curvature, steps_of, visit

if TYPE_CHECKING:
    from manyclass.solvers.out_of_core.solver import OutOfCore

__all__ = ["BlockFit", "class_weights"]

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
        self.seed = task.seed  # the same on all ranks
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
            **({} if task.held_out is None else {"held_out": len(task.held_out)}),
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
            kept = 2 if solver.average else 1  # the weights, and their mean
            if self.task.validation is not None and self.task.validation.patience is not None:
                kept *= 2  # and those of the best score
            whole = whole * (kept + 1) + states + 4 * len(self.store) * (len(self.bounds) - 1)
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
        if self.task.validation is not None:
            self.history.validation[:] = [Validated(int(row[0]), *row[1:]) for row in work.validation]
            if work.best is not None:
                score, weights = work.best
                self.task.validation.resume(weights.epoch, score, weights, weights.intercept())
        self.together = saved = False
        try:
            self.by_class = self._by_class()
            self.survey = self._survey()
            self.rows = self._rows(self.survey.scale)
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
            # A checkpoint that the user asked for remains, unless the fit is finished.
            finished = saved and self.history.outcome in ("converged", "patience")
            if comm.rank == 0 and (self.task.checkpoint is None or finished):
                work.remove()
        model = ShardedModel.open(self.path)
        survey, epochs = self.survey, work.done // self.steps
        return StoreFit(model, self.history, self._certificate(), survey.alpha, epochs, survey.mean_norm)

    def _descend(self) -> None:
        """Run the remaining epochs, each watched, and compute the certificates."""
        work, certificate, history = self.work, self.solver.certificate, self.history
        widths = [hi - lo for lo, hi in zip(self.bounds[:-1], self.bounds[1:])]
        sums = self._sums(widths)
        self.seconds = history.last.seconds if len(history) else 0.0
        with Reporter(self.task.verbose if self.comm.rank == 0 else 0, self.task.tol, self.max_iter) as shown:
            if work.done and not work.done % self.steps:
                self._judge()  # unless that was done before the fit was resumed
            while history.outcome == "max_iter" and work.done < self.max_iter * self.steps:
                begun, compiled = time.perf_counter(), compile_clock.seconds
                self._epoch(sums)
                self.seconds += time.perf_counter() - begun - (compile_clock.seconds - compiled)
                if certificate == "epoch":
                    self._evaluate(work.weights())
                self._judge()
                self._tell(shown)
            if certificate is not None and self._evaluated(self._model()) is None:
                record = self._evaluate(self._model())
                shown.evaluated(record, history.score_at(record.iteration))

    def _judge(self) -> None:
        """Score the held-out rows after an epoch; sets the outcome if they end the fit."""
        validation, work, history = self.task.validation, self.work, self.history
        if validation is None:
            return
        weights = work.weights()
        if history.score_at(weights.epoch) is None:
            found = validation.look(weights.epoch, self.seconds, weights, weights.intercept())
            history.validation.append(found)
            work.validation.append([*map(float, found)])
            better = validation.best is not None and validation.best[0] is weights
            work.judged((found.score, weights) if better else work.best, write=self.comm.rank == 0)
        if history.outcome == "max_iter" and validation.over(weights.epoch):
            history.outcome = "patience"

    def _tell(self, shown: Reporter) -> None:
        """Show an epoch, and call the callback; sets the outcome if it ends the fit."""
        history, weights = self.history, self.work.weights()
        record = self._evaluated(weights)
        if record is None:
            nan = float("nan")
            known = history.last.numbers()[2:6] if len(history) else (nan, nan, nan, nan)
            record = self._record(weights.epoch, known, {"epochs left": self.max_iter - weights.epoch})
        try:
            stop = tell(
                shown,
                self.task.callback,
                record,
                score=history.score_at(weights.epoch),
                finished=history.outcome != "max_iter" or weights.epoch >= self.max_iter,
                weights=lambda: (weights, weights.intercept()),
            )
        except KeyboardInterrupt:  # raised in all ranks
            self.together = True
            raise
        if stop and history.outcome == "max_iter":
            history.outcome = "stopped"

    def _record(self, epoch: int, bounds: Sequence[float], info: dict[str, float] | None = None) -> Record:
        """A record of an epoch, with primal, dual, gap and relative gap."""
        spent = self.seconds, time.perf_counter() - self.started
        return Record.of([epoch, epoch * self.work.n_blocks, *bounds, *spent], info)

    def _model(self) -> StoredBlocks:
        """The weights of the model that the fit returns."""
        validation, best = self.task.validation, None
        if validation is not None:
            best = validation.kept(ended=self.history.outcome == "patience", certified=self.solver.certified)
        return self.work.weights() if best is None else best[0]

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
        counts = np.zeros(store.n_outputs, np.int64)
        if asked == "balanced":
            for window in self.view.windows(self.solver.window_bytes):
                counts += np.bincount(window.y, minlength=store.n_outputs)
            counts = self.comm.allreduce(counts)
        return class_weights(asked, store.classes, counts)

    def _rows(self, scale: float) -> Rows:
        """The rows of this rank, with sample weights times a factor; those that are held out have none."""
        whole = len(self.store), self.by_class, self.task.held_out
        return Rows(self.view, self.solver.window_bytes, scale, *whole)

    def _survey(self) -> _Survey:
        """One pass over the rows: checks them, and computes norms, number of steps and first step size."""
        comm, task, dense, batch = self.comm, self.task, self.store.layout == "dense", self.batch
        weighed = self._rows(1.0)
        every = weighed._replace(held_out=None)
        steps = np.zeros(comm.size, np.int64)
        n, size = len(self.store), len(self.store) * self.store.shape[1]
        weight = total = squares = features = ones = largest = 0.0
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
            total += float(every.weights(window).sum())
            values = window.X if dense else window.X.data
            largest = max(largest, float(values.max(initial=0.0)), -float(values.min(initial=0.0)))
            check_largest(max(largest, 1.0), size, task.dtype)  # whether it is too small, all windows tell
            squares += float(np.vdot(values, values)) if values.dtype == np.float64 else _squares(values)
            found = curvature(window.X, c, batch)
            features, ones = max(features, found[0]), max(ones, found[1])
        steps = comm.allreduce(steps)
        weight, total, squares = comm.allreduce(np.array([weight, total, squares])).tolist()
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
        alpha = 1.0 / total if task.alpha is None else task.alpha  # of all rows, also where some are held out
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

    def _evaluated(self, weights: StoredBlocks) -> Record | None:
        """The record of these weights; None if their certificate was not computed."""
        if not weights.whole:
            return None
        return next((record for record in reversed(self.history) if record.iteration == weights.epoch), None)

    def _evaluate(self, weights: StoredBlocks) -> Record:
        """Record the certificate of these weights; sets the outcome if it reaches ``tol``."""
        found = certify(self.rows, self.bounds, weights.block, self.survey.lam, self.task.intercept, self.comm)
        record = self._record(weights.epoch, (found.primal, found.dual, found.gap, found.relative_gap))
        self.history.records.append(record)
        self.work.history.append([*map(float, record.numbers())])
        if found.relative_gap <= self.task.tol and self.history.outcome == "max_iter":
            self.history.outcome = "converged"
        return record

    def _certificate(self) -> Certificate:
        """The certificate of the model; NaN if it was not computed."""
        record = self._evaluated(self._model())
        if record is None:
            return Certificate(float("nan"), float("nan"))
        return Certificate(record.primal, record.dual, resolution(self.task.dtype))

    def _keep(self) -> None:
        """Write the model; replaces one that this fit has written before."""
        store, path, found = self.store, self.path, self._certificate()
        weights = self._model()
        known = self._evaluated(weights) is not None
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
                writer.add(*weights.block(block))
        self.work.leave(path)


def class_weights(asked: Any, classes: Array | None, counts: Array) -> Array:
    """The weight of each class, from the number of its rows."""
    if asked != "balanced":
        return np.asarray(compute_class_weight(asked, classes=classes, y=classes))
    return np.asarray(counts.sum() / (len(counts) * np.maximum(counts, 1)))


def _squares(values: Array) -> float:
    flat = values.reshape(-1)
    step = 1 << 20
    return float(sum(np.square(flat[b : b + step], dtype=np.float64).sum() for b in range(0, flat.size, step)))
