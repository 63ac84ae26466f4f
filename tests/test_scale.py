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
    certify,
)
from manyclass.objective.losses import CLASSIFICATION

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


def odd_data(name):
    rng = np.random.default_rng(5)
    X, y, weights = rng.normal(size=(40, 6)), np.arange(40) % 4, None
    if name == "constant columns":
        X[:, 2:] = 3.0
    elif name == "equal columns":
        X[:] = X[:, :1]
    elif name == "one column":
        X = X[:, :1]
    elif name == "a class for each row":
        y = np.arange(40)
    elif name == "a class of one row":
        y = np.where(np.arange(40) == 7, 9, np.arange(40) % 2)
    elif name == "two rows":
        X, y = X[:2], y[:2]
    elif name == "weights over 20 orders of magnitude":
        weights = 10.0 ** rng.uniform(-20, 0, size=40)
        weights[:8] = 1.0
    elif name == "empty rows":
        X[::2] = 0.0
    return X, y, weights


ODD = ("constant columns", "equal columns", "one column", "a class for each row", "a class of one row", "two rows")
ODD += ("weights over 20 orders of magnitude", "empty rows")


@pytest.mark.parametrize("loss", CLASSIFICATION)
@pytest.mark.parametrize("odd", ODD)
def test_odd_data_end_at_the_optimum_or_say_so(odd, loss):
    X, y, weights = odd_data(odd)
    model = LinearClassifier(loss, alpha=1e-2, tol=1e-3, random_state=0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(X, y, sample_weight=weights)
    found = certify(model, X, y, sample_weight=weights)
    assert caught or found.relative_gap <= 1e-3 * (1 + 1e-6)
    assert found.relative_gap <= 0.02
