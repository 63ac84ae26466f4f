"""This version and another revision of the package in turn: fits, reading svmlight, start-up; ratios of seconds.

``--base REVISION`` names the other one, as git does. Its sources are taken out of the repository into a temporary
folder. Each measurement is a process of its own, first one revision and then the other, in alternating order; each
revision has an empty cache of compiled code of its own, which a run that is not counted fills.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import measure
from benchmarks.bench import Bench
from benchmarks.experiments.reading import svmlight_lines

ROOT = Path(__file__).resolve().parents[2]

#: name -> arguments of the classifier. One solver for both: which one "auto" stands for may differ.
FITS = {
    "multinomial": {"loss": "multinomial", "solver": "sdca"},
    "crammer_singer": {"loss": "crammer_singer", "solver": "sdca"},
    "one_vs_rest": {"loss": "log_loss", "solver": "sdca"},
}
START = {
    "import manyclass": ["-c", "import manyclass"],
    "import the model": ["-c", "from manyclass import LinearModel"],
    "import an estimator": ["-c", "from manyclass import LogLinearModel"],
    "manyclass --help": ["-m", "manyclass", "--help"],
}
#: Fits, or readings, of one process; the first is not counted.
_EACH = 4

_FIT = """
import json, sys, time, warnings
warnings.simplefilter("ignore")
import numpy as np, scipy.sparse as sp
try:
    from manyclass import LinearClassifier as Classifier
except ImportError:  # before the front door
    from manyclass import SDCAClassifier as Classifier
arguments = json.loads(sys.argv[1])
X, y = sp.load_npz(sys.argv[2]), np.load(sys.argv[3])
for _ in range(int(sys.argv[4])):
    model = Classifier(alpha=1e-4, tol=1e-3, max_iter=300, fit_intercept=True, random_state=0, n_jobs=1, **arguments)
    wall, processor = time.perf_counter(), time.process_time()
    model.fit(X, y)
    print(json.dumps({"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - processor,
                      "relative_gap": float(model.duality_gap_), "iterations": int(model.n_iter_)}))
"""
_READ = """
import json, sys, time
try:
    from manyclass.io.svmlight import read_svmlight
except ImportError:  # before the front door
    from manyclass.data.svmlight import read_svmlight
for _ in range(int(sys.argv[2])):
    wall, processor = time.perf_counter(), time.process_time()
    found = read_svmlight(sys.argv[1])
    print(json.dumps({"seconds": time.perf_counter() - wall, "cpu_seconds": time.process_time() - processor}))
"""


def run(bench: Bench) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sources = {"this": ROOT / "src", "base": _sources(bench.options.base, Path(folder, "base"))}
        caches = {name: Path(folder, f"cache-{name}") for name in sources}

        def python(who: str, arguments: list[str]) -> list[dict[str, Any]]:
            paths = {"PYTHONPATH": str(sources[who]), "NUMBA_CACHE_DIR": str(caches[who])}
            command = [sys.executable, "-W", "ignore", *arguments]
            done = subprocess.run(command, env={**os.environ, **paths}, capture_output=True, text=True, check=False)
            if done.returncode:
                raise RuntimeError(f"{who}: a child process failed: {done.stderr.strip().splitlines()[-1]}")
            return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]

        for what, arguments in START.items():
            _in_turn(bench, what, {}, lambda who, asked=arguments: [_process(python, who, asked)])
        for source in bench.datasets("news20"):
            data = source.read()
            X, y, text = (str(Path(folder, name)) for name in ("X.npz", "y.npy", "rows.svm"))
            sp.save_npz(X, sp.csr_matrix(data.X), compressed=False)
            np.save(y, data.y)
            Path(text).write_text("".join(svmlight_lines(data)))
            asked = {name: ["-c", _FIT, json.dumps(fit), X, y, str(_EACH)] for name, fit in FITS.items()}
            asked["reading"] = ["-c", _READ, text, str(_EACH)]
            for what, arguments in asked.items():
                _in_turn(bench, what, data.facts, lambda who, asked=arguments: python(who, asked)[1:])
    _report(bench)


def _sources(revision: str, folder: Path) -> Path:
    """The sources of a revision, in a folder."""
    packed = subprocess.run(["git", "archive", revision, "src"], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(packed)) as archive:
        archive.extractall(folder, filter="data")
    return folder / "src"


def _process(python: Callable[[str, list[str]], Any], who: str, arguments: list[str]) -> dict[str, float]:
    with measure.Stopwatch() as watch:
        python(who, arguments)
    return {"seconds": watch.seconds}


def _in_turn(bench: Bench, what: str, facts: dict[str, Any], one: Callable[[str], list[dict[str, Any]]]) -> None:
    names = {"base": bench.options.base, "this": "this"}
    for who in names:
        one(who)  # compiles
    for number in range(bench.options.runs):
        for who in names if number % 2 == 0 else reversed(names):
            for found in one(who):
                bench.record(what=what, version=names[who], run=number, **facts, **found)


def _report(bench: Bench) -> None:
    groups: dict[tuple[str, str], dict[int, dict[str, list[float]]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            runs = groups.setdefault((row["what"], row.get("data", "")), {})
            runs.setdefault(row["run"], {}).setdefault(row["version"], []).append(row["seconds"])
    lines = []
    for key, runs in groups.items():
        ours, theirs = ([median(run[name]) for run in runs.values()] for name in ("this", bench.options.base))
        ratios = [one / other for one, other in zip(ours, theirs)]
        lines.append([*key, *map(measure.spread_text, (theirs, ours, ratios))])
    columns = ("what", "data", f"{bench.options.base}, s", "this, s", "this / base")
    bench.table("This version beside another revision: median [least, most]", columns, lines)
