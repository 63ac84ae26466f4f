"""Maximum-inner-product search: multiply-adds of the exact search, recall and bytes of the approximate ones.

The weights are those of a Crammer-Singer machine fitted on the data, and the classes' centroids. Queries are the test
rows, and training rows whose true class is excluded, as a solver asks. Multiply-adds, recall and bytes do not depend on
the machine or its load; the seconds are processor time of one thread.
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks.bench import Bench
from manyclass import LinearClassifier
from manyclass.mips import ExactSearch, SearchIndex, SimpleLSH, SmallWorldGraph

#: Rows that are asked about.
QUERIES = 2000

#: name -> index, the option that is varied between queries, its values.
INDEXES: dict[str, tuple[Any, str, tuple[Any, ...]]] = {
    "exact": (ExactSearch, "prune", (False, True)),
    "simple_lsh, 512 bits": (lambda: SimpleLSH(bits=512), "candidates", (256, 1024)),
    "small_world": (SmallWorldGraph, "width", (64, 200, 800)),
}


def run(bench: Bench) -> None:
    for source in bench.datasets("icd10cm/4"):
        data = source.read()
        if not sp.issparse(data.X) or data.y.ndim != 1:
            bench.skip("needs sparse rows with one class each", data=source.name)
            continue
        y = np.unique(data.y, return_inverse=True)[1]
        rng = np.random.default_rng(0)
        train = np.sort(rng.permutation(len(y))[:QUERIES])
        test = np.sort(rng.permutation(data.X_test.shape[0])[:QUERIES])
        queries = {"test rows": (data.X_test[test], None), "true class excluded": (data.X[train], y[train])}
        for weights_name, weights in (("svm", _machine(data.X, y)), ("centroids", _centroids(data.X, y))):
            for name, (make, option, values) in INDEXES.items():
                begun = time.process_time()
                index = make().build(weights)
                built = time.process_time() - begun
                for value in values:
                    setattr(index, option, value)
                    for asked, (X, exclude) in queries.items():
                        for k in (1, 8):
                            bench.record(
                                data=source.name,
                                weights=weights_name,
                                nonzeros=weights.nnz,
                                index=name,
                                option=f"{option}={value}",
                                queries=asked,
                                k=k,
                                build_seconds=built,
                                bytes=index.nbytes,
                                **_measured(index, X, k, exclude),
                            )
    _report(bench)


def _machine(X: Any, y: Any) -> Any:
    model = LinearClassifier("crammer_singer", alpha=1e-6, fit_intercept=False, max_iter=10, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # ten epochs are not meant to converge
        return sp.csr_matrix(model.fit(X, y).model_.weights)


def _centroids(X: Any, y: Any) -> Any:
    members = sp.csr_matrix((np.ones(len(y), X.dtype), (np.arange(len(y)), y)), shape=(len(y), int(y.max()) + 1))
    sums = sp.csr_matrix(X.T @ members)
    norms = np.sqrt(np.asarray(sums.multiply(sums).sum(axis=0))).ravel()
    return sp.csr_matrix(sums @ sp.diags(1 / np.maximum(norms, 1e-12))).astype(X.dtype)


def _measured(index: SearchIndex, X: Any, k: int, exclude: Any) -> dict[str, float]:
    index.query(X[:8], k, None if exclude is None else exclude[:8])  # compiles
    begun = time.process_time()
    index.query(X, k, exclude)
    seconds = time.process_time() - begun
    work = index.multiply_adds(X, k, exclude).mean() if isinstance(index, ExactSearch) else float("nan")
    return {
        "multiply_adds": float(work),
        "recall": index.recall(X, k, exclude),
        "microseconds": 1e6 * seconds / X.shape[0],
    }


def _report(bench: Bench) -> None:
    columns = ("data", "weights", "index", "option", "queries", "k", "multiply_adds", "recall", "bytes", "microseconds")
    rows = [row for row in bench.rows if row["status"] == "measured"]
    bench.table("A query, on average", columns, [[row[column] for column in columns] for row in rows])
