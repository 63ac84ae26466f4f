"""The model in stages: its scores by the recursion itself, and its file, for every kind of block and calibration."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.datasets import load_iris
from sklearn.preprocessing import PolynomialFeatures

from manyclass import LinearModel, StagedModel, StagewiseClassifier, load
from manyclass.features import (
    Chain,
    FeatureSubset,
    PrincipalComponents,
    RandomFourier,
    RandomLogits,
    RandomPolynomial,
    Transformer,
)
from manyclass.models.linear import ModelFileError
from manyclass.models.staged import Stage
from manyclass.objective.links.calibrated import Calibration

D, K = 6, 4
BLOCKS = {
    "none": None,
    "fourier": RandomFourier(9, random_state=1),
    "logits": RandomLogits(7, random_state=2),
    "polynomial": RandomPolynomial(5, random_state=3),
    "subset": FeatureSubset(3, random_state=4),
    "components": PrincipalComponents(2),
    "chain": Chain(PrincipalComponents(3), RandomFourier(8, random_state=5)),
}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def calibration(rng, dtype, domain="simplex"):
    return Calibration("cubic", (0.3 * rng.normal(size=(1 + 3 * K, K))).astype(dtype), domain)


def staged(rng, names, dtype=np.float64, members=1, prepare=None, calibrated=True, domain="simplex", **more):
    X = rng.normal(size=(60, D)).astype(dtype)
    if prepare is not None:
        prepare = prepare.fit(X)
        X = prepare.transform(X)

    def stage(name, number):
        block = BLOCKS[name]
        block = None if block is None else type(block)(**block.get_params(deep=False)).fit(X)
        p = X.shape[1] if block is None else block.n_features_out_
        W, b = rng.normal(size=(p, K)).astype(dtype), rng.normal(size=K).astype(dtype)
        return Stage(block, W, b, calibration(rng, dtype, domain) if calibrated and number % 2 else None)

    made = tuple(tuple(stage(name, number) for number, name in enumerate(names)) for _ in range(members))
    kwargs = {"classes": np.array(["a", "b", "c", "d"]), "task": "multiclass", **more}
    return StagedModel(made, D, prepare=prepare, **kwargs)


def by_the_recursion(model, X):
    total = 0
    for member in model.members:
        yhat = np.zeros((len(X), K), model.dtype)
        for stage in member:
            Z = X if model.prepare is None else model.prepare.transform(X)
            Z = Z if stage.block is None else stage.block.transform(Z)
            yhat = yhat + Z @ stage.weights + stage.intercept
            if stage.calibration is not None:
                yhat = stage.calibration(yhat)
        total = total + yhat
    return total / len(model.members)


CASES = [
    {"names": [*BLOCKS]},
    {"names": ["none", "none"], "members": 3},
    {"names": ["fourier", "logits"], "members": 2, "dtype": np.float32, "prepare": PrincipalComponents(4)},
    {"names": ["fourier"], "calibrated": False, "link": "softmax"},
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(case["names"][:2]))
def test_scores_predictions_and_file(rng, tmp_path, case):
    model = staged(rng, **case)
    X = rng.normal(size=(37, D)).astype(model.dtype)
    expected = by_the_recursion(model, X)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if model.dtype == np.float32 else {"rtol": 1e-9, "atol": 1e-12}
    scores = model.scores(X)
    assert scores.dtype == model.dtype
    np.testing.assert_allclose(scores, expected, **tolerance)
    np.testing.assert_array_equal(model.scores(X, n_jobs=2), scores)
    np.testing.assert_allclose(model.scores(sp.csr_matrix(X)), expected, **tolerance)
    np.testing.assert_array_equal(model.predict(X), model.classes[scores.argmax(axis=1)])
    labels, best = model.topk(X, 2)
    np.testing.assert_array_equal(best, -np.sort(-scores, axis=1)[:, :2])
    assert labels.shape == (37, 2)

    model.save(tmp_path / "a.model")
    for mmap in (True, False):
        again = load(tmp_path / "a.model", mmap=mmap)
        assert isinstance(again, StagedModel)
        np.testing.assert_array_equal(again.scores(X), scores)
        assert {**again.summary(), "record": None} == {**model.summary(), "record": None}
    with pytest.raises(ModelFileError, match="a model of kind 'staged': read it with"):
        LinearModel.load(tmp_path / "a.model")


def test_pieces_of_rows(rng, monkeypatch):
    from manyclass.models import staged as module

    model = staged(rng, ["fourier", "none"])
    X = rng.normal(size=(101, D))
    whole = model.scores(X)
    monkeypatch.setattr(module, "_PIECE", 90)
    monkeypatch.setattr(module, "_ROWS", 17)
    np.testing.assert_allclose(model.scores(X, n_jobs=2), whole, rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), model.classes[whole.argmax(axis=1)])
    assert model.topk(X[:0], 3)[0].shape == (0, 3)


def test_probabilities_are_those_of_the_calibration_or_of_the_link(rng):
    X = rng.normal(size=(20, D))
    calibrated = staged(rng, ["none", "none"])
    np.testing.assert_array_equal(calibrated.probabilities(X), calibrated.scores(X))
    np.testing.assert_allclose(calibrated.probabilities(X).sum(axis=1), 1)
    linked = staged(rng, ["none"], link="softmax")
    np.testing.assert_allclose(linked.probabilities(X).sum(axis=1), 1)
    with pytest.raises(ValueError, match="has no probabilities"):
        staged(rng, ["none"]).probabilities(X)


def test_label_sets_speak_above_one_half(rng):
    model = staged(rng, ["none", "none"], domain="box", classes=np.arange(K), task="multilabel")
    X = rng.normal(size=(30, D))
    scores = model.scores(X)
    assert model.threshold == 0.5
    assert ((scores > 0) & (scores < 0.5)).any()
    np.testing.assert_array_equal(model.predict(X).toarray(), scores > 0.5)
    np.testing.assert_array_equal(model.predict(X, dense=True), scores > 0.5)


def test_summary_and_names(rng):
    model = staged(rng, ["fourier", "none"], feature_names=np.array(list("abcdef")))
    facts = model.summary()
    assert (facts["n_stages"], facts["n_calibrated"], facts["n_block_features"]) == (2, 1, 9 + D)
    assert facts["blocks"] == ["RandomFourier"]
    assert facts["nbytes"] == 8 * (9 * K + K + D * K + K)
    assert facts["has_feature_names"]
    with pytest.raises(ValueError, match="sparsify is for linear models"):
        model.sparsify()


@pytest.mark.parametrize(
    ("X", "message"),
    [
        (np.zeros((2, 3)), r"X must have shape \(n, 6\)"),
        ([[0.0] * 6], "X must be an array or a CSR matrix, got list"),
        (sp.csc_matrix((2, 6)), "got a csc matrix"),
        (np.full((2, 6), np.nan), "X has NaN or infinity"),
        (np.full((2, 6), "a"), "X must hold real numbers"),
    ],
)
def test_rows_that_do_not_fit(rng, X, message):
    with pytest.raises(ValueError, match=message):
        staged(rng, ["none"]).predict(X)


@pytest.mark.parametrize("size", [1e200, 1e300])
def test_rows_far_beyond_those_of_the_fit_are_named(size):
    X, y = load_iris(return_X_y=True)
    fitted = StagewiseClassifier(RandomPolynomial(20), n_blocks=1, random_state=0).fit(X, y)
    with pytest.raises(ValueError, match=r"X has values up to .*; expected rows of the scale of those of the fit"):
        fitted.predict(X * size)


def test_parts_that_do_not_fit(rng):
    one = Stage(None, np.zeros((D, K)), np.zeros(K))
    other = Stage(None, np.zeros((D, 2)), np.zeros(2))
    kwargs = {"classes": None, "task": "regression"}
    with pytest.raises(ValueError, match="stages must have the same number"):
        StagedModel(((one, other),), D, **kwargs)
    for empty in ((), ((),)):
        with pytest.raises(ValueError, match="members must be non-empty"):
            StagedModel(empty, D, **kwargs)


def test_what_no_file_can_keep(rng, tmp_path):
    X = rng.normal(size=(30, D))
    block = Transformer(PolynomialFeatures(2, include_bias=False)).fit(X)
    stage = Stage(block, np.zeros((block.n_features_out_, K)), np.zeros(K))
    model = StagedModel(((stage,),), D, classes=None, task="regression")
    assert model.scores(X).shape == (30, K)
    with pytest.raises(ValueError, match="pickle"):
        model.save(tmp_path / "a")
    learned = Calibration(lambda scores: scores, np.eye(K), None)
    model = StagedModel(((Stage(None, np.zeros((D, K)), np.zeros(K), learned),),), D, classes=None, task="regression")
    with pytest.raises(ValueError, match=r"callable|function"):
        model.save(tmp_path / "a")
    assert not list(tmp_path.iterdir())


def test_a_damaged_file(rng, tmp_path):
    import json

    from safetensors.numpy import load_file, save_file

    model = staged(rng, ["fourier", "none"])
    model.save(tmp_path / "a")
    arrays = load_file(tmp_path / "a")
    del arrays["crc32"]
    with open(tmp_path / "a", "rb") as file:
        size = int.from_bytes(file.read(8), "little")
        described = json.loads(json.loads(file.read(size))["__metadata__"]["manyclass"])
    described["parts"]["members"][0][0].pop("block")
    save_file(arrays, tmp_path / "b", metadata={"manyclass": json.dumps(described)})
    with pytest.raises(ModelFileError, match="must contain 'block'"):
        load(tmp_path / "b")
    described["kind"] = "forest"
    save_file(arrays, tmp_path / "b", metadata={"manyclass": json.dumps(described)})
    with pytest.raises(ModelFileError, match="a model of kind 'forest'"):
        load(tmp_path / "b")
