"""Reading svmlight text, plain and gzip: non-zeros a second and peak memory, against scikit-learn's reader.

The files are written here from a data set's training rows, with values of seven digits, and lie in the page cache when
they are read. Both readers are timed in turn in one process; memory is that of a process that reads the file once.
"""

from __future__ import annotations

import gzip
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import children, measure
from benchmarks.bench import Bench
from benchmarks.data import Data
from benchmarks.figures import legend_below

READERS = ("manyclass", "sklearn")


def run(bench: Bench) -> None:
    for source in bench.datasets("news20", "rcv1"):
        data = source.read()
        with tempfile.TemporaryDirectory() as folder:
            plain = Path(folder, "train.svm")
            plain.write_text("".join(svmlight_lines(data)))
            packed = Path(folder, "train.svm.gz")
            packed.write_bytes(gzip.compress(plain.read_bytes(), 6))
            for path in (plain, packed):
                _compare(bench, data, path)
    _report(bench)


def svmlight_lines(data: Data) -> Any:
    X, y = sp.csr_matrix(data.X), data.y
    for i in range(data.n):
        part = slice(X.indptr[i], X.indptr[i + 1])
        words = " ".join(f"{j + 1}:{v:.7g}" for j, v in zip(X.indices[part].tolist(), X.data[part].tolist()))
        label = ",".join(map(str, y.indices[y.indptr[i] : y.indptr[i + 1]])) if data.multilabel else str(y[i])
        yield f"{label} {words}\n"


def read(reader: str, path: str, multilabel: bool) -> Any:
    """The matrix in the file."""
    if reader == "manyclass":
        from manyclass.io.svmlight import read_svmlight

        return read_svmlight(path, dtype=np.float32, task="multilabel" if multilabel else "auto").X
    from sklearn.datasets import load_svmlight_file

    return load_svmlight_file(path, dtype=np.float32, multilabel=multilabel)[0]


def peak(reader: str, path: str, multilabel: bool, small: str) -> dict[str, Any]:
    """In a child: what reading the file once takes, all modules loaded before."""
    read(reader, small, False)
    before = measure.resident_memory()
    measure.reset_peak_memory()
    X = read(reader, path, multilabel)
    result = X.data.nbytes + X.indices.nbytes + X.indptr.nbytes
    return {"memory_before": before, "memory_peak": measure.peak_memory(), "result_bytes": int(result)}


def _compare(bench: Bench, data: Data, path: Path) -> None:
    matrices = [read(reader, str(path), data.multilabel) for reader in READERS]
    difference = abs(matrices[0] - matrices[1]).max() if matrices[0].shape == matrices[1].shape else np.inf
    if not difference <= 1e-6:
        raise RuntimeError(f"the readers disagree by {difference} on {path.name} of {data.name}")
    nnz = int(matrices[0].nnz)
    del matrices
    small = path.with_name("small.svm")
    small.write_text("1 1:0.5 2:0.25\n0 2:1\n")
    facts = {**data.facts, "kind": "gzip" if path.suffix == ".gz" else "plain", "file_bytes": path.stat().st_size}
    for number in range(bench.options.runs):
        for reader in READERS if number % 2 == 0 else READERS[::-1]:
            with measure.Stopwatch() as watch:
                read(reader, str(path), data.multilabel)
            arguments = {"reader": reader, "path": str(path), "multilabel": data.multilabel, "small": str(small)}
            memory = children.call("benchmarks.experiments.reading:peak", arguments) if number == 0 else {}
            bench.record(
                **facts,
                method=reader,
                run=number,
                seconds=watch.seconds,
                nonzeros_per_second=nnz / watch.seconds,
                **memory,
            )


def _report(bench: Bench) -> None:
    lines, bars = [], []
    kinds = dict.fromkeys((r["data"], r["kind"]) for r in bench.rows if r["status"] == "measured")
    for key in kinds:
        rows = {
            reader: sorted(
                (r for r in bench.rows if (r["data"], r.get("kind"), r["method"]) == (*key, reader)),
                key=lambda r: r["run"],
            )
            for reader in READERS
        }
        for reader, runs in rows.items():
            memory = runs[0]
            used = (memory["memory_peak"] - memory["memory_before"]) / 2**20 if memory["memory_peak"] else None
            ratio = [s["seconds"] / o["seconds"] for s, o in zip(rows["sklearn"], rows["manyclass"])]
            speed = [r["nonzeros_per_second"] / 1e6 for r in runs]
            bars.append((key, reader, median(speed)))
            lines.append(
                [
                    *key,
                    reader,
                    measure.spread_text([r["seconds"] for r in runs]),
                    measure.spread_text(speed),
                    used,
                    memory["result_bytes"] / 2**20,
                    measure.spread_text(ratio) if reader != "sklearn" else None,
                ]
            )
    columns = ("data", "file", "reader", "seconds", "10^6 non-zeros / s", "peak MiB", "result MiB", "ratio")
    bench.table("Reading; ratio scikit-learn / ours: median [least, most]", columns, lines)
    if not bars:
        return
    with bench.figure() as (ax,):
        labels = [f"{name}\n{kind}" for name, kind in kinds]
        for at, reader in enumerate(READERS):
            heights = [speed for _, who, speed in bars if who == reader]
            ax.bar([i + 0.4 * at for i in range(len(labels))], heights, 0.38, label=reader)
        ax.set_xticks([i + 0.2 for i in range(len(labels))], labels, fontsize=7)
        ax.set_ylabel("million non-zeros a second")
        legend_below(ax)
