"""Row stores: what is read is what was written, window by window; what is wrong is named; there is no half a store."""

from __future__ import annotations

import os

import numpy as np
import pytest
import scipy.sparse as sp

from manyclass.io import DataFormatError, read
from manyclass.io.store import RowStore, RowStoreWriter, StoreError, folder_format, write_store
from manyclass.io.store.rows import ROWS
from manyclass.io.tensors import ALIGNMENT, TensorFile
from tensors import change_array, change_manifest

N, D = 103, 17


def rows_of(layout, dtype=np.float32, index=np.int32):
    X = sp.random(N, D, 0.3, format="csr", random_state=0, dtype=dtype)
    if layout == "dense":
        return X.toarray()
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    return X


def same(one, two):
    """Equal to the last bit, types and all."""
    if sp.issparse(two):
        assert one.shape == two.shape
        for name in ("data", "indices", "indptr"):
            a, b = getattr(one, name), getattr(two, name)
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)
    else:
        assert one.dtype == two.dtype
        np.testing.assert_array_equal(one, two)


KINDS = [("dense", t, np.int32) for t in (np.float32, np.float64)]
KINDS += [("csr", t, i) for t in (np.float32, np.float64) for i in (np.int32, np.int64)]


def cut(X, begin, end):
    """Rows of X in its own index type, which SciPy's slices do not keep."""
    part = X[begin:end]
    if sp.issparse(X):
        part.indices, part.indptr = part.indices.astype(X.indices.dtype), part.indptr.astype(X.indices.dtype)
    return part


@pytest.mark.parametrize(("layout", "dtype", "index"), KINDS)
@pytest.mark.parametrize(
    "limits", [{}, {"shard_rows": 20}, {"shard_bytes": 700}, {"shard_rows": 1}, {"shard_bytes": 1 << 50}]
)
def test_rows_are_those_that_were_written(tmp_path, layout, dtype, index, limits):
    X = rows_of(layout, dtype, index)
    write_store(tmp_path / "s", X, np.arange(N) % 5, **limits)
    store = RowStore(tmp_path / "s")
    store.verify()
    assert store.shape == X.shape
    assert (store.n_shards > 1) == (0 < min(limits.values(), default=0) < N * D)
    same(store.rows()[:], X)
    view = store.rows(7, 99)
    same(view[5:70], cut(X, 12, 77))
    ends = [7]
    for window in view.windows(300):
        assert window.begin == ends[-1]
        ends.append(window.end)
        same(window.X, cut(X, window.begin, window.end))
        np.testing.assert_array_equal(store.classes[window.y], np.arange(window.begin, window.end) % 5)
        if layout == "dense":
            assert not window.X.flags.writeable
    assert ends[-1] == 99
    assert len(ends) > 3
    same(store.dataset().X, X)


@pytest.mark.parametrize("size", range(1, 12))
def test_parts_are_all_rows_once_and_whole_shards_where_there_are_enough(tmp_path, size):
    write_store(tmp_path / "s", rows_of("csr"), shard_rows=15)
    store = RowStore(tmp_path / "s")
    parts = [store.parts(rank, size) for rank in range(size)]
    assert [part.begin for part in parts] == [0, *(part.end for part in parts[:-1])]
    assert parts[-1].end == N
    assert all(len(part) for part in parts)
    if size <= store.n_shards:
        assert {part.begin for part in parts} <= {*store.shard_bounds}
    with pytest.raises(ValueError, match="rank must be"):
        store.parts(size, size)


