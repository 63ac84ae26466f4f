"""The cache of compiled kernels: kept between processes, renewed by an edit of any part, nobody else's business.

Each test runs processes of their own on a copy of the package, with a cache folder of their own.
"""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numba
import numpy as np
import pytest

import manyclass
from manyclass.kernels.jit import compile_clock, jit

#: One epoch of SDCA on two examples; what came out, and what it took.
EPOCH = """
import json
import numpy as np
from manyclass.kernels.jit import compile_clock
from manyclass.kernels.rows import make_rows
from manyclass.kernels.sdca import sdca_epoch
from manyclass.kernels.targets import RealTargets
from manyclass.objective.losses import SquaredLoss
from manyclass.objective.penalties import L2

rows, targets = make_rows(np.eye(2)), RealTargets(np.array([[1.0], [2.0]]), 1)
V, dual, one = np.zeros((2, 1)), np.zeros((2, 1)), np.ones(2)
order, loss = np.arange(2, dtype=np.int32), SquaredLoss()
sdca_epoch(rows, targets, one, one, order, loss, L2(), V, np.zeros(1), dual, np.zeros(1, np.int8), 0.5, 0.0, 0, 1)
print(json.dumps({"dual": dual.ravel().tolist(), "kernels": compile_clock.kernels, "seconds": compile_clock.seconds}))
"""

#: Weights of fits whose kernels are large, and how many kernels were compiled.
FITS = """
import json, warnings
import numpy as np
from manyclass import CrammerSinger, LinearClassifier
from manyclass.kernels.jit import compile_clock

warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
X, y = rng.standard_normal((200, 30)), rng.integers(0, 5, 200)
found = {"kernels": None}
for loss in (CrammerSinger(gamma=0), "hinge", "multinomial"):
    fit = LinearClassifier(loss, solver="accelerated", alpha=1e-3, max_iter=3, tol=0, random_state=0).fit(X, y)
    found[str(loss)] = fit.coef_.astype(float).tolist()
found["kernels"] = compile_clock.kernels
print(json.dumps(found))
"""


class Copy:
    """A copy of the package that can be edited, and processes that use it."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "lib"
        self.cache = folder / "cache"
        shutil.copytree(
            Path(manyclass.__file__).parent, self.root / "manyclass", ignore=shutil.ignore_patterns("__pycache__")
        )

    def run(self, script: str, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = {
            **os.environ,
            "PYTHONPATH": str(self.root),
            "NUMBA_CACHE_DIR": str(self.cache),
            "PYTHONDONTWRITEBYTECODE": "1",
            **environment,
        }
        command = [sys.executable, "-c", script]
        done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done

    def epoch(self, **environment: str) -> tuple[dict[str, object], str]:
        done = self.run(EPOCH, **environment)
        return json.loads(done.stdout), done.stderr

    def edit(self, name: str, old: str, new: str) -> None:
        path = self.root / "manyclass" / name
        text = path.read_text()
        assert text.count(old) == 1
        path.write_text(text.replace(old, new))


@pytest.fixture
def copy(tmp_path):
    return Copy(tmp_path)


@pytest.mark.slow
def test_kernels_are_compiled_once_and_again_after_an_edit_of_a_loss_or_a_penalty(copy):
    first, said = copy.epoch()
    # a <- a + (y - s - a) / (1 + q) with q = 1/2.
    assert first["dual"] == pytest.approx([2 / 3, 4 / 3])
    assert first["kernels"] == 1
    assert 0 < first["seconds"] < 60
    assert said.count("compiling") == 1, "compilation is announced"
    assert list(copy.cache.rglob("*.nbi"))

    second, said = copy.epoch()
    assert second == {**first, "kernels": 0, "seconds": 0.0}
    assert said == ""
    copy.edit("runtime/memory.py", "import annotations\n", "import annotations\n\n# edited\n")
    assert copy.epoch()[0]["kernels"] == 0, "what no kernel is made of does not matter"

    # The kernel's own file is untouched: its code has to change because a part of it did.
    copy.edit("objective/losses/squared.py", "a + (y - s - a) /", "a + 0.5 * (y - s - a) /")
    third, said = copy.epoch()
    assert third["dual"] == pytest.approx([1 / 3, 2 / 3])
    assert third["kernels"] == 1

    copy.edit("objective/penalties/l2.py", "(lambda reg, v: v)", "(lambda reg, v: 2 * v)")
    copy.edit("kernels/sdca.py", "s[k] = bias[lo + k]", "s[k] = 3.0")
    fourth, said = copy.epoch()
    assert fourth["dual"] == pytest.approx([-2 / 3, -1 / 3])
    assert fourth["kernels"] == 1


def test_numba_is_left_as_it_was(copy):
    """Its settings, its cache, and the cache of other people's functions."""
    copy.run(
        "import numba, numba.core.caching as caching\n"
        "from numba.core import config\n"
        "def state():\n"
        "    settings = {k: repr(v) for k, v in vars(config).items() if k.isupper()}\n"
        "    parts = {k: v for c in (caching.FunctionCache, caching.IndexDataCacheFile, caching.CacheImpl)\n"
        "             for k, v in vars(c).items()}\n"
        "    return settings, parts\n"
        "before = state()\n"
        "import manyclass.kernels.sdca, manyclass.kernels.active, manyclass.estimators\n"
        "assert state() == before\n"
    )


