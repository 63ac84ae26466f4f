"""Mutated files of every format: ``python tests/fuzzing.py --minutes 60``, or ``nox -s fuzz -- --minutes 60``.

Each target is a format: valid files, and a function that reads one and uses what it holds. A process of its own mutates
and reads; it must end with a result or with an error of this package (no other exception, no signal, no second of
processor time, no memory beyond four times the file and `ROOM`). What falls is written to ``--found``; such files, made
small, are kept in tests/fuzz_corpus and are read again by tests/test_fuzzing.py.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback
import warnings
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import manyclass
from fuzz_mutations import mutated
from manyclass.io import DataFormatError, Dataset, read, read_labels, write
from manyclass.io.store import RowStore
from manyclass.io.tensors import FileError
from manyclass.mips import ExactSearch, SimpleLSH, SmallWorldGraph
from manyclass.mips.base import SearchIndex
from manyclass.models.splitting import split_model
from manyclass.runtime.threads import resolve_n_jobs

CORPUS = Path(__file__).parent / "fuzz_corpus"
#: Seconds of processor time for one file.
LIMIT = 1.0
#: Bytes beyond four times the file.
ROOM = 64 << 20
#: Address space beyond that at the start: threads reserve some.
SPACE = 2 << 30
#: Wall-clock seconds without progress after which the process is ended.
PATIENCE = 60.0

Files = dict[str, bytes]  # name in the folder -> content; the name "" is the file itself


# --- what is read -----------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
N, D, K = 20, 6, 4
X = sp.random(N, D, 0.5, "csr", random_state=0, dtype=np.float32)
Y = RNG.integers(0, K, N)
INDICATOR = sp.csr_matrix(RNG.random((N, K)) < 0.4, dtype=np.int8)
TEXTS = [f'row {i} of {"abc"[i % 3]}, "quoted"' for i in range(N)]
TABLE = {"age": [None, *range(1, N)], "color": ["red", "", "blue", "red"] * (N // 4), "text": TEXTS}
TASKS: list[Any] = ["auto", "classification", "multilabel", "regression"]


class Target(NamedTuple):
    """A format. ``suffix``: of the file's name; ``seeds``: valid files; ``use``: reads one, given a number to choose
    options by; ``used``: whether it also predicts."""

    suffix: str
    seeds: Callable[[Path], list[Files]]
    use: Callable[[Path, int], object]
    used: bool = False


def _bytes(path: Path) -> Files:
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(file.relative_to(path)): file.read_bytes() for file in sorted(path.rglob("*")) if file.is_file()}


def _written(*suffixes: str) -> Callable[[Path], list[Files]]:
    """A data set with classes and one with an indicator matrix, in each of these formats."""

    def seeds(folder: Path) -> list[Files]:
        found = []
        for suffix in suffixes:
            for name, y in (("classes", Y), ("labels", INDICATOR)):
                if suffix.startswith(".xmc") and name == "classes":
                    continue
                names = None if name == "classes" else np.arange(K)
                rows = X.toarray() if suffix == ".npy" else X
                write(folder / f"{name}{suffix}", Dataset(rows, y, names))
                found.append(_bytes(folder / f"{name}{suffix}"))
        return found

    return seeds


def _tables(mark: str) -> Callable[[Path], list[Files]]:
    def seeds(folder: Path) -> list[Files]:
        quoted = ['"' + text.replace('"', '""') + '"' for text in TEXTS]
        rows = [mark.join((text, f"class {y}")) for text, y in zip(quoted, Y)]
        table = [mark.join(map(str, (i / 7, ["red", "", "blue"][i % 3], y))) for i, y in enumerate(Y)]
        named = [
            "\n".join([mark.join(head), *body]) for head, body in ((("text", "label"), rows), (("a", "b", "y"), table))
        ]
        return [{"": text.encode()} for text in (*named, "\n".join(rows))]

    return seeds


def _json_lines(folder: Path) -> list[Files]:
    rows = [json.dumps({"text": text, "label": f"class {y}", "more": None}) for text, y in zip(TEXTS, Y)]
    return [{"": "\n".join(rows).encode()}]


def _arrow(folder: Path) -> list[Files]:
    """Files and streams, plain and packed, with the types that texts and labels may have."""
    import pyarrow as pa

    found = []
    for name, table in _typed_tables().items():
        for kind, new in (("file", pa.ipc.new_file), ("stream", pa.ipc.new_stream)):
            packed = "zstd" if name == "labels" else None
            options = pa.ipc.IpcWriteOptions(compression=packed)
            with new(folder / f"{name}.{kind}", table.schema, options=options) as out:
                out.write_table(table, max_chunksize=8)
            found.append(_bytes(folder / f"{name}.{kind}"))
    return found


def _parquet(folder: Path) -> list[Files]:
    from pyarrow import parquet

    found = []
    for name, table in _typed_tables().items():
        for packed in ("none", "zstd"):
            parquet.write_table(table, folder / f"{name}.{packed}", compression=packed, row_group_size=8)
            found.append(_bytes(folder / f"{name}.{packed}"))
    return found


def _typed_tables() -> dict[str, Any]:
    import pyarrow as pa

    codes = [f"class {y}" for y in Y]
    return {
        "classes": pa.table({"text": TEXTS, "label": pa.array(codes).dictionary_encode()}),
        "labels": pa.table({"text": pa.array(TEXTS, pa.large_string()), "label": [codes[: y + 1] for y in Y]}),
        "values": pa.table({"text": [None, *TEXTS[1:]], "label": Y / 3, "id": np.arange(N)}),
    }


def _read(path: Path, number: int) -> None:
    read(path, task=TASKS[number % 4], n_features=(None, D, 3)[number % 3], extra_features="ignore").summary()


def _read_table(path: Path, number: int) -> None:
    read(path, task=TASKS[number % 3]).summary()


def _read_typed(path: Path, number: int) -> None:
    read(path, task=TASKS[number % 4], label_separator=(None, ",")[number % 2]).summary()


def _read_labels(path: Path, number: int) -> None:
    read_labels(path, task=TASKS[number % 4], separator=(None, ",")[number % 2])


def _read_store(path: Path, number: int) -> None:
    RowStore(path).verify() if number % 2 else None
    read(path).summary()


def _label_files(folder: Path) -> list[Files]:
    np.save(folder / "y.npy", Y)
    np.save(folder / "t.npy", np.array([f"class {y}" for y in Y]))
    return [_bytes(folder / "y.npy"), _bytes(folder / "t.npy")]


def _label_lines(folder: Path) -> list[Files]:
    return [{"": "\n".join(map(str, Y)).encode()}, {"": "\n".join(f"a{y},b{y + 1}" for y in Y).encode()}]


def _linear(folder: Path) -> list[Files]:
    fitted = manyclass.LinearClassifier(max_iter=5, random_state=0, tol=1.0).fit(X, Y)
    fitted.save(folder / "dense")
    fitted.sparsify().save(folder / "sparse")
    from sklearn.pipeline import make_pipeline

    texts = make_pipeline(manyclass.TextVectorizer(), manyclass.LinearClassifier(max_iter=2, tol=1.0))
    manyclass.save(texts.fit(TEXTS, [f"class {y}" for y in Y]), folder / "texts")
    tables = make_pipeline(manyclass.TableEncoder(text_column="text"), manyclass.LinearClassifier(max_iter=2, tol=1.0))
    manyclass.save(tables.fit(TABLE, [f"class {y}" for y in Y]), folder / "tables")
    return [_bytes(folder / name) for name in ("dense", "sparse", "texts", "tables")]


def _staged(folder: Path) -> list[Files]:
    found = []
    for block in (manyclass.RandomFourier(3), manyclass.RandomPolynomial(3), manyclass.FeatureSubset(2)):
        path = folder / type(block).__name__
        manyclass.StagewiseClassifier(block, n_blocks=2, random_state=0).fit(X.toarray(), Y).save(path)
        found.append(_bytes(path))
    return found


def _blocks(folder: Path) -> list[Files]:
    model = manyclass.LinearClassifier(max_iter=5, random_state=0, tol=1.0).fit(X, Y).model_
    split_model(model, folder / "blocks", block_classes=2)
    return [_bytes(folder / "blocks")]


def _predict(path: Path, number: int) -> None:
    model = manyclass.load(path, mmap=bool(number % 2))
    if hasattr(model.text_vectorizer, "columns"):
        model.predict(TABLE)
    elif model.vectorizer is not None:
        model.predict(["a row", ""])
    elif model.n_features <= 1000:
        model.predict(sp.csr_matrix((2, model.n_features)) if number % 3 else np.ones((2, model.n_features)))
    json.dumps(model.summary())


def _indexes(folder: Path) -> list[Files]:
    W, found = sp.random(D, 12, 0.5, "csr", random_state=1), []
    for index in (ExactSearch(), SimpleLSH(bits=64), SmallWorldGraph(degree=2, width=8, build_width=4)):
        for name, weights in (("sparse", W), ("dense", W.toarray())):
            path = folder / f"{index.kind}-{name}"
            index.build(weights).save(path)
            found.append(_bytes(path))
    return found


def _query(path: Path, number: int) -> None:
    index = SearchIndex.load(path)
    if index.n_features <= 1000 and index.n_classes:
        index.query(np.ones((2, index.n_features)), 1)


def _checkpoint(folder: Path) -> list[Files]:
    _fit("sdca")(folder / "run", 0)
    return [_bytes(folder / "run")]


def _checkpoint_folder(folder: Path) -> list[Files]:
    _fit("ds_mlr")(folder / "run", 0)
    return [_bytes(folder / "run")]


def _fit(solver: str) -> Callable[[Path, int], None]:
    def use(path: Path, number: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            fitted = manyclass.LinearClassifier(solver=solver, max_iter=2, tol=0.0, random_state=0)
            fitted.fit(X, Y, checkpoint=path)

    return use


TARGETS: dict[str, Target] = {
    "svmlight": Target(".svm", _written(".svm"), _read),
    "svmlight.gz": Target(".svm.gz", _written(".svm.gz"), _read),
    "svmlight.zst": Target(".svm.zst", _written(".svm.zst"), _read),
    "xmc": Target(".xmc", _written(".xmc"), _read),
    "csv": Target(".csv", _tables(","), _read_table),
    "tsv": Target(".tsv", _tables("\t"), _read_table),
    "jsonl": Target(".jsonl", _json_lines, _read_table),
    "csv.gz": Target(".csv.gz", lambda folder: [{"": gzip.compress(s[""])} for s in _tables(",")(folder)], _read_table),
    "npy": Target(".npy", _written(".npy"), _read),
    "npz": Target(".npz", _written(".npz"), _read),
    "labels.npy": Target(".npy", _label_files, _read_labels),
    "labels.txt": Target(".txt", _label_lines, _read_labels),
    "store": Target(".store", _written(".store"), _read_store),
    "linear": Target(".model", _linear, _predict, used=True),
    "staged": Target(".model", _staged, _predict, used=True),
    "sharded": Target(".blocks", _blocks, _predict, used=True),
    "index": Target(".index", _indexes, _query),
    "checkpoint": Target(".ckpt", _checkpoint, _fit("sdca")),
    "checkpoint-folder": Target(".ckpt", _checkpoint_folder, _fit("ds_mlr")),
}
if find_spec("pyarrow"):
    TARGETS["parquet"] = Target(".parquet", _parquet, _read_typed)
    TARGETS["arrow"] = Target(".arrow", _arrow, _read_typed)


def put(files: Files, path: Path) -> Path:
    """Write a file or a folder, in place of what was there."""
    if "" in files:
        path.write_bytes(files[""])
        return path
    if path.exists():
        shutil.rmtree(path)
    for name, content in files.items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(content)
    return path


# --- what must not happen ---------------------------------------------------------------------------------------------


def fault(target: Target, path: Path, number: int) -> str | None:
    """What the reading of a file did that it must not do; None if nothing."""
    size = sum(file.stat().st_size for file in ([path] if path.is_file() else path.rglob("*")))
    before, begun = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    what = None
    try:
        target.use(path, number)
    except (DataFormatError, FileError) as error:
        if os.fspath(path) not in str(error):
            what = f"does not name the file: {error}"
    except ValueError as error:
        # A model that was read knows no file; what it finds wrong when it is used, it says itself.
        own = "manyclass" in traceback.extract_tb(error.__traceback__)[-1].filename
        if type(error) is not ValueError or not ((target.used and own) or os.fspath(path) in str(error)):
            what = _told(error)
    except Exception as error:
        what = _told(error)
    seconds = time.process_time() - begun
    grown = 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
    if seconds > LIMIT:
        what = what or f"took {seconds:.1f} s of processor time"
    if grown > 4 * size + ROOM:
        what = what or f"took {grown >> 20} MiB for a file of {size} bytes"
    return what


def _told(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if "manyclass" in f.filename] or frames
    return f"{type(error).__name__} at {Path(own[-1].filename).name}:{own[-1].lineno}: {str(error)[:200]}"


def mutations(name: str, seed: int, folder: Path) -> Iterator[tuple[int, Files, str]]:
    """Numbers, mutated files and the name of the part that was mutated, without end."""
    (folder / "seeds").mkdir(parents=True, exist_ok=True)
    seeds = TARGETS[name].seeds(folder / "seeds")
    number = 0
    while True:
        rng = np.random.default_rng([seed, number, zlib.crc32(name.encode())])
        files = dict(seeds[rng.integers(len(seeds))])
        part = list(files)[rng.integers(len(files))]
        files[part] = mutated(files[part], rng)
        yield number, files, part
        number += 1


#: Set by Ctrl-C.
_stopped = threading.Event()


# --- processes --------------------------------------------------------------------------------------------------------


def child(name: str, seed: int, first: int, until: int, seconds: float, folder: Path, found: Path) -> None:
    """Mutate and read for a time, or up to a number; the number of the mutation is in the file ``number`` before."""
    resource.setrlimit(resource.RLIMIT_AS, (_space() + SPACE, resource.RLIM_INFINITY))
    target, path, known = TARGETS[name], folder / f"case{TARGETS[name].suffix}", set()
    for files in target.seeds(folder):  # compiles before anything is measured
        for number in range(12):
            with suppress(ValueError):
                target.use(put(files, path), number)
    warnings.simplefilter("ignore")  # NumPy warns of headers that older versions wrote
    warnings.simplefilter("error", RuntimeWarning)
    last = time.monotonic() + seconds
    with open(folder / "number", "w+b", buffering=0) as progress:
        for number, files, part in mutations(name, seed, folder / "mutations"):
            if number < first:
                continue
            progress.seek(0)
            progress.write(number.to_bytes(8, "little"))
            if number >= until or time.monotonic() > last:
                return
            what = fault(target, put(files, path), number)
            if what and what.startswith("took"):  # once more, when every kernel is compiled
                what = fault(target, put(files, path), number)
            if what and (key := what.partition(": ")[0]) not in known:
                known.add(key)
                keep(found, name, number, part, files[part], what)


def keep(found: Path, name: str, number: int, part: str, content: bytes, what: str) -> None:
    """Write a file that fell, and say so."""
    found.mkdir(parents=True, exist_ok=True)
    (found / f"{name}--{part.replace('/', '+')}--{number}").write_bytes(content)
    sys.stdout.write(f"{name} {number} {part}: {what}\n")
    sys.stdout.flush()


def _space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def drive(name: str, seed: int, seconds: float, found: Path, until: int = 2**62, most: int = 20) -> tuple[int, int]:
    """Run a target in child processes; returns the number of mutations and of processes that did not end well."""
    first, ended, running = 0, 0, True
    while running and seconds > 0 and ended < most and not _stopped.is_set():
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as folder:
            numbers = map(str, (seed, first, until, seconds))
            process = subprocess.Popen([sys.executable, __file__, "--child", name, *numbers, folder, str(found)])
            progress, at = Path(folder, "number"), -1
            begun = moved = time.monotonic()
            while process.poll() is None:
                time.sleep(0.2)
                now = int.from_bytes(progress.read_bytes(), "little") if progress.exists() else -1
                if now != at:
                    begun = begun if at >= 0 else time.monotonic()
                    at, moved = now, time.monotonic()
                elif time.monotonic() - moved > PATIENCE and at >= 0:
                    process.send_signal(signal.SIGKILL)
                if _stopped.is_set():
                    process.kill()
            at = int.from_bytes(progress.read_bytes(), "little") if progress.exists() else first
            seconds -= time.monotonic() - begun
            running = process.returncode != 0 and not _stopped.is_set()
            if running:
                ended += 1
                for number, files, part in mutations(name, seed, Path(folder, "again")):
                    if number == at:
                        keep(found, name, at, part, files[part], f"exit status {process.returncode}")
                        break
            first = at + 1
    return first, ended


def replay() -> int:
    """Read every file of the corpus, in its place among valid files; returns the number that fell."""
    warnings.simplefilter("ignore")
    warnings.simplefilter("error", RuntimeWarning)
    fallen = 0
    for file in sorted(CORPUS.iterdir()):
        name, part, number = file.name.split("--")
        sys.stdout.write(f"{file.name}\n")
        sys.stdout.flush()
        if name not in TARGETS:  # needs pyarrow
            continue
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"case{TARGETS[name].suffix}")
            files = {"": b""} if not part else dict(TARGETS[name].seeds(Path(folder))[0])
            files[part.replace("+", "/")] = file.read_bytes()
            what = fault(TARGETS[name], put(files, path), int(number))
            if what and what.startswith("took"):  # once more, when every kernel is compiled
                what = fault(TARGETS[name], path, int(number))
        if what:
            fallen += 1
            sys.stdout.write(f"{file.name}: {what}\n")
    return fallen


def main() -> None:
    """Run all targets for equal times, as many at once as there are cores.

    A process reads on one core, and waits a third of its time for the thread that reads ahead.
    """
    if sys.argv[1:2] == ["--child"]:
        name, seed, first, until, seconds, folder, found = sys.argv[2:]
        child(name, int(seed), int(first), int(until), float(seconds), Path(folder), Path(found))
        return
    if sys.argv[1:] == ["--replay"]:
        sys.exit(replay())
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60.0, help="of all targets together (default: 60)")
    parser.add_argument("--jobs", type=int, default=resolve_n_jobs(-1), help="targets at once (default: all cores)")
    parser.add_argument("--only", nargs="+", choices=TARGETS, default=list(TARGETS), help="targets (default: all)")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="default: the clock")
    parser.add_argument("--found", type=Path, default=Path("fuzz-found"), help="folder for files that fell")
    args = parser.parse_args()
    total, jobs = 0, min(args.jobs, len(args.only))
    seconds = 60 * args.minutes * jobs / len(args.only)
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for name, (count, ended) in zip(
                args.only, pool.map(lambda name: drive(name, args.seed, seconds, args.found), args.only)
            ):
                total += count
                sys.stdout.write(f"{name:<20}{count:>10} mutations, {ended} processes ended by a signal or a hang\n")
                sys.stdout.flush()
        except KeyboardInterrupt:
            _stopped.set()
            raise
    sys.stdout.write(f"{'all':<20}{total:>10} mutations, seed {args.seed}\n")


if __name__ == "__main__":
    main()
