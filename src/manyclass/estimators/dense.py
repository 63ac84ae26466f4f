"""``features="auto"``: the blocks of `StagewiseClassifier` and `StagewiseRegressor` for dense rows."""

from __future__ import annotations

import math

import numpy as np

from manyclass.features import Nystrom
from manyclass.objective.problem import Array
from manyclass.solvers.least_squares.calibrated import squared_error
from manyclass.solvers.least_squares.design import Design

__all__ = ["BLOCK_SIZE", "choose_kernel", "n_blocks", "n_components"]

#: Number of features of a block, features per row in all blocks, and number of blocks at most.
BLOCK_SIZE, _PER_ROW, _MOST_BLOCKS = 2048, 2 / 3, 10
#: Rows with more than the first and at most the second number of features are replaced by principal components.
_WIDE, _WIDEST, _COMPONENTS = 500, 5000, 100
#: Rows and features with which bandwidths are compared, the fraction of these rows that is held out, and the fewest
#: rows with which they are compared.
_ROWS, _FEATURES, _FRACTION, _LEAST = 10_000, 1024, 0.2, 50
#: The first bandwidth; neighbors are half and twice as large. Penalties, in units of 1 / n_samples.
_FIRST, _FARTHEST, _PENALTIES = 0.5, 5, (0.1, 1.0, 10.0)


def choose_kernel(
    X: Array, targets: Array, weights: Array | None, seed: int, alpha: float | None
) -> tuple[float, float]:
    """The bandwidth, and the penalty in units of 1 / n_samples, with the lowest squared error on held-out rows.

    One block is fitted to a sample of the rows for the bandwidths 1/2, 1/4, 1/8, ... as long as the error falls; if it
    does not fall at 1/4, for 1, 2, ...; for three penalties each, or for ``alpha`` only.
    """
    rows = np.arange(len(targets)) if weights is None else np.flatnonzero(weights)
    if len(rows) < _LEAST:
        return 1.0, 1.0
    rows = np.random.default_rng(seed).permutation(rows)[:_ROWS]
    split = round(_FRACTION * len(rows))
    held, kept = (np.sort(part) for part in (rows[:split], rows[split:]))
    Z, Z_held = X[kept], X[held]
    penalties = {c: c / len(kept) if alpha is None else alpha for c in (_PENALTIES if alpha is None else (1.0,))}
    found: dict[int, tuple[float, float]] = {}

    def judge(number: int) -> float:
        """The lowest error with bandwidth number ``number``."""
        block = Nystrom(_FEATURES, bandwidth=_FIRST * 2.0**number, random_state=seed).fit(Z)
        moments = Design(Z, block, weights=_part(weights, kept), dtype=targets.dtype).moments(
            min(penalties.values()), targets[kept]
        )
        errors = []
        for c, strength in penalties.items():
            scores = np.zeros_like(targets[held])
            factor = moments.factor(strength, keep=True)
            assert moments.cross is not None
            Design(Z_held, block, dtype=targets.dtype).add_scores(factor.solve(moments.cross.copy()), scores)
            errors.append((squared_error(targets[held], scores, _part(weights, held)), c))
        found[number] = min(errors)
        return found[number][0]

    judge(0)
    for step in (-1, 1):
        number = step
        while abs(number) <= _FARTHEST and judge(number) < found[number - step][0]:
            number += step
        if number != step:
            break
    best = min(found, key=lambda number: found[number])
    return _FIRST * 2.0**best, found[best][1]


def _part(weights: Array | None, rows: Array) -> Array | None:
    """Weights of some rows, with mean 1."""
    return None if weights is None else weights[rows] / weights[rows].mean()


def n_components(n_features: int) -> int | None:
    """Number of principal components that replace the features; None: the features are used as they are."""
    return _COMPONENTS if _WIDE < n_features <= _WIDEST else None


def n_blocks(n_samples: int, size: int) -> int:
    """As many blocks of ``size`` features as give two features for every three rows, but at most 10."""
    return min(_MOST_BLOCKS, math.ceil(_PER_ROW * n_samples / size))
