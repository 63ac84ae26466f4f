"""Fits on the nodes of a Ray cluster; rows stay where they are. Ray is imported on first use."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from manyclass.distributed.jobs import Crew, Job, Worker, check_arguments, finish, new_job

__all__ = ["INSTALL", "fit"]

INSTALL = "manyclass.distributed.ray needs Ray: install it with\n    python -m pip install 'manyclass[ray]'"


def fit(
    estimator: Any,
    X: Any,
    y: Any = None,
    sample_weight: Any = None,
    *,
    workers_per_node: int = 1,
    num_cpus: float = 1,
    path: str | os.PathLike[str] | None = None,
    silence: float = 8.0,
    stall: float = 60.0,
) -> Any:
    """Fit an estimator on rows in the object stores of the nodes of a Ray cluster.

    On each node that has rows, actors read them from the memory of its object store. They connect to each other by TCP,
    and run the solver as the processes of an MPI job would. Ctrl-C ends the fit after the current iteration, with the
    model reached so far.

    Parameters
    ----------
    estimator : LinearClassifier
        Not changed. Its solver is "auto" (`DSMLR`; `DataParallelSDCA` for Crammer-Singer) or another whose processes
        have their own rows.
    X : list of ray.ObjectRef, or ray.data.Dataset
        Rows in partitions: references of arrays, CSR matrices or data frames; or a data set, of which all columns but
        those of the labels and weights are features.
    y : list of ray.ObjectRef, or str
        Labels of each partition; of a data set, the name of their column.
    sample_weight : list of ray.ObjectRef or str, optional
        Weights of the rows, in the same way.
    workers_per_node : int, default=1
        Actors on each node that has rows, >= 1; a node with fewer partitions has fewer.
    num_cpus : float, default=1
        Processors that each actor reserves, >= 0; an actor starts when its node has so many to spare.
    path : path, optional
        A folder that does not exist, on a file system that all nodes and this process see. Each actor writes its
        classes to it, and the weights are whole nowhere. None: they are sent to this process.
    silence : float, default=8.0
        Seconds without a heartbeat after which an actor counts as lost, > 0.
    stall : float, default=60.0
        Seconds without work in any actor after which an actor that others wait for counts as stuck, > 0.

    Returns
    -------
    LinearClassifier
        A fitted copy of the estimator. With ``path``, its model is the folder, of which it reads a block of classes at
        a time.

    Raises
    ------
    ImportError
        If Ray is missing.
    TypeError
        If the estimator or the rows are of an unknown type.
    ValueError
        If X, y and sample_weight have different numbers of partitions, the solver is not for several processes, or the
        path exists.
    PeerLostError
        If an actor is lost, is stuck or cannot be reached by the others; the message names its node.

    See Also
    --------
    manyclass.distributed.dask.fit : The same on Dask.

    Examples
    --------
    >>> import ray  # doctest: +SKIP
    >>> parts = [(ray.put(X), ray.put(y)) for X, y in batches]  # doctest: +SKIP
    >>> model = fit(LinearClassifier(alpha=1e-3), *map(list, zip(*parts)))  # doctest: +SKIP
    >>> model = fit(LinearClassifier(alpha=1e-3), ray.data.read_parquet("rows"), "label")  # doctest: +SKIP
    """
    ray = _ray()
    path = check_arguments(estimator, path)
    if workers_per_node < 1:
        raise ValueError(f"workers_per_node must be an integer of at least 1, got {workers_per_node!r}")
    job = new_job(silence, stall)
    where = _placed(ray, _parts(ray, X, y, sample_weight), workers_per_node)
    crew = _Crew(ray, job, [node for node, _ in where], num_cpus)
    try:
        crew.start(estimator, [parts for _, parts in where], path)
        finish(crew)
        return ray.get(crew.results[0])
    finally:
        crew.end()


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise ImportError(f"{INSTALL}\n({type(error).__name__}: {error})") from error
    if not ray.is_initialized():
        raise ValueError("there is no connection to Ray: call ray.init()")
    return ray


def _parts(ray: Any, X: Any, y: Any, sample_weight: Any) -> list[tuple[Any, Any, Any]]:
    """References of rows, labels and weights (or None) of each partition."""
    if hasattr(X, "to_pandas_refs"):
        for name, given in (("y", y), ("sample_weight", sample_weight)):
            if not (isinstance(given, str) or (given is None and name != "y")):
                raise TypeError(f"{name} must be the name of a column of the data set, got {type(given).__name__}")
        split = ray.remote(num_returns=3, num_cpus=0)(_split)
        return [tuple(split.remote(frame, y, sample_weight)) for frame in X.to_pandas_refs()]
    columns: list[Sequence[Any]] = []
    for name, given in (("X", X), ("y", y), ("sample_weight", sample_weight)):
        if name == "sample_weight" and given is None:
            columns.append([None] * len(X))
            continue
        if not isinstance(given, (list, tuple)) or not all(isinstance(ref, ray.ObjectRef) for ref in given):
            raise TypeError(
                f"{name} must be a list of references, as ray.put gives them, or X a ray.data.Dataset, got "
                f"{type(given).__name__}"
            )
        if len(given) != len(X):
            raise ValueError(f"X and {name} must have the same partitions, got {len(X)} and {len(given)}")
        columns.append(given)
    if not X:
        raise ValueError("X must have rows, got no partition")
    return list(zip(*columns))


def _split(frame: Any, label: str, weight: str | None) -> tuple[Any, Any, Any]:
    rest = frame.drop(columns=[label] if weight is None else [label, weight])
    return rest, frame[label], None if weight is None else frame[weight]


def _placed(ray: Any, parts: Sequence[tuple[Any, Any, Any]], workers_per_node: int) -> list[tuple[str, list[Any]]]:
    """The node of each rank, and its parts: those that the node has, in turn."""
    refs = [part[0] for part in parts]
    ray.wait(refs, num_returns=len(refs), fetch_local=False)
    found = ray.experimental.get_object_locations(refs)
    alive = sorted(node["NodeID"] for node in ray.nodes() if node["Alive"])
    by_node: dict[str, list[Any]] = defaultdict(list)
    for part in parts:
        # Small objects are in no store: any node is as good.
        nodes = [node for node in found.get(part[0], {}).get("node_ids", ()) if node in alive] or alive
        by_node[min(nodes, key=lambda node: (len(by_node[node]), node))].append(part)
    return [
        (node, held[rank::workers_per_node])
        for node, held in sorted(by_node.items())
        for rank in range(min(workers_per_node, len(held)))
    ]


class _Actor:
    """A rank, in a process of its own."""

    def __init__(self, job: Job) -> None:
        from ray.util import get_node_ip_address

        self._worker = Worker(job, get_node_ip_address())

    def address(self) -> tuple[str, int]:
        return self._worker.address

    def fit(self, rank: int, addresses: Any, estimator: Any, parts: Sequence[Any], path: str | None) -> Any:
        import ray

        found = [tuple(None if ref is None else ray.get(ref) for ref in part) for part in parts]
        return self._worker.fit(rank, addresses, estimator, found, path)

    def tell(self, method: str, *arguments: Any) -> None:
        getattr(self._worker, method)(*arguments)


class _Crew(Crew):
    """The ranks as actors, each on a node."""

    def __init__(self, ray: Any, job: Job, nodes: Sequence[str], num_cpus: float) -> None:
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        names = {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes()}
        super().__init__([f"the actor on node {names[node]}" for node in nodes])
        self._ray, self.results = ray, list[Any]()
        actor = ray.remote(num_cpus=num_cpus, max_concurrency=2, max_restarts=0)(_Actor)
        self._actors = [
            actor.options(scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)).remote(job)
            for node in nodes
        ]

    def start(self, estimator: Any, parts: Sequence[Sequence[Any]], path: str | None) -> None:
        """Begin the fit."""
        addresses = self._ray.get([actor.address.remote() for actor in self._actors])
        given = self._ray.put(estimator)
        self.results = [
            actor.fit.remote(rank, addresses, given, parts[rank], path) for rank, actor in enumerate(self._actors)
        ]

    def look(self) -> tuple[list[int], list[int], list[int]]:
        done, _ = self._ray.wait(self.results, num_returns=len(self.results), timeout=0.0, fetch_local=False)
        ended = [rank for rank, result in enumerate(self.results) if result in done]
        errors = self._raised(ended)
        lost = [rank for rank, error in errors.items() if isinstance(error, self._ray.exceptions.RayActorError)]
        return [rank for rank in range(len(self.results)) if rank not in ended], list(errors), lost

    def _raised(self, ranks: Sequence[int]) -> dict[int, BaseException]:
        found: dict[int, BaseException] = {}
        for rank in ranks:
            try:
                self._ray.get(self.results[rank])
            except self._ray.exceptions.RayTaskError as error:
                found[rank] = error.cause
            except self._ray.exceptions.RayError as error:
                found[rank] = error
        return found

    def errors(self, ranks: Sequence[int]) -> dict[int, BaseException]:
        found = self._raised(ranks)
        return {rank: error for rank, error in found.items() if not isinstance(error, self._ray.exceptions.RayError)}

    def tell(self, ranks: Sequence[int], method: str, *arguments: Any) -> None:
        for rank in ranks:
            self._actors[rank].tell.remote(method, *arguments)

    def cancel(self, ranks: Sequence[int]) -> None:
        for rank in ranks:
            self._ray.kill(self._actors[rank])

    def end(self) -> None:
        """End all actors."""
        for actor in self._actors:
            self._ray.kill(actor)
