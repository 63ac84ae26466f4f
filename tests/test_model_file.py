"""The file of a model: the same predictions to the last bit, and a sentence for whatever is not such a file."""

from __future__ import annotations

import json
import math
import pickle
import struct
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file

from manyclass.models.linear import LinearModel

D, K = 9, 5
LABELS = {
    "int": np.array([-3, 0, 7, 2**62, -(2**63)]),
    "int32": np.arange(K, dtype=np.int32),
    "str": np.array(["", "ä", "日本語", "\U0001f600 \n\t\"'\\", "x" * 5000]),
    "object": np.array(["a", "b", "c", "d", "e"], object),
}


def model_of(layout="dense", dtype=np.float64, labels="str", **more):
    rng = np.random.default_rng(0)
    W = (rng.standard_normal((D, K)) * (rng.random((D, K)) < 0.6)).astype(dtype)
    return LinearModel(
        sp.csr_matrix(W) if layout == "sparse" else W,
        rng.standard_normal(K).astype(dtype),
        LABELS[labels],
        "multiclass",
        "softmax",
        **more,
    )


def rows_of(dtype=np.float64):
    return np.random.default_rng(1).standard_normal((20, D)).astype(dtype)


def weights_equal(one, other):
    if sp.issparse(one):
        return all(np.array_equal(getattr(one, part), getattr(other, part)) for part in ("data", "indices", "indptr"))
    return np.array_equal(one, other)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a model.bin"


@pytest.fixture(params=["dense", "sparse"])
def layout(request):
    return request.param


def parts(path):
    """The header, the description and the bytes of the arrays of a file."""
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    return header, json.loads(header["__metadata__"]["manyclass"]), content[8 + length :]


# --- round trip -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mmap", [True, False])
@pytest.mark.parametrize("labels", ["int", "int32", "str"])
def test_round_trip(path, layout, dtype, labels, mmap):
    model = model_of(layout, dtype, labels)
    model.save(path)
    again = LinearModel.load(path, mmap=mmap)
    assert type(again.weights) is (sp.csr_matrix if layout == "sparse" else np.memmap if mmap else np.ndarray)
    assert again.weights.dtype == again.intercept.dtype == dtype
    assert weights_equal(again.weights, model.weights)
    np.testing.assert_array_equal(again.classes, model.classes)
    assert again.classes.dtype == model.classes.dtype
    assert (again.task, again.link, again.library_version) == (model.task, model.link, model.library_version)
    assert again.feature_names is again.vectorizer is None
    X = rows_of(dtype)
    for held in (X, sp.csr_matrix(X)):
        np.testing.assert_array_equal(again.scores(held), model.scores(held))
        np.testing.assert_array_equal(again.probabilities(held), model.probabilities(held))
        for mine, theirs in zip(again.topk(held, 3), model.topk(held, 3)):
            np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize(
    ("task", "link", "k", "classes"),
    [
        ("binary", "sigmoid", 1, np.array([False, True])),
        ("multilabel", "sigmoid", 3, np.array(["a", "b", "c"])),
        ("regression", "identity", 2, None),
    ],
)
def test_round_trip_of_each_task(path, task, link, k, classes):
    model = LinearModel(np.ones((D, k), np.float32), np.zeros(k, np.float32), classes, task, link)
    model.save(path)
    again = LinearModel.load(path)
    assert (again.task, again.link) == (task, link)
    assert classes is again.classes is None or np.array_equal(again.classes, classes)
    found, expected = again.predict(rows_of()), model.predict(rows_of())
    assert (found != expected).nnz == 0 if task == "multilabel" else np.array_equal(found, expected)


