"""The state of a distributed run: whole or not there, and the same for any number of ranks."""

from __future__ import annotations

import errno
import json
import subprocess
import sys

import numpy as np
import pytest

from manyclass.distributed import checkpoint, run_threads
from manyclass.distributed.checkpoint import Piece, digest, load, save

D, K, N, M = 7, 13, 29, 3
RNG = np.random.default_rng(0)
WEIGHTS = RNG.normal(size=(D, K))
PAIRS = RNG.normal(size=(M, D, K)).astype(np.float32)
OFFSETS = RNG.normal(size=N)
VISITED = RNG.integers(0, 9, size=(N, 2))


def cut(n, size, rank):
    return n * rank // size, n * (rank + 1) // size


def write(comm, folder, epoch=4, factor=1.0, **kwargs):
    """Classes in two blocks a rank, rows in one."""
    low, high = cut(K, comm.size, comm.rank)
    middle = (low + high) // 2
    classes = [
        Piece(b, e, {"W": factor * WEIGHTS[:, b:e], "pairs": PAIRS[..., b:e]})
        for b, e in ((middle, high), (low, middle))
    ]
    b, e = cut(N, comm.size, comm.rank)
    rows = [Piece(b, e, {"b": OFFSETS[b:e], "visited": VISITED[b:e]})]
    save(comm, folder, epoch, classes, rows, {"eta": 0.1, "epoch": epoch}, **kwargs)


@pytest.mark.parametrize("readers", [1, 2, 5])
@pytest.mark.parametrize("writers", [1, 3])
def test_any_number_of_ranks_reads_what_any_number_wrote(writers, readers, tmp_path):
    folder = tmp_path / "new" / "folder"
    run_threads(writers, lambda comm: write(comm, folder))

    def read(comm):
        snapshot = load(comm, folder)
        assert (snapshot.epoch, snapshot.ranks, snapshot.scalars) == (4, writers, {"eta": 0.1, "epoch": 4})
        low, high = cut(K, comm.size, comm.rank)
        classes = snapshot.classes(low, high)
        assert classes["W"].tobytes() == WEIGHTS[:, low:high].tobytes()
        assert classes["pairs"].dtype == np.float32
        assert classes["pairs"].tobytes() == PAIRS[..., low:high].tobytes()
        low, high = cut(N, comm.size, comm.rank)
        rows = snapshot.rows(low, high)
        assert rows["b"].tobytes() == OFFSETS[low:high].tobytes()
        assert rows["visited"].tobytes() == VISITED[low:high].tobytes()
        with pytest.raises(ValueError, match="must contain 3 entries of 'W' for class 11 to 14, got 2"):
            snapshot.classes(11, 14)
        return True

    assert all(run_threads(readers, read))


def test_no_state_is_none(tmp_path):
    assert run_threads(2, lambda comm: load(comm, tmp_path / "nowhere")) == [None, None]


def test_a_new_state_takes_the_place_of_the_old(tmp_path):
    run_threads(3, lambda comm: write(comm, tmp_path, 1))
    (tmp_path / ".9-1.rank.safetensors.0123.tmp").write_bytes(b"cut off")
    run_threads(2, lambda comm: write(comm, tmp_path, 2, factor=2.0))
    assert len(list(tmp_path.iterdir())) == 3
    snapshot = run_threads(1, lambda comm: load(comm, tmp_path))[0]
    assert snapshot.epoch == 2
    assert np.array_equal(snapshot.classes(0, K)["W"], 2 * WEIGHTS)


@pytest.mark.parametrize("stage", ["write_arrays", "_finish", "write_manifest"])
def test_an_interrupted_write_leaves_the_last_state(stage, tmp_path, monkeypatch):
    run_threads(2, lambda comm: write(comm, tmp_path, 1))
    inner = getattr(checkpoint, stage)

    def fail(*args, **kwargs):
        # A rank's file, or the manifest itself: whatever comes last at this stage.
        if stage != "write_arrays" or "-1" in str(args[0]):
            raise OSError("no space left")
        return inner(*args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, stage, fail)
        with pytest.raises(OSError, match="no space left"):
            run_threads(2, lambda comm: write(comm, tmp_path, 2, factor=2.0))
    snapshot = run_threads(1, lambda comm: load(comm, tmp_path))[0]
    assert snapshot.epoch == 1
    assert np.array_equal(snapshot.classes(0, K)["W"], WEIGHTS)
    run_threads(2, lambda comm: write(comm, tmp_path, 3))
    assert len(list(tmp_path.iterdir())) == 3


