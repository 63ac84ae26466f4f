"""Stages, and the model that replays them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import scipy.sparse as sp

from manyclass.least_squares.arrays import Array
from manyclass.least_squares.design import Design
from manyclass.links.calibrated import Calibration
from manyclass.model_base import Model

__all__ = ["Stage", "StagedModel"]


@dataclass(frozen=True, eq=False)
class Stage:
    block: Any
    weights: Array
    intercept: Array
    calibration: Calibration | None


@dataclass(frozen=True, eq=False)
class StagedModel(Model):
    members: tuple[tuple[Stage, ...], ...]
    classes: Array | None
    task: str
    link: str
    prepare: Any = None
    parameters: dict[str, Any] = field(default_factory=dict)
    record: dict[str, Any] = field(default_factory=dict)

    @property
    def threshold(self):
        c = self.members[0][-1].calibration
        return 0.5 if c is not None and c.domain == "box" else 0.0

    @property
    def n_features(self):
        raise NotImplementedError

    @property
    def n_outputs(self):
        return self.members[0][0].weights.shape[1]

    @property
    def dtype(self):
        return self.members[0][0].weights.dtype

    def scores(self, X, n_jobs=None):
        total = 0.0
        X = X if self.prepare is None else self.prepare.transform(X)
        for member in self.members:
            yhat = np.zeros((X.shape[0], self.n_outputs), np.result_type(X.dtype, self.dtype))
            for stage in member:
                design = Design(X, stage.block, dtype=yhat.dtype)
                design.add_scores(np.vstack([stage.weights, stage.intercept]), yhat)
                design.release()
                if stage.calibration is not None:
                    yhat = stage.calibration(yhat, out=yhat)
            total = total + yhat
        return total / len(self.members)

    def _best(self, X, k, n_jobs):
        s = self.scores(X)
        order = np.argsort(-s, axis=1, kind="stable")[:, :k]
        return order, np.take_along_axis(s, order, axis=1)

    def _positive(self, X, n_jobs):
        return sp.csr_matrix((self.scores(X) > self.threshold).astype(np.int8))

    def sparsify(self, threshold=0.0):
        return self

    def summary(self):
        return {}

    def parts(self):
        return {}, {}

    @classmethod
    def from_parts(cls, common, described, arrays):
        raise NotImplementedError
