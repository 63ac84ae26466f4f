"""Damaged and extreme input to manyclass and to its peers: what each does with it.

Each pair of library and input is a process of its own, which fits, predicts the rows before they were damaged, and
tells what happened. Outcomes: ``right`` (nine of ten labels are right), ``clear error`` (an exception whose message has
one of the words of `CLEAR`), ``unclear error`` (any other), ``warned`` (a wrong result after a warning), ``silent`` (a
wrong result, or a result for input that has none, without one), ``signal`` (the process was ended by one), ``hang``
(more than a minute). Peers that are not installed are left out.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from typing import Any

from benchmarks.bench import Bench

#: Peer -> the module that it needs.
PEERS = {
    "manyclass": "manyclass",
    "LogisticRegression": "sklearn",
    "SGDClassifier": "sklearn",
    "LinearSVC": "sklearn",
    "XGBoost": "xgboost",
    "LIBLINEAR": "liblinear",
}

_INDICES = "ind(ex|ices)|column|out of (range|bounds)|damaged"
#: Input -> a word that its error must have to name the cause.
CLEAR = {
    "index out of range": _INDICES,
    "negative index": _INDICES,
    "decreasing row pointer": "indptr|pointer|damaged",
    "one value fewer than indices": "indices|length|size|damaged",
    "one value more than indices": "indices|length|size|damaged",
    "value of NaN": "nan",
    "value of infinity": "inf",
    "value of 1e300": "large|overflow|scale|1e\\+?300|infinity",
    "one class": "class",
    "empty rows": "empty|zero",
    "index beyond int32": "int32|int64|memory|alloc|large|ind(ex|ices)|GiB|TiB",
    "changed byte in a model file": "damaged|checksum|corrupt",
    "model file cut short": "damaged|truncated|cut short|corrupt",
    "data file cut short": "line|truncated|cut|format|missing",
}

#: Only some of the inputs have a right result: for these, labels of the rows before the change are compared.
_CHILD = r"""
import json, os, re, sys, warnings
import numpy as np
import scipy.sparse as sp

