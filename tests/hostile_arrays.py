"""Arrays mutated on purpose, given to every entry that hands arrays to compiled code.

``python tests/hostile_arrays.py GROUP [FIRST]`` runs the cases of a group one after the other, from number FIRST on. It
writes the name of each case before it and the outcome after it, so that a signal is attributed to its case.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp

import manyclass
from manyclass.io import Dataset, write
from manyclass.io.store import write_store
from manyclass.metrics import precision_at_k
from manyclass.mips import ExactSearch, SimpleLSH, SmallWorldGraph
from manyclass.models.splitting import split_model
from mutations import (
    FOLDER,
    ODD_INDICATORS,
    ODD_INTEGERS,
    ODD_LABELS,
    ODD_SPARSE,
    WRONG_FLOATS,
    WRONG_INTEGERS,
    WRONG_LABELS,
    WRONG_SPARSE,
    Input,
    few,
    floats,
    frozen,
    integers,
    replaced,
    sparse,
    strided,
    without,
)

N, D, K = 60, 12, 3


# --- entries ----------------------------------------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X = sp.random(N, D, 0.4, "csr", random_state=0)
DENSE = X.toarray()
Y = RNG.integers(0, K, N)
T = RNG.normal(size=N)
WEIGHT = RNG.uniform(0.5, 2, N)
INDICATOR = sp.csr_matrix(RNG.random((N, K)) < 0.4, dtype=np.int8)
W = RNG.normal(size=(D, 20))
SPARSE_W = sp.random(D, 20, 0.4, "csr", random_state=1)
OFFSETS = np.arange(0, N + 1, 4)
CHOSEN = RNG.integers(0, 4, len(OFFSETS) - 1)
MEASURE = RNG.normal(size=N)

SHORT: dict[str, Any] = {"max_iter": 3, "random_state": 0}
ESTIMATORS: dict[str, Any] = {
    "LinearClassifier": partial(manyclass.LinearClassifier, **SHORT),
    "StagewiseClassifier": lambda: manyclass.StagewiseClassifier(
        manyclass.RandomFourier(4), n_blocks=1, random_state=0
    ),
    "GeneralizedLeastSquaresClassifier": manyclass.GeneralizedLeastSquaresClassifier,
    "CalibratedLeastSquaresClassifier": lambda: manyclass.CalibratedLeastSquaresClassifier(max_iter=2),
    "LinearClassifierCV": lambda: manyclass.LinearClassifierCV(alphas=[0.1], cv=2, **SHORT),
}
STREAMS: dict[str, Any] = {
    name: partial(manyclass.LinearClassifier, loss, solver=name, **SHORT)
    for name, loss in {
        "sgd": "multinomial",
        "bound": "multinomial",
        "memoir": manyclass.CrammerSinger(gamma=0),
    }.items()
}


class Entry(NamedTuple):
    """A function of arrays, its result as an array, and its inputs; ``names``: what its errors call them."""

    call: Callable[..., Any]
    inputs: dict[str, Input]


def _coefficients(make: Any, method: str = "fit") -> Callable[..., Any]:
    def call(X: Any, y: Any, sample_weight: Any = None) -> Any:
        more = {} if sample_weight is None else {"sample_weight": sample_weight}
        if method == "partial_fit":
            more["classes"] = np.arange(K)
        found = getattr(make(), method)(X, y, **more)
        weights = found.model_
        return weights.scores(DENSE) if hasattr(weights, "scores") else weights.decision_function(DENSE)

    return call


def _fits() -> Iterator[tuple[str, Entry]]:
    for name, make in ESTIMATORS.items():
        rows = sparse(X) if name in ("LinearClassifier", "StagewiseClassifier") else few(X)
        yield name, Entry(_coefficients(make), {"X": rows, "y": Input(Y, WRONG_LABELS, ODD_LABELS)})
    call = _coefficients(ESTIMATORS["LinearClassifier"])
    negative = {"negative": lambda a: replaced(a, -1.0), "zeros": np.zeros_like}
    yield "dense", Entry(call, {"X": floats(DENSE), "y": Input(Y, WRONG_LABELS, ODD_LABELS)})
    yield (
        "weighted",
        Entry(call, {"X": Input(X, {}, {}), "y": Input(Y, {}, {}), "sample_weight": floats(WEIGHT, **negative)}),
    )
    one_vs_rest = partial(manyclass.LinearClassifier, "log_loss", **SHORT)
    labels = Input(INDICATOR, without(WRONG_SPARSE, "NaN", "infinity"), ODD_INDICATORS)
    yield "indicators", Entry(_coefficients(one_vs_rest), {"X": Input(X, {}, {}), "y": labels})
    regressor = partial(manyclass.LinearRegressor, **SHORT)
    yield "LinearRegressor", Entry(_coefficients(regressor), {"X": few(X), "y": floats(T)})
    several = partial(manyclass.StagewiseRegressor, manyclass.RandomFourier(4), n_blocks=1, random_state=0)
    yield "StagewiseRegressor", Entry(_coefficients(several), {"X": few(X), "y": floats(T)})


def _solvers() -> Iterator[tuple[str, Entry]]:
    for name, make in STREAMS.items():
        inputs = {"X": few(X), "y": Input(Y, WRONG_LABELS, ODD_LABELS)}
        yield name, Entry(_coefficients(make), inputs)
        yield f"{name}.partial_fit", Entry(_coefficients(make, "partial_fit"), inputs)
    ds_mlr = partial(manyclass.LinearClassifier, solver="ds_mlr", **SHORT)
    yield "ds_mlr", Entry(_coefficients(ds_mlr), {"X": sparse(X), "y": Input(Y, {}, {})})


def _predictions() -> Iterator[tuple[str, Entry]]:
    for name, make in ESTIMATORS.items():
        fitted = make().fit(X, Y)
        yield f"{name}.predict", Entry(lambda X, fitted=fitted: fitted.predict(X), {"X": few(X)})
        if hasattr(fitted, "decision_function"):
            yield f"{name}.decision_function", Entry(lambda X, f=fitted: f.decision_function(X), {"X": sparse(X)})
    model = manyclass.LinearClassifier(**SHORT).fit(X, Y).model_
    binary = manyclass.LinearClassifier("log_loss", **SHORT).fit(X, INDICATOR).model_
    thin = model.sparsify()
    width = {"wide": lambda X: np.hstack([X, X[:, :1]]), "narrow": lambda X: X[:, 1:].copy()}
    for name, X_ in {"sparse": sparse(X), "dense": floats(DENSE, rows=False, **width)}.items():
        yield f"scores of {name}", Entry(model.scores, {"X": X_})
        yield f"scores of {name}, sparse weights", Entry(thin.scores, {"X": X_})
        yield f"topk of {name}", Entry(lambda X: model.topk(X, 2)[1], {"X": X_})
        yield f"predict of {name}, labels", Entry(lambda X: binary.predict(X, dense=True), {"X": X_})
    folder = Path(tempfile.mkdtemp(dir=FOLDER.name))
    split_model(model, folder / "blocks", block_classes=2)
    blocks = manyclass.load(folder / "blocks")
    yield "blocks", Entry(blocks.scores, {"X": sparse(X)})
    log_linear = manyclass.LogLinearModel(max_iter=2).fit(X, CHOSEN, offsets=OFFSETS)
    yield (
        "LogLinearModel.predict_proba",
        Entry(
            lambda features, offsets: np.concatenate(log_linear.predict_proba(features, offsets=offsets)),
            {"features": sparse(X), "offsets": integers(OFFSETS)},
        ),
    )


def _models() -> Iterator[tuple[str, Entry]]:
    def model(weights: Any, intercept: Any) -> Any:
        return manyclass.LinearModel(weights, intercept, classes=None, task="regression").scores(DENSE)

    # Not read when a model is made: `load` checks that they are finite.
    finite = ("NaN", "infinity")
    bias = Input(np.zeros(20), without(WRONG_FLOATS, *finite), {"read-only": frozen, "strided": strided})
    kept = ("read-only", "64-bit indices", "64-bit row pointers", "descending", "one buffer", "strided")
    wrong = without(WRONG_SPARSE, *finite)
    weights = Input(SPARSE_W, wrong, {name: ODD_SPARSE[name] for name in kept})
    yield "LinearModel of sparse weights", Entry(model, {"weights": weights, "intercept": bias})
    dense = Input(W, {k: WRONG_FLOATS[k] for k in ("three dimensions", "text")}, {"read-only": frozen})
    yield "LinearModel of dense weights", Entry(model, {"weights": dense, "intercept": bias})
    yield (
        "LogLinearModel.fit",
        Entry(
            lambda features, y, offsets, log_measure, sample_weight: (
                manyclass.LogLinearModel(max_iter=2, random_state=0)
                .fit(features, y, offsets=offsets, log_measure=log_measure, sample_weight=sample_weight)
                .coef_
            ),
            {
                "features": sparse(X),
                "y": integers(CHOSEN),
                "offsets": integers(OFFSETS),
                "log_measure": floats(MEASURE),
                "sample_weight": floats(WEIGHT[: len(CHOSEN)]),
            },
        ),
    )
    yield (
        "certify",
        Entry(
            lambda X, coef: manyclass.certify((coef, np.zeros(K)), X, Y, loss="multinomial", alpha=0.1).gap,
            {"X": sparse(X), "coef": floats(np.ascontiguousarray(W[:, :K].T), rows=True)},
        ),
    )
    for block in (
        manyclass.RandomFourier(4, random_state=0),
        manyclass.PrincipalComponents(3),
        manyclass.RandomPolynomial(4, random_state=0),
    ):
        name = type(block).__name__
        fitted = block.fit(DENSE)
        yield (
            f"{name}.fit",
            Entry(lambda X, b=block: type(b)(**b.get_params()).fit(X).transform(DENSE), {"X": sparse(X)}),
        )
        yield f"{name}.transform", Entry(lambda X, f=fitted: f.transform(X), {"X": sparse(X)})
    yield (
        "precision_at_k",
        Entry(
            lambda y_true: precision_at_k(y_true, np.tile(np.arange(K), (N, 1)), 2),
            {"y_true": Input(INDICATOR, without(WRONG_SPARSE, "NaN", "infinity", "data as text"), ODD_INDICATORS)},
        ),
    )


def _files() -> Iterator[tuple[str, Entry]]:
    folder = Path(tempfile.mkdtemp(dir=FOLDER.name))
    count = iter(range(10**6))

    def stored(X: Any, y: Any) -> Any:
        path = folder / f"{next(count)}.store"
        write_store(path, X, y)
        return manyclass.io.read(path).X.toarray()

    def written(suffix: str) -> Callable[..., Any]:
        def call(X: Any) -> Any:
            path = folder / f"{next(count)}.{suffix}"
            write(path, Dataset(X, Y))
            return manyclass.io.read(path).X.toarray()

        return call

    # A store may hold NaN: it is refused when a fit reads it.
    shape = Input(X, without(WRONG_SPARSE, "NaN", "infinity"), ODD_SPARSE)
    yield "write_store", Entry(stored, {"X": shape, "y": Input(Y, WRONG_LABELS, ODD_LABELS)})
    for suffix in ("svm", "npz"):
        yield f"write {suffix}", Entry(written(suffix), {"X": sparse(X)})


def _indexes() -> Iterator[tuple[str, Entry]]:
    kinds = {
        "exact": ExactSearch,
        "simple_lsh": partial(SimpleLSH, bits=64, candidates=10**3),
        "small_world": partial(SmallWorldGraph, degree=4, width=64, build_width=16),
    }
    new = sp.random(5, D, 0.5, "csr", random_state=2)
    ids = np.arange(20, 25)

    def change(make: Any, method: str, ids: Any, vectors: Any) -> Any:
        index = make().build(SPARSE_W)
        if method == "update":
            index.insert(np.arange(20, 25), new)
        getattr(index, method)(ids, vectors)
        return index.query(X, 3)[1]

    for name, make in kinds.items():
        built = make().build(SPARSE_W)
        exclude = RNG.integers(-1, 20, N)
        yield (
            f"{name}.build",
            Entry(lambda weights, make=make: make().build(weights).query(X, 3)[1], {"weights": sparse(SPARSE_W)}),
        )
        yield (
            f"{name}.query",
            Entry(
                lambda X, exclude, built=built: built.query(X, 3, exclude)[1],
                {
                    "X": sparse(X),
                    "exclude": Input(exclude, without(WRONG_INTEGERS, "far out", "beyond int32"), ODD_INTEGERS),
                },
            ),
        )
        for method in ("insert", "update"):
            yield (
                f"{name}.{method}",
                Entry(
                    lambda ids, vectors, make=make, method=method: change(make, method, ids, vectors),
                    {"ids": integers(ids), "vectors": sparse(new)},
                ),
            )
        yield (
            f"{name} of dense weights",
            Entry(
                lambda weights, X, make=make: make().build(weights).query(X, 3)[1],
                {"weights": floats(W, rows=False), "X": floats(DENSE, rows=False)},
            ),
        )


GROUPS: dict[str, Callable[[], Iterator[tuple[str, Entry]]]] = {
    "predict": _predictions,
    "fit": _fits,
    "solvers": _solvers,
    "models": _models,
    "files": _files,
    "indexes": _indexes,
}


# --- the child --------------------------------------------------------------------------------------------------------


class Case(NamedTuple):
    """One call."""

    name: str
    entry: Entry
    argument: str
    change: Callable[[Any], Any]
    wrong: bool


def cases(group: str) -> Iterator[Case]:
    """The cases of a group, in an order that is the same in every process."""
    for name, entry in GROUPS[group]():
        for argument, given in entry.inputs.items():
            for wrong, changes in ((True, given.wrong), (False, given.odd)):
                for label, change in changes.items():
                    yield Case(f"{name}({argument}: {label})", entry, argument, change, wrong)


#: What scikit-learn says of arrays that it validates itself, and of label sets of LogLinearModel.
_OF_SCIKIT_LEARN = re.compile(
    r"inconsistent numbers of samples: \[|Found array with dim 3|could not convert string to float|Sample weights must|"
    r"every example must have at least one label"
)


def outcome(case: Case, expected: Any) -> str:
    """ "" if the entry did what it must; else what it did."""
    arguments = {name: given.value.copy() for name, given in case.entry.inputs.items()}
    arguments[case.argument] = case.change(arguments[case.argument])
    try:
        found = case.entry.call(**arguments)
    except ValueError as error:
        if type(error).__module__.partition(".")[0] not in ("builtins", "manyclass"):
            return f"{type(error).__name__}: {error}"
        if not case.wrong:
            return f"refused: {error}"
        named = case.argument in str(error) or _OF_SCIKIT_LEARN.search(str(error))
        return "" if named else f"does not name its argument: {error}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    if case.wrong:
        return "accepted"
    return "" if np.allclose(found, expected, rtol=1e-5, atol=1e-8) else "another result"


def main(group: str, first: int) -> None:
    """Run the cases; one line of JSON before and after each."""
    warnings.simplefilter("ignore")
    expected: dict[str, Any] = {}
    for number, case in enumerate(cases(group)):
        if number < first:
            continue
        sys.stdout.write(json.dumps([number, case.name]) + "\n")
        sys.stdout.flush()
        key = case.name.partition("(")[0]
        if key not in expected:
            expected[key] = case.entry.call(**{name: given.value.copy() for name, given in case.entry.inputs.items()})
        sys.stdout.write(json.dumps([number, case.name, outcome(case, expected[key])]) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 0)
