"""Whatever is not a whole model file of a known format is refused with a sentence."""

from __future__ import annotations

import pickle
import re
import struct

import numpy as np
import pytest
import scipy.sparse as sp
from safetensors.numpy import save_file

from manyclass.models.file import MODEL
from manyclass.models.linear import LinearModel, ModelFileError
from tensors import change_array, parts, rewrite

D, K = 9, 5


def model_of(layout="dense", dtype=np.float64, classes=("", "ä", "日本語", "d", "e" * 50)):
    rng = np.random.default_rng(0)
    W = (rng.standard_normal((D, K)) * (rng.random((D, K)) < 0.6)).astype(dtype)
    weights = sp.csr_matrix(W) if layout == "sparse" else W
    return LinearModel(weights, rng.standard_normal(K).astype(dtype), np.array(classes), "multiclass", "softmax")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a model.bin"


@pytest.fixture(params=["dense", "sparse"])
def layout(request):
    return request.param


def refusal(path):
    """The sentence with which a file is refused."""
    with pytest.raises(ModelFileError) as caught:
        LinearModel.load(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert str(pickle.loads(pickle.dumps(caught.value))) == message
    return message


@pytest.mark.parametrize("mmap", [True, False])
def test_cut_short_anywhere(path, layout, mmap):
    model_of(layout, np.float32).save(path)
    content = path.read_bytes()
    for size in [*range(0, 40), *range(40, len(content), 37), *range(len(content) - 20, len(content))]:
        path.write_bytes(content[:size])
        with pytest.raises(ModelFileError, match=r"a model\.bin: the model file is cut short .*: copy it again"):
            LinearModel.load(path, mmap=mmap)


def test_something_at_the_end(path):
    model_of().save(path)
    path.write_bytes(path.read_bytes() + b"\0" * 8)
    assert "damaged" in refusal(path)


@pytest.mark.parametrize(
    "content",
    [
        b"1 1:0.5 3:1.2\n-1 2:1\n",
        b"\x80\x04\x95" + b"\0" * 100,
        b"PK\x03\x04" + b"\0" * 100,
        b"\x93NUMPY\x01\0" + b"{" * 100,
        struct.pack("<Q", 50) + b"[" * 50,
        b"\0" * 100,
    ],
)
def test_another_file(path, content):
    path.write_bytes(content)
    assert "not a model file: give a file that LinearModel.save" in refusal(path)


def test_another_safetensors_file(path):
    save_file({"weights": np.zeros((2, 2))}, path)
    assert "a safetensors file, but not a model file" in refusal(path)
    save_file({"weights": np.zeros((2, 2))}, path, metadata={"format": "pt"})
    assert "a safetensors file, but not a model file" in refusal(path)


def test_no_file_and_a_folder(tmp_path):
    with pytest.raises(FileNotFoundError):
        LinearModel.load(tmp_path / "nothing")
    with pytest.raises(OSError, match=re.escape(str(tmp_path))):
        LinearModel.load(tmp_path)


def test_a_newer_format(path):
    model_of().save(path)

    def change(header, description):
        # What else a later version may have changed must not matter.
        description.clear()
        description.update(format=MODEL.format, version=MODEL.version + 1, library_version="9.1")
        header["weights"]["dtype"] = "F4_X9"

    rewrite(path, change)
    assert (
        "has format version 2, written by manyclass 9.1, and this manyclass reads up to version 1: upgrade"
        in refusal(path)
    )


def of_header(name, **entries):
    return lambda header, description: header[name].update(entries)


def of_description(**entries):
    return lambda header, description: description.update(entries)


def without(name):
    def change(header, description):
        del description[name]

    return change


def no_place(header, description):
    del header["weights"]["data_offsets"]


def no_weights(header, description):
    del description["arrays"]["weights"]


def renamed(old, new):
    def change(header, description):
        header[new] = header.pop(old)

    return change


DENSE_DAMAGE = {
    "shape of the weights": (of_header("weights", shape=[K, D]), r"weights have shape \(5, 9\), expected \(9, 5\)"),
    "described shape": (of_description(shape=[D, K + 1]), r"weights have shape \(9, 5\), expected \(9, 6\)"),
    "described shape not numbers": (of_description(shape=[D, "5"]), r"the weights have shape \[9, '5'\]"),
    "described shape of zero": (of_description(shape=[D, 0]), r"the weights have shape \[9, 0\]"),
    "one dimension": (of_header("weights", shape=[D * K]), r"weights have shape \(45,\), expected \(9, 5\)"),
    "size of the weights": (of_header("weights", shape=[D, K + 1]), "damaged"),
    "negative shape": (of_header("weights", shape=[-D, -K]), "damaged"),
    "huge shape": (of_header("weights", shape=[2**40, 2**40]), "damaged"),
    "dtype of the weights": (of_header("weights", dtype="I64"), "weights must be float32 or float64"),
    "unknown dtype": (of_header("weights", dtype="F63"), "damaged"),
    "dtype numpy has not": (of_header("weights", dtype="BF16", shape=[D, K * 4]), "damaged|has type BF16"),
    "dtype of the intercept": (of_header("intercept", dtype="U64"), "intercept must be an array of float64"),
    "shape of the intercept": (of_header("intercept", shape=[1, K]), "intercept must be an array of float64"),
    "dtype of the offsets": (of_header("classes.offsets", dtype="F64"), "the offsets of its strings do not match"),
    "places swapped": (of_header("weights", data_offsets=[8, 368]), "damaged"),
    "no place": (no_place, "damaged"),
    "place is no list": (of_header("weights", data_offsets="here"), "damaged"),
    "entry is no object": (lambda header, description: header.update(weights=3), "damaged"),
    "no weights": (renamed("weights", "wights"), r"arrays missing: \['weights'\], arrays unknown: \['wights'\]"),
    "no intercept": (renamed("intercept", "bias"), r"arrays missing: \['intercept'\]"),
    "no labels": (renamed("classes.text", "classes.txt"), r"arrays missing: \['classes.text'\]"),
    "weights not described": (no_weights, r"arrays unknown: \['weights'\]"),
    "weights as text": (
        of_description(arrays={"weights": "text", "intercept": "array"}),
        "missing: .*weights.text",
    ),
    "unknown array": (
        of_description(arrays={"weights": "array", "intercept": "array", "x": "array"}),
        r"missing: \['x'\]",
    ),
    "kind no string": (of_description(arrays={"weights": ["array"], "intercept": "array"}), "describes arrays wrongly"),
    "classes of a regression": (of_description(task="regression", link="identity"), "classes of a regression model"),
    "unknown task": (of_description(task="ranking"), "task must be one of"),
    "unknown link": (of_description(link="probit"), "link of a multiclass model must be one of"),
    "no task": (without("task"), "its description has no valid 'task'"),
    "task no string": (of_description(task=3), "its description has no valid 'task'"),
    "no arrays": (without("arrays"), "its description has no valid 'arrays'"),
    "no shape": (without("shape"), "its description has no valid 'shape'"),
    "no record": (without("record"), "its description has no valid 'record'"),
    "parameters no dict": (of_description(parameters=[1]), "its description has no valid 'parameters'"),
    "no vectorizer": (without("vectorizer"), "its description has no valid 'vectorizer'"),
    "other format": (of_description(format="other"), "format 'other', version 1"),
    "no version": (without("version"), "version None"),
    "version zero": (of_description(version=0), "version 0"),
    "version no integer": (of_description(version=True), "version True"),
}


@pytest.mark.parametrize("case", DENSE_DAMAGE)
def test_a_wrong_header(path, case):
    change, message = DENSE_DAMAGE[case]
    model_of().save(path)
    rewrite(path, change)
    found = refusal(path)
    assert re.search(message, found), found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{ ", "its header is not JSON"),
        (b"{]", "its header is not JSON"),
        (b'{"a": "\xff"}', "its header is not JSON"),
        (b'{"a": ' + b"[" * 100_000, "its header is not JSON"),
        (b'{"__metadata__": {"manyclass": "{"}}', "its description is not JSON"),
        (b'{"__metadata__": {"manyclass": "[]"}}', "its description is not a JSON object"),
        (b'{"__metadata__": {"manyclass": 3}}', "but not a model file"),
        (b'{"__metadata__": 3}', "but not a model file"),
        (b"{}", "but not a model file"),
    ],
)
def test_a_header_that_is_none(path, text, message):
    path.write_bytes(struct.pack("<Q", len(text)) + text)
    assert message in refusal(path)


