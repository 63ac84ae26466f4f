"""What a newcomer gets: every estimator with its defaults, ours and of others, on data of every kind.

Nothing is tuned by anyone. Each fit is in a process of its own and is ended after the budget; ours has its kernels
loaded by a fit of four iterations before (how long the first fit takes is in `startup`). A row has the time of training
and of prediction, accuracy and macro-F1 on the test rows, the peak of the memory, the certified gap, and whether the
estimator warned that it had not converged. Dense rows are standardized, or in [0, 1], before anyone sees them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import scipy.sparse as sp

from benchmarks import catalog, children, data, measure
from benchmarks.bench import Bench, DataFile
from benchmarks.figures import legend_below
from benchmarks.peers._common import missing
from benchmarks.scores import quality
from benchmarks.task import Task

DATASETS = (
    *("news20", "reuters21578", "rcv1/4class", "rcv1/ccat", "intents/banking77", "intents/hwu64", "intents/clinc150"),
    *("udhr2", "bible_verses/book", "bible_verses/chapter", "icd10cm/3", "icd10cm/4"),
    *("mnist", "usps", "omniglot", "cifar10", "clef", "covtype"),
    *("uci/letter", "uci/pendigits", "uci/optdigits", "uci/segment", "uci/vowel"),
    *("libsvm_binary/a9a", "libsvm_binary/w8a", "ssl_book/secstr", "ssl_book/text"),
)

#: Points of accuracy within which two models count as equally good.
_EQUAL = 0.003


@dataclass(frozen=True)
class Entry:
    """An estimator with its defaults, and the package that it is in; ``alpha_n`` is alpha times the number of rows."""

    package: str
    path: str
    parameters: tuple[tuple[str, Any], ...] = ()
    alpha_n: float | None = None

    @property
    def ours(self) -> bool:
        return self.package == "manyclass"

    @property
    def tree(self) -> bool:
        """Whether this is a label tree, whose ``path`` is the name of its method."""
        return "." not in self.path

    def make(self) -> Any:
        module, _, name = self.path.rpartition(".")
        return getattr(import_module(module), name)(**dict(self.parameters))


def _ours(alpha_n: float | None = None, **parameters: Any) -> Entry:
    return Entry("manyclass", "manyclass.LinearClassifier", tuple(parameters.items()), alpha_n)


ENTRIES = {
    "multinomial": _ours(),
    "crammer_singer": _ours(loss="crammer_singer"),
    "squared_hinge": _ours(loss="squared_hinge"),
    "multinomial_auto": _ours(alpha="auto"),
    "crammer_singer_auto": _ours(loss="crammer_singer", alpha="auto"),
    "crammer_singer_early": _ours(loss="crammer_singer", alpha="auto", early_stopping=True),
    # No defaults, and only where it is named: what docs/choosing.md advises for many classes and little time.
    "crammer_singer_brief": _ours(0.1, loss="crammer_singer", max_iter=7),
    "multinomial_brief": _ours(0.1, max_iter=3),
    # The same: four and two epochs of MEMOIR, whose default are eight.
    "memoir": Entry("manyclass", "benchmarks.experiments.defaults.memoir", (("max_iter", 4),), 1.0),
    "memoir_brief": Entry("manyclass", "benchmarks.experiments.defaults.memoir", (("max_iter", 2),), 1.0),
    "LogisticRegression": Entry("scikit-learn", "sklearn.linear_model.LogisticRegression"),
    "LinearSVC": Entry("scikit-learn", "sklearn.svm.LinearSVC"),
    "RidgeClassifier": Entry("scikit-learn", "sklearn.linear_model.RidgeClassifier"),
    "SGDClassifier": Entry("scikit-learn", "sklearn.linear_model.SGDClassifier"),
    "snapml_logistic": Entry("snapml", "snapml.LogisticRegression"),
    "snapml_svm": Entry("snapml", "snapml.SupportVectorMachine"),
    "LIBLINEAR": Entry("liblinear-official", "benchmarks.experiments.defaults.Liblinear"),
    "LIBLINEAR_crammer_singer": Entry(
        "liblinear-official", "benchmarks.experiments.defaults.Liblinear", (("options", "-s 4"),)
    ),
    # Label trees: the methods of `benchmarks.peers`, PECOS in an environment of its own.
    "napkinXC": Entry("napkinxc", "napkinxc"),
    "PECOS": Entry("libpecos", "pecos"),
}
_MODULES = {"liblinear-official": "liblinear", "scikit-learn": "sklearn"}


def memoir(**parameters: Any) -> Any:
    """MEMOIR with its defaults."""
    from manyclass import CrammerSinger, LinearClassifier, Memoir

    return LinearClassifier(CrammerSinger(gamma=0.0), solver=Memoir(), **parameters)


class Liblinear:
    """LIBLINEAR's ``train`` and ``predict`` as they come: one-vs-rest with the squared hinge, or as ``options`` say."""

    def __init__(self, options: str = "") -> None:
        self.options = options

    def fit(self, X: Any, y: Any) -> Liblinear:
        from liblinear.liblinearutil import problem, train

        self._model = train(problem(y.astype(np.float64), _double(X)), f"{self.options} -q")
        return self

    def predict(self, X: Any) -> Any:
        from liblinear.liblinearutil import predict

        return np.asarray(predict([], _double(X), self._model, "-q")[0], np.int64)


