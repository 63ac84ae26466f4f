"""One of every kind of file, and what is read from it: `python tests/golden.py FOLDER` writes them, with the answers.

The folders of versions are in tests/golden. From its release on, the folder of a version is never written again: a
later version whose files differ adds its own, and reads all of them (test_golden.py).
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import scipy.sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline

from manyclass import DSMLR, LinearClassifier, LinearModel, OutOfCore, StagedModel, load, save
from manyclass.features import BLOCKS, Chain, PrincipalComponents, make_block
from manyclass.io import TableEncoder, TextVectorizer
from manyclass.io.store import RowStore, write_store
from manyclass.mips import ExactSearch, SearchIndex, SimpleLSH, SmallWorldGraph
from manyclass.models.splitting import split_model
from manyclass.models.staged import Stage
from manyclass.objective.links.calibrated import Calibration

N, D, K = 24, 5, 4
#: Multiples of 1/4, so that sums are exact: the data of a checkpoint are the same everywhere.
X = ((np.arange(N)[:, None] * 7 + np.arange(D) * 3 + (np.arange(N)[:, None] % 5) * np.arange(D)) % 9 - 4) / 4.0
W = ((np.arange(D)[:, None] * 5 + np.arange(K) * 7) % 11 - 5) / 4.0
B = np.arange(K) / 4 - 0.5
ROWS = sp.csr_matrix(X * (np.abs(X) > 0.3))
NAMES = np.array(["Äpfel", "bread", "карта", "dates"])
CLASSES = np.argmax(X @ W + B, axis=1)
TEXTS = ["lost my card", "card stolen", "pay rent", "rent is due", "where is my card", "the rent"]
TABLE = {"age": [31, None, 45, 52, 28, 61], "color": ["red", "", "грün", "red", "грün", "red"], "title": TEXTS}


class Kind(NamedTuple):
    """How such a file is written, and what is read from it."""

    make: Callable[[Path], Any]
    ask: Callable[[Path], dict[str, Any]]


def _linear(weights: Any = W, dtype: Any = np.float32, **fields: Any) -> LinearModel:
    weights = weights.astype(dtype)
    found = {"classes": NAMES[: weights.shape[1]], "task": "multiclass", "link": "softmax", **fields}
    return LinearModel(weights, B[: weights.shape[1]].astype(dtype), **found)


def _model(path: Path) -> dict[str, Any]:
    model = load(path)
    found = {"scores": model.scores(X), "predict": model.predict(X)}
    if model.task == "multilabel":
        found["predict"] = found["predict"].toarray()
    if model.link != "identity":
        found["probabilities"] = model.probabilities(X)
    kept = {"names": model.names(), "parameters": model.parameters, "record": model.record}
    return {**found, **kept, "task": model.task, "dtype": model.dtype.name}


def _text(path: Path) -> None:
    pipeline = make_pipeline(TextVectorizer(), LinearClassifier(random_state=0))
    save(pipeline.fit(TEXTS, ["rent" if "rent" in text else "card" for text in TEXTS]), path)


def _table(path: Path) -> None:
    pipeline = make_pipeline(TableEncoder(text_column="title"), LinearClassifier(random_state=0))
    save(pipeline.fit(TABLE, ["rent" if "rent" in text else "card" for text in TEXTS]), path)


def _staged(path: Path) -> None:
    prepare = PrincipalComponents(4).fit(X)
    Z = prepare.transform(X)
    blocks = [None, *(make_block(f"{name}:3").set_params(**_seed(BLOCKS[name])).fit(Z) for name in BLOCKS)]
    blocks.append(Chain(PrincipalComponents(3), BLOCKS["fourier"](4, random_state=1)).fit(Z))
    stages = []
    for number, block in enumerate(blocks):
        p = Z.shape[1] if block is None else block.n_features_out_
        weights = ((np.arange(p)[:, None] * 5 + np.arange(K) * 7 + number) % 11 - 5) / 8.0
        curve = np.vstack([np.full(K, 0.05), 0.5 * np.eye(K), 0.02 * np.eye(K), -0.01 * np.eye(K)])
        last = Calibration("cubic", curve, "simplex" if number == 5 else None) if number in (1, 3, 5) else None
        stages.append(Stage(block, weights, B, last))
    StagedModel((tuple(stages),), D, prepare=prepare, classes=NAMES, task="multiclass").save(path)


def _seed(kind: Any) -> dict[str, int]:
    return {"random_state": 0} if "random_state" in kind().get_params() else {}


def _index(path: Path) -> dict[str, Any]:
    index = SearchIndex.load(path)
    classes, scores = index.query(X, k=2)
    return {
        "kind": index.kind,
        "ids": index.ids,
        "classes": classes,
        "scores": scores,
        "weights": _array(index.weights()),
    }


def _store(path: Path) -> dict[str, Any]:
    store = RowStore(path)
    data = store.dataset()
    weights = store.rows().window(0, N).weights if store.weighted else None
    names = None if store.feature_names is None else store.feature_names
    labels = data.label_names
    return {"X": _array(data.X), "y": _array(data.y), "weights": weights, "names": names, "labels": labels}


def _fit(path: Path, name: str, where: Path, **more: Any) -> Any:
    solvers = {"fit": "sdca", "ranks": DSMLR(n_workers=2), "out_of_core": OutOfCore(where / "made", block_classes=2)}
    estimator = LinearClassifier(solver=solvers[name], alpha=1e-2, random_state=0, **more)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        if name == "out_of_core":
            return estimator.fit(RowStore(path.with_name("sparse.store")), checkpoint=path)
        return estimator.fit(ROWS, NAMES[CLASSES], checkpoint=path, checkpoint_seconds=0.0)


def _begin(name: str) -> Callable[[Path], Any]:
    def make(path: Path) -> None:
        with tempfile.TemporaryDirectory() as where:
            _fit(path, name, Path(where), max_iter=3, tol=1e-14)

    return make


def _resume(name: str) -> Callable[[Path], dict[str, Any]]:
    def ask(path: Path) -> dict[str, Any]:
        with tempfile.TemporaryDirectory() as folder:
            where = Path(folder)
            copied = where / path.name
            (shutil.copytree if path.is_dir() else shutil.copyfile)(path, copied)
            shutil.copytree(path.with_name("sparse.store"), where / "sparse.store")
            fit = _fit(copied, name, where, max_iter=9 if name == "out_of_core" else 2000, tol=1e-7)
            found = {"predict": fit.predict(ROWS), "resumed": fit.history_[0].iteration <= 3 < fit.n_iter_}
            # Out of core, the optimum is approached only.
            return found if name == "out_of_core" else {**found, "objective": [fit.objective_]}

    return ask


def _array(values: Any) -> Any:
    return values.toarray() if sp.issparse(values) else np.asarray(values)


#: Name of a file or folder -> how it is written and read.
KINDS: dict[str, Kind] = {
    "dense.model": Kind(
        lambda path: _linear(
            feature_names=np.array(["f", "g", "h", "ü", "\U0001f600"]), parameters={"alpha": 0.5}, record={"gap": None}
        ).save(path),
        _model,
    ),
    "sparse.model": Kind(lambda path: _linear(sp.csr_matrix(W * (np.abs(W) > 0.5)), np.float64).save(path), _model),
    "binary.model": Kind(
        lambda path: _linear(W[:, :1], classes=np.array([-1, 1]), task="binary", link="sigmoid").save(path), _model
    ),
    "labels.model": Kind(lambda path: _linear(task="multilabel", link="sigmoid").save(path), _model),
    "regression.model": Kind(
        lambda path: _linear(W, np.float64, classes=None, task="regression", link="identity").save(path), _model
    ),
    "text.model": Kind(
        _text, lambda path: {"predict": load(path).predict(TEXTS), "scores": load(path).decision_function(TEXTS)}
    ),
    "table.model": Kind(
        _table, lambda path: {"predict": load(path).predict(TABLE), "scores": load(path).decision_function(TABLE)}
    ),
    "staged.model": Kind(_staged, _model),
    "blocks.model": Kind(lambda path: split_model(_linear(), path, block_classes=3), _model),
    "sparse_blocks.model": Kind(
        lambda path: split_model(_linear(sp.csr_matrix(W * (np.abs(W) > 0.5))), path, block_classes=3), _model
    ),
    "exact.index": Kind(lambda path: ExactSearch(prune=False).build(W).save(path), _index),
    "exact_pruned.index": Kind(lambda path: ExactSearch().build(sp.csr_matrix(W)).save(path), _index),
    "lsh.index": Kind(lambda path: SimpleLSH(bits=64, candidates=4).build(W.astype(np.float32)).save(path), _index),
    "graph.index": Kind(lambda path: SmallWorldGraph(degree=2).build(sp.csr_matrix(W)).save(path), _index),
    "sparse.store": Kind(lambda path: write_store(path, ROWS, NAMES[CLASSES], shard_rows=10), _store),
    "dense.store": Kind(
        lambda path: write_store(
            path, X.astype(np.float32), X[:, 0] / 2, sample_weight=np.arange(N) / 4, feature_names=list("abcde")
        ),
        _store,
    ),
    "labels.store": Kind(
        lambda path: write_store(path, ROWS, sp.csr_matrix(X[:, :K] > 0, dtype=np.int8), label_names=NAMES), _store
    ),
    "fit.checkpoint": Kind(_begin("fit"), _resume("fit")),
    "ranks.checkpoint": Kind(_begin("ranks"), _resume("ranks")),
    "out_of_core.checkpoint": Kind(_begin("out_of_core"), _resume("out_of_core")),
}


def answers(folder: Path, name: str) -> dict[str, Any]:
    """What is read from a file, as JSON keeps it."""
    found: dict[str, Any] = json.loads(json.dumps(KINDS[name].ask(folder / name), default=lambda x: x.tolist()))
    return found


def main(folder: Path) -> None:
    """Write all kinds of files, and the answers."""
    folder.mkdir(parents=True)
    for name, kind in KINDS.items():
        kind.make(folder / name)
    text = json.dumps({name: answers(folder, name) for name in KINDS}, ensure_ascii=False)
    (folder / "answers.json").write_text(text.replace('}, "', '},\n"') + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
