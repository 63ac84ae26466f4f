"""Models in blocks of classes: the predictions of the whole, to the last bit; what is damaged is named."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp

from manyclass import LinearModel, StagedModel, load
from manyclass.io.store import StoreError
from manyclass.models.sharded import ShardedModel
from manyclass.models.splitting import ShardedModelWriter, block_width, sparsify_model, split_model
from manyclass.models.staged import Stage
from tensors import change_manifest

D, K, N = 37, 53, 40
CASES = [("multiclass", "softmax"), ("multiclass", "identity"), ("multiclass", "sigmoid")]
CASES += [("multilabel", "sigmoid"), ("regression", "identity"), ("binary", "sigmoid")]


def model_of(dtype=np.float32, layout="dense", task="multiclass", link="softmax", **more):
    rng = np.random.default_rng(0)
    k = 1 if task == "binary" else K
    W = (rng.normal(size=(D, k)) * (rng.random((D, k)) < 0.5)).astype(dtype)
    W[:, min(5, k - 1)] = W[:, 0]  # equal scores: the lower class comes first, across blocks too
    b = rng.normal(size=k).astype(dtype)
    b[min(5, k - 1)] = b[0]
    classes = None if task == "regression" else np.array([f"c{i}" for i in range(2 if task == "binary" else k)])
    return LinearModel(sp.csr_matrix(W) if layout == "sparse" else W, b, classes, task, link, **more)


def rows_of(kind):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(N, D)).astype(np.float32)
    return X if kind == "dense" else sp.csr_matrix(X * (rng.random(X.shape) < 0.3))


def equal(one, two):
    if sp.issparse(two):
        assert one.dtype == two.dtype
        one, two = one.toarray(), two.toarray()
    assert one.dtype == two.dtype
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize(("task", "link"), CASES)
@pytest.mark.parametrize("layout", ["dense", "sparse"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_predictions_are_those_of_the_whole(tmp_path, task, link, layout, dtype):
    whole = model_of(dtype, layout, task, link)
    split_model(whole, tmp_path / "m", block_classes=7)
    model = load(tmp_path / "m")
    assert isinstance(model, ShardedModel)
    assert len(model.blocks) == -(-whole.n_outputs // 7)
    model.verify()
    for kind in ("dense", "sparse"):
        X = rows_of(kind)
        equal(model.scores(X), whole.scores(X))
        equal(model.scores(X, n_jobs=2), whole.scores(X))
        equal(model.predict(X), whole.predict(X))
        if task == "regression":
            continue
        for k in (1, 2, 9, K):
            if k > len(whole.classes):
                continue
            for found, expected in zip(model.topk(X, k), whole.topk(X, k)):
                equal(found, expected)
            if link != "identity":
                found, expected = model.topk_probabilities(X, k), whole.topk_probabilities(X, k)
                equal(found[0], expected[0])
                np.testing.assert_allclose(found[1], expected[1], rtol=2e-5, atol=1e-12)
        if link != "identity":
            equal(model.probabilities(X), whole.probabilities(X))
    back = model.assemble()
    assert back.is_sparse == whole.is_sparse
    equal(back.weights, whole.weights)
    equal(back.intercept, whole.intercept)


def test_topk_probabilities_of_a_whole_model_are_its_probabilities():
    model, X = model_of(np.float64), rows_of("dense")
    labels, found = model.topk_probabilities(X, 3)
    equal(labels, model.topk(X, 3)[0])
    equal(found, -np.sort(-model.probabilities(X), axis=1)[:, :3])


def test_what_is_not_weights_is_kept_and_can_be_changed(tmp_path):
    names = np.array([f"f{j}" for j in range(D)])
    whole = model_of(parameters={"alpha": 1.0}, record={"outcome": "x"}, feature_names=names)
    split_model(whole, tmp_path / "m", block_bytes=D * 4 * 10)
    model = load(tmp_path / "m")
    assert (model.parameters, model.record) == (whole.parameters, whole.record)
    equal(model.feature_names, names)
    assert model.summary()["n_nonzero"] == whole.summary()["n_nonzero"]
    model.update(record={"outcome": "y"})
    assert load(tmp_path / "m").record == {"outcome": "y"}
    assert len([*(tmp_path / "m").glob("model-*.safetensors")]) == 1
    with pytest.raises(ValueError, match="classes"):
        model.update(classes=np.arange(3))
    assert load(tmp_path / "m").record == {"outcome": "y"}
    load(tmp_path / "m").save(tmp_path / "copy")
    copy = load(tmp_path / "copy")
    copy.verify()
    equal(copy.scores(rows_of("dense")), whole.scores(rows_of("dense")))
    sparsify_model(copy, tmp_path / "sparse")
    sparse = load(tmp_path / "sparse")
    assert sparse.layout == "sparse"
    equal(sparse.assemble().weights, whole.sparsify().weights)
    with pytest.raises(ValueError, match="sparsify_model"):
        sparse.sparsify()


def test_damage_is_named(tmp_path):
    split_model(model_of(), tmp_path / "m", block_classes=20)
    block = tmp_path / "m" / "block-00001.safetensors"
    content = block.read_bytes()
    block.write_bytes(content[:-1] + b"\x7f")
    with pytest.raises(StoreError, match=r"block-00001.safetensors: .*checksum"):
        load(tmp_path / "m").verify()
    block.write_bytes(content[:-4])
    with pytest.raises(StoreError, match=r"block-00001.safetensors: has \d+ bytes, expected"):
        load(tmp_path / "m").predict(rows_of("dense"))
    block.unlink()
    with pytest.raises(StoreError, match=r"block-00001.safetensors: the block is missing"):
        load(tmp_path / "m").predict(rows_of("dense"))
    # A block of another shape, of the right size.
    LinearModel(np.zeros((20, D), np.float32), np.zeros(D, np.float32), None, "regression").save(block)
    size = block.stat().st_size
    change_manifest(tmp_path / "m", lambda facts: facts["blocks"][1]["file"].update(bytes=size))
    with pytest.raises(StoreError, match="as in the manifest"):
        load(tmp_path / "m").predict(rows_of("dense"))
    next((tmp_path / "m").glob("model-*")).write_bytes(b"x")
    with pytest.raises(StoreError, match="model-"):
        load(tmp_path / "m")


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"version": 9}, "upgrade"),
        ({"format": "manyclass-rows"}, "expected a model in blocks"),
        ({"shape": [D, K + 1]}, "do not cover"),
        ({"blocks": [3]}, "damaged"),
    ],
)
def test_a_foreign_or_damaged_manifest_is_refused(tmp_path, facts, said):
    split_model(model_of(), tmp_path / "m", block_classes=20)
    change_manifest(tmp_path / "m", lambda found: found.update(facts))
    with pytest.raises(StoreError, match=said):
        load(tmp_path / "m")


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def write(*blocks):
        with ShardedModelWriter(tmp_path / "m", D, classes=np.arange(6), task="multiclass") as writer:
            for block in blocks:
                writer.add(block, np.zeros(block.shape[1], block.dtype))

    good = np.zeros((D, 3))
    for blocks, said in [
        ((good,), "classes"),  # three labels too many
        ((good, good[:3]), "must have 37 features, got 3"),
        ((good, good.astype(np.float32)), "must be dense float64, as the earlier blocks, got dense float32"),
        ((), "at least one block, got none"),
    ]:
        with pytest.raises(ValueError, match=said):
            write(*blocks)
        assert not any(tmp_path.iterdir())
    write(good, good)
    with pytest.raises(ValueError, match="exists already"):
        write(good, good)


def test_widths_of_blocks():
    assert block_width(10, 100, np.float32, None, 10 * 4 * 30) == 25  # four equal ones rather than 30, 30, 30, 10
    assert block_width(10, 100, np.float64, None, 1) == 1
    assert block_width(10, 100, np.float64, 1000) == 100
    with pytest.raises(ValueError, match="block_classes"):
        block_width(10, 100, np.float64, 0)


def test_only_linear_models_are_split(tmp_path):
    staged = StagedModel(((Stage(None, np.eye(2), np.zeros(2)),),), 2, classes=np.arange(2), task="multiclass")
    with pytest.raises(ValueError, match="LinearModel"):
        split_model(staged, tmp_path / "m")


_SMALL_SPACE = """
import os, resource, sys
import numpy as np
from manyclass import load
model = load(sys.argv[1])
X = np.ones((3, model.n_features), np.float32)
model.block(0), model.topk(X, 2)  # everything is loaded
model._open.clear()
own = int(open("/proc/self/statm").read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (own + (12 << 20),) * 2)
try:
    model.assemble()
except MemoryError as error:
    assert "use the ShardedModel itself" in str(error)
else:
    raise SystemExit("the whole model fits")
print(model.topk(X, 2)[0].tolist(), model.predict(X).tolist())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_AS and /proc")
def test_a_model_larger_than_the_address_space_left_predicts(tmp_path):
    """24 MiB of weights, 12 MiB of space."""
    d, width = 4096, 128
    with ShardedModelWriter(tmp_path / "m", d, classes=np.arange(12 * width), task="multiclass") as writer:
        for block in range(12):
            writer.add(np.full((d, width), block, np.float32), np.arange(width, dtype=np.float32))
    command = [sys.executable, "-c", _SMALL_SPACE, str(tmp_path / "m")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    best = 12 * width - 1
    assert done.stdout.strip() == f"{[[best, best - 1]] * 3} {[best] * 3}"
