"""Files of arrays and folders with a manifest: what is read is what was written, or there is a sentence."""

from __future__ import annotations

import json
import os
import pickle
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp
from safetensors.numpy import load_file, save_file

from manyclass.io import tensors
from manyclass.io.folder import StoreError, verify
from manyclass.io.store import write_store
from manyclass.io.tensors import FileError, Kind, TensorFile
from manyclass.mips import ExactSearch
from manyclass.models.linear import LinearModel, ModelFileError
from manyclass.models.splitting import split_model
from manyclass.runtime import files
from manyclass.runtime.files import atomic_folder, atomic_path
from tensors import ARRAYS, KIND, assemble, change_array, parts, read, rewrite, same, write

TYPES = "?bBhHeiIfqQd"


@pytest.fixture
def path(tmp_path):
    return tmp_path / "a file"


@pytest.fixture(params=[False, True], ids=["read", "mapped"])
def mmap(request):
    return request.param


# --- round trips ------------------------------------------------------------------------------------------------------


def test_round_trip(path, mmap):
    written = write(path, infinite=-np.inf)
    assert (written.file, written.bytes) == (path.name, path.stat().st_size)
    found = read(path, mmap)
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert same(found[name], array), name
    assert isinstance(found["matrix"], np.memmap) == mmap
    assert found["matrix"].flags.writeable != mmap
    with TensorFile(path, KIND) as file:
        assert file.facts["infinite"] == -np.inf
        assert same(file.window("matrix", 1, 4), ARRAYS["matrix"][1:4])
        assert file.shape("matrix") == (5, 3)
        file.verify()
    again = path.with_name("again")
    assert write(again, infinite=-np.inf).sha256 == written.sha256
    assert again.read_bytes() == path.read_bytes()


@pytest.mark.parametrize("code", TYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (4, 3)])
def test_every_type_and_shape(path, code, shape, mmap):
    array = np.random.default_rng(0).integers(0, 2, shape).astype(code)
    write(path, {"a": array, "b": np.array(array, order="F")})
    assert all(same(found, array) for found in read(path, mmap).values())
    assert same(load_file(path)["b"], array)


_TEXT = st.text(st.characters(exclude_characters="\0"), max_size=9)


@given(words=hnp.arrays(np.dtype("U9"), st.integers(0, 9), elements=_TEXT))
def test_any_strings(words, tmp_path_factory):
    path = tmp_path_factory.mktemp("words") / "a"
    write(path, {"words": words, "objects": words.astype(object)})
    for found in read(path).values():
        assert found.tolist() == words.tolist()


def test_lists_are_one_array(path):
    pieces = [np.full((n, 2), n, np.float32) for n in (3, 0, 1)]
    write(path, {"all": pieces})
    assert same(read(path)["all"], np.concatenate(pieces))


def test_a_file_of_no_arrays(path):
    write(path, {})
    assert read(path) == {}
    verify(path)


def test_arrays_begin_at_multiples_of_64_bytes(path):
    write(path)
    header, _, content = parts(path)
    base = path.stat().st_size - len(content)
    assert base % 64 == 0
    for name, entry in header.items():
        assert name in ("__metadata__",) or name.startswith("pad.") or entry["data_offsets"][0] % 64 == 0


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"a": np.ones(2, complex)}, "a has dtype complex128, which a test file cannot hold"),
        ({"a": np.ones(2, ">f8")}, "cannot hold"),
        ({"a": np.array([1, "b", None], object)}, "cannot hold"),
        ({"a": np.array([["b"]])}, r"strings of shape \(1, 1\); expected a vector"),
        ({"a": np.array(["x"]), "a.text": np.ones(1)}, "rename one"),
        ({"crc32": np.ones(1)}, "rename one"),
        ({"pad.1": np.ones(1)}, "rename one"),
    ],
)
def test_what_cannot_be_stored_is_refused_before_anything_is_written(path, arrays, message):
    with pytest.raises(ValueError, match=message):
        write(path, arrays)
    assert not list(path.parent.iterdir())


# --- damage -----------------------------------------------------------------------------------------------------------


def test_every_byte_of_the_header_counts(path, mmap):
    write(path)
    content = bytearray(path.read_bytes())
    rng = np.random.default_rng(0)
    for place in range(8 + struct.unpack("<Q", content[:8])[0]):
        flip = int(rng.integers(1, 256))
        content[place] ^= flip
        path.write_bytes(content)
        with pytest.raises(FileError, match="a file: "):
            read(path, mmap)
        content[place] ^= flip


