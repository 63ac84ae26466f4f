"""A linear-chain conditional random field beside CRFsuite: objective, accuracy, iterations, time.

Words in verses without spaces (letters, 4 labels) and the punctuation of verses (words, 7 labels). The same features
and the same objective: CRFsuite has all features for all labels (possible_states, possible_transitions) and c2 =
alpha n / 2, and the first and the last token have an attribute that stands for our weights of the first and of the last
label. Our fit ends at a relative gap of 1e-3; the objective there is the target. `crfsuite` has as many iterations of
its L-BFGS as its own log needs to the target, found off the clock; `crfsuite_default` ends where it ends by itself;
`crfsuite_l2sgd` is its stochastic method, 50 epochs at most. Objective and accuracy of all weights are computed by one
judge in NumPy. Fits alternate. A fit's time is that of the whole, with the reading of the features; of the solver alone
it is stored as well.
"""

from __future__ import annotations

import tempfile
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.experiments import _sequences
from benchmarks.experiments._sequences import FIRST, LAST, Chain, Sequences
from benchmarks.measure import Stopwatch, quiet, spread_text, threads_limited

ENTRIES = ("crf", "crfsuite", "crfsuite_default", "crfsuite_l2sgd")
#: alpha n: CRFsuite's c2 is half of it, 1 by default.
PENALTIES = (2.0, 0.2)
TOL = 1e-3
#: Of the stochastic method at most; its default is 1000.
EPOCHS = 50


def run(bench: Bench) -> None:
    chosen = bench.options.only or ENTRIES
    if find_spec("pycrfsuite") is None:
        for name in chosen:
            if name != "crf":
                bench.skip("python-crfsuite is not installed: python -m pip install python-crfsuite", method=name)
        chosen = tuple(name for name in chosen if name == "crf")
    for name in bench.options.datasets or tuple(_sequences.TASKS):
        try:
            data = _sequences.read(name, bench.options.data_dir, bench.options.quick)
        except FileNotFoundError as missing:
            bench.skip(f"no raw file: {missing}", data=name)
            continue
        for factor in bench.alphas(*PENALTIES):
            _compare(bench, name, data, factor / len(data.X), chosen)
    _report(bench)


def _compare(bench: Bench, name: str, data: Sequences, alpha: float, chosen: tuple[str, ...]) -> None:
    chain, _ = fit_ours(data, alpha, bench.options.threads)  # kernels are loaded, and the target is known
    target = _sequences.judge(data, chain, alpha)["objective"]
    settings: dict[str, dict[str, Any]] = {
        "crfsuite": {"max_iterations": 10_000},
        "crfsuite_default": {},
        "crfsuite_l2sgd": {"max_iterations": EPOCHS},
    }
    if "crfsuite" in chosen:
        losses = fit_crfsuite(data, alpha, "lbfgs", epsilon=1e-7, delta=1e-9, **settings["crfsuite"])[1]["losses"]
        enough = np.flatnonzero(np.array(losses) <= target * len(data.X))
        settings["crfsuite"] = {"max_iterations": int(enough[0]) + 1 if len(enough) else len(losses)}
    for number in range(bench.options.runs):
        for method in chosen if number % 2 == 0 else chosen[::-1]:
            if method == "crf":
                chain, facts = fit_ours(data, alpha, bench.options.threads)
            else:
                algorithm = "l2sgd" if method == "crfsuite_l2sgd" else "lbfgs"
                chain, facts = fit_crfsuite(data, alpha, algorithm, **settings[method])
                del facts["losses"]
            bench.record(
                data=name,
                n=len(data.X),
                tokens=sum(map(len, data.X)),
                d=len(chain.columns),
                labels=len(chain.labels),
                alpha_n=alpha * len(data.X),
                method=method,
                run=number,
                target=target,
                **_sequences.judge(data, chain, alpha),
                **facts,
            )


