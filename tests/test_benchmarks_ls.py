"""The least-squares experiments run, and what they measure is what they say."""

from __future__ import annotations

import csv
import gzip
import io
import json
import tarfile
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]

#: Groups of the newsgroups archive made here.
WORDS = {"sci.space": "orbit rocket moon", "rec.autos": "wheel engine road", "talk.misc": "opinion claim debate"}


@pytest.fixture(scope="module", autouse=True)
def _importable() -> Any:
    """The package of benchmarks is in the repository's root, not installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        yield


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache and raw files of its own; fits in this process."""
    from benchmarks import children, data

    def here(function: str, arguments: dict[str, Any], *, python: str | None = None) -> Any:
        module, _, name = function.partition(":")
        return json.loads(json.dumps(getattr(import_module(module), name)(**json.loads(json.dumps(arguments)))))

    # Starting a process for each fit would take most of the time of these tests.
    monkeypatch.setattr(children, "call", here)
    monkeypatch.setattr(data, "CACHE", tmp_path / "cache")
    (tmp_path / "raw").mkdir()
    return tmp_path / "raw"


def run(folder: Path, *arguments: str) -> list[dict[str, str]]:
    from benchmarks.cli import main

    out = folder.parent / "out"
    common = ["--quick", "--runs", "1", "--data-dir", str(folder), "--out", str(out)]
    assert main(["run", arguments[0], *common, *arguments[1:]]) == 0
    with next(out.glob("*.csv")).open(newline="") as handle:
        return list(csv.DictReader(handle))


def digits(folder: Path) -> None:
    """Images like those of MNIST, but smaller: a bright bar whose place is the class."""
    rng = np.random.default_rng(0)
    (folder / "mnist").mkdir()
    for part, n in (("train", 300), ("t10k", 100)):
        y = rng.integers(0, 10, n).astype(np.uint8)
        X = rng.integers(0, 60, (n, 12, 12)).astype(np.uint8)
        X[np.arange(n), y + 1] += 120
        for name, array in (("images-idx3", X), ("labels-idx1", y)):
            head = bytes([0, 0, 8, array.ndim]) + np.asarray(array.shape, ">i4").tobytes()
            (folder / "mnist" / f"{part}-{name}-ubyte.gz").write_bytes(gzip.compress(head + array.tobytes()))


def posts(folder: Path) -> None:
    rng = np.random.default_rng(0)
    (folder / "20news").mkdir()
    with tarfile.open(folder / "20news" / "20news-bydate.tar.xz", "w:xz") as archive:
        for part, n in (("train", 90), ("test", 60)):
            for number in range(n):
                group = list(WORDS)[number % 3]
                words = [
                    *rng.choice(WORDS[group].split(), 3),
                    *rng.choice(["the", "and", "of"], 3),
                    f"rare{part}{number}",
                ]
                _add(archive, f"20news-bydate-{part}/{group}/{number}", " ".join(words).encode())