def test_every_byte_of_an_array_counts(path, mmap):
    write(path)
    header, _, body = parts(path)
    content = bytearray(path.read_bytes())
    base = len(content) - len(body)
    del header["__metadata__"]
    for name, entry in header.items():
        for place in range(*entry["data_offsets"]):
            content[base + place] ^= 16
            path.write_bytes(content)
            if name != "crc32" and not name.startswith("pad."):
                with pytest.raises(FileError, match=r"a file: the test file is damaged \(.*\): write it again"):
                    read(path, mmap)
            with pytest.raises(FileError, match=r"checksum of .* differs"):
                verify(path)
            content[base + place] ^= 16


def test_cut_short_or_longer(path, mmap):
    write(path)
    content = path.read_bytes()
    for size in [*range(0, len(content), 13), len(content) - 1]:
        path.write_bytes(content[:size])
        with pytest.raises(FileError, match=r"cut short \(it has \d+ .*: write it again"):
            read(path, mmap)
    path.write_bytes(content + b"\0")
    with pytest.raises(FileError, match=f"it has {len(content) + 1} bytes, expected {len(content)}"):
        read(path, mmap)


def test_large_files_are_verified_when_they_are_read_and_on_demand(path, monkeypatch):
    monkeypatch.setattr(tensors, "SMALL", 100)
    write(path)
    content = bytearray(path.read_bytes())
    place = bytes(content).index(ARRAYS["matrix"].tobytes())
    content[place] ^= 1
    path.write_bytes(content)
    assert read(path, mmap=True)["matrix"][0, 0] != 0
    for check in (lambda: read(path), lambda: verify(path)):
        with pytest.raises(FileError, match="the checksum of matrix differs"):
            check()


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["F32", "U8"]),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=5,
)
_SIZES = st.lists(st.integers(-2, 2) | st.sampled_from([2**31, 2**62, 2**63, 2**64]), max_size=40)


@settings(max_examples=300)
@given(data=st.data())
def test_a_crafted_header_is_refused_or_read(data, tmp_path_factory):
    """Checksums are right; types, shapes and places are anything."""
    path = tmp_path_factory.mktemp("crafted") / "a"
    write(path)
    header, described, body = parts(path)
    name = data.draw(st.sampled_from([*header]))
    if name == "__metadata__":
        described[data.draw(st.sampled_from([*described]))] = data.draw(_JSON)
        header[name]["manyclass"] = json.dumps(described)
    elif name != "crc32":
        entry = data.draw(st.sampled_from(["dtype", "shape", "data_offsets"]))
        header[name][entry] = data.draw(_JSON | _SIZES if entry == "shape" else _JSON)
    path.write_bytes(assemble(header, body))
    try:
        read(path)
    except FileError as error:
        assert str(error).startswith(f"{path}: ")  # noqa: PT017
        assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: PT017


def put(place, value):
    def edit(array):
        array[place] = value

    return edit


@pytest.mark.parametrize(
    ("name", "edit", "message"),
    [
        ("sparse.indices", put(0, 5), "sparse: indices run from 0 to 5, expected 0 to 4"),
        ("sparse.indices", put(0, -1), "sparse: indices run from -1"),
        ("sparse.indptr", put(1, 10**6), "sparse: indptr must not decrease, from 0 to"),
        ("words.offsets", put(1, 10**6), "words: the offsets of its strings decrease"),
        ("words.offsets", put(-1, 1), "words: the offsets of its strings do not match"),
        ("words.text", put(0, 0xFF), "words: its strings are not UTF-8"),
    ],
)
def test_indices_and_strings_that_lead_elsewhere(path, name, edit, message, mmap):
    """Written so: checksums are right."""
    write(path)
    change_array(path, name, edit)
    with pytest.raises(FileError, match=message):
        read(path, mmap)


