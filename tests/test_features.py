"""Feature blocks: row by row, the same from their state, refusals by name."""

from __future__ import annotations

import json
import math
import pickle
import warnings

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.kernel_approximation import Nystroem
from sklearn.utils.estimator_checks import parametrize_with_checks

from blocks import BLOCKS, SHAPE, D, dense, labels, rows
from manyclass import features
from manyclass.features import (
    Chain,
    FeatureBlock,
    FeatureSubset,
    KMeansPatches,
    PrincipalComponents,
    RandomFourier,
    RandomLogits,
    RandomPatches,
    RandomPolynomial,
    Transformer,
    fresh,
    from_state,
    to_state,
)


@pytest.fixture(params=BLOCKS)
def block(request: pytest.FixtureRequest) -> FeatureBlock:
    return clone(BLOCKS[request.param])


# --- scikit-learn -----------------------------------------------------------------------------------------------------


@parametrize_with_checks(
    [
        RandomFourier(8),
        RandomLogits(8),
        RandomPolynomial(6, degree=3),
        FeatureSubset(1),
        FeatureSubset(1, order="gradient"),
        FeatureSubset(1, order="frequency"),
        PrincipalComponents(1),
        PrincipalComponents(1, whiten=True),
        RandomPatches(3, patch=2),
        KMeansPatches(2, patch=2, activation="triangle", expand="products"),
        Chain(PrincipalComponents(1), RandomFourier(5)),
        Transformer(Nystroem(n_components=5)),
    ]
)
def test_scikit_learn_checks(estimator, check):
    with warnings.catch_warnings():
        # Nystroem warns where a check has fewer rows than components.
        warnings.filterwarnings("ignore", message="n_components > n_samples")
        check(estimator)


# --- properties of all blocks ---------------------------------------------------------------------------------------


def test_a_block_is_what_the_protocol_asks(block):
    assert not hasattr(block, "n_features_in_")
    block.fit(rows(), labels())
    assert isinstance(block, FeatureBlock)
    made = block.transform(rows())
    assert made.shape == (60, block.n_features_out_)
    assert len(set(block.get_feature_names_out())) == block.n_features_out_
    assert np.isfinite(dense(made)).all()
    assert np.ptp(dense(made), axis=0).max() > 0


def test_chunks_are_the_whole(block):
    X = rows()
    block.fit(X, labels())
    whole = block.transform(X)
    chunks = [block.transform(X[b : b + 13]) for b in range(0, 60, 13)]
    np.testing.assert_allclose(np.vstack(chunks), whole, rtol=1e-9, atol=1e-12)
    for b, chunk in zip(range(0, 60, 13), chunks):
        np.testing.assert_array_equal(block.transform(X[b : b + 13]), chunk)


def test_sparse_rows_are_dense_rows(block):
    X = rows()
    X[X < 0.4] = 0
    one, other = clone(block).fit(X, labels()), block.fit(sp.csr_matrix(X), labels())
    made = other.transform(sp.csr_matrix(X))
    assert sp.issparse(made) == isinstance(block, FeatureSubset)
    np.testing.assert_allclose(dense(made), one.transform(X), rtol=1e-6, atol=1e-8)
    np.testing.assert_allclose(dense(one.transform(sp.csr_matrix(X))), one.transform(X), rtol=1e-9, atol=1e-11)


def test_memory_mapped_rows_are_rows(block, tmp_path):
    X = rows(dtype=np.float32)
    np.save(tmp_path / "X.npy", X)
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    made = block.fit(mapped, labels()).transform(mapped)
    assert not isinstance(made, np.memmap)
    np.testing.assert_array_equal(made, clone(block).fit(X, labels()).transform(X))


def test_single_precision_is_near_double(block):
    X = rows(dtype=np.float32)
    one, other = clone(block).fit(X, labels()), block.fit(X.astype(np.float64), labels())
    made, exact = one.transform(X), other.transform(X.astype(np.float64))
    assert (made.dtype, exact.dtype) == (np.float32, np.float64)
    np.testing.assert_allclose(made, exact, rtol=2e-3, atol=2e-4 * np.abs(exact).max())
    # The same fitted block takes both.
    assert other.transform(X).dtype == np.float32
    np.testing.assert_allclose(other.transform(X), exact, rtol=2e-3, atol=2e-4 * np.abs(exact).max())


def test_small_integers_are_taken_as_they_are(block):
    X = np.random.default_rng(1).integers(0, 200, (60, D)).astype(np.uint8)
    made = block.fit(X, labels()).transform(X)
    assert made.dtype == np.float32
    np.testing.assert_array_equal(made, block.transform(X.astype(np.float32)))


