"""The service of examples/service: started, called by a client, stopped."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from manyclass import LinearClassifier, TextVectorizer

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

FOLDER = Path(__file__).parents[1] / "examples" / "service"
TEXTS = ["my password is lost", "the screen is black", "lost my key", "a black screen again", "no paper", "paper jam"]
LABELS = ["access", "screen", "access", "screen", "printer", "printer"]


def _model(texts):
    if not texts:
        return LinearClassifier(random_state=0).fit(np.eye(4, 3), ["a", "b", "c", "a"]).model_
    vectorizer = TextVectorizer()
    model = LinearClassifier(random_state=0).fit(vectorizer.fit_transform(TEXTS), LABELS).model_
    return replace(model, vectorizer=vectorizer.to_state())


@pytest.fixture(scope="module", params=[True, False], ids=["texts", "numbers"])
def served(request, tmp_path_factory):
    """The model, whether it takes texts, and the port of its service."""
    model, path = _model(request.param), tmp_path_factory.mktemp("service") / "m.model"
    model.save(path)
    command = [sys.executable, "-m", "uvicorn", "service:app", "--app-dir", str(FOLDER), "--port", "0"]
    environment = {**os.environ, "MANYCLASS_MODEL": str(path)}
    with subprocess.Popen(
        command, env=environment, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
    ) as process:
        lines = []
        try:
            for line in process.stderr:
                lines.append(line)
                if found := re.search(r"running on http://127\.0\.0\.1:(\d+)", line):
                    break
            else:
                pytest.fail("".join(lines))
            yield model, request.param, int(found[1])
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=60)
    assert process.returncode in (0, -signal.SIGTERM)


def call(port, path, body=None):
    """The status and the answer."""
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as client:
        client.request("GET" if body is None else "POST", path, body)
        answer = client.getresponse()
        return answer.status, json.loads(answer.read())


def test_the_service_gives_the_best_classes_of_the_model(served):
    model, texts, port = served
    assert call(port, "/health") == (
        200,
        {"classes": len(model.classes), "features": model.n_features, "texts": texts},
    )
    rows = TEXTS[:3] if texts else np.eye(2, 3).tolist()
    status, found = call(port, "/topk", json.dumps({"rows": rows, "k": 2}))
    labels, scores = model.topk(rows if texts else np.asarray(rows, np.float32), 2)
    assert status == 200
    assert [[best["class"] for best in row] for row in found["rows"]] == labels.tolist()
    np.testing.assert_allclose([[best["score"] for best in row] for row in found["rows"]], scores, rtol=1e-6)
    assert len(call(port, "/topk", json.dumps({"rows": rows}))[1]["rows"][0]) == len(model.classes)  # 3, not 5
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: call(port, "/topk", json.dumps({"rows": rows, "k": 2})), range(40)))
    assert answers == 40 * [(200, found)]


def test_what_cannot_be_answered_is_refused_and_the_service_goes_on(served):
    _, texts, port = served
    row = TEXTS[0] if texts else [0.0, 1.0, 0.0]
    odd = [7] if texts else [[0.0, 1.0], [[1.0]], ["a"], [[np.nan, 0.0, 0.0]], [row, row[:1]]]
    cases = [
        (413, json.dumps({"rows": [row], "k": 1}) + " " * (1 << 20)),
        *((422, body) for body in ("", "{", "[1]", "7", "{}", '{"rows": "a"}', "[" * 100_000)),
        *((422, json.dumps(asked)) for asked in ({"rows": []}, {"rows": 257 * [row]})),
        *((422, json.dumps({"rows": [row], "k": k})) for k in (0, 101, 1.5, True, None, "2")),
        *((422, json.dumps({"rows": [rows] if texts else rows})) for rows in odd),
    ]
    for status, body in cases:
        code, answer = call(port, "/topk", body)
        assert (code, list(answer)) == (status, ["error"]), body[:60]
    assert call(port, "/topk")[0] == 405
    assert call(port, "/other")[0] == 404
    assert call(port, "/topk", json.dumps({"rows": [row], "k": 1}))[0] == 200
