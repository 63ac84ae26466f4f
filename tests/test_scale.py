"""Badly scaled features: a good model, or a warning or an error with the cause; never a useless model in silence."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone

from manyclass import (
    CalibratedLeastSquaresClassifier,
    GeneralizedLeastSquaresClassifier,
    LinearClassifier,
    LinearRegressor,
    StagewiseClassifier,
    StagewiseRegressor,
)

RNG = np.random.default_rng(0)
ROWS = RNG.normal(size=(60, 5))
REAL = ROWS @ RNG.normal(size=5)
CLASSES = np.argmax(ROWS @ RNG.normal(size=(5, 3)), axis=1)

ESTIMATORS = {
    "multinomial": (LinearClassifier(loss="multinomial"), CLASSES),
    "crammer_singer": (LinearClassifier(loss="crammer_singer"), CLASSES),
    "squared_hinge": (LinearClassifier(loss="squared_hinge"), CLASSES),
    "squared": (LinearRegressor(), REAL),
    "elastic_net": (LinearRegressor(l1_ratio=0.5), REAL),
    "generalized": (GeneralizedLeastSquaresClassifier(), CLASSES),
    "calibrated": (CalibratedLeastSquaresClassifier(), CLASSES),
    "stagewise": (StagewiseClassifier(), CLASSES),
    "stagewise_regressor": (StagewiseRegressor(), REAL),
}


def grown(where, factor):
    rows = ROWS.copy()
    rows[where] *= factor
    return rows


BAD = {f"all x {factor:g}": ROWS * factor for factor in (1e-300, 1e-160, 1e-30, 1e30, 1e150, 1e155, 1e200, 1e300)}
BAD |= {f"row x {factor:g}": grown(0, factor) for factor in (1e20, 1e200)}
BAD |= {f"column x {factor:g}": grown((slice(None), 0), factor) for factor in (1e20, 1e200)}
BAD["denormal"] = np.full_like(ROWS, 5e-324)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "csr"])
@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("bad", BAD)
def test_a_bad_scale_is_overcome_or_named(bad, name, sparse):
    estimator, y = ESTIMATORS[name]
    rows = sp.csr_matrix(BAD[bad]) if sparse else BAD[bad]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        score, said = -1.0, []
        try:
            score = clone(estimator).set_params(random_state=0).fit(rows, y).score(rows, y)
        except ValueError as error:
            said = [str(error)]
    said += [str(one.message) for one in caught]
    assert score > 0.8 or any("scale the features" in text for text in said), (score, said)