@pytest.mark.parametrize("name", features.BLOCKS)
def test_blocks_by_name(name):
    block = features.make_block(name)
    assert type(block) is features.BLOCKS[name]
    assert block.get_params() == features.BLOCKS[name]().get_params()
    assert features.make_block(f"{name}:7").get_params() == features.BLOCKS[name](n_components=7).get_params()
    assert features.make_block(block) is block
    # By the name of the class, and of other libraries: told, not taken.
    with pytest.raises(ValueError, match=rf"did you mean '{name}'\?"):
        features.make_block(type(block).__name__)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("furier", r"features must be one of 'fourier', .*, or a block of features, got 'furier': did you mean"),
        ("rff:100", r"did you mean 'fourier'\?"),
        ("svd", r"did you mean 'pca'\?"),
        ("wavelets", "got 'wavelets'$"),
        ("", "got ''$"),
        ("pca:", "features must have a number of features of at least 1 after the colon, got 'pca:'"),
        ("pca:0", "got 'pca:0'"),
        ("pca:-3", "got 'pca:-3'"),
        ("pca:1.5", "got 'pca:1.5'"),
        ("pca:20:30", "got 'pca:20:30'"),
        ("pca: 20", "got 'pca: 20'"),
    ],
)
def test_names_of_no_block_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        features.make_block(text)
    with pytest.raises(ValueError, match=r"^prepare must"):
        features.make_block(text, "prepare")


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_a_state_makes_the_same_features(block, kind):
    X = rows(dtype=kind)
    block.fit(X, labels())
    expected = block.transform(X)
    spec, arrays = to_state(block)
    kept = {name: array.copy() for name, array in arrays.items()}
    again = from_state(json.loads(json.dumps(spec)), kept)
    assert type(again) is type(block)
    assert again.n_features_out_ == block.n_features_out_
    np.testing.assert_array_equal(again.transform(X), expected)
    # And the state of that one is the same state.
    spec_again, arrays_again = again.to_state()
    assert json.dumps(spec_again) == json.dumps(spec)
    assert arrays_again.keys() == arrays.keys()


def test_random_matrices_are_kept_nowhere():
    d, p = 200, 1500
    X = np.random.default_rng(0).normal(size=(50, d))
    for block in (RandomFourier(p), RandomLogits(p), RandomPolynomial(p)):
        block.set_params(random_state=3).fit(X)
        expected = block.transform(X[:5])
        assert sum(array.nbytes for array in block.to_state()[1].values()) <= 8 * 2 * p
        assert len(pickle.dumps(block)) < 4 * d * p / 10
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(block)).transform(X[:5]), expected)
        block.release()
        assert not block._drawn
        np.testing.assert_array_equal(block.transform(X[:5]), expected)


def test_seeds_decide(block):
    X = rows()
    same = [clone(block).fit(X, labels()).transform(X) for _ in range(2)]
    np.testing.assert_array_equal(*same)
    one, other = (fresh(block, seed).fit(X, labels()).transform(X) for seed in (1, 2))
    again = fresh(block, 1).fit(X, labels()).transform(X)
    np.testing.assert_array_equal(one, again)
    random = isinstance(block, Chain) or getattr(block, "order", "random") == "random"
    if random and "random_state" in block.get_params(deep=False):
        assert not np.array_equal(one, other)


def test_refitting_forgets(block):
    X = rows()
    expected = clone(block).fit(X, labels()).transform(X)
    block.fit(rows(40, seed=5), labels(40))
    np.testing.assert_array_equal(block.fit(X, labels()).transform(X), expected)


def test_unfitted_blocks_say_so(block):
    with pytest.raises(NotFittedError):
        block.transform(rows())
    with pytest.raises(NotFittedError):
        to_state(block)


# --- damaged states ---------------------------------------------------------------------------------------------------


def test_a_damaged_state_is_refused(block):
    spec, arrays = to_state(block.fit(rows(), labels()))
    with pytest.raises(ValueError, match="the state must be of one of"):
        from_state({**spec, "block": "os.system"}, arrays)
    with pytest.raises(ValueError, match="damaged"):
        from_state({**spec, "parameters": None}, arrays)
    with pytest.raises(ValueError, match="damaged"):
        from_state({**spec, "parameters": {**spec["parameters"], "surprise": 1}}, arrays)
    for name in arrays:
        with pytest.raises(ValueError, match="damaged"):
            from_state(spec, {key: array for key, array in arrays.items() if key != name})
        with pytest.raises(ValueError, match="damaged"):
            from_state(spec, {**arrays, name: arrays[name][:-1]})
        spoilt = arrays[name].astype(np.float64)
        spoilt.flat[0] = np.nan
        with pytest.raises(ValueError, match="damaged"):
            from_state(spec, {**arrays, name: spoilt})