NO_FOLDER = "/dev/null/none"


@pytest.mark.skipif(os.name != "posix", reason="needs a path that no one can create")
def test_a_cache_that_cannot_be_written_only_warns(copy):
    # A file where Python would make the folder: not even root can write the cache beside the sources.
    for folder in (copy.root / "manyclass").rglob("*"):
        if folder.is_dir():
            (folder / "__pycache__").touch()
    found, said = copy.epoch(**dict.fromkeys(("NUMBA_CACHE_DIR", "HOME", "XDG_CACHE_HOME"), NO_FOLDER))
    assert found["dual"] == pytest.approx([2 / 3, 4 / 3])
    assert found["kernels"] == 1
    assert said.count("cannot be kept on disk") == said.count("NUMBA_CACHE_DIR") == 1


SMALL = """
from manyclass.kernels.jit import compile_clock, jit

@jit
def twice(x):
    return 2 * x

print(twice(1), compile_clock.kernels)
"""

#: Changes of a cache, and whether the code in it is used after them.
CHANGES = {
    "folder for all": (lambda cache: os.chmod(next(cache.iterdir()), 0o777), False),
    "folder around it for all": (lambda cache: os.chmod(cache, 0o777), False),
    "folder around it for all, sticky": (lambda cache: os.chmod(cache, 0o1777), True),
    "files for all": (lambda cache: [os.chmod(path, 0o666) for path in cache.rglob("*.nb?")], False),
    "files of another": (lambda cache: [os.chown(path, 54321, -1) for path in cache.rglob("*.nb?")], False),
    "folder of another": (lambda cache: os.chown(next(cache.iterdir()), 54321, -1), False),
    "nothing": (lambda cache: None, True),
    "folder of a group": (lambda cache: (os.chown(cache, -1, 54321), os.chmod(cache, 0o770)), False),
}


@pytest.mark.skipif(os.name != "posix", reason="needs permissions")
@pytest.mark.parametrize("change", CHANGES)
def test_code_that_others_can_change_is_not_loaded(copy, change):
    if ("other" in change or "group" in change) and os.geteuid():
        pytest.skip("needs an administrator")
    (copy.root / "small.py").write_text(SMALL)
    assert copy.run("import small").stdout == "2 1\n"
    edit, used = CHANGES[change]
    edit(copy.cache)
    for path in copy.cache.rglob("*.nbc"):
        # It would run: a file of another user must not even be opened as a pickle.
        evil = pickle.dumps(Evil(str(copy.root / "run")))
        if not used:
            os.chmod(path, path.stat().st_mode | 0o200)
            path.write_bytes(evil)
    done = copy.run("import small")
    assert done.stdout == f"2 {0 if used else 1}\n"
    assert not (copy.root / "run").exists()
    assert ("you alone can write to" in done.stderr) == ("folder" in change and not used)
    if "files" in change:
        assert copy.run("import small").stdout == "2 0\n", "files with right permissions took their place"


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (self.path,)


def test_a_full_disk_only_warns(caplog, monkeypatch, tmp_path):
    """The machine code is there; that it cannot be kept is no reason to fail."""
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    @jit
    def twice(x):
        return 2 * x

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(twice._cache._cache_file, "save", full)
    assert twice(3) == 6
    assert "No space left" in caplog.text


def test_processes_that_save_at_the_same_time_do_not_mix_up_their_machine_code(tmp_path):
    """Both read the index before the other writes it; one writes all of its files between two of the other's."""
    from manyclass.kernels.jit import _CacheFile

    class Second(_CacheFile):
        def _load_index(self):
            return {}

    class First(_CacheFile):
        def _save_data(self, name, data):
            Second(str(tmp_path), "kernel", "stamp", tmp_path).save(("float64",), "machine code for float64")
            super()._save_data(name, data)

    First(str(tmp_path), "kernel", "stamp", tmp_path).save(("float32",), "machine code for float32")
    third = _CacheFile(str(tmp_path), "kernel", "stamp", tmp_path)
    assert third.load(("float32",)) in (None, "machine code for float32")
    assert third.load(("float64",)) in (None, "machine code for float64")
    third.save(("float32",), "machine code for float32")
    third.save(("float64",), "machine code for float64")
    assert third.load(("float32",)) == "machine code for float32"
    assert third.load(("float64",)) == "machine code for float64"


