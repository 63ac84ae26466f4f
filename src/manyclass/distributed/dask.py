"""Fits on the workers of a Dask cluster; rows stay where they are. Dask is imported on first use."""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from manyclass.distributed.jobs import Crew, Job, Worker, check_arguments, finish, new_job

__all__ = ["INSTALL", "fit"]

INSTALL = "manyclass.distributed.dask needs Dask: install it with\n    python -m pip install 'manyclass[dask]'"

#: The jobs of the workers in this process (of a local cluster, several), by name of the job and address of the worker.
_WORKERS: dict[tuple[str, str], Worker] = {}


def fit(
    estimator: Any,
    X: Any,
    y: Any,
    sample_weight: Any = None,
    *,
    client: Any = None,
    path: str | os.PathLike[str] | None = None,
    silence: float = 8.0,
    stall: float = 60.0,
) -> Any:
    """Fit an estimator on rows in the memory of the workers of a Dask cluster.

    Each partition of rows stays on the worker that has computed it. The workers connect to each other by TCP, and
    run the solver as the processes of an MPI job would. Ctrl-C ends the fit after the current iteration, with the model
    reached so far.

    Parameters
    ----------
    estimator : LinearClassifier
        Not changed. Its solver is "auto" (`DSMLR`; `DataParallelSDCA` for Crammer-Singer) or another whose processes
        have their own rows.
    X : dask.array.Array or dask.dataframe.DataFrame of shape (n_samples, n_features), or list
        Rows in partitions: of an array blocks of rows, which may be SciPy CSR matrices. A list has futures or delayed
        objects, one for each partition.
    y : dask.array.Array, dask.dataframe.Series or list
        Labels, in as many partitions as X, which have the same rows.
    sample_weight : dask.array.Array, dask.dataframe.Series or list, optional
        Weights of the rows, in the same partitions.
    client : distributed.Client, optional
        By default the current one.
    path : path, optional
        A folder that does not exist, on a file system that all workers and this process see. Each worker writes its
        classes to it, and the weights are whole nowhere. None: they are sent to this process.
    silence : float, default=8.0
        Seconds without a heartbeat after which a worker counts as lost, > 0.
    stall : float, default=60.0
        Seconds without work in any worker after which a worker that others wait for counts as stuck, > 0.

    Returns
    -------
    LinearClassifier
        A fitted copy of the estimator. With ``path``, its model is the folder, of which it reads a block of classes at
        a time.

    Raises
    ------
    ImportError
        If Dask is missing.
    TypeError
        If the estimator or the rows are of an unknown type.
    ValueError
        If X, y and sample_weight have different numbers of partitions, the solver is not for several processes, or the
        path exists.
    PeerLostError
        If a worker is lost, is stuck or cannot be reached by the others; the message names it.

    See Also
    --------
    manyclass.distributed.ray.fit : The same on Ray.

    Examples
    --------
    >>> import dask.array as da  # doctest: +SKIP
    >>> from distributed import Client  # doctest: +SKIP
    >>> client = Client()  # doctest: +SKIP
    >>> X, y = da.from_array(rows, chunks=(500, -1)), da.from_array(labels, chunks=500)  # doctest: +SKIP
    >>> model = fit(LinearClassifier(alpha=1e-3), X, y)  # doctest: +SKIP
    >>> X.map_blocks(model.predict, drop_axis=1, dtype=y.dtype).compute()  # doctest: +SKIP
    """
    client = _client(client)
    path = check_arguments(estimator, path)
    job = new_job(silence, stall)
    parts = _parts(X, y, sample_weight)
    where = _computed(client, parts)
    addresses = sorted(where)
    try:
        doors = client.run(_open, job, workers=addresses)
        futures = [
            client.submit(
                _fit,
                job,
                rank,
                [doors[address] for address in addresses],
                estimator,
                where[address],
                path,
                key=f"manyclass-fit-{job.name}-{rank}",
                workers=[address],
                allow_other_workers=False,
                pure=False,
                retries=0,
            )
            for rank, address in enumerate(addresses)
        ]
        finish(_Crew(client, job, futures, addresses))
        return futures[0].result()
    finally:
        there = [address for address in addresses if address in client.nthreads()]
        if there:
            client.run(_close, job, workers=there)


def _client(client: Any) -> Any:
    try:
        import dask  # noqa: F401
        from distributed import get_client
    except ImportError as error:
        raise ImportError(f"{INSTALL}\n({type(error).__name__}: {error})") from error
    if client is None:
        try:
            client = get_client()
        except ValueError as error:
            raise ValueError("there is no Dask client: create one, as in client = distributed.Client()") from error
    if client.asynchronous:
        raise TypeError("client must not be asynchronous: call fit in a thread, with a client of its own")
    return client