def test_round_trip_of_all_else(path, layout):
    vectorizer = (
        {"kind": "tfidf", "ngram_range": [1, 2], "limit": None},
        {
            "idf": np.linspace(0, 1, 7, dtype=np.float32),
            "vocabulary": np.array(["ä", "b"]),
            "empty": np.zeros((0, 3), np.int16),
            "flag": np.array(True),
            "matrix": np.asfortranarray(np.arange(6, dtype=np.uint16).reshape(2, 3)),
            "strided": np.arange(10)[::3],
        },
    )
    model = model_of(
        layout,
        parameters={"alpha": 1e-4, "weights": {"1": 0.1}, "half a pair": "\ud800", "none": None},
        record={"dual": -math.inf, "history": [[1, 2.5]], "float": np.float32(0.5), "array": np.arange(3)},
        feature_names=np.array([f"Wort {j}" for j in range(D)]),
        vectorizer=vectorizer,
        library_version="0.0.1",
    )
    model.save(path)
    again = LinearModel.load(path)
    assert (
        again.parameters
        == model.parameters
        == {
            "alpha": 1e-4,
            "weights": {"1": 0.1},
            "half a pair": "\ud800",
            "none": None,
        }
    )
    assert again.record == model.record
    assert again.record["dual"] == -math.inf
    assert again.record["array"] == [0, 1, 2]
    assert again.library_version == "0.0.1"
    np.testing.assert_array_equal(again.feature_names, model.feature_names)
    assert again.vectorizer[0] == vectorizer[0]
    assert again.vectorizer[1].keys() == vectorizer[1].keys()
    for name, array in vectorizer[1].items():
        np.testing.assert_array_equal(again.vectorizer[1][name], array)
        assert again.vectorizer[1][name].dtype == array.dtype
        assert again.vectorizer[1][name].shape == array.shape
    second = path.with_name("second")
    again.save(second)
    assert second.read_bytes() == path.read_bytes()


# NumPy drops the NULs at the end of a string: such a label is none.
_LABELS = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)


@given(labels=hnp.arrays(np.dtype("U12"), st.integers(1, 12), elements=_LABELS))
def test_any_strings(tmp_path_factory, labels):
    path = tmp_path_factory.mktemp("labels") / "m"
    k = len(labels)
    LinearModel(np.ones((k, k)), np.zeros(k), labels, "multiclass", feature_names=labels[::-1]).save(path)
    again = LinearModel.load(path)
    np.testing.assert_array_equal(again.classes, labels)
    np.testing.assert_array_equal(again.feature_names, labels[::-1])


@given(labels=hnp.arrays(np.int64, st.integers(1, 8)))
def test_any_integers(tmp_path_factory, labels):
    path = tmp_path_factory.mktemp("labels") / "m"
    k = len(labels)
    LinearModel(np.ones((1, k), np.float32), np.zeros(k, np.float32), labels, "multiclass").save(path)
    np.testing.assert_array_equal(LinearModel.load(path).classes, labels)


def test_labels_kept_as_objects_come_back_as_strings(path):
    model = model_of(labels="object")
    model.save(path)
    assert LinearModel.load(path).classes.tolist() == model.classes.tolist()


def test_sparse_weights_without_a_value(path):
    model = model_of("sparse").sparsify(1e9)
    assert model.n_nonzero == 0
    model.save(path)
    again = LinearModel.load(path)
    np.testing.assert_array_equal(again.predict(rows_of()), model.predict(rows_of()))


def test_wide_indices(path):
    model = model_of("sparse")
    model.weights.indices, model.weights.indptr = (
        array.astype(np.int64) for array in (model.weights.indices, model.weights.indptr)
    )
    model.save(path)
    np.testing.assert_array_equal(LinearModel.load(path).scores(rows_of()), model.scores(rows_of()))


# --- the file itself --------------------------------------------------------------------------------------------------


