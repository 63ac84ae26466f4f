"""A fit of raw pixels that takes its time says what would take less; no other fit does."""

from __future__ import annotations

import logging
import threading

import numpy as np
import pytest
import scipy.sparse as sp

from manyclass import LinearClassifier, LinearRegressor
from manyclass.estimators import pixels

RNG = np.random.default_rng(0)
IMAGES = RNG.integers(0, 256, size=(1100, 1000)).astype(np.uint8)  # more than 2^20 values
LABELS = RNG.integers(3, size=len(IMAGES))


class Said(logging.Handler):
    """Waits for a line of the library."""

    def __init__(self):
        super().__init__()
        self.lines, self.came = [], threading.Event()

    def emit(self, record):
        self.lines.append(record.getMessage())
        self.came.set()


@pytest.fixture
def said():
    handler, logger = Said(), logging.getLogger(pixels.__name__)
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


@pytest.mark.parametrize(("estimator", "y"), [(LinearClassifier, LABELS), (LinearRegressor, LABELS * 1.0)])
def test_raw_pixels_are_told_once_while_the_fit_runs(monkeypatch, said, estimator, y):
    monkeypatch.setattr(pixels, "_PATIENCE", 0.0)

    def wait(progress):
        assert said.came.wait(60)
        return True

    estimator(random_state=0).fit(IMAGES, y, callback=wait)
    (line,) = said.lines
    assert "integers from 0 to 255, as raw pixels have: a fit of X / 255" in line


def test_a_fit_that_ends_before_says_nothing(monkeypatch, said):
    started = []

    class Timer(threading.Timer):
        def start(self):
            super().start()
            started.append(self)

    monkeypatch.setattr(threading, "Timer", Timer)
    LinearClassifier(random_state=0).fit(IMAGES, LABELS, callback=lambda progress: True)
    (timer,) = started
    timer.join(60)
    assert not timer.is_alive()
    assert not said.lines


def raw(X, **parameters):
    return pixels.are_raw_pixels(LinearClassifier(alpha=1.0, **parameters)._build(X, LABELS[: X.shape[0]], None)[0])


def test_what_are_raw_pixels():
    assert raw(IMAGES)
    assert raw(IMAGES.astype(np.float32))
    assert not raw(IMAGES / 255)
    assert not raw(IMAGES, standardize=True)
    assert not raw(IMAGES[:1000])  # a short fit
    assert not raw(IMAGES // 8)  # counts, or grades
    assert not raw(IMAGES * 2.0)
    assert not raw(IMAGES - 128.0)
    assert not raw(IMAGES + 0.5 * (IMAGES < 255))
    assert not raw(sp.csr_matrix(IMAGES, dtype=np.float32))
