"""Latency of one text of 100 terms: a loaded model, a pipeline with its estimator, and the service of examples/service.

Generated texts over a vocabulary of 50 000 terms with Zipf frequencies, and random dense weights, 20 and 1000 classes:
the time does not depend on what was learned. Single calls are timed one by one, each with another text, after 50 calls
that are not timed: the least and the median of the wall time, and the median of the processor time of this process. The
client of the service keeps its connection; its process and the server share the machine.
"""

from __future__ import annotations

import http.client
import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from benchmarks.bench import Bench

TERMS, VOCABULARY, CLASSES, CALLS, BEST = 100, 50_000, (20, 1000), 2000, 5
_SERVICE = Path(__file__).parents[2] / "examples" / "service"


def run(bench: Bench) -> None:
    from sklearn.pipeline import make_pipeline

    from manyclass import LinearClassifier, LinearModel, TextVectorizer, load

    size, calls = (2000, 50) if bench.options.quick else (VOCABULARY, CALLS)
    rng = np.random.default_rng(0)
    words = np.array([f"w{j:05d}" for j in range(size)])
    frequency = 1 / np.arange(1, size + 1)
    texts = [" ".join(rng.choice(words, TERMS, p=frequency / frequency.sum())) for _ in range(500)]
    vectorizer = TextVectorizer().fit([" ".join(words[j : j + TERMS]) for j in range(0, size, TERMS)])
    for K in CLASSES:
        weights, names = rng.standard_normal((size, K), dtype=np.float32), np.array([f"class {k}" for k in range(K)])
        made = LinearModel(
            weights, np.zeros(K, np.float32), names, "multiclass", "softmax", vectorizer=vectorizer.to_state()
        )
        estimator = LinearClassifier(max_iter=1, tol=0.5).fit(np.eye(2, size, dtype=np.float32), names[:2])
        estimator.model_, estimator.classes_ = made, names
        pipeline, rows = make_pipeline(vectorizer, estimator), vectorizer.transform(texts[:1])
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "m.model")
            made.save(path)
            served = load(path)
            ways: dict[str, Callable[[str], Any]] = {
                "model.predict": lambda text, served=served: served.predict([text]),
                "model.topk": lambda text, served=served: served.topk([text], BEST),
                "model.topk_probabilities": lambda text, served=served: served.topk_probabilities([text], BEST),
                "model.rows, the features alone": lambda text, served=served: served.rows([text]),
                "model.topk of features": lambda text, served=served, rows=rows: served.topk(rows, BEST),
                "estimator.predict_topk of features": lambda text, one=estimator, rows=rows: one.predict_topk(rows),
                "pipeline.predict": lambda text, pipeline=pipeline: pipeline.predict([text]),
            }
            for number in range(bench.options.runs):
                for name, way in ways.items():
                    bench.record(what=name, classes=K, terms=TERMS, run=number, **_timed(way, texts, calls))
                _service(bench, path, texts, calls, {"classes": K, "terms": TERMS, "run": number})
    _report(bench)


def _timed(way: Callable[[str], Any], texts: list[str], calls: int) -> dict[str, float]:
    for text in texts[:50]:
        way(text)
    wall, processor = [], []
    for number in range(calls):
        text = texts[number % len(texts)]
        begun, used = time.perf_counter(), time.process_time()
        way(text)
        processor.append(time.process_time() - used)
        wall.append(time.perf_counter() - begun)
    return {
        "calls": calls,
        "seconds": median(wall),
        "least_seconds": min(wall),
        "percentile_99_seconds": float(np.percentile(wall, 99)),
        "cpu_seconds": median(processor),
    }


def _service(bench: Bench, path: Path, texts: list[str], calls: int, facts: dict[str, Any]) -> None:
    """The time of a client until it has the answer."""
    if not all(importlib.util.find_spec(name) for name in ("starlette", "uvicorn")):
        bench.skip("starlette and uvicorn are not installed", what="service, POST /topk", **facts)
        return
    command = [sys.executable, "-m", "uvicorn", "service:app", "--app-dir", str(_SERVICE), "--port", "0"]
    environment = {**os.environ, "MANYCLASS_MODEL": str(path)}
    with subprocess.Popen(
        [*command, "--no-access-log"],
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            lines = iter(process.stderr or ())
            ports = (re.search(r"running on http://127\.0\.0\.1:(\d+)", line) for line in lines)
            port = next((int(found[1]) for found in ports if found), None)
            if port is None:
                bench.fail("the service has not started", what="service, POST /topk", **facts)
                return
            with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as client:

                def ask(text: str) -> None:
                    client.request("POST", "/topk", json.dumps({"rows": [text], "k": BEST}))
                    answer = client.getresponse()
                    if answer.status != 200 or len(json.loads(answer.read())["rows"][0]) != BEST:
                        raise RuntimeError(f"the service answered with status {answer.status}")

                bench.record(what="service, POST /topk", **facts, **_timed(ask, texts, calls))
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)


def _report(bench: Bench) -> None:
    rows = [row for row in bench.rows if row["status"] == "measured"]
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["what"], row["classes"]), []).append(row)
    lines = [
        [
            *key,
            *(1e3 * median(row[name] for row in of) for name in ("least_seconds", "seconds", "percentile_99_seconds")),
            1e3 * median(row["cpu_seconds"] for row in of),
        ]
        for key, of in groups.items()
    ]
    columns = ("one text of 100 terms", "classes", "least, ms", "median, ms", "99 %, ms", "processor, median, ms")
    bench.table("Latency of single calls: the median of the runs", columns, lines)
    with bench.figure() as (ax,):
        ax.barh(range(len(groups)), [line[3] for line in lines])
        ax.set_yticks(range(len(groups)), [f"{what}, {K} classes" for what, K in groups], fontsize=6)
        ax.invert_yaxis()
        ax.set_xlabel("milliseconds, median")