def fit_ours(data: Sequences, alpha: float, threads: int) -> tuple[Chain, dict[str, Any]]:
    """The weights of a fit of `LinearChainCRF`, and what it took."""
    from manyclass import LinearChainCRF, __version__

    model = LinearChainCRF(alpha, tol=TOL, n_jobs=threads)
    with threads_limited(threads), quiet(), Stopwatch() as watch:
        model.fit(data.X, data.y)
    assert model.feature_names_ is not None
    columns = {name: column for column, name in enumerate(model.feature_names_.tolist())}
    weights = model.coef_.T, model.transitions_, model.start_, model.end_
    return Chain(columns, model.classes_.tolist(), *weights), {
        "version": f"manyclass {__version__}",
        "seconds": watch.seconds,
        "cpu_seconds": watch.cpu_seconds,
        "solver_seconds": model.history_.last.seconds,
        "iterations": model.n_iter_,
        "relative_gap": model.duality_gap_,
    }


def fit_crfsuite(data: Sequences, alpha: float, algorithm: str, **settings: Any) -> tuple[Chain, dict[str, Any]]:
    """The weights of a fit of CRFsuite, and what it took; its ``losses`` are those that it reports itself."""
    import pycrfsuite

    marked = [_sequences.marked(sequence) for sequence in data.X]
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "model")
        with Stopwatch() as reading:
            trainer = pycrfsuite.Trainer(verbose=False, algorithm=algorithm)
            trainer.set_params({"feature.possible_states": True, "feature.possible_transitions": True})
            trainer.set_params({"c2": alpha * len(data.X) / 2, **settings})
            for tokens, labels in zip(marked, data.y):
                trainer.append(tokens, labels)
        with Stopwatch() as watch:
            trainer.train(path)
        tagger = pycrfsuite.Tagger()
        tagger.open(path)
        chain = _chain(tagger.info())
    log = trainer.logparser
    return chain, {
        "version": f"python-crfsuite {version('python-crfsuite')}",
        "seconds": reading.seconds + watch.seconds,
        "cpu_seconds": reading.cpu_seconds + watch.cpu_seconds,
        "solver_seconds": watch.seconds,
        "iterations": len(log.iterations),
        "losses": [entry["loss"] for entry in log.iterations],
    }


def _chain(info: Any) -> Chain:
    """The weights of a model of CRFsuite, which it tells to six decimals."""
    labels = sorted(info.labels)
    number = {label: k for k, label in enumerate(labels)}
    columns: dict[str, int] = {}
    for name, _ in info.state_features:
        if name not in (FIRST, LAST):
            columns.setdefault(name, len(columns))
    K = len(labels)
    W, A, ends = np.zeros((len(columns), K)), np.zeros((K, K)), {FIRST: np.zeros(K), LAST: np.zeros(K)}
    for (name, label), weight in info.state_features.items():
        row = ends[name] if name in ends else W[columns[name]]
        row[number[label]] = weight
    for (before, after), weight in info.transitions.items():
        A[number[before], number[after]] = weight
    return Chain(columns, labels, W, A, ends[FIRST], ends[LAST])


def _report(bench: Bench) -> None:
    cases: dict[tuple[Any, ...], dict[str, list[dict[str, Any]]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            cases.setdefault((row["data"], row["alpha_n"]), {}).setdefault(row["method"], []).append(row)
    lines = []
    for (data, factor), methods in cases.items():
        label = f"{data}, alpha {factor:g}/n"
        for method, rows in methods.items():
            seconds, solver = ([row[name] for row in rows] for name in ("seconds", "solver_seconds"))
            first = rows[0]
            shown = f"{first['objective']:.6g}", f"{first['accuracy']:.4f}", first["iterations"]
            lines.append([label, method, *shown, spread_text(seconds), spread_text(solver)])
            label = ""
    columns = ("case", "method", "objective", "accuracy", "iterations", "fit s", "of it the solver's")
    bench.table("Linear chains: median [least, most] seconds", columns, lines)