def test_fitted_numbers_are_looked_at():
    spec, arrays = to_state(RandomLogits(5, random_state=0).fit(rows()))
    for name, value in (("radius_", math.nan), ("radius_", "1"), ("n_features_in_", 0), ("seed_", None)):
        with pytest.raises(ValueError, match=r"damaged|at least 1"):
            from_state({**spec, "fitted": {**spec["fitted"], name: value}}, arrays)
    with pytest.raises(ValueError, match="expected"):
        from_state({**spec, "fitted": {**spec["fitted"], "more": 1}}, arrays)


def test_other_random_numbers_are_refused():
    spec, arrays = to_state(RandomFourier(5, random_state=0).fit(rows()))
    block = from_state({**spec, "fitted": {**spec["fitted"], "seed_": spec["fitted"]["seed_"] + 1}}, arrays)
    with pytest.raises(ValueError, match="draws other random numbers"):
        block.transform(rows())


def test_indices_of_a_subset_must_be_features():
    spec, _ = to_state(FeatureSubset(3, random_state=0).fit(rows()))
    for wrong in ([0, 1, D], [-1, 0, 1], [2, 1, 3], [1, 1, 2]):
        with pytest.raises(ValueError, match="damaged"):
            from_state(spec, {"indices_": np.array(wrong)})


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (RandomFourier(0), r"'n_components' parameter of RandomFourier must be an int in the range \[1, inf\). Got 0"),
        (RandomFourier(True), "n_components must be a number, got True"),
        (
            RandomFourier(3, scale="mean"),
            "'scale' parameter .* must be a float .* or a str among {'median'}. Got 'mean'",
        ),
        (RandomFourier(3, bandwidth=0.0), r"'bandwidth' parameter .* \(0.0, inf\)"),
        (RandomLogits(3, scale=-1.0), r"'scale' parameter .* \(0.0, inf\)"),
        (RandomPolynomial(3, degree=9), r"'degree' parameter .* must be an int in the range \[1, 8\]. Got 9"),
        (RandomPolynomial(3, constant=-1.0), r"'constant' parameter .* \[0.0, inf\)"),
        (FeatureSubset(3, order="best"), "'order' parameter .* must be a str among .* Got 'best'"),
        (FeatureSubset(3, reorder="never"), "'reorder' parameter .* must be a str among"),
        (FeatureSubset(3, start=D), f"start must be less than the {D} features"),
        (FeatureSubset(3, order="gradient"), "y must be given"),
        (PrincipalComponents(D + 1), f"n_components must be at most the {D} features"),
        (PrincipalComponents(2, whiten=1), "'whiten' parameter .* must be an instance of 'bool'"),
        (RandomPatches(3, shape=(5, 5)), "shape must be None or"),
        (RandomPatches(3, shape=(5, 5, 3)), f"shape must have as many pixel values as X has features, {D}"),
        (RandomPatches(3, shape=SHAPE, activation="relu"), "'activation' parameter .* must be a str among"),
        (RandomPatches(3, shape=SHAPE, expand="cubes"), "'expand' parameter .* must be None or a str among"),
        (RandomPatches(3, shape=SHAPE, power=0.0), r"'power' parameter .* \(0.0, inf\)"),
        (RandomPatches(3, shape=SHAPE, mirror=1), "'mirror' parameter .* must be an instance of 'bool' .* Got 1"),
        (RandomLogits(3, n_odd=-1), r"'n_odd' parameter .* \[0, inf\)"),
        (
            RandomPatches(3, shape=SHAPE, contrast=0),
            r"'contrast' parameter .* must be None or a float .* \(0.0, inf\)",
        ),
        (KMeansPatches(30, shape=SHAPE, n_patches=20), "n_filters must be at most the 20 patches"),
        (KMeansPatches(3, shape=SHAPE, n_jobs=0), "n_jobs must be"),
        (Chain(3, RandomFourier(2)), "'first' parameter of Chain must be an object implementing 'transform'"),
        (Transformer(3), "'estimator' parameter of Transformer must be an object implementing 'fit' and 'transform'"),
    ],
)
def test_wrong_parameters_are_named(block, message):
    with pytest.raises(ValueError, match=message):
        block.fit(rows())


def test_weights_that_do_not_fit_are_refused(monkeypatch):
    from manyclass.runtime import memory

    monkeypatch.setattr(memory, "available", lambda: 10_000)
    for block in (RandomFourier(400), RandomLogits(400), RandomPolynomial(400), PrincipalComponents(2)):
        with pytest.raises(MemoryError, match="to make it fit"):
            block.fit(rows())


def test_public_names():
    import manyclass

    for name in features.__all__:
        assert getattr(features, name) is not None
    assert manyclass.RandomFourier is RandomFourier
