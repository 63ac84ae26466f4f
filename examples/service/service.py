"""The best classes of texts or rows as JSON, on Starlette: one model, limits on what comes in, errors as JSON.

python -m pip install . starlette uvicorn
MANYCLASS_MODEL=queue.model uvicorn service:app --app-dir examples/service --workers 2

curl localhost:8000/health
curl localhost:8000/topk -d '{"rows": ["I lost my password"], "k": 3}'
"""

from __future__ import annotations

import json
import os

import numpy as np
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from manyclass import load

#: Most bytes of a request, rows in it, and classes for each row.
BYTES, ROWS, CLASSES = 1 << 20, 256, 100

MODEL = load(os.environ["MANYCLASS_MODEL"])  # weights are mapped: workers share their memory
TEXTS = MODEL.vectorizer is not None
MODEL.topk([""] if TEXTS else np.zeros((1, MODEL.n_features), np.float32), 1)  # compiles, not the first request


def predict(rows: list, k: int) -> list[list[dict]]:
    """The k best classes of each row, best first."""
    try:
        X = rows if TEXTS else np.asarray(rows, np.float32)
        labels, scores = MODEL.topk(X, min(k, len(MODEL.classes)))
    except (ValueError, TypeError) as error:
        raise HTTPException(422, str(error)) from error
    pairs = (zip(*row) for row in zip(labels.tolist(), scores.tolist()))
    return [[{"class": label, "score": score} for label, score in row] for row in pairs]


async def topk(request: Request) -> JSONResponse:
    """POST {"rows": [texts, or lists of numbers], "k": 5}."""
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > BYTES:
            raise HTTPException(413, f"a request has at most {BYTES} bytes: send fewer rows")
    try:
        asked = json.loads(body)
        rows, k = asked["rows"], asked.get("k", 5)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise HTTPException(422, 'expected an object {"rows": [...], "k": 5} in JSON') from error
    if not isinstance(rows, list) or not 1 <= len(rows) <= ROWS or type(k) is not int or not 1 <= k <= CLASSES:
        raise HTTPException(422, f"expected 1 to {ROWS} rows, and k from 1 to {CLASSES}")
    return JSONResponse({"rows": await run_in_threadpool(predict, rows, k)})


async def health(request: Request) -> JSONResponse:
    """What is served."""
    return JSONResponse({"classes": len(MODEL.classes), "features": MODEL.n_features, "texts": TEXTS})


async def refused(request: Request, error: HTTPException) -> JSONResponse:
    """Errors are JSON, too."""
    return JSONResponse({"error": error.detail}, error.status_code)


app = Starlette(
    routes=[Route("/topk", topk, methods=["POST"]), Route("/health", health)],
    exception_handlers={HTTPException: refused},
)