def test_a_rank_needs_the_files_of_its_own_shards_alone(tmp_path):
    X = rows_of("csr")
    write_store(tmp_path / "s", X, np.arange(N) % 3, shard_rows=20)
    part = RowStore(tmp_path / "s").parts(1, 3)
    mine = range(part.begin // 20, -(-part.end // 20))
    for number in set(range(6)) - set(mine):
        (tmp_path / "s" / f"rows-{number:05d}.safetensors").unlink()
        (tmp_path / "s" / f"targets-{number:05d}.safetensors").unlink()
    part = RowStore(tmp_path / "s").parts(1, 3)
    same(part[:], X[part.begin : part.end])
    np.testing.assert_array_equal(part.targets(), np.arange(part.begin, part.end) % 3)
    with pytest.raises(StoreError, match=r"rows-00000.safetensors: the file is missing"):
        RowStore(tmp_path / "s").rows(0, 3)[:]


TARGETS = {
    "integers": np.random.default_rng(0).integers(-3, 9, N),
    "names": np.array([f"k{i % 7}" for i in range(N)]),
    "numbers": np.random.default_rng(1).normal(size=N),
    "several numbers": np.random.default_rng(2).normal(size=(N, 3)),
    "labels": sp.random(N, 9, 0.3, format="csr", random_state=3).astype(bool).astype(np.int8),
    "none": None,
}


@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("shard_rows", [None, 10])
def test_targets_come_back(tmp_path, name, shard_rows):
    y = TARGETS[name]
    weights = np.random.default_rng(4).random(N)
    write_store(tmp_path / "s", rows_of("csr"), y, sample_weight=weights, shard_rows=shard_rows)
    store = RowStore(tmp_path / "s")
    found = store.dataset().y
    if y is None:
        assert found is None
    elif sp.issparse(y):
        np.testing.assert_array_equal(found.toarray(), y.toarray())
    else:
        assert found.dtype.kind == y.dtype.kind
        np.testing.assert_array_equal(found, y)
    np.testing.assert_array_equal(np.concatenate([w.weights for w in store.rows().windows(100)]), weights)
    none = store.rows(5, 5)
    assert none[:].shape == (0, D)
    assert not none.cuts()
    if y is not None:
        assert none.targets().shape == (0, *y.shape[1:])
        assert none.targets().dtype == store.rows().targets().dtype


def test_names_of_features_and_labels_are_kept(tmp_path):
    names = [f"größe {j}" for j in range(D)]
    labels = np.array([f"l{k}" for k in range(9)])
    write_store(tmp_path / "s", rows_of("csr"), TARGETS["labels"], feature_names=names, label_names=labels)
    store = RowStore(tmp_path / "s")
    assert store.feature_names.tolist() == names
    np.testing.assert_array_equal(store.dataset().label_names, labels)


def test_arrays_lie_at_multiples_of_64_bytes_in_files_that_others_read(tmp_path):
    from safetensors.numpy import load_file

    X = rows_of("csr")
    write_store(tmp_path / "s", X)
    path = tmp_path / "s" / "rows-00000.safetensors"
    with TensorFile(path, ROWS) as file:
        pass
    assert {*file.names} == {"data", "indices", "indptr"}
    for name in file.names:
        assert file._entry(name)[2] % ALIGNMENT == 0
        assert np.array_equal(file.window(name), getattr(X, name))
    np.testing.assert_array_equal(load_file(path)["data"], X.data)


# --- what is wrong --------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    write_store(tmp_path / "s", rows_of("csr"), np.arange(N) % 5, shard_rows=40)
    return tmp_path / "s"


def test_a_changed_byte_is_found_and_its_shard_named(folder):
    path = folder / "rows-00001.safetensors"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"rows-00001.safetensors: .*checksum"):
        RowStore(folder).verify()
    path.write_bytes(content[:-8])
    with pytest.raises(StoreError, match=r"rows-00001.safetensors: has \d+ bytes, expected"):
        RowStore(folder).verify()
    with pytest.raises(StoreError, match=r"rows-00001.safetensors: .*cut short"):
        RowStore(folder).rows(45, 50)[:]


@pytest.mark.parametrize("place", [0, 8, 9, 40, 200])
def test_a_damaged_shard_is_an_error_and_never_a_crash(folder, place):
    path = folder / "rows-00000.safetensors"
    content = bytearray(path.read_bytes())
    for value in (0, 255):
        content[place] = value
        path.write_bytes(content)
        try:
            X = RowStore(folder).rows(0, 40)[:]
        except StoreError as error:
            assert "rows-00000" in str(error)  # noqa: PT017
        else:
            assert X.shape == (40, D)


def test_columns_beyond_the_width_never_reach_a_kernel(folder):
    for wrong in (D, -1, 2**31 - 1):
        change_array(folder / "rows-00000.safetensors", "indices", lambda array: array.put(0, wrong))  # noqa: B023
        with pytest.raises(StoreError, match=r"rows-00000.safetensors: .*columns beyond 17"):
            RowStore(folder).rows(0, 40)[:]


def changed(folder, **facts):
    change_manifest(folder, lambda found: found.update(facts))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"version": 99, "library_version": "7.0"}, "version 99, written by manyclass 7.0.*upgrade"),
        ({"format": "other"}, "its format is 'other'; expected a row store"),
        ({"version": "x"}, "damaged"),
        ({"shape": [N + 1, D]}, "damaged.*do not add up"),
        ({"shape": "wide"}, "damaged"),
        ({"layout": "columns"}, "damaged"),
        ({"dtype": "float16"}, "damaged"),
        ({"stored": 1}, "damaged.*do not add up"),
        ({"shards": [{}]}, "damaged"),
    ],
)
def test_a_foreign_or_damaged_manifest_is_refused(folder, facts, said):
    changed(folder, **facts)
    with pytest.raises(StoreError, match=said):
        RowStore(folder)