peer, case, clear, folder = sys.argv[1:]
if sys.platform == "linux":
    import resource
    resource.setrlimit(resource.RLIMIT_AS, (16 << 30, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
rng = np.random.default_rng(0)
n, d, K = 300, 30, 3
y = np.arange(n) % K
centers = rng.random((K, d)) < 0.4
clean = sp.csr_matrix(np.where(centers[y] ^ (rng.random((n, d)) < 0.05), 1.0, 0.0) + 0.0)


def damaged():
    X = clean.copy()
    if case == "index out of range":
        X.indices[7] = d + 100_000
    elif case == "negative index":
        X.indices[7] = -100_000
    elif case == "decreasing row pointer":
        X.indptr[5] = X.indptr[4] - 30
    elif case == "one value fewer than indices":
        X.data = X.data[:-1].copy()
    elif case == "one value more than indices":
        X.data = np.append(X.data, 1.0)
    elif case in ("value of NaN", "value of infinity", "value of 1e300"):
        X.data[7] = {"value of NaN": np.nan, "value of infinity": np.inf, "value of 1e300": 1e300}[case]
    elif case == "empty rows":
        X = sp.vstack([X, sp.csr_matrix((20, d))]).tocsr()
    elif case == "index beyond int32":
        X.indices, X.indptr = X.indices.astype(np.int64), X.indptr.astype(np.int64)
        X.indices[-1] = 2**40
        X._shape = (n, 2**40 + 1)
    return X


def model():
    if peer == "manyclass":
        from manyclass import LinearClassifier
        return LinearClassifier(random_state=0)
    if peer in ("LogisticRegression", "SGDClassifier"):
        from sklearn import linear_model
        return getattr(linear_model, peer)(random_state=0)
    if peer == "LinearSVC":
        from sklearn.svm import LinearSVC
        return LinearSVC(random_state=0)
    if peer == "XGBoost":
        from xgboost import XGBClassifier
        return XGBClassifier(n_estimators=10, n_jobs=1)
    return Liblinear()


class Liblinear:
    def fit(self, X, y):
        from liblinear.liblinearutil import train
        self.model = train(y.astype(float), X, "-s 0 -q")
        return self

    def predict(self, X):
        from liblinear.liblinearutil import predict
        return np.array(predict([], X, self.model, "-q")[0])


def from_file():
    # The text of the rows, whose last line ends between an index and its value.
    path = os.path.join(folder, "rows.svm")
    lines = [f"{k} " + " ".join(f"{j + 1}:1" for j in clean[i].indices) for i, k in enumerate(y)]
    with open(path, "w") as file:
        file.write("\n".join(lines)[:-1])
    if peer == "manyclass":
        from manyclass.io import read
        data = read(path, n_features=d)
        return model().fit(data.X, data.y).predict(clean)
    if peer == "XGBoost":
        import xgboost
        rows = xgboost.DMatrix(path + "?format=libsvm")
        booster = xgboost.train({"objective": "multi:softmax", "num_class": K, "nthread": 1}, rows, 10)
        wide = sp.csr_matrix((clean.data, clean.indices + 1, clean.indptr), shape=(n, rows.num_col()))
        return booster.predict(xgboost.DMatrix(wide))
    if peer == "LIBLINEAR":
        from liblinear.liblinearutil import svm_read_problem
        labels, X = svm_read_problem(path, return_scipy=True)
        return model().fit(X, labels).predict(clean)
    from sklearn.datasets import load_svmlight_file
    X, labels = load_svmlight_file(path, n_features=d)
    return model().fit(X, labels).predict(clean)


def from_model():
    # A model file with one byte changed in its middle, or without its second half.
    if peer in ("LogisticRegression", "SGDClassifier", "LinearSVC"):
        print(json.dumps({"outcome": "no such file", "detail": "scikit-learn has no format of its own"}))
        sys.exit()
    path = os.path.join(folder, "it.model" if peer != "XGBoost" else "it.ubj")
    fitted = model().fit(clean, y)
    if peer == "manyclass":
        fitted.save(path)
    elif peer == "XGBoost":
        fitted.save_model(path)
    else:
        from liblinear.liblinearutil import save_model
        save_model(path, fitted.model)
    with open(path, "rb") as file:
        content = bytearray(file.read())
    if case == "model file cut short":
        content = content[: len(content) // 2]
    elif peer == "LIBLINEAR":
        content[len(content) - 40] = ord("7") if content[len(content) - 40] != ord("7") else ord("1")
    elif peer == "manyclass":
        content[content.index(fitted.model_.weights.tobytes()) + 7] ^= 0x40
    else:
        content[len(content) // 2] ^= 0x40
    with open(path, "wb") as file:
        file.write(content)
    if peer == "manyclass":
        from manyclass import load
        return load(path).predict(clean)
    if peer == "XGBoost":
        again = model()
        again.load_model(path)
        return again.predict(clean)
    from liblinear.liblinearutil import load_model
    again = Liblinear()
    again.model = load_model(path)
    if again.model is None:
        raise OSError("load_model returned None")
    return again.predict(clean)


def outcome():
    labels = y
    if "model file" in case:
        found = from_model()
        return "silent", f"predicts; accuracy {np.mean(found == y):.2f}"
    if case == "data file cut short":
        found = from_file()
        return "silent", f"accuracy {np.mean(found == y):.2f}"
    if case == "one class":
        labels = np.zeros(n, int)
    elif case == "empty rows":
        labels = np.append(y, np.zeros(20, int))
    found = model().fit(damaged(), labels).predict(clean)
    right = float(np.mean(np.asarray(found) == labels[:n]))
    meaningful = case in ("value of NaN", "value of infinity", "value of 1e300", "one class", "empty rows")
    return ("right" if meaningful and right >= 0.9 else "silent"), f"accuracy {right:.2f}"


with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        what, detail = outcome()
        told = [str(w.message) for w in caught if re.search(clear, str(w.message), re.I)]
        if what == "silent" and told:
            what, detail = "warned", told[0]
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
        what, detail = ("clear error" if re.search(clear, said, re.I) else "unclear error"), said
# Without the paths of this machine.
detail = re.sub(r"(?<![\w/])/[\w.-]+/[\w./-]+", "<path>", " ".join(detail.split()))
print("\n" + json.dumps({"outcome": what, "detail": detail[:160]}))
"""


def run(bench: Bench) -> None:
    for peer, module in PEERS.items():
        if find_spec(module) is None:
            continue
        for case in list(CLEAR)[:: len(CLEAR) - 1] if bench.options.quick else CLEAR:
            bench.record(peer=peer, input=case, **_outcome(peer, case))
    peers = list(dict.fromkeys(row["peer"] for row in bench.rows))
    found = {(row["peer"], row["input"]): row["outcome"] for row in bench.rows}
    cases = list(dict.fromkeys(row["input"] for row in bench.rows))
    bench.table("Outcome", ("input", *peers), [(case, *(found[p, case] for p in peers)) for case in cases])


def _outcome(peer: str, case: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-c", _CHILD, peer, case, CLEAR[case], folder]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=60, check=False, errors="replace"
            )
        except subprocess.TimeoutExpired:
            return {"outcome": "hang", "detail": "more than 60 s"}
    if done.returncode < 0:
        return {"outcome": "signal", "detail": signal.Signals(-done.returncode).name}
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return {"outcome": "unclear error", "detail": f"exit status {done.returncode}: {last[:120]}"}
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found