def test_compilation_is_counted_and_timed(monkeypatch, tmp_path):
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))

    @jit
    def total(x):
        return x.sum()

    kernels, seconds = compile_clock.kernels, compile_clock.seconds
    assert total(np.ones(3)) == 3
    assert compile_clock.kernels == kernels + 1
    assert compile_clock.seconds > seconds
    after = compile_clock.seconds
    total(np.ones(4))
    assert compile_clock.seconds == after
    assert compile_clock.kernels == kernels + 1


@pytest.mark.slow
def test_a_process_that_compiles_gets_the_bits_of_one_that_loads(copy):
    first, second = (json.loads(copy.run(FITS).stdout) for _ in range(2))
    assert first.pop("kernels") > 5
    assert second.pop("kernels") == 0
    assert first == second


@pytest.mark.parametrize("suffix", ["*.nbi", "*.nbc"])
@pytest.mark.parametrize("damage", [lambda data: b"", lambda data: data[: len(data) // 2], lambda data: data[::-1]])
def test_damaged_files_of_the_cache_are_compiled_anew(copy, suffix, damage):
    first, _ = copy.epoch()
    damaged = list(copy.cache.rglob(suffix))
    for path in damaged:
        path.write_bytes(damage(path.read_bytes()))
    again, _ = copy.epoch()
    assert damaged
    assert again["dual"] == first["dual"]
    assert again["kernels"] == first["kernels"]
    third, _ = copy.epoch()
    assert third["kernels"] == 0


#: A disk on which files open and get their names late, and on which each second write stops half-way for a while.
SLOW_DISK = """
import builtins, io, os, random, time
plain_open, plain_replace = builtins.open, os.replace
chance = random.Random(os.getpid())

class Late(io.BufferedWriter):
    def write(self, data):
        half = len(data) // 2
        written = super().write(data[:half])
        self.flush()
        time.sleep(0.2 * chance.random())
        return written + super().write(data[half:])

def late_open(file, mode="r", *args, **kwargs):
    if os.environ["NUMBA_CACHE_DIR"] not in str(file):
        return plain_open(file, mode, *args, **kwargs)
    SLOWED.append(mode)
    time.sleep(0.2 * chance.random())
    opened = plain_open(file, mode, *args, **kwargs)
    return Late(opened.detach()) if mode == "wb" else opened

def late_replace(*args, **kwargs):
    time.sleep(0.2 * chance.random())
    return plain_replace(*args, **kwargs)

SLOWED = []
builtins.open, os.replace = late_open, late_replace
"""


#: Five kernels, what they return, and how many of them were compiled.
SHARED = """
import numpy as np
from manyclass.kernels.jit import compile_clock, jit

@jit
def a(x): return np.exp(x).sum()
@jit
def b(x): return (x * x).sum()
@jit
def c(x): return np.log1p(x).sum()
@jit
def d(x): return np.sqrt(x).sum()
@jit
def e(x): return a(x) + b(x)

x = np.random.default_rng(0).random(1000)
print([float(f(x)).hex() for f in (a, b, c, d, e)], compile_clock.kernels, sep="; ")
"""


@pytest.mark.slow
def test_processes_share_one_cache_on_a_slow_disk_while_its_files_are_damaged(copy):
    """Four processes begin with an empty cache; until they have ended, files in it are cut short, or cut and filled."""
    (copy.root / "shared.py").write_text(SHARED)
    expected = copy.run("import shared", NUMBA_CACHE_DIR=str(copy.cache.parent / "alone")).stdout.partition("; ")[0]
    script = SLOW_DISK + "import shared\nassert len(SLOWED) > 5, SLOWED\n"
    damaged = 0
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):  # the second and third time, some of the files are there
            jobs = [pool.submit(copy.run, script) for _ in range(4)]
            while not all(job.done() for job in jobs):
                for path in sorted(copy.cache.rglob("*.nb?")):
                    size = path.stat().st_size
                    with open(path, "r+b") as file:
                        file.truncate(size // 2)
                        if damaged % 2:
                            file.seek(size // 2)
                            file.write(bytes(size - size // 2))
                    damaged += 1
                time.sleep(0.3)
            assert {job.result().stdout.partition("; ")[0] for job in jobs} == {expected}
    assert damaged > 5
    assert copy.run("import shared").stdout.partition("; ")[0] == expected
    assert copy.run("import shared").stdout == f"{expected}; 0\n"