def images(folder: Path) -> None:
    """Small photographs: a colour for each class."""
    Image = pytest.importorskip("PIL.Image")
    rng = np.random.default_rng(0)
    (folder / "cifar10").mkdir()
    with tarfile.open(folder / "cifar10" / "cifar10_jpeg.tar.xz", "w:xz") as archive:
        for part, n in (("train", 40), ("test", 20)):
            for number, name in enumerate(["blue", "green", "red"] * n):
                array = rng.integers(0, 120, (32, 32, 3)).astype(np.uint8)
                array[..., ["red", "green", "blue"].index(name)] += 80
                handle = io.BytesIO()
                Image.fromarray(array).save(handle, "JPEG")
                _add(archive, f"{part}/{name}/{number:04d}.jpg", handle.getvalue())


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def measured(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    assert all(row["status"] in ("measured", "skipped") for row in rows), [row.get("reason") for row in rows]
    return [row for row in rows if row["status"] == "measured"]


@pytest.mark.slow
def test_mnist_table(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.experiments import ls_mnist

    monkeypatch.setattr(ls_mnist, "BANDWIDTHS", (1.0,))
    digits(folder)
    rows = measured(run(folder, "ls_mnist"))
    assert {row["method"] for row in rows} == {"linear", "logistic", "calibrated"}
    assert {row["n_features"] for row in rows} == {"0", "60", "120"}
    assert len(rows) == 9
    for row in rows:
        # A guess errs in nine of ten; features of Gaussian noise around a bar tell most of them apart.
        assert float(row["test_error"]) < 0.5
        assert float(row["seconds"]) > 0
        assert float(row["paper_error"]) > 0


# The oldest matplotlib calls functions that the newest pyparsing deprecates.
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_stagewise_curves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.experiments import ls_stagewise

    monkeypatch.setattr(ls_stagewise, "BLOCKS", {"logits": ls_stagewise.BLOCKS["logits"]})
    digits(folder)
    rows = measured(run(folder, "ls_stagewise", "--epochs", "3"))
    assert (folder.parent / "out" / "ls_stagewise-quick.png").stat().st_size > 1000
    curves: dict[tuple[str, str], list[dict[str, str]]] = {}
    for row in rows:
        curves.setdefault((row["update"], row["block_size"]), []).append(row)
    assert len(curves) == 8
    for curve in curves.values():
        assert [int(row["stage"]) for row in curve] == [1, 2, 3]
        seconds = [float(row["seconds"]) for row in curve]
        assert seconds == sorted(seconds)
        # Replayed block by block, the last point is the model itself.
        assert float(curve[-1]["test_error"]) == float(curve[-1]["whole_error"])
        assert float(curve[-1]["loss"]) < float(curve[0]["loss"])


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_better_features_of_digits(folder: Path) -> None:
    digits(folder)
    rows = measured(run(folder, "ls_mnist_features"))
    assert [row["features"] for row in rows] == ["pixels", "pixels", "patches", "patches"]
    for row in rows:
        assert float(row["test_error"]) < 0.5
        assert int(row["n_features"]) == 60
    assert (folder.parent / "out" / "ls_mnist_features-quick.png").stat().st_size > 1000


def test_default_of_dense_rows(folder: Path) -> None:
    digits(folder)
    rows = measured(run(folder, "ls_default", "--data", "mnist", "--only", "default,svc"))
    assert [row["method"] for row in rows] == ["default", "svc"]
    assert all(float(row["test_error"]) < 0.5 for row in rows)
    assert int(rows[0]["stages"]) == 1


def test_newsgroups(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.datasets import news20

    monkeypatch.setattr(news20, "N_TRAIN", 100)
    posts(folder)
    rows = measured(run(folder, "ls_news20", "--only", "sdca,sklearn_linear_svc"))
    fits = {row["method"]: row for row in rows}
    assert set(fits) == {"stagewise", "sdca", "sklearn_linear_svc"}
    for name in ("stagewise", "sdca", "sklearn_linear_svc"):
        assert float(fits[name]["test_error"]) == 0
        assert (fits[name]["n"], fits[name]["n_test"]) == ("100", "50")


def test_spectra(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.datasets import news20

    monkeypatch.setattr(news20, "N_TRAIN", 100)
    posts(folder)
    digits(folder)
    rows = measured(run(folder, "ls_spectra", "--data", "news20/log_counts,mnist"))
    last = {row["data"]: row for row in rows}
    assert len(last) == 2
    for name, row in last.items():
        assert float(row["share"]) == pytest.approx(1)
        assert float(row["second_over"]) >= 1, name
    # Dense rows by their Gram matrix, sparse ones by subspace iteration: the same values of the same matrix.
    from benchmarks import data, staged

    source = {"path": str(data.locate("news20/log_counts", folder)), "name": "news20/log_counts", "quick": True}
    X = data.read(Path(source["path"]), source["name"], quick=True).X
    values = np.linalg.svd(X.toarray(), compute_uv=False)
    found = staged.spectrum(source)["values"]
    np.testing.assert_allclose(found, values[: len(found)], rtol=1e-3, atol=1e-4 * values[0])


def test_newsgroups_as_the_paper_has_them(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import data
    from benchmarks.datasets import news20

    monkeypatch.setattr(news20, "N_TRAIN", 100)
    posts(folder)
    split = news20.build(folder, "log_counts")
    assert split.X.shape[0] == 100
    assert split.X_test.shape[0] == 50
    # Words that occur once are gone, and values are logarithms of 1 + a count.
    assert split.X.shape[1] == split.X_test.shape[1] == 12
    counts = np.expm1(split.X.toarray())
    np.testing.assert_allclose(counts, counts.round(), atol=1e-6)
    assert counts.sum(axis=0).min() >= 3
    assert counts.sum(axis=1).max() <= 7.0001
    assert data.locate("news20/log_counts", folder) != data.locate("news20", folder)


def test_four_classes_of_rcv1(folder: Path) -> None:
    rng = np.random.default_rng(0)
    (folder / "rcv1").mkdir()
    codes = (5, 60, 71, 103)
    for part, n in (("train", 120), ("test", 60)):
        lines = []
        for number in range(n):
            words = sorted({1 + number % 4, *(10 + rng.choice(40, 4, replace=False))})
            lines.append(f"{codes[number % 4]} " + " ".join(f"{j}:0.5" for j in words) + "\n")
        path = folder / "rcv1" / f"rcv1_topics_{part}.svm.gz"
        path.write_bytes(gzip.compress("".join(lines).encode()))
    rows = measured(run(folder, "ls_rcv1", "--only", "sdca"))
    fits = {row["method"]: row for row in rows}
    assert set(fits) == {"stagewise", "sdca"}
    assert float(fits["stagewise"]["test_error"]) == 0


@pytest.mark.slow
def test_cifar(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.experiments import ls_cifar

    monkeypatch.setattr(ls_cifar, "CURVE", (5,))
    images(folder)
    rows = measured(run(folder, "ls_cifar", "--runs", "2", "--only", "kmeans,polynomials,nystrom"))
    assert {row["data"] for row in rows} == {"cifar10"}
    *fits, average = rows
    assert [row["K"] for row in fits] == ["3"] * 6
    averaged = [row for row in fits if row["method"] == "mirror images, Nystrom"]
    assert average["method"] == "average of 2"
    assert float(average["seconds"]) == pytest.approx(sum(float(row["seconds"]) for row in averaged))
    assert 0 <= float(average["test_error"]) <= 0.7
    for row in fits:
        assert 0 < float(row["prepare_seconds"]) < float(row["seconds"])
        assert 0 <= float(row["test_error"]) <= 1


def test_cifar_images_are_decoded_in_random_order(folder: Path) -> None:
    images(folder)
    from benchmarks.datasets import cifar10

    split = cifar10.build(folder, "")
    assert split.X.shape == (120, 3072)
    assert split.X.dtype == np.uint8
    # Classes in the order of their names: the brightest channel is the class.
    means = split.X.reshape(-1, 32 * 32, 3).mean(axis=1)
    np.testing.assert_array_equal(2 - means.argmax(axis=1), split.y)
    assert len(np.unique(split.y[:20])) == 3


def test_described_estimators_are_made() -> None:
    from benchmarks.staged import make

    made = make(
        {
            "make": "StagewiseClassifier",
            "features": {"make": "RandomFourier", "bandwidth": 0.5},
            "prepare": {"make": "PrincipalComponents", "n_components": 3},
            "alpha": 0.5,
        }
    )
    assert type(made).__name__ == "StagewiseClassifier"
    assert made.features.bandwidth == 0.5
    assert made.prepare.n_components == 3
    with pytest.raises(AttributeError):
        make({"make": "Nothing"})


@pytest.mark.parametrize("updates", ["linear", "calibrated", "logistic"])
def test_the_spectrum_and_the_curve_are_those_of_numpy(updates: str, folder: Path) -> None:
    from benchmarks import data, staged

    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 80)
    X = rng.normal(size=(80, 6)) + 2 * np.eye(3, 6)[y]
    folder.parent.joinpath("cache").mkdir()
    path = folder.parent / "cache" / "random.npz"
    data._write(path, data.Split(X[:60], y[:60], X[60:], y[60:]))
    source = {"path": str(path), "name": "random", "quick": False}
    found = staged.fit_and_judge(
        source,
        {"make": "StagewiseClassifier", "block_size": 20, "n_blocks": 3, "update": updates, "random_state": 0},
        1,
        curve=True,
    )
    assert found["curve"][-1]["test_error"] == found["test_error"]
    values = np.linalg.svd(X[:60], compute_uv=False)
    spectrum = staged.spectrum(source, most=5)
    np.testing.assert_allclose(spectrum["values"], values[:5], rtol=1e-6)


@pytest.mark.slow
def test_peers_on_the_same_features(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks import children, fitting
    from benchmarks.experiments import ls_peers

    monkeypatch.setattr(ls_peers, "COMPONENTS", 10)
    monkeypatch.setattr(ls_peers, "FIRST", 8)
    digits(folder)
    rows = measured(run(folder, "ls_peers", "--only", "majorise,sklearn_lbfgs", "--alpha", "1e-3"))
    assert {row["n_features"] for row in rows} == {"40", "60"}
    for size in ("40", "60"):
        ours, *ladder = (row for row in rows if row["n_features"] == size)
        assert (ours["method"], ours["d"]) == ("majorise", size)
        assert float(ours["certified_relative_gap"]) <= 1e-3
        # Iterations grow until the objective is that of ours, and no further.
        assert [int(row["setting"]) for row in ladder] == [int(8 * 1.5**i) for i in range(len(ladder))]
        target = float(ours["objective"])
        assert all(float(row["objective"]) > target for row in ladder[:-1])
        assert float(ladder[-1]["objective"]) <= target
        for row in (ours, *ladder):
            assert float(row["in_all"]) == pytest.approx(float(row["seconds"]) + float(row["feature_seconds"]))
    fitting._featured.cache_clear()

    def overdue(function: str, arguments: dict[str, Any]) -> Any:
        raise children.TimedOut("its time was up")

    monkeypatch.setattr(children, "call", overdue)
    rows = measured(run(folder, "ls_peers", "--only", "sklearn_lbfgs", "--budget", "7"))
    assert {(row["finished"], row["seconds"]) for row in rows} == {("False", "7.0")}


def test_ratios_are_those_at_equal_error_and_objective() -> None:
    from benchmarks.experiments import ls_peers

    def row(method: str, seconds: float, error: float, objective: float, **more: Any) -> dict[str, Any]:
        ours = method in ("majorise", "ridge")
        known = {"n_features": 4, "ours": ours, "finished": True, "target": 1.0, "objective_name": "multinomial"}
        return {**known, "method": method, "in_all": seconds, "test_error": error, "objective": objective, **more}

    ours = [row("ridge", 1.0, 0.03, 9.0), row("majorise", 2.0, 0.02, 1.0)]
    ladder = [row("sklearn_lbfgs", 8.0, 0.05, 1.2), row("sklearn_lbfgs", 12.0, 0.025, 0.9)]
    (line,) = ls_peers._at_equal_error(ours + ladder)
    assert line[2:] == ["error, 2.50 %", 12.0, "majorise", 2.0, "6"]  # ridge errs more
    (line,) = ls_peers._at_equal_objective(ours + ladder)
    assert line[-1] == "4 to 6"
    late = row("liblinear", 0.0, 0.0, 0.0) | {"finished": False, "seconds": 30.0}
    (line,) = ls_peers._at_equal_error([*ours, late])
    assert line[3:] == [30.0, "majorise", 2.0, ">= 15"]
    (line,) = ls_peers._at_equal_error([late])
    assert line[3:] == [30.0, "none of ours", None, None]


def test_memory_is_that_of_the_formula(folder: Path) -> None:
    from benchmarks.experiments import ls_memory

    rows = measured(run(folder, "ls_memory"))
    assert {row["fit"] for row in rows} == {*ls_memory.FITS, *ls_memory.WAYS}
    assert {row["refused"] for row in rows} == {"False"}
    parts = ls_memory.estimated(40_000, 2000, 10)
    assert parts["moments"] == 12 * 2001**2
    assert parts["chunk"] + parts["responses"] < parts["moments"] * 2


def test_a_factor_that_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from benchmarks.experiments import ls_memory

    from manyclass.runtime import memory

    monkeypatch.setattr(memory, "available", lambda: 2 * 10**7)
    found = ls_memory.fit_once("cholesky", 100, 2000, 3, 1, None)
    assert found["refused"]
    assert "second moments and their factor" in found["reason"]


def test_solvers_of_generated_rows(folder: Path) -> None:
    from benchmarks.experiments import ls_auto

    rows = measured(run(folder, "ls_auto", "--only", "majorise,sdca"))
    assert {row["case"] for row in rows} == {"middle", "density 0.1"}
    assert len(rows) == 4
    assert all(float(row["certified_relative_gap"]) <= 1e-3 for row in rows)
    for density in (1.0, 0.1):
        made = ls_auto.generate(200, 30, 4, 1.0, density)
        squares = made.X.multiply(made.X) if density < 1 else made.X**2
        assert float(squares.sum()) / 200 == pytest.approx(1, rel=1e-5)
        assert made.n_classes == 4