def _double(X: Any) -> Any:
    return sp.csr_matrix(X, dtype=np.float64) if sp.issparse(X) else np.asarray(X, np.float64)


def run(bench: Bench) -> None:
    entries = dict(_entries(bench))
    for source in bench.datasets(*DATASETS):
        for number in range(bench.options.runs):
            for name, entry in entries.items():
                _measure(bench, source, name, entry, number)
    _report(bench)


def _entries(bench: Bench) -> Iterator[tuple[str, Entry]]:
    for name in bench.options.only or [name for name, entry in ENTRIES.items() if entry.alpha_n is None]:
        package = ENTRIES[name].package
        tree = ENTRIES[name].tree
        reason = (
            catalog.method(ENTRIES[name].path).skip_reason()
            if tree
            else missing(_MODULES.get(package, package), package)
        )
        if reason:
            bench.skip(reason, method=name)
        else:
            yield name, ENTRIES[name]


def _measure(bench: Bench, source: DataFile, name: str, entry: Entry, number: int) -> None:
    what = {"data": source.name, "method": name, "run": number}
    # What did not end in the first run would not in the next one.
    if any(row["status"] == "failed" and what.items() <= {**row, "run": number}.items() for row in bench.rows):
        return
    try:
        asked = {
            "source": source.arguments(),
            "budget": bench.options.budget,
            "threads": bench.options.threads,
            "seed": number,
        }
        if entry.tree:
            asked |= {"method": entry.path, "task": asdict(Task("tree")), "stop": {}}
            python = catalog.method(entry.path).python()
            facts = {**children.call("benchmarks.fitting:fit_and_judge", asked, python=python), "converged": True}
        else:
            facts = children.call("benchmarks.experiments.defaults:fit", {**asked, "name": name})
    except children.TimedOut:
        bench.fail(f"stopped after {bench.options.budget:g} s", **what, seconds=bench.options.budget)
    except children.ChildFailed as failure:
        bench.fail(str(failure), **what)
    else:
        bench.record(**{**what, **facts})
        gap = facts.get("relative_gap")
        bench.say(
            f"{source.name:20} {name:28} {facts['accuracy']:.4f} {facts['macro_f1']:.4f} {facts['seconds']:8.2f} s"
            f"{'' if gap is None else f'  gap {gap:.1e}'}{'' if facts['converged'] else '  NOT CONVERGED'}"
        )


