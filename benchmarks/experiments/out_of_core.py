"""Larger than memory, for real: 4 GiB of rows, and a model of 4 GiB, under 2 GiB of address space; against the disk.

Each case runs in a child whose address space is limited (RLIMIT_AS) from its first line on: it writes what it needs, in
the folder for temporary files (TMPDIR: 20 GiB free), drops it from the page cache as far as the system lets it, and
reads, trains and predicts. What the disk gives is measured in the same child, by reading the same files from one end to
the other. With --quick the limit is what the child has taken after a fit of a few rows, and half of the data on top.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import children, measure
from benchmarks.bench import Bench

GIB = 1 << 30
LIMIT = 2 * GIB

#: case -> what is generated. ``stored`` values a row (dense: all features).
CASES: dict[str, dict[str, Any]] = {
    "sparse rows": {"bytes": 4 * GIB, "features": 100_000, "classes": 100, "stored": 64, "epochs": 2},
    "dense rows": {"bytes": 4 * GIB, "features": 1024, "classes": 64, "stored": 1024, "epochs": 2},
    "model": {"rows": 20_000, "features": 65_536, "classes": 16_384, "stored": 40, "epochs": 1, "block": 1 << 27},
}
QUICK: dict[str, dict[str, Any]] = {
    "sparse rows": {"bytes": 40 << 20, "features": 2000, "classes": 4, "stored": 64, "epochs": 1},
    "dense rows": {"bytes": 96 << 20, "features": 256, "classes": 4, "stored": 256, "epochs": 1},
    "model": {"rows": 2048, "features": 5120, "classes": 2048, "stored": 8, "epochs": 1, "block": 1 << 21},
}


def run(bench: Bench) -> None:
    if not hasattr(os, "posix_fadvise"):
        bench.skip("needs RLIMIT_AS and posix_fadvise, as Linux has them", case="all")
        return
    for case, facts in (QUICK if bench.options.quick else CASES).items():
        with tempfile.TemporaryDirectory() as folder:
            arguments = {"folder": folder, "facts": facts, "limit": None if bench.options.quick else LIMIT}
            arguments["threads"] = bench.options.threads
            try:
                if bench.options.quick:
                    # Compiling takes more address space than a limit as close as this one leaves.
                    children.call("benchmarks.experiments.out_of_core:compiled", {"folder": folder, "facts": facts})
                rows = children.call("benchmarks.experiments.out_of_core:measured", arguments)
            except children.ChildFailed as error:
                bench.fail(str(error), case=case)
                continue
        for row in rows:
            bench.record(case=case, **row)
    _report(bench)


def compiled(folder: str, facts: dict[str, Any]) -> None:
    """In a child: the kernels of a case, on disk."""
    _all_stages(Path(folder), facts, "compiled")


def measured(folder: str, facts: dict[str, Any], limit: int | None, threads: int) -> list[dict[str, Any]]:
    """In a child: one case, all its stages."""
    import resource

    if limit is None:
        _all_stages(Path(folder), {**facts, "bytes": 1 << 20, "classes": 4, "block": 1 << 16, "rows": 200}, "warm")
        own = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        limit = own + max(facts.get("bytes", 0), 4 * facts["features"] * facts["classes"]) // 2
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
        rows = _all_stages(Path(folder), facts, "")
    else:
        # Threads of linear algebra that wait for a core that something else has waste the other one, too.
        with measure.threads_limited(threads):
            resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
            rows = _all_stages(Path(folder), facts, "")
    return [{**row, "limit": limit} for row in rows]


def _all_stages(folder: Path, facts: dict[str, Any], prefix: str) -> list[dict[str, Any]]:
    from manyclass import LinearClassifier, OutOfCore
    from manyclass.io.store import RowStore

    data, model = folder / f"{prefix}data.store", folder / f"{prefix}made.blocks"
    window = min(1 << 26, max(1 << 18, facts.get("bytes", 32 * facts.get("block", GIB)) // 32))
    rows: list[dict[str, Any]] = []

    def stage(name: str, count: int, read: int, call: Callable[[], Any]) -> Any:
        _forget(folder)
        measure.reset_peak_memory()
        begun = time.perf_counter()
        found = call()
        seconds = time.perf_counter() - begun
        rows.append(
            {
                "stage": name,
                "seconds": seconds,
                "rows_per_second": count / seconds if count else None,
                "bytes": read,
                "mb_per_second": read / seconds / 1e6,
                "memory_peak": measure.peak_memory(),
                "address_space_peak": _address_peak(),
            }
        )
        return found

    n = _rows_of(facts)
    begun = time.perf_counter()
    _generate(data, facts, n, window)
    store = RowStore(data)
    wrote = time.perf_counter() - begun
    rows.append({"stage": "generate and write", "seconds": wrote, "bytes": store.nbytes, "rows_per_second": n / wrote})
    stage("read the data's files", 0, store.nbytes, lambda: _read_through(data))
    stage("map the rows, look at all", n, store.nbytes, lambda: _look(store, window))
    epochs, block = facts["epochs"], facts.get("block", 1 << 27)
    # The penalty of a row that comes once: enough for steps not to be what is measured.
    solver = OutOfCore(model, window_bytes=window, block_bytes=block, certificate=None)
    classifier = LinearClassifier(solver=solver, alpha=1e-5, max_iter=epochs, fit_intercept=True, random_state=0)
    weights = 4 * facts["features"] * facts["classes"]
    # The survey and each visit of a block read the rows; each epoch but the first reads the weights, each writes them;
    # at the end they are copied. (Rows that are few stay in the page cache.)
    visits = 1 + epochs * -(-weights // block) if store.nbytes > window else 1
    traffic = store.nbytes * visits + weights * (2 * epochs + 1)
    made = stage("train", n * epochs, traffic, lambda: classifier.fit(store)).model_
    stage("read the model's files", 0, made.nbytes, lambda: _read_through(model))
    best = stage(
        "predict the best 5",
        n,
        store.nbytes + made.nbytes,
        lambda: _predict(made, store, max(window, 1 << 27)),
    )
    rows[-1]["accuracy"] = best
    rows[-1].update(n_rows=n, n_features=facts["features"], n_classes=facts["classes"], weights_bytes=weights)
    return rows


def _rows_of(facts: dict[str, Any]) -> int:
    if "bytes" not in facts:
        return int(facts["rows"])
    dense = facts["stored"] == facts["features"]
    return int(facts["bytes"] // (4 * facts["stored"] if dense else 8 * facts["stored"] + 8))


def _generate(path: Path, facts: dict[str, Any], n: int, window: int) -> None:
    """Rows of which every class has features of its own."""
    from manyclass.io.store import RowStoreWriter

    rng = np.random.default_rng(0)
    d, K, stored = facts["features"], facts["classes"], facts["stored"]
    with RowStoreWriter(path, n_features=d, shard_bytes=max(4 * window, 1 << 20)) as writer:
        piece = max(1, min(20_000, window // (8 * stored)))
        for begin in range(0, n, piece):
            size = min(piece, n - begin)
            y = np.arange(begin, begin + size) * 7919 % K  # every class, in no order
            if stored == d:
                X = rng.standard_normal((size, d), dtype=np.float32)
                X[np.arange(size), y] += 4
                X /= np.float32(np.sqrt(d))
            else:
                # A feature in each of as many ranges, so that none comes twice; a part of them tells the class.
                each = d // stored
                columns = rng.integers(0, each, (size, stored), dtype=np.int32)
                telling = slice(0, max(1, stored // 8))
                columns[:, telling] = y[:, None] * (13 + 2 * np.arange(stored)[telling]) % each
                columns += np.arange(stored, dtype=np.int32) * np.int32(each)
                values = np.full(columns.size, 1 / np.sqrt(stored), np.float32)
                X = sp.csr_matrix((values, columns.reshape(-1), np.arange(size + 1) * stored), shape=(size, d))
                X.indices = X.indices.astype(np.int32)
            writer.add(X, y)


def _files(folder: Path) -> Iterator[Path]:
    return (path for path in sorted(folder.rglob("*")) if path.is_file())


def _forget(folder: Path) -> None:
    """Have the system drop the files from its page cache."""
    for path in _files(folder):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)


def _read_through(folder: Path) -> None:
    """What the disk gives: every file, from one end to the other."""
    buffer = bytearray(1 << 22)
    for path in _files(folder):
        with open(path, "rb", buffering=0) as file:
            while file.readinto(buffer):
                pass


def _look(store: Any, window: int) -> float:
    """Every value once."""
    total = 0.0
    for part in store.rows().windows(window):
        total += float((part.X if store.layout == "dense" else part.X.data).sum(dtype=np.float64))
    return total


def _predict(model: Any, store: Any, window: int) -> float:
    """The share of rows whose class comes first."""
    right = 0
    for part in store.rows().windows(window):
        labels, _ = model.topk(part.X, min(5, model.n_outputs))
        right += int(np.sum(labels[:, 0] == store.classes[part.y]))
    return right / len(store)


def _address_peak() -> int | None:
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmPeak:")), None)


def _report(bench: Bench) -> None:
    disk: dict[str, float] = {}
    for row in sorted((r for r in bench.rows if str(r.get("stage")).startswith("read the")), key=lambda r: r["bytes"]):
        disk[row["case"]] = row["mb_per_second"]  # that of the most bytes
    lines = [
        [
            row["case"],
            row["stage"],
            row["seconds"],
            row["bytes"] / GIB,
            row.get("rows_per_second"),
            row.get("mb_per_second"),
            row["mb_per_second"] / disk[row["case"]] if row.get("mb_per_second") else None,
            row["memory_peak"] / 2**20 if row.get("memory_peak") else None,
            row["address_space_peak"] / 2**20 if row.get("address_space_peak") else None,
        ]
        for row in bench.rows
        if row["status"] == "measured"
    ]
    columns = ("case", "stage", "seconds", "GiB", "rows / s", "MB / s", "of the disk", "peak MiB", "address space MiB")
    bench.table("Out of core; files dropped from the page cache before each stage", columns, lines)