def test_safetensors_reads_the_file(path, layout):
    model = model_of(layout)
    model.save(path)
    arrays = load_file(path)
    np.testing.assert_array_equal(arrays["intercept"], model.intercept)
    if layout == "dense":
        np.testing.assert_array_equal(arrays["weights"], model.weights)
    else:
        np.testing.assert_array_equal(arrays["weights.data"], model.weights.data)
    text = arrays["classes.text"].tobytes()
    bounds = arrays["classes.offsets"]
    assert [text[a:b].decode() for a, b in zip(bounds[:-1], bounds[1:])] == model.classes.tolist()
    _, description, _ = parts(path)
    assert (description["format"], description["version"], description["kind"]) == ("manyclass-model", 1, "linear")
    assert (description["task"], description["link"], description["shape"]) == ("multiclass", "softmax", [D, K])


@pytest.mark.parametrize("labels", ["int", "str"])
@pytest.mark.parametrize("names", [1, 2, 3])
def test_arrays_are_aligned(path, layout, dtype, labels, names):
    model = model_of(layout, dtype, labels, record={"padding": "x" * names})
    model.save(path)
    header, _, content = parts(path)
    base = path.stat().st_size - len(content)
    del header["__metadata__"]
    for name, entry in header.items():
        assert (base + entry["data_offsets"][0]) % 64 == 0 or name.startswith("pad.")
    weights = LinearModel.load(path).weights
    assert (weights.data if layout == "sparse" else weights).flags.aligned


def test_mapped_weights_are_read_only_and_shared(path, layout):
    model_of(layout).save(path)
    weights = LinearModel.load(path).weights
    for array in (weights.data, weights.indices, weights.indptr) if layout == "sparse" else (weights,):
        assert not array.flags.writeable
        while array.base is not None and not isinstance(array, np.memmap):
            array = array.base
        assert isinstance(array, np.memmap)
    weights = LinearModel.load(path, mmap=False).weights
    assert (weights.data if layout == "sparse" else weights).flags.writeable


def test_a_mapped_model_can_be_pickled_and_saved_over_its_own_file(path, layout):
    model = model_of(layout)
    model.save(path)
    mapped = LinearModel.load(path)
    expected = model.scores(rows_of())
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(mapped)).scores(rows_of()), expected)
    replace(mapped, record={"longer": "x" * 10_000}).save(path)
    np.testing.assert_array_equal(mapped.scores(rows_of()), expected)
    again = LinearModel.load(path)
    np.testing.assert_array_equal(again.scores(rows_of()), expected)
    assert len(again.record["longer"]) == 10_000


def test_saving_and_opening_take_no_memory(path):
    W = np.zeros((2**16, 256))  # 128 MiB, of which no page exists before it is read
    model = LinearModel(W, np.zeros(256), np.arange(256), "multiclass")
    tracemalloc.start()
    model.save(path)
    _, saving = tracemalloc.get_traced_memory()
    tracemalloc.reset_peak()
    again = LinearModel.load(path)
    again.predict(np.zeros((1, 2**16)))
    _, loading = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert saving < W.nbytes / 50
    assert loading < W.nbytes / 50
    assert path.stat().st_size > W.nbytes


def test_nothing_is_left_where_saving_fails(tmp_path):
    path = tmp_path / "m"
    model_of().save(path)
    before = path.read_bytes()
    for bad in (
        replace(model_of(), classes=np.array([1, "a", None, 2, 3], object)),
        replace(model_of(), classes=np.arange(K).astype(complex)),
        model_of(vectorizer=({}, {"when": np.array(["2020-01-01"], "datetime64[D]")})),
        model_of(vectorizer=({}, {"words": np.array([["a"]])})),
        model_of(vectorizer=({}, {"a": np.array(["x"]), "a.text": np.zeros(1)})),
    ):
        with pytest.raises(ValueError, match=r"cannot hold|expected a vector|rename one"):
            bad.save(path)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["m"]
    with pytest.raises(FileNotFoundError):
        model_of().save(tmp_path / "no folder" / "m")


def test_a_record_too_long_for_the_format_is_refused(path):
    with pytest.raises(ValueError, match="expected at most 100000000 in a model file: shorten"):
        model_of(record={"text": "x" * 100_000_001}).save(path)
    assert not path.exists()