def _parts(X: Any, y: Any, sample_weight: Any) -> list[Any]:
    """A delayed tuple of rows, labels and weights for each partition."""
    from dask import delayed

    chunks = getattr(X, "chunks", None)
    if chunks is not None and len(chunks) == 2 and len(chunks[1]) > 1:
        X = X.rechunk({1: -1})
    columns = [_pieces("X", X)]
    for name, given in (("y", y), ("sample_weight", sample_weight)):
        if given is None and name != "y":
            columns.append([None] * len(columns[0]))
            continue
        if chunks is not None and hasattr(given, "chunks") and given.chunks[0] != chunks[0]:
            given = given.rechunk({0: chunks[0]})
        columns.append(_pieces(name, given))
        if len(columns[-1]) != len(columns[0]):
            raise ValueError(
                f"X and {name} must have the same partitions, got {len(columns[0])} and {len(columns[-1])}: "
                "repartition one of them"
            )
    if not columns[0]:
        raise ValueError("X must have rows, got no partition")
    return [delayed(_Part)(*part) for part in zip(*columns)]


class _Part(tuple[Any, Any, Any]):
    """Rows, labels and weights of a partition."""

    def __new__(cls, X: Any, y: Any, weights: Any) -> _Part:
        return super().__new__(cls, (X, y, weights))

    def __getnewargs__(self) -> tuple[Any, ...]:
        return tuple(self)


def _pieces(name: str, given: Any) -> list[Any]:
    if hasattr(given, "to_delayed"):
        found = given.to_delayed()
        return list(found.ravel()) if hasattr(found, "ravel") else list(found)
    if isinstance(given, (list, tuple)) and given and all(hasattr(piece, "key") for piece in given):
        return list(given)
    raise TypeError(
        f"{name} must be a Dask array, data frame or series, or a list of futures or delayed objects, got "
        f"{type(given).__name__}: make it one, as in dask.array.from_array({name}, chunks=...)"
    )


def _computed(client: Any, parts: Sequence[Any]) -> dict[str, list[Any]]:
    """The futures of the partitions by the worker that has them, once all are computed; empty ones are left out."""
    from distributed import wait

    futures = client.compute(list(parts))
    wait(futures)
    failed = [future for future in futures if future.status != "finished"]
    if failed:
        failed[0].result()
    sizes = client.gather([client.submit(_count, future, pure=False) for future in futures])
    holders = client.who_has(futures)
    where: dict[str, list[Any]] = defaultdict(list)
    for future, size in zip(futures, sizes):
        if size:
            where[min(holders[future.key], key=lambda address: (len(where.get(address, ())), address))].append(future)
    if not where:
        raise ValueError(f"X must have rows, got {len(parts)} empty partitions")
    return where


class _Crew(Crew):
    """The ranks as futures, each on the worker with one of the addresses."""

    def __init__(self, client: Any, job: Job, futures: Sequence[Any], addresses: Sequence[str]) -> None:
        super().__init__([f"the worker {address}" for address in addresses])
        self._client, self._job, self._futures, self._addresses = client, job, futures, addresses
        self._asked, self._lost = time.monotonic(), list[int]()

    def look(self) -> tuple[list[int], list[int], list[int]]:
        states = [future.status for future in self._futures]
        pending = [rank for rank, state in enumerate(states) if state == "pending"]
        failed = [rank for rank, state in enumerate(states) if state not in ("pending", "finished")]
        if failed or time.monotonic() > self._asked + 1.0:
            there, self._asked = self._client.nthreads(), time.monotonic()
            self._lost = [rank for rank in (*pending, *failed) if self._addresses[rank] not in there]
        return pending, failed, self._lost

    def errors(self, ranks: Sequence[int]) -> dict[int, BaseException]:
        return {rank: self._futures[rank].exception() for rank in ranks if self._futures[rank].status == "error"}

    def tell(self, ranks: Sequence[int], method: str, *arguments: Any) -> None:
        self._client.run(_tell, self._job, method, *arguments, workers=[self._addresses[rank] for rank in ranks])

    def cancel(self, ranks: Sequence[int]) -> None:
        self._client.cancel([self._futures[rank] for rank in ranks])


# --- on the workers --------------------------------------------------------------------------------------------------


def _open(job: Job, dask_worker: Any = None) -> tuple[str, int]:
    worker = Worker(job, dask_worker.ip)
    _WORKERS[job.name, dask_worker.address] = worker
    return worker.address


def _count(part: Any) -> int:
    X = part[0]
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def _fit(
    job: Job, rank: int, addresses: Sequence[tuple[str, int]], estimator: Any, parts: Sequence[Any], path: str | None
) -> Any:
    from distributed import get_worker

    worker = _WORKERS[job.name, get_worker().address]
    return worker.fit(rank, addresses, estimator, parts, path)


def _tell(job: Job, method: str, *arguments: Any, dask_worker: Any = None) -> None:
    getattr(_WORKERS[job.name, dask_worker.address], method)(*arguments)


def _close(job: Job, dask_worker: Any = None) -> None:
    worker = _WORKERS.pop((job.name, dask_worker.address), None)
    if worker is not None:
        worker.close()