def test_what_is_no_store_is_refused(tmp_path, folder):
    with pytest.raises(FileNotFoundError):
        RowStore(tmp_path / "nothing")
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="is a file; expected a row store"):
        RowStore(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match=r"no manifest.json"):
        RowStore(tmp_path / "empty")
    (folder / "manifest.json").write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        RowStore(folder)
    assert folder_format(folder) is None


def test_an_interrupted_write_leaves_nothing(tmp_path):
    def write():
        with RowStoreWriter(tmp_path / "s", shard_rows=10) as writer:
            writer.add(rows_of("csr"))
            assert any(tmp_path.iterdir())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write()
    assert not any(tmp_path.iterdir())
    with pytest.raises(ValueError, match="there are no rows"), RowStoreWriter(tmp_path / "s"):
        pass
    assert not any(tmp_path.iterdir())


def test_nothing_is_written_over(tmp_path, folder):
    before = sorted(os.listdir(folder))
    with pytest.raises(ValueError, match="exists already"):
        write_store(folder, rows_of("csr"))
    assert sorted(os.listdir(folder)) == before
    with pytest.raises(FileNotFoundError):
        write_store(tmp_path / "no" / "s", rows_of("csr"))


@pytest.mark.parametrize(
    ("X", "y", "said"),
    [
        (np.zeros((3, 2), int), None, "float32 or float64"),
        (np.zeros((3, 2)), np.zeros(4, int), "4 rows; expected 3"),
        (np.zeros((3, 2)), np.zeros(3, complex), "expected classes, numbers"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, X, y, said):
    with pytest.raises(ValueError, match=said):
        write_store(tmp_path / "s", X, y)
    assert not any(tmp_path.iterdir())


def test_pieces_must_be_alike(tmp_path):
    def write(*pieces):
        with RowStoreWriter(tmp_path / "s") as writer:
            for piece in pieces:
                writer.add(*piece)

    with pytest.raises(ValueError, match="X is dense; expected csr, as the rows before are"):
        write((rows_of("csr"),), (rows_of("dense"),))
    with pytest.raises(ValueError, match="names in some calls"):
        write((rows_of("csr"), np.arange(N)), (rows_of("csr"), np.array(["a"] * N)))
    for name in ("shard_rows", "shard_bytes"):
        with pytest.raises(ValueError, match=name):
            RowStoreWriter(tmp_path / "s", **{name: 0})


def test_a_store_is_a_data_format(tmp_path, folder):
    data = read(folder)
    assert data.format == "store"
    assert data.X.shape == (N, D)
    wider = read(folder, n_features=20)
    assert wider.X.shape == (N, 20)
    same(wider.X.data, data.X.data)
    with pytest.raises(DataFormatError, match="17 features; expected 10"):
        read(folder, n_features=10)
    assert read(folder, n_features=10, extra_features="ignore").X.shape == (N, 10)
    with pytest.raises(DataFormatError, match="expected 'labels', as task='multilabel' needs"):
        read(folder, task="multilabel")


def test_a_store_that_does_not_fit_in_memory_is_not_read(folder, monkeypatch):
    monkeypatch.setattr("manyclass.runtime.memory.available", lambda: 100)
    with pytest.raises(MemoryError, match=r"KiB in memory, and 100 bytes are available: use its windows"):
        RowStore(folder).dataset()
    assert RowStore(folder).dataset(mapped=True).X.shape == (N, D)


def test_a_window_takes_address_space_for_its_rows_alone(tmp_path):
    if not os.path.exists("/proc/self/statm"):
        pytest.skip("needs /proc")

    def taken():
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")

    X = np.zeros((1 << 15, 256), np.float32)  # 32 MiB
    write_store(tmp_path / "s", X, shard_bytes=1 << 30)
    del X
    store = RowStore(tmp_path / "s")
    before = taken()
    most = 0
    for window in store.rows().windows(1 << 20):
        most = max(most, taken() - before)
        del window
    assert 1 << 20 <= most < 8 << 20


@pytest.mark.parametrize("name", ["../rows.safetensors", "/etc/passwd", "..", "", 3, "a\0b"])
def test_a_manifest_names_files_of_its_folder_only(tmp_path, name):
    write_store(tmp_path / "s", rows_of("csr"), np.arange(N) % 5)
    change_manifest(tmp_path / "s", lambda facts: facts["shards"][0]["data"].update(file=name))
    with pytest.raises(StoreError, match=r"manifest\.json: is damaged \(it names the file"):
        RowStore(tmp_path / "s")