def test_files_of_another_kind(path):
    write(path)
    with pytest.raises(StoreError, match=r"not a shard \(format 'manyclass-test', version 3\): give a shard"):
        read(path, kind=Kind("manyclass-shard", 1, "shard", "give a shard", "", StoreError))
    with pytest.raises(FileError, match=r"has format version 3, written by manyclass .* up to version 2: upgrade"):
        read(path, kind=KIND._replace(version=2))
    with pytest.raises(FileError, match="its description has no valid 'seed'"):
        read(path, kind=KIND._replace(facts={"seed": int}))
    rewrite(path, lambda header, described: described.update(told=3))
    with pytest.raises(FileError, match="its description has no valid 'told'"):
        read(path)
    save_file({"a": np.ones(2)}, path)
    with pytest.raises(FileError, match="a safetensors file, but not a test file: give a test file"):
        read(path)
    save_file({"a": np.ones(2)}, path, {"manyclass": json.dumps(
        {"format": KIND.format, "version": 1, "library_version": "0", "told": "", "arrays": {"a": "array"}}
    )})  # fmt: skip
    assert same(read(path)["a"], np.ones(2))
    with pytest.raises(FileError, match="has no checksums"):
        verify(path)
    with pytest.raises(IsADirectoryError):
        read(path.parent)
    with pytest.raises(FileNotFoundError):
        read(path.with_name("nothing"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_rather_than_waited_for(path):
    os.mkfifo(path)
    with pytest.raises(FileError, match="not a regular file"):
        read(path)


# --- what is stored so ------------------------------------------------------------------------------------------------


def model(W):
    return LinearModel(W, np.zeros(W.shape[1], W.dtype), np.arange(W.shape[1]), "multiclass")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("layout", ["dense", "sparse"])
def test_models_with_weights_that_are_not_finite_are_neither_written_nor_read(path, bad, layout, mmap, monkeypatch):
    W = np.ones((4, 3), np.float32)
    weights, name = (sp.csr_matrix(W), "weights.data") if layout == "sparse" else (W, "weights")
    model(weights).save(path)
    change_array(path, name, put(7, bad))  # its checksum is right
    for check in (lambda: LinearModel.load(path, mmap=mmap), lambda: verify(path)):
        with pytest.raises(FileError, match=rf"{name} has NaN or infinity"):
            check()
    monkeypatch.setattr(tensors, "SMALL", 100)
    assert LinearModel.load(path, mmap=True).n_outputs == 3  # a large file whose weights are mapped
    for check in (lambda: LinearModel.load(path, mmap=False), lambda: verify(path)):
        with pytest.raises(FileError, match=rf"{name} has NaN or infinity"):
            check()
    before = path.read_bytes()
    (weights.data if layout == "sparse" else weights)[2] = bad
    with pytest.raises(ValueError, match="weights has NaN or infinity, which a model file cannot hold: fit again"):
        model(weights).save(path)
    assert path.read_bytes() == before


def test_no_random_byte_of_a_model_is_accepted(path, mmap):
    model(np.random.default_rng(0).standard_normal((40, 7))).save(path)
    content = bytearray(path.read_bytes())
    rng = np.random.default_rng(1)
    header, _, body = parts(path)
    base = len(content) - len(body)
    arrays = [range(*header[name]["data_offsets"]) for name in ("weights", "intercept", "classes")]
    for place in rng.choice(np.concatenate([list(span) for span in arrays]), 200, replace=False) + base:
        flip = 1 << int(rng.integers(8))
        content[place] ^= flip
        path.write_bytes(content)
        with pytest.raises(ModelFileError, match=r"checksum of .* differs"):
            LinearModel.load(path, mmap=mmap)
        content[place] ^= flip


def test_verify_takes_files_and_folders(tmp_path):
    X = sp.random(60, 8, 0.4, format="csr", random_state=0, dtype=np.float32)
    W = np.random.default_rng(0).standard_normal((8, 6))
    model(W).save(tmp_path / "model")
    split_model(model(W), tmp_path / "blocks", block_classes=2)
    write_store(tmp_path / "store", X, np.arange(60) % 3, shard_rows=20)
    ExactSearch().build(W).save(tmp_path / "index")
    for name, n_files in (("model", 1), ("index", 1), ("blocks", 4), ("store", 7)):
        verify(tmp_path / name)
        places = sorted((tmp_path / name).glob("*.safetensors")) or [tmp_path / name]
        assert len(places) == n_files
        for place in places:
            content = place.read_bytes()
            place.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
            with pytest.raises(FileError, match=place.name):
                verify(tmp_path / name)
            place.write_bytes(content)
    with pytest.raises(FileError, match=r"it has no manifest\.json"):
        verify(tmp_path)


# --- writing ----------------------------------------------------------------------------------------------------------


def test_file_and_folder_are_on_disk_before_the_name_counts(path, monkeypatch):
    synced, names, inner = [], [], os.fsync

    def fsync(handle):
        synced.append(os.fstat(handle).st_ino)
        names.append(path.exists())
        inner(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    write(path)
    assert synced == [path.stat().st_ino, path.parent.stat().st_ino]
    assert names == [False, True]
    synced.clear()
    with atomic_folder(path.with_name("folder")) as folder:
        (folder / "a").write_bytes(b"1")
    made = path.with_name("folder")
    assert synced == [(made / "a").stat().st_ino, made.stat().st_ino, path.parent.stat().st_ino]


def test_a_full_disk_leaves_what_was_there(path, monkeypatch):
    write(path)
    before = path.read_bytes()

    def full(handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(path, {"other": np.ones(3)})
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_concurrent_writers_leave_one_whole_file(path):
    def work(number):
        for _ in range(8):
            write(path, {"a": np.full(5000, number)})

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        if path.exists():
            assert len(np.unique(read(path)["a"])) == 1
    for thread in threads:
        thread.join()
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]
    verify(path)


_WRITER = """
import sys, time
from manyclass.runtime.files import atomic_folder, atomic_path
make = atomic_path if sys.argv[1] == "file" else atomic_folder
with make(sys.argv[2]) as temporary:
    (temporary if sys.argv[1] == "file" else temporary / "a").write_bytes(b"x" * 1000)
    print("ready", flush=True)
    time.sleep(60)
"""


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
@pytest.mark.parametrize("what", ["file", "folder"])
def test_the_next_write_removes_what_a_killed_process_has_left(path, what):
    command = [sys.executable, "-c", _WRITER, what, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"ready\n"
        write(path.with_name("other"))
        left = [entry for entry in path.parent.iterdir() if entry.name != "other"]
        assert len(left) == 1  # it still runs: what it writes is let alone
        assert left[0].name.startswith(".a file.")
        writer.send_signal(signal.SIGKILL)
        writer.wait()
    assert left[0].exists()
    write(path.with_name("other"))
    assert [entry.name for entry in path.parent.iterdir()] == ["other"]


_LOOP = """
import sys
import numpy as np
from manyclass.io.tensors import Kind, write_arrays
kind = Kind("manyclass-test", 3, "test file", "", "")
print("ready", flush=True)
for number in range(10**9):
    write_arrays(sys.argv[1], kind, {"a": np.full(200_000, number)}, {"told": ""})
"""


@pytest.mark.skipif(os.name != "posix", reason="needs signals")
def test_a_kill_at_any_moment_leaves_a_whole_file_and_at_most_one_temporary(path):
    rng = np.random.default_rng(0)
    for _ in range(2):
        with subprocess.Popen([sys.executable, "-c", _LOOP, str(path)], stdout=subprocess.PIPE) as writer:
            writer.stdout.readline()
            while not path.exists():
                time.sleep(0.01)
            time.sleep(float(rng.uniform(0, 0.2)))
            writer.kill()
            writer.wait()
        assert len(np.unique(read(path)["a"])) == 1
        assert len([*path.parent.iterdir()]) <= 2
    write(path)
    assert [entry.name for entry in path.parent.iterdir()] == [path.name]


def test_only_temporaries_of_processes_that_are_gone_are_removed(path):
    machine = files._machine()
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    stay = [
        f".x.{machine}-{os.getppid()}-0123456789ab.tmp",  # a process that runs
        f".x.00000000-{gone.pid}-0123456789ab.tmp",  # of another machine
        f".x.{machine}-{gone.pid}-0123456789ab.tmp.txt",
        f"x.{machine}-{gone.pid}-0123456789ab.tmp",
        ".x.tmp",
    ]
    go = [
        f".x.{machine}-{gone.pid}-0123456789ab.tmp",
        f".x.{machine}-{os.getpid()}-0123456789ab.tmp",  # an earlier process of our number, in a container say
    ]
    for name in (*stay, *go):
        path.with_name(name).write_bytes(b"")
    with atomic_path(path) as first:
        first.write_bytes(b"1")
        with atomic_path(path) as second:
            second.write_bytes(b"2")
        assert first.exists()
    assert path.read_bytes() == b"1"
    assert {entry.name for entry in path.parent.iterdir()} == {path.name, *stay}


def test_long_names(tmp_path):
    for name in ("x" * 255, "日" * 85):
        write(tmp_path / name)
        verify(tmp_path / name)


def test_checksums_are_those_of_zlib(path):
    """What other programs may rely on."""
    write(path, {"a": np.arange(3.0)})
    found = load_file(path)
    content = path.read_bytes()
    head = content[: 8 + struct.unpack("<Q", content[:8])[0]]
    assert found["crc32"].tolist() == [zlib.crc32(part) for part in (head, np.arange(3.0).tobytes(), bytes(40))]