def test_any_byte_of_the_header_changed(path, layout):
    """Either a sentence, or a model that predicts the same: no other error, and no other scores."""
    model_of(layout, classes=range(K)).save(path)
    X, content = np.random.default_rng(1).standard_normal((20, D)), path.read_bytes()
    expected = LinearModel.load(path).scores(X)
    (length,) = struct.unpack("<Q", content[:8])
    rng = np.random.default_rng(2)
    refused = 0
    for position in range(8 + length):
        changed = bytearray(content)
        changed[position] ^= int(rng.integers(1, 256))
        path.write_bytes(changed)
        try:
            found = LinearModel.load(path)
        except ModelFileError:
            refused += 1
        else:
            np.testing.assert_array_equal(found.scores(X), expected)
    assert refused > length / 2


def put(position, value):
    def edit(array):
        array[position] = value

    return edit


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("weights.indptr", put(3, 10**6), "indptr must not decrease, from 0 to"),
        ("weights.indptr", put(0, 1), "indptr must not decrease, from 0 to"),
        ("weights.indptr", put(-1, 1), "indptr must not decrease, from 0 to"),
        ("weights.indptr", put(2, -1), "indptr must not decrease, from 0 to"),
        ("weights.indices", put(4, K), f"indices run from 0 to {K}, expected 0 to {K - 1}"),
        ("weights.indices", put(4, -1), "indices run from -1 to"),
        ("classes.offsets", put(2, 10**6), "classes: the offsets of its strings decrease"),
        ("classes.offsets", put(0, 1), "classes: the offsets of its strings do not match"),
        ("classes.offsets", put(-1, 1), "classes: the offsets of its strings do not match"),
        ("classes.text", put(0, 0xFF), "classes: its strings are not UTF-8"),
    ],
)
def test_wrong_indices_and_strings(path, name, edit, message):
    model_of("sparse").save(path)
    change_array(path, name, edit)
    assert message in refusal(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (of_description(shape=[D + 1, K]), rf"indptr has shape \({D + 1},\), expected \({D + 2},\)"),
        (of_description(shape=[D, K - 1]), f"expected 0 to {K - 2}"),
        (of_description(shape=[D, 2**62]), "intercept must be an array of float64"),
        (of_description(shape=[D, 2**63]), "the weights have shape"),
        (of_header("weights.data", shape=[1, 25]), r"data has shape \(1, 25\)"),
        (of_header("weights.data", dtype="I64"), "weights must be float32 or float64"),
        (of_header("weights.indices", dtype="F32"), "indices of type float32 and int32"),
        (renamed("weights.indptr", "weights.pointers"), r"arrays missing: \['weights.indptr'\]"),
    ],
)
def test_wrong_shapes_and_types_of_sparse_weights(path, change, message):
    model_of("sparse").save(path)
    assert parts(path)[0]["weights.data"]["shape"] == [25]
    rewrite(path, change)
    found = refusal(path)
    assert re.search(message, found), found