@pytest.mark.parametrize("damage", ["change", "cut", "remove", "manifest"])
def test_damage_is_seen_by_every_rank(damage, tmp_path):
    run_threads(3, lambda comm: write(comm, tmp_path))
    file = tmp_path / "manifest.json" if damage == "manifest" else next(tmp_path.glob("*-2.rank.safetensors"))
    whole = file.read_bytes()
    if damage == "remove":
        file.unlink()
    elif damage == "change":
        file.write_bytes(whole[:-3] + bytes([whole[-3] ^ 1]) + whole[-2:])
    else:
        file.write_bytes(whole[: len(whole) // 2])

    def read(comm):
        with pytest.raises(ValueError, match=f"{file.name} cannot be read .* remove .* to start afresh"):
            load(comm, tmp_path)
        return True

    assert all(run_threads(2, read))


def test_another_run_is_refused(tmp_path):
    run_threads(2, lambda comm: write(comm, tmp_path, identity={"alpha": 0.1, "data": "a"}))
    assert run_threads(1, lambda comm: load(comm, tmp_path, {"data": "a", "alpha": 0.1}))[0].epoch == 4
    with pytest.raises(ValueError, match=r"another run \(alpha: found 0.1, expected 0.2\)"):
        run_threads(3, lambda comm: load(comm, tmp_path, {"alpha": 0.2, "data": "a"}))


def test_arrays_of_another_length_are_refused(tmp_path):
    with pytest.raises(ValueError, match="array 'W' of class 0 to 4 must have length 4"):
        run_threads(1, lambda comm: save(comm, tmp_path, 0, [Piece(0, 4, {"W": np.zeros((4, 3))})]))
    assert not list(tmp_path.iterdir())


def test_files_that_rank_0_does_not_see_are_an_error(tmp_path):
    """Folders of the same name on hosts of their own."""

    def work(comm):
        comm_folder = tmp_path / str(comm.rank)
        comm_folder.mkdir()
        write(comm, comm_folder)

    with pytest.raises(OSError, match=r"rank 0 cannot access .*, written by rank 1: use a"):
        run_threads(2, work)


def test_manifest_is_json_that_says_what_it_holds(tmp_path):
    run_threads(2, lambda comm: write(comm, tmp_path, identity={"alpha": 0.1}))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    assert (manifest["ranks"], manifest["epoch"], manifest["identity"]) == (2, 4, {"alpha": 0.1})
    assert [sorted(entry) for entry in manifest["files"]] == [["arrays", "bytes", "file", "sha256"]] * 2
    assert "class:0:3:W" in manifest["files"][0]["arrays"]


def test_digest_is_of_the_data_not_of_its_division():
    def of(size, targets=VISITED[:, 0], norms=OFFSETS):
        def work(comm):
            b, e = cut(N, comm.size, comm.rank)
            return digest(comm, b, targets[b:e], norms[b:e])

        found = set(run_threads(size, work))
        assert len(found) == 1
        return found.pop()

    whole = of(1)
    assert whole == of(2) == of(5)
    assert whole == of(1, VISITED[:, 0].astype(np.int32))
    assert whole != of(1, norms=OFFSETS[::-1])
    assert whole != of(1, targets=np.roll(VISITED[:, 0], 1))
    nudged = OFFSETS.copy()
    nudged[3] = np.nextafter(nudged[3], 1)
    assert whole != of(1, norms=nudged)


_FULL = """
import resource, sys
import numpy as np
from manyclass.distributed import SerialCommunicator
from manyclass.distributed.checkpoint import Piece, save
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))  # as a disk that is full
try:
    save(SerialCommunicator(), sys.argv[1], 1, rows=[Piece(0, 1000, {"a": np.ones(1000)})])
except OSError as error:
    print(error.errno, error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="needs RLIMIT_FSIZE")
def test_a_full_disk_is_told_with_the_file(tmp_path):
    done = subprocess.run([sys.executable, "-c", _FULL, str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.stdout.startswith(f"{errno.EFBIG} cannot write {tmp_path}"), (done.stdout, done.stderr)
    assert not list(tmp_path.iterdir())