def fit(source: dict[str, Any], name: str, budget: float, threads: int, seed: int) -> dict[str, Any]:
    """One fit, in this process: for `benchmarks.children`."""
    rows = data.read(Path(source["path"]), source["name"], quick=source["quick"])
    entry = ENTRIES[name]
    model = entry.make()
    known = getattr(model, "get_params", dict)()
    if "random_state" in known:
        model.set_params(random_state=seed)
    if "n_jobs" in known and threads > 1:
        model.set_params(n_jobs=threads)
    if entry.alpha_n is not None:
        model.set_params(alpha=entry.alpha_n / rows.n)
    if entry.ours:
        # On the same rows: of few of them "auto" may choose another solver, with other kernels.
        with measure.quiet():
            entry.make().set_params(max_iter=4, alpha=None, early_stopping=False).fit(rows.X, rows.y)
    before = measure.resident_memory()
    measure.reset_peak_memory()
    with measure.threads_limited(threads), measure.time_limit(budget):
        with warnings.catch_warnings(record=True) as caught, measure.Stopwatch() as watch:
            warnings.simplefilter("always")
            model.fit(rows.X, rows.y)
        peak = measure.peak_memory()
        with measure.Stopwatch() as later:
            predicted = model.predict(rows.X_test)
    said = [str(warning.message) for warning in caught if "onverge" in warning.category.__name__ + str(warning.message)]
    facts = {
        **rows.facts,
        "version": f"{entry.package} {version(entry.package)}",
        "seconds": watch.seconds,
        "cpu_seconds": watch.cpu_seconds,
        "predict_seconds": later.seconds,
        "memory_before": before,
        "memory_peak": peak,
        "converged": not said,
        "warning": said[0][:120] if said else "",
        **quality(rows.y_test, np.asarray(predicted)),
    }
    if entry.ours:
        facts |= {
            "compile_seconds": model.history_.compile_seconds,
            "relative_gap": model.duality_gap_,
            "alpha": model.alpha_,
            "solver": model.solver_,
            "iterations": model.n_iter_,
        }
    return facts


def _report(bench: Bench) -> None:
    cases: dict[str, dict[str, list[dict[str, Any]]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            cases.setdefault(row["data"], {}).setdefault(row["method"], []).append(row)
    lines, points = [], []
    for name, methods in cases.items():
        accuracy = {method: median(row["accuracy"] for row in rows) for method, rows in methods.items()}
        seconds = {method: median(row["seconds"] for row in rows) for method, rows in methods.items()}
        best = max(accuracy.values())
        for method in sorted(methods, key=lambda method: -accuracy[method]):
            rows = methods[method]
            lines.append(
                [
                    name,
                    method,
                    f"{accuracy[method]:.4f}",
                    f"{median(row['macro_f1'] for row in rows):.4f}",
                    measure.spread_text([row["seconds"] for row in rows]),
                    f"{max((row['memory_peak'] or 0) - (row['memory_before'] or 0) for row in rows) / 2**20:.0f}",
                    rows[0].get("relative_gap"),
                    "" if all(row["converged"] for row in rows) else "not converged",
                ]
            )
        good = {method: seconds[method] for method in methods if accuracy[method] >= best - _EQUAL}
        first = min(good, key=lambda method: good[method])
        mine = [method for method in methods if ENTRIES[method].ours]
        others = [method for method in methods if not ENTRIES[method].ours]
        if mine and others:
            ours = max(mine, key=lambda method: (accuracy[method] >= best - _EQUAL, -seconds[method]))
            rival = max(others, key=lambda method: (accuracy[method] >= best - _EQUAL, -seconds[method]))
            points.append((name, ours, rival, accuracy, seconds, first))
    columns = ("data", "method", "accuracy", "macro-F1", "seconds", "MiB", "gap", "")
    bench.table("Defaults: nothing tuned by anyone", columns, lines)
    summary = [
        [
            name,
            f"{max(accuracy[m] for m in accuracy if ENTRIES[m].ours):.4f}",
            f"{max(accuracy[m] for m in accuracy if not ENTRIES[m].ours):.4f}",
            f"{ours} {seconds[ours]:.2f} s",
            f"{rival} {seconds[rival]:.2f} s",
            first,
        ]
        for name, ours, rival, accuracy, seconds, first in points
    ]
    titles = (
        "data",
        "best of ours",
        "best of others",
        "ours, time",
        "others, time",
        "fastest within 0.003 of the best",
    )
    bench.table("Who is first", titles, summary)
    if points:
        with bench.figure(height=0.28 * len(points) + 1.5) as (axes,):
            place = np.arange(len(points))
            axes.scatter([p[4][p[1]] for p in points], place, label="ours", marker="o")
            axes.scatter([p[4][p[2]] for p in points], place, label="best of the others", marker="x")
            axes.set_yticks(place, [p[0] for p in points], fontsize=6)
            axes.set_xscale("log")
            axes.set_xlabel("seconds of training, the fastest within 0.003 of the best accuracy of all, if any is")
            legend_below(axes)
