"""Start-up: importing, the first fit with an empty cache of compiled code, the first fit of later processes.

Every measurement is a new Python process; the cache of compiled code is in a temporary folder (NUMBA_CACHE_DIR). A fit
on bundled or generated data of a few hundred rows is repeated within the process: what the first takes longer than the
second is compilation, or loading from the cache.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from statistics import median
from typing import Any

from benchmarks.bench import Bench
from benchmarks.figures import log_seconds
from benchmarks.measure import spread_text

#: Rows of earlier versions have "import SDCAClassifier".
IMPORTS = {
    "python alone": "pass",
    "import manyclass": "import manyclass",
    "import LinearClassifier": "from manyclass import LinearClassifier",
}

#: name -> (kind of data, its dtype, loss).
FITS = {
    "multinomial, dense float64": ("dense", "float64", "multinomial"),
    "multinomial, sparse float32": ("sparse", "float32", "multinomial"),
    "crammer_singer, sparse float32": ("sparse", "float32", "crammer_singer"),
    "log_loss, sparse float32": ("sparse", "float32", "log_loss"),
}

_FIT = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
kind, dtype, loss = sys.argv[1:]
begun = time.perf_counter()
from manyclass import LinearClassifier
imported = time.perf_counter() - begun
from manyclass.datasets import make_many_classes
X, y = make_many_classes(600, 400, 120, dtype=dtype)
X = X.toarray() if kind == "dense" else X
seconds = []
for _ in range(2):
    begun = time.perf_counter()
    model = LinearClassifier(loss=loss, alpha=1e-3, random_state=0).fit(X, y)
    seconds.append(time.perf_counter() - begun)
    if len(seconds) == 1:
        compiled = model.history_.compile_seconds
print(json.dumps({"import_seconds": imported, "first_fit_seconds": seconds[0], "second_fit_seconds": seconds[1],
                  "extra_seconds": seconds[0] - seconds[1], "compile_seconds": compiled}))
"""


def run(bench: Bench) -> None:
    for number in range(bench.options.runs):
        for name, code in IMPORTS.items():
            begun = time.perf_counter()
            _python(["-c", code], {})
            bench.record(what=name, run=number, seconds=time.perf_counter() - begun)
    cases = dict(list(FITS.items())[:1]) if bench.options.quick else FITS
    for number in range(bench.options.runs):
        for name, arguments in cases.items():
            # A cache for each case: a kernel that two cases share counts in both.
            with tempfile.TemporaryDirectory() as folder:
                for cache in ("empty", "filled"):
                    found = json.loads(_python(["-c", _FIT, *arguments], {"NUMBA_CACHE_DIR": folder}))
                    bench.record(what=name, cache=cache, run=number, seconds=found["extra_seconds"], **found)
    _report(bench)


def _python(arguments: list[str], environment: dict[str, str]) -> str:
    command = [sys.executable, "-W", "ignore", *arguments]
    done = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"a child process failed: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout


def _report(bench: Bench) -> None:
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in bench.rows:
        groups.setdefault((row["what"], row.get("cache", "")), []).append(row)
    imports = [(what, [r["seconds"] for r in rows]) for (what, cache), rows in groups.items() if not cache]
    bench.table(
        "A process from start to end: median [least, most]",
        ("process", "seconds"),
        [(what, spread_text(seconds)) for what, seconds in imports],
    )
    fits = {key: rows for key, rows in groups.items() if key[1]}
    measured = ("extra_seconds", "compile_seconds", "second_fit_seconds")
    lines = [[*key, *(spread_text([r[c] for r in rows]) for c in measured)] for key, rows in fits.items()]
    columns = ("fit", "cache", "first - second fit, s", "compiling, s", "second fit, s")
    bench.table("The first fit of a process", columns, lines)
    with bench.figure() as (ax,):
        labels = [what for what, _ in imports] + [f"{what}\ncache {cache}" for what, cache in fits]
        seconds = [median(s) for _, s in imports] + [median(r["seconds"] for r in rows) for rows in fits.values()]
        ax.barh(range(len(labels)), seconds)
        ax.set_yticks(range(len(labels)), labels, fontsize=6)
        ax.invert_yaxis()
        log_seconds(ax, "seconds")
