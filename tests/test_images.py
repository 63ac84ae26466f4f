"""Settings for images: any shape, one seed, parameters that replace them, the same in the command line."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_digits

from manyclass import StagewiseClassifier, load
from manyclass.features import Chain, KMeansPatches, Nystrom, PrincipalComponents
from manyclass.io import read
from test_cli_support import make, refused, run

SMALL = {"block_size": 100, "n_blocks": 2, "random_state": 0}


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    return X / 16, y


def test_small_digits_are_told_apart(digits):
    X, y = digits
    model = StagewiseClassifier.for_images((8, 8, 1), block_size=300, n_blocks=2, random_state=0)
    assert model.fit(X[:1000], y[:1000]).score(X[1000:], y[1000:]) > 0.95


@pytest.mark.parametrize("shape", [(2, 2, 1), (5, 7, 3), (1, 9, 1), (9, 11, 2), (28, 28, 1)], ids=str)
def test_every_shape_is_fitted_and_a_seed_decides_all(shape):
    rng = np.random.default_rng(0)
    X, y = rng.random((300, int(np.prod(shape)))), np.arange(300) % 3
    one, other = (StagewiseClassifier.for_images(shape, **SMALL).fit(X, y) for _ in range(2))
    np.testing.assert_array_equal(one.predict(X), other.predict(X))
    assert one.n_stages_ == [2]


def test_the_settings_are_those_that_were_measured():
    """`ls_mnist_features` and `ls_cifar` in the benchmarks."""
    gray, color = (StagewiseClassifier.for_images(shape) for shape in ((28, 28, 1), (32, 32, 3)))
    assert (gray.prepare.first.n_filters, gray.prepare.second.n_components, gray.block_size) == (100, 300, 2048)
    assert (gray.n_blocks, gray.alpha, gray.update) == (4, 1e-5, "calibrated")
    assert (color.prepare.first.patch, color.prepare.first.mirror, color.features.n_odd) == (9, True, 500)
    assert color.prepare.second.n_odd == 2 * 200 * 9
    assert StagewiseClassifier.for_images([28, 28, 1], n_blocks=7, alpha=0.1).get_params()["n_blocks"] == 7


@pytest.mark.parametrize("shape", [(28, 28), (28, 28, 0), "28x28", None, (28.0, 28, 1), 28, np.eye(5)])
def test_other_shapes_are_refused(shape):
    with pytest.raises(ValueError, match=r"shape must be \(height, width, channels\), such as \(28, 28, 1\)"):
        StagewiseClassifier.for_images(shape)


@pytest.mark.parametrize("channels", [None, 1, 3])
@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_images_are_the_rows_of_their_pixels(tmp_path, dtype, channels):
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, size=(200, 6, 7) if channels is None else (200, 6, 7, channels)).astype(dtype)
    y, shape = np.arange(200) % 3, (6, 7, channels or 1)
    rows = images.reshape(200, -1).astype(np.float64 if dtype == np.float64 else np.float32)
    model = StagewiseClassifier.for_images(images, early_stopping=True, **SMALL)
    assert model.get_params()["prepare"].first.shape == shape
    model.fit(images, y, X_val=images[:50], y_val=y[:50])
    plain = StagewiseClassifier.for_images(shape, early_stopping=True, **SMALL)
    plain.fit(rows, y, X_val=rows[:50], y_val=y[:50])
    assert model.n_features_in_ == rows.shape[1]
    errors = [[record.validation_error for record in fitted.stage_records_] for fitted in (model, plain)]
    assert errors[0] == errors[1]
    for given in (images, rows):
        np.testing.assert_array_equal(model.predict_proba(given), plain.predict_proba(rows))
        assert model.score(given, y) == plain.score(rows, y)
    model.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").predict(images), model.predict(images))


def test_images_of_another_shape_are_refused(digits):
    X, y = digits
    images = X.reshape(-1, 8, 8)
    model = StagewiseClassifier.for_images(images, **SMALL).fit(images[:300], y[:300])
    for wrong in (images[:, :7], np.repeat(images[..., None], 3, axis=3), images.reshape(-1, 4, 16)):
        with pytest.raises(ValueError, match=r"X must have images of shape \(8, 8, 1\), .* got \("):
            model.predict(wrong)
        with pytest.raises(ValueError, match=r"X must have images of shape \(8, 8, 1\), .* got \("):
            model.model_.predict(wrong)
    with pytest.raises(ValueError, match=r"X_val must have images of shape \(8, 8, 1\)"):
        model.fit(images, y, X_val=images[:, :7], y_val=y)
    colors = StagewiseClassifier.for_images((32, 32, 3))
    with pytest.raises(ValueError, match=r"got \(3, 32, 32\): move the axes \(channels last\)"):
        colors.fit(np.zeros((4, 3, 32, 32), np.uint8), [0, 1, 0, 1])
    with pytest.raises(ValueError, match="dim 3"):
        StagewiseClassifier().fit(images, y)  # of no known shape


def test_a_chain_gives_seeds_to_both_of_its_blocks(digits):
    X, _ = digits
    for first in (KMeansPatches(20, shape=(8, 8, 1)), PrincipalComponents(20)):
        chains = [Chain(first, Nystrom(10), random_state=seed).fit(X) for seed in (0, 0, 1)]
        made = [chain.transform(X[:50]) for chain in chains]
        np.testing.assert_array_equal(made[0], made[1])
        assert not np.array_equal(made[0], made[2])


def test_the_command_line_has_the_same_settings(tmp_path, capsys):
    path, model = make("svm", tmp_path), tmp_path / "m"
    ran = run(capsys, "fit", path, "-o", model, "--images", "8,8,1", "--set", "block_size=100", "--set", "n_blocks=2")
    assert ran.code == 0, ran.err
    data = read(path)
    expected = StagewiseClassifier.for_images((8, 8, 1), **SMALL).fit(data.X, data.y)
    np.testing.assert_array_equal(load(model).predict(data.X), expected.predict(data.X))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--images 8,8", "invalid height, width and channels value: '8,8'"),
        ("--images 8,8,0", "invalid height, width and channels value: '8,8,0'"),
        ("--images 8,8,1 --estimator calibrated", "classes, got --estimator calibrated: leave one of them out"),
        ("--images 8,8,1 --loss squared", "classes, got numbers to predict: leave one of them out"),
    ],
)
def test_what_images_do_not_go_with(capsys, tmp_path, words, said):
    refused(run(capsys, "fit", make("svm", tmp_path), "-o", tmp_path / "m", *words.split()), said)
