"""One self-contained HTML page about a model, and how it does on labeled rows."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from html import escape
from typing import Any, TypeAlias

import numpy as np
import scipy.sparse as sp

from manyclass.metrics import expected_calibration_error, log_loss, reliability, report
from manyclass.metrics._labels import positions
from manyclass.models.base import Model
from manyclass.models.explain import Explanation
from manyclass.models.linear import LinearModel
from manyclass.models.partitioned import PartitionedModel
from manyclass.models.sharded import ShardedModel
from manyclass.models.shown import shown_rows
from manyclass.runtime.files import atomic_path
from manyclass.runtime.memory import human
from manyclass.runtime.threads import ranges

__all__ = ["report_page", "write_report"]

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

#: Features of a class on the page, and most bytes of those of all classes.
_FEATURES, _BYTES = 10, 4_000_000
#: Classes whose features are found at a time.
_BATCH = 1 << 14
#: Rows of tables, examples, and characters of a text that are shown.
_ROWS, _EXAMPLES, _TEXT = 15, 15, 300
#: Weights, or probabilities, that are in memory at a time.
_PIECE = 1 << 22
#: Upper bounds of the frequencies of classes by which rows are grouped.
_FREQUENCIES = (1, 3, 10, 30, 100, 300, 1000, 10**4, 10**5)

_STYLE = """
:root{color-scheme:light dark}body{font:16px/1.45 system-ui,sans-serif;max-width:60rem;margin:0 auto;padding:1rem}
h1{font-size:1.5rem}h2{font-size:1.2rem;margin-top:2rem}.wide{overflow-x:auto}table{border-collapse:collapse}
th,td{text-align:left;padding:.2rem .8rem .2rem 0;vertical-align:top;max-width:16rem;
overflow-wrap:break-word}th{font-weight:600}
tr{border-bottom:1px solid #8884}svg{width:100%;max-width:30rem;height:auto}input{font:inherit;width:100%;
max-width:30rem;padding:.3rem}small{display:block;opacity:.75}article{border-bottom:1px solid #8884;padding:.4rem 0}
"""
#: Shows the features of the classes whose names contain what is typed; text only, no HTML is made of names.
_SCRIPT = """
const data=JSON.parse(document.getElementById("features").textContent),box=document.getElementById("search"),
out=document.getElementById("found");
function show(){const want=box.value.toLowerCase();out.textContent="";let n=0;
for(const[name,parts]of data){if(!name.toLowerCase().includes(want))continue;if(++n>20){
const more=document.createElement("p");more.textContent="more classes match: type more of the name";
out.append(more);break}
const item=document.createElement("article"),head=document.createElement("b"),text=document.createElement("div");
head.textContent=name;text.textContent=parts.map(([f,w])=>f+" "+w).join(", ");item.append(head,text);out.append(item)}}
box.addEventListener("input",show);show();
"""


def write_report(
    model: Any,
    path: str | os.PathLike[str],
    X: Any = None,
    y: Any = None,
    *,
    show: Callable[[Sequence[int]], Sequence[str]] | None = None,
    n_jobs: Any = None,
) -> None:
    """Write one HTML page about a model: settings, certificate, accuracy, calibration, errors, heaviest features.

    The page needs no network and no other file. Names and texts from the data are escaped.

    Parameters
    ----------
    model : model or fitted estimator
        A model of this package, or an estimator with one.
    path : path
        The file, written atomically.
    X : array or CSR matrix of shape (n, n_features), or list of str, optional
        Labeled rows on which the model is judged; rows of the fit would flatter it. Texts for a model of texts.
    y : array of shape (n,), or indicator of shape (n, n_classes), optional
        Their labels or targets.
    show : callable, optional
        Takes the numbers of rows that went wrong, from 0, and returns a text for each, which the page shows. None: the
        texts or the columns that X has, else the names and values of the largest features.
    n_jobs : int, optional
        Threads; None is 1, -1 all cores.

    Raises
    ------
    ValueError
        If only one of X and y is given, they do not match, or the model is none of this package.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import os, tempfile
    >>> from sklearn.datasets import load_iris
    >>> from manyclass import LinearClassifier, write_report
    >>> X, y = load_iris(return_X_y=True)
    >>> path = os.path.join(tempfile.mkdtemp(), "report.html")
    >>> write_report(LinearClassifier(random_state=0).fit(X[::2], y[::2]), path, X[1::2], y[1::2])
    >>> os.path.getsize(path) < 30_000
    True
    """
    page = report_page(model, X, y, show=show, n_jobs=n_jobs)
    with atomic_path(path) as temporary:
        temporary.write_text(page, encoding="utf-8", newline="\n")


def report_page(
    model: Any,
    X: Any = None,
    y: Any = None,
    *,
    show: Callable[[Sequence[int]], Sequence[str]] | None = None,
    n_jobs: Any = None,
) -> str:
    """The page that `write_report` writes, with the same parameters and errors."""
    found = getattr(model, "model_", model)
    if not isinstance(found, Model):
        raise ValueError(f"model must be a model or a fitted estimator of this package, got {type(model).__name__}")
    if isinstance(found, PartitionedModel):
        raise ValueError(
            "write_report is for one process: save the model, open it with manyclass.load, and report that"
        )
    if (X is None) != (y is None):
        raise ValueError("X and y must be given together, got one of them")
    parts = [_about(found), _fit(found)]
    if X is not None:
        rows = found.rows(X)
        if rows.shape[0] != (y.shape[0] if hasattr(y, "shape") else len(y)) or not rows.shape[0]:
            raise ValueError(f"y must have an entry for each row of X, at least one, got {rows.shape[0]} rows")
        if show is None:
            made_of = X if found.vectorizer is not None and rows is not X else None
            show = partial(shown_rows, made_of, rows, names=found.names())
        parts += _judged(found, rows, y if sp.issparse(y) else np.asarray(y), show, n_jobs)
    parts += _features(found, y)
    policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>manyclass: {_text(found.task)} model</title><style>{_STYLE}</style></head>"
        f"<body>{''.join(parts)}</body></html>\n"
    )


# --- HTML -----------------------------------------------------------------------------------------------------------


def _text(value: Any) -> str:
    if isinstance(value, float | np.floating):
        value = f"{float(value):.4g}"
    return escape(str(value))


def _table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    head = "".join(f"<th>{_text(name)}</th>" for name in columns)
    body = "".join("<tr>" + "".join(f"<td>{_text(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f'<div class="wide"><table>{f"<tr>{head}</tr>" if columns else ""}{body}</table></div>'


def _section(title: str, *content: str) -> str:
    return f"<section><h2>{_text(title)}</h2>{''.join(content)}</section>"


def _curve(title: str, points: Sequence[tuple[float, float]], ends: Sequence[str], diagonal: bool = False) -> str:
    """A curve of points in [0, 1] x [0, 1]; ``ends`` name the ends of both axes."""
    at = " ".join(f"{20 + 260 * x:.1f},{150 - 130 * y:.1f}" for x, y in points)
    dots = "".join(f'<circle cx="{20 + 260 * x:.1f}" cy="{150 - 130 * y:.1f}" r="2.5"/>' for x, y in points)
    line = '<path d="M20 150L280 20" stroke="#8888" fill="none"/>' if diagonal else ""
    left, right, bottom, top = map(_text, ends)
    return (
        f'<svg viewBox="0 0 300 175" role="img" aria-label="{_text(title)}" fill="currentColor" font-size="9">{line}'
        f'<path d="M20 20V150H280" stroke="currentColor" fill="none"/>{dots}'
        f'<polyline points="{at}" stroke="currentColor" fill="none"/><text x="20" y="165">{left}</text>'
        f'<text x="280" y="165" text-anchor="end">{right}</text><text x="24" y="148">{bottom}</text>'
        f'<text x="24" y="11">{top}</text></svg>'
    )


# --- the model ------------------------------------------------------------------------------------------------------


def _about(model: Model) -> str:
    facts = model.summary()
    linked = f"{model.link}, temperature {model.temperature:.4g}"
    rows = [
        ("features", f"{model.n_features:,}"),
        ("classes" if model.classes is not None else "outputs", f"{facts['n_classes'] or model.n_outputs:,}"),
        ("weights", f"{facts['n_nonzero']:,} not zero, {facts['dtype']}, {human(facts['nbytes'])}"),
        (
            "probabilities",
            linked if model.link != "identity" else "the scores" if model.gives_probabilities else "none",
        ),
        ("library", model.library_version),
    ]
    settings = [(name, value) for name, value in model.parameters.items() if value is not None]
    return f"<h1>{_text(model.task.capitalize())} model</h1>" + _table((), rows) + _section(
        "Settings", _table((), settings)
    )  # fmt: skip


def _fit(model: Model) -> str:
    record = model.record
    gap = record.get("relative_gap")
    history = record.get("history") or {}
    records = history.get("records", [])
    timed = records or record.get("stages") or [{}]
    needed = record.get("nbytes")
    rows = [
        ("how it ended", record.get("outcome")),
        ("solver", record.get("solver")),
        ("objective", record.get("objective")),
        ("relative duality gap", gap),
        ("iterations", record.get("n_iter")),
        ("seconds of the solver", timed[-1].get("seconds")),
        ("seconds of evaluations", history.get("evaluation_seconds")),
        ("seconds of compilation", history.get("compile_seconds")),
        ("memory of the fit besides the data", None if needed is None else human(needed)),
    ]
    rows += [(f"data: {name}", value) for name, value in _data(record.get("data") or {})]
    meaning = ""
    if isinstance(gap, float):
        meaning = f"<p>No other weights have an objective that is lower by more than {gap:.2%} of it.</p>"
    shown = _table((), [row for row in rows if row[1] is not None])
    return _section("Fit and certificate", meaning, shown, _gaps(records))


def _data(facts: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, facts.get(name)) for name in ("source", "format", "rows")]


def _gaps(records: list[dict[str, Any]]) -> str:
    known = [(r["seconds"], r["relative_gap"]) for r in records if (r.get("relative_gap") or 0) > 0]
    if len(known) < 2:
        return ""
    logs = [math.log10(gap) for _, gap in known]
    low, high, last = min(logs), max(logs), max(known[-1][0], 1e-12)
    points = [(second / last, (log - low) / ((high - low) or 1.0)) for (second, _), log in zip(known, logs)]
    ends = ("0 s", f"{last:.3g} s", f"gap {10**low:.1e}", f"gap {10**high:.1e}")
    return "<p>Relative gap during the fit:</p>" + _curve("relative gap against seconds", points, ends)


def _features(model: Model, y: Any) -> list[str]:
    """The heaviest features of each class, frequent classes first, as data that the script of the page searches."""
    if isinstance(model, LinearModel):
        blocks = [(0, model.n_outputs)]
    elif isinstance(model, ShardedModel):
        blocks = [(block.lo, block.hi) for block in model.blocks]
    else:
        return []
    names, k = model.names(), min(_FEATURES, model.n_features)
    classes = model.classes[1:] if model.task == "binary" and model.classes is not None else model.classes
    order, frequent = _by_frequency(model, y)
    entries: list[str] = []
    room = _BYTES
    for begin, end in ranges(len(order), _BATCH):
        for output, features, weights in _heaviest(model, blocks, order[begin:end], k):
            pairs = [(str(j if names is None else names[j]), f"{w:+.3g}") for j, w in zip(features.tolist(), weights)]
            entry = json.dumps((str(output if classes is None else classes[output]), pairs), separators=(",", ":"))
            # "<" would end the script element, or begin a comment in it.
            entry = entry.replace("<", "\\u003c")
            room -= len(entry) + 1
            if room < 0:
                break
            entries.append(entry)
        if room < 0:
            break
    noun = "outputs" if classes is None else "classes"
    left_out = ""
    if len(entries) < model.n_outputs:
        left_out = (
            f"<p>{len(entries):,} of {model.n_outputs:,} {noun}, {frequent}: this table has at most "
            f"{_BYTES / 1e6:g} MB, and {model.n_outputs - len(entries):,} {noun} are left out.</p>"
        )
    return [
        _section(
            "Heaviest features of a class",
            left_out,
            '<label>Class: <input id="search" type="search" autocomplete="off"></label><div id="found"></div>'
            f'<script type="application/json" id="features">[{",".join(entries)}]</script><script>{_SCRIPT}</script>',
        )
    ]


def _by_frequency(model: Model, y: Any) -> tuple[Array, str]:
    """The outputs, those of the most frequent classes first, and how that is said; in their order if none is known."""
    counts = (model.record.get("data") or {}).get("class_counts")
    said = "the most frequent in the rows of the fit"
    if counts is None and y is not None and model.classes is not None:
        said = "the most frequent in the given rows"
        K = len(model.classes)
        if model.task == "multilabel":
            counts = np.bincount(sp.csr_matrix(y).indices, minlength=K)[:K]
        else:
            there = positions(model.classes, np.asarray(y, str if model.classes.dtype.kind == "U" else None))
            counts = np.bincount(there[there >= 0], minlength=K)
    if counts is None or len(counts) != model.n_outputs:
        return np.arange(model.n_outputs), "the first ones (the model has no frequencies)"
    return np.argsort(-np.asarray(counts), kind="stable"), said


def _heaviest(
    model: Any, blocks: Sequence[tuple[int, int]], outputs: Array, k: int
) -> Iterator[tuple[int, Array, Array]]:
    """Each of the outputs, the features of its k largest weights, and these, largest first."""
    best: list[tuple[Array, Array]] = [(outputs, outputs)] * len(outputs)
    for number, (lo, hi) in enumerate(blocks):
        inside = np.flatnonzero((outputs >= lo) & (outputs < hi))
        if len(inside):
            weights = model.weights if isinstance(model, LinearModel) else model.block(number).weights
            for place, found in zip(inside.tolist(), _largest(weights, outputs[inside] - lo, k)):
                best[place] = found
    return zip(outputs.tolist(), *zip(*best))


def _largest(weights: Any, columns: Array, k: int) -> Iterator[tuple[Array, Array]]:
    """The rows of the k largest entries of each of the columns, and these; of sparse weights, of those stored."""
    if sp.issparse(weights):
        chosen: Any = weights[:, columns].tocsc()
        for begin, end in zip(chosen.indptr[:-1].tolist(), chosen.indptr[1:].tolist()):
            rows, values = chosen.indices[begin:end], chosen.data[begin:end]
            first = np.lexsort((rows, -values))[:k]
            yield rows[first], values[first]
        return
    # Weights are stored by rows, and may be mapped: some rows at a time, so that each is read once.
    rows, values = np.empty((0, len(columns)), np.int64), np.empty((0, len(columns)), weights.dtype)
    for lo, hi in ranges(weights.shape[0], max(k, _PIECE // len(columns))):
        values = np.vstack([values, weights[lo:hi][:, columns]])
        rows = np.vstack([rows, np.broadcast_to(np.arange(lo, hi)[:, None], (hi - lo, len(columns)))])
        if len(values) > k:
            first = np.argpartition(-values, k - 1, axis=0)[:k]
            values, rows = np.take_along_axis(values, first, 0), np.take_along_axis(rows, first, 0)
    for column in range(len(columns)):
        first = np.lexsort((rows[:, column], -values[:, column]))
        yield rows[first, column], values[first, column]


# --- the rows -------------------------------------------------------------------------------------------------------


def _judged(model: Model, X: Any, y: Any, show: Any, n_jobs: Any) -> list[str]:
    n = int(X.shape[0])
    if model.task == "regression":
        wanted, scores = np.asarray(y, np.float64).reshape(n, -1), model.scores(X, n_jobs)
        error = scores - wanted
        spread = float(((wanted - wanted.mean(axis=0)) ** 2).sum())
        facts: list[Any] = [("rows", n), ("root mean squared error", float(np.sqrt((error**2).mean())))]
        facts.append(("R2", 1.0 - float((error**2).sum()) / spread if spread else float("nan")))
        return [_section("On the given rows", _table((), facts))]
    assert model.classes is not None
    ks = [k for k in (1, 3, 5) if k <= len(model.classes)]
    labels = model.topk(X, ks[-1], n_jobs)[0]
    if model.task == "multilabel":
        own, predicted = sp.csr_matrix(y), sp.csr_matrix(model.predict(X, n_jobs))
        predicted.resize(n, max(own.shape[1], len(model.classes)))  # the rows may have labels that the fit had not
        found = report(own, predicted, positions(model.classes, labels), ks=ks)
        facts = [("rows", n), ("accuracy (whole sets)", found["accuracy"])]
        facts += [("micro F1", found["f1_micro"]), ("macro F1", found["f1_macro"])]
        facts += [(f"P@{k}", found[f"precision@{k}"]) for k in ks]
        return [_section("On the given rows", _table((), facts))]
    if labels.dtype.kind in "US":
        y = y.astype(str)
    if not np.isin(y, model.classes).any():
        known = model.classes[:1].tolist()[0]
        raise ValueError(f"y has none of the classes of the model, such as {known!r}: pass labels of the same type")
    predicted = labels[:, 0]
    correct = predicted == y
    facts = [("rows", n), ("accuracy", float(correct.mean()))]
    facts.append(("macro F1", report(y, predicted)["f1_macro"]))
    facts += [(f"P@{k}", float((labels[:, :k] == y[:, None]).any(axis=1).sum() / (k * n))) for k in ks]
    parts = [_section("On the given rows", _table((), facts))]
    if model.gives_probabilities:
        parts += _calibration(model, X, y, correct, n_jobs)
    return [*parts, _classes(y, predicted), *_wrong(model, X, y, predicted, show, n_jobs)]


def _calibration(model: Model, X: Any, y: Array, correct: Array, n_jobs: Any) -> list[str]:
    confidence = np.clip(model.topk_probabilities(X, 1, n_jobs)[1][:, 0], 0.0, 1.0)
    facts = [("expected calibration error", expected_calibration_error(correct, confidence))]
    known = np.flatnonzero(np.isin(y, np.asarray(model.classes)))
    total = 0.0
    for begin, end in ranges(len(known), max(1, _PIECE // model.n_outputs)):
        rows = known[begin:end]
        total += log_loss(y[rows], model.probabilities(X[rows], n_jobs), classes=model.classes, normalize=False)
    if len(known):
        facts.append(("log loss", total / len(known)))
    bins = reliability(correct, confidence, n_bins=10)
    points = [(c, a) for c, a, w in zip(*bins) if w]
    ends = ("confidence 0", "1", "accuracy 0", "accuracy 1")
    return [_section("Calibration", _table((), facts), _curve("accuracy against confidence", points, ends, True))]


def _classes(y: Array, predicted: Array) -> str:
    names, index, counts = np.unique(y, return_inverse=True, return_counts=True)
    hits = np.bincount(index, predicted == y, len(names))
    recall = hits / counts
    worst = np.lexsort((-counts, recall))[:_ROWS]
    rows = [(names[c], int(counts[c]), float(recall[c])) for c in worst if recall[c] < 1]
    wrong = np.flatnonzero(predicted != y)
    pairs: dict[tuple[str, str], int] = {}
    for i in wrong.tolist():
        pair = str(y[i]), str(predicted[i])
        pairs[pair] = pairs.get(pair, 0) + 1
    often = sorted(pairs.items(), key=lambda item: (-item[1], item[0]))[:_ROWS]
    bounds = np.array([0, *_FREQUENCIES, np.iinfo(np.int64).max])
    groups = []
    for low, high in zip(bounds[:-1], bounds[1:]):
        inside = (counts > low) & (counts <= high)
        if inside.any():
            size = f"{low + 1}" if high == low + 1 else f"{low + 1} to {high}" if high < 10**6 else f"over {low}"
            groups.append(
                (size, int(inside.sum()), int(counts[inside].sum()), hits[inside].sum() / counts[inside].sum())
            )
    return (
        _section("Classes by frequency", _table(("rows of a class", "classes", "rows", "accuracy"), groups))
        + _section("Worst classes", _table(("class", "rows", "recall"), rows))
        + _section("Confusions", _table(("class", "predicted", "rows"), [(*pair, n) for pair, n in often]))
    )


def _wrong(model: Model, X: Any, y: Array, predicted: Array, show: Any, n_jobs: Any) -> list[str]:
    wrong = np.flatnonzero(predicted != y)[:_EXAMPLES]
    if not len(wrong):
        return []
    why: list[Any] = [""] * len(wrong)
    if isinstance(model, LinearModel):
        known = np.isin(y[wrong], np.asarray(model.classes))
        asked = np.where(known, y[wrong], predicted[wrong])
        found = model.explain(X[wrong], 8, asked, n_jobs)
        why = [_reversed(reason) if flip else reason for reason, flip in zip(found, known)]
    items = []
    for i, shown, reason in zip(wrong.tolist(), show(wrong.tolist()), why):
        text = f"<div>{_text(shown[:_TEXT])}</div>" if shown else ""
        items.append(
            f"<article><b>row {i}: {_text(y[i])}, predicted {_text(predicted[i])}</b>{text}"
            f"<small>{_text(reason)}</small></article>"
        )
    return [_section("Examples that went wrong", "Rows are counted from 0.", *items)]


def _reversed(found: Explanation) -> Explanation:
    """The lead of the rival over the class: the best other class of the true one is the predicted one."""
    return Explanation(
        found.rival,
        found.label,
        -found.margin,
        found.features,
        -found.contributions,
        0.0 - found.rest,
        0.0 - found.intercept,
    )
