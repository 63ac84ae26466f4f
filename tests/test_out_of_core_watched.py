"""Out-of-core fits that are watched: held-out rows, early stopping, callbacks, also after an interrupt and on ranks."""

from __future__ import annotations

import json

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.special import logsumexp
from sklearn.datasets import load_digits

import manyclass.solvers.out_of_core.fit as module
from manyclass import LinearClassifier, OutOfCore, load
from manyclass.distributed import run_threads
from manyclass.io.store import RowStore, write_store
from test_cli_support import run

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
ALPHA = 1e-5


@pytest.fixture(scope="module")
def noisy():
    """Classes of which the optimum at a weak penalty is much worse than an early iterate."""
    rng = np.random.default_rng(0)
    X, y = load_digits(return_X_y=True)
    y = np.where(rng.random(len(y)) < 0.4, rng.integers(10, size=len(y)), y)
    X = (X / 16).astype(np.float32)
    return X[:500], y[:500], X[500:900], y[500:900]


@pytest.fixture(scope="module")
def weights(noisy):
    return np.random.default_rng(0).random(500) + 0.1


@pytest.fixture(scope="module")
def stores(noisy, weights, tmp_path_factory):
    folder, (X, y, X_val, y_val) = tmp_path_factory.mktemp("stores"), noisy
    write_store(folder / "dense", X, y, shard_rows=120)
    write_store(folder / "weighted", sp.csr_matrix(X), y, sample_weight=weights, shard_rows=120)
    write_store(folder / "held", X_val, y_val)
    return {name: RowStore(folder / name) for name in ("dense", "weighted", "held")}


def made(path, *, comm=None, average=True, certificate="end", **options):
    solver = OutOfCore(path, block_classes=4, window_bytes=20_000, average=average, certificate=certificate, comm=comm)
    return LinearClassifier(solver=solver, **{"alpha": ALPHA, "tol": 0.0, "max_iter": 6, "random_state": 0, **options})


def accuracy(model, X, y):
    return np.mean(model.predict(X) == y)


def whole(path):
    found = load(path).assemble()
    return found.weights, found.intercept


# --- one process ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("certificate", ["end", "epoch", None])
def test_watching_does_not_change_a_bit_and_tells_the_model_of_each_epoch(
    tmp_path, noisy, stores, average, certificate
):
    X_val, y_val = noisy[2:]
    options = {"average": average, "certificate": certificate, "max_iter": 4}
    seen = []

    def each(now):
        W, b = now.weights()
        assert [(lo, hi, part.shape) for lo, hi, part in W.each()] == [
            (0, 4, (64, 4)),
            (4, 8, (64, 4)),
            (8, 10, (64, 2)),
        ]
        assert now.validation == np.mean(np.argmax(X_val @ W.assemble() + b, axis=1) == y_val)
        seen.append(now)

    plain = made(tmp_path / "plain", **options).fit(stores["dense"])
    model = made(tmp_path / "m", **options).fit(stores["dense"], X_val=X_val, y_val=y_val, callback=each)
    for part, expected in zip(whole(tmp_path / "m"), whole(tmp_path / "plain")):
        np.testing.assert_array_equal(part, expected)
    assert [(now.iteration, now.max_iter, now.finished) for now in seen] == [(k, 4, k == 4) for k in range(1, 5)]
    assert [now.validation for now in seen] == [found.score for found in model.history_.validation]
    assert seen[-1].validation == accuracy(model, X_val, y_val)
    assert [now.seconds for now in seen] == sorted(now.seconds for now in seen)
    assert model.history_.column("primal") == plain.history_.column("primal")
    if certificate == "epoch":
        assert [now.objective for now in seen] == model.history_.column("primal")
        assert [now.relative_gap for now in seen] == model.history_.column("relative_gap")
    else:
        assert np.isnan([now.relative_gap for now in seen]).all()
    record = load(tmp_path / "m").record["history"]
    assert [row["score"] for row in record["validation"]] == [now.validation for now in seen]


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("certificate", ["end", "epoch", None])
def test_patience_keeps_the_best_epoch_and_its_objective(tmp_path, noisy, stores, average, certificate):
    X, y, X_val, y_val = noisy
    options = {"average": average, "certificate": certificate}
    model = made(tmp_path / "m", max_iter=60, early_stopping=2, **options)
    model.fit(stores["dense"], X_val=stores["held"])  # a store has its labels
    best = model.history_.best
    assert model.history_.outcome == load(tmp_path / "m").record["outcome"] == "patience"
    assert model.n_iter_ == best.iteration + 2 < 60
    assert accuracy(model, X_val, y_val) == best.score
    assert [entry.name for entry in tmp_path.iterdir()] == ["m"], "the folder of the fit is gone"
    short = made(tmp_path / "short", max_iter=best.iteration, **options).fit(stores["dense"])
    for part, expected in zip(whole(tmp_path / "m"), whole(tmp_path / "short")):
        np.testing.assert_array_equal(part, expected)
    if certificate is None:
        assert np.isnan(model.duality_gap_)
    else:
        assert model.duality_gap_ == short.duality_gap_
        W, b = whole(tmp_path / "m")
        S = (X @ W + b).astype(float)
        value = np.mean(logsumexp(S, axis=1) - S[np.arange(len(y)), y]) + ALPHA / 2 * np.sum(W.astype(float) ** 2)
        assert model.objective_ == pytest.approx(value, rel=1e-5)


def test_without_a_certificate_the_best_epoch_is_kept_also_where_max_iter_ends_the_fit(tmp_path, noisy, stores):
    held = dict(zip(("X_val", "y_val"), noisy[2:]))
    model = made(tmp_path / "m", certificate=None, early_stopping=50, max_iter=8).fit(stores["dense"], **held)
    assert model.history_.outcome == "max_iter"
    assert accuracy(model, *noisy[2:]) == model.history_.best.score > model.history_.validation[-1].score


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("class_weight", [None, "balanced"])
def test_a_held_out_tenth_of_a_store_is_left_out_of_the_fit(
    tmp_path, noisy, weights, stores, monkeypatch, class_weight, size
):
    X, y, *_ = noisy
    drawn = []

    def spied(*arguments):
        drawn.append(genuine(*arguments))
        return drawn[-1]

    from manyclass.estimators import stored

    genuine = stored.held_out_rows
    monkeypatch.setattr(stored, "held_out_rows", spied)

    def early(comm):
        options = {"early_stopping": True, "max_iter": 30, "alpha": None, "class_weight": class_weight}
        model = made(tmp_path / "m", comm=comm, **options).fit(stores["weighted"])
        return model.history_.outcome, model.history_.best, model.objective_, model.alpha_

    outcome, best, value, alpha = run_threads(size, early, timeout=60)[0]
    (out,) = np.unique(drawn, axis=0)
    assert len(out) == 50
    c = weights * (1.0 if class_weight is None else (len(y) / (10 * np.bincount(y)))[y])
    assert outcome == "patience"
    W, b = whole(tmp_path / "m")
    S = (X @ W + b).astype(float)
    right = np.argmax(S[out], axis=1) == y[out]
    assert best.score == pytest.approx(np.average(right, weights=c[out]))
    assert alpha == pytest.approx(1 / c.sum()), "of all rows"
    c[out] = 0.0
    losses = logsumexp(S, axis=1) - S[np.arange(len(y)), y]
    expected = np.average(losses, weights=c) + alpha / 2 * np.sum(W.astype(float) ** 2)
    assert value == pytest.approx(expected, rel=1e-5)


def test_a_callback_ends_the_fit_which_goes_on_from_its_checkpoint(tmp_path, stores):
    kept = {"checkpoint": tmp_path / "work"}
    straight = made(tmp_path / "straight", max_iter=4).fit(stores["dense"])
    model = made(tmp_path / "m", max_iter=4)
    model.fit(stores["dense"], callback=lambda now: now.iteration == 2, **kept)
    assert (model.n_iter_, model.history_.outcome) == (2, "stopped")
    assert load(tmp_path / "m").record["outcome"] == "stopped"
    short = made(tmp_path / "short", max_iter=2).fit(stores["dense"])
    assert model.duality_gap_ == short.duality_gap_
    model.fit(stores["dense"], **kept)
    assert model.n_iter_ == 4
    for part, expected in zip(whole(tmp_path / "m"), whole(tmp_path / "straight")):
        np.testing.assert_array_equal(part, expected)
    assert model.objective_ == straight.objective_


@pytest.mark.parametrize("at", [30, 100, 170])
def test_a_fit_that_was_interrupted_ends_by_the_scores_from_before(tmp_path, noisy, stores, monkeypatch, at):
    held = dict(zip(("X_val", "y_val"), noisy[2:]))
    options = {"max_iter": 40, "early_stopping": 3}
    straight = made(tmp_path / "straight", **options).fit(stores["dense"], **held)
    assert straight.history_.outcome == "patience"
    calls, genuine = 0, module.visit

    def interrupted(*arguments):
        nonlocal calls
        calls += 1
        if calls == at:
            raise KeyboardInterrupt
        return genuine(*arguments)

    monkeypatch.setattr(module, "visit", interrupted)
    model = made(tmp_path / "m", **options).fit(stores["dense"], checkpoint=tmp_path / "work", **held)
    assert model.history_.outcome == "interrupted"
    assert 0 < model.n_iter_ < straight.n_iter_
    kept = json.loads((tmp_path / "work" / "manifest.json").read_text())
    assert len(kept["validation"]) == model.n_iter_
    assert kept["best"]["epoch"] == model.history_.best.iteration
    model.fit(stores["dense"], checkpoint=tmp_path / "work", **held)
    assert model.n_iter_ == straight.n_iter_
    assert [row[::2] for row in model.history_.validation] == [row[::2] for row in straight.history_.validation]
    for part, expected in zip(whole(tmp_path / "m"), whole(tmp_path / "straight")):
        np.testing.assert_array_equal(part, expected)
    assert model.duality_gap_ == straight.duality_gap_
    assert not (tmp_path / "work").exists(), "the fit is finished"


def test_only_the_current_and_the_best_weights_are_on_disk(tmp_path, noisy, stores):
    held, work = dict(zip(("X_val", "y_val"), noisy[2:])), tmp_path / "work"
    counts = []

    def each(now):
        kept = json.loads((work / "manifest.json").read_text())
        wanted = {
            (block, version)
            for versions in (kept["versions"], kept["best"]["versions"])
            for block, version in enumerate(versions)
        }
        there = {tuple(map(int, file.stem.split("-")[1:])) for file in work.glob("block-*")}
        assert there == wanted
        counts.append(len(there))

    made(tmp_path / "m", early_stopping=4, max_iter=12).fit(stores["dense"], checkpoint=work, callback=each, **held)
    assert set(counts) == {3, 6}


def test_an_interrupt_in_a_callback_keeps_the_model_of_the_epoch(tmp_path, stores):
    def each(now):
        if now.iteration == 2:
            raise KeyboardInterrupt

    model = made(tmp_path / "m").fit(stores["dense"], callback=each)
    assert (model.history_.outcome, model.n_iter_) == ("interrupted", 2)
    made(tmp_path / "short", max_iter=2).fit(stores["dense"])
    np.testing.assert_array_equal(whole(tmp_path / "m")[0], whole(tmp_path / "short")[0])


def test_what_cannot_be_watched_is_refused_before_any_work(tmp_path, noisy, stores):
    X_val, y_val = noisy[2:]
    for wrong, message in (
        ({"X_val": X_val}, "X_val was given without y_val: pass both"),
        ({"X_val": X_val[:, :3], "y_val": y_val}, "X has 3 features, but LinearClassifier is expecting 64"),
        ({"X_val": X_val, "y_val": y_val.astype(str)}, "y_val has none of the classes of y, such as 0"),
    ):
        with pytest.raises(ValueError, match=message):
            made(tmp_path / "m").fit(stores["dense"], **wrong)
    model = made(tmp_path / "m")
    model._skl_callbacks = [print]
    with pytest.raises(ValueError, match="solver 'out_of_core' does not support set_callbacks"):
        model.fit(stores["dense"])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("manyclass.runtime.memory.available", lambda: 1000)
        with pytest.raises(MemoryError, match=r"to choose those held out.*X_val and y_val in place of early_stopping"):
            made(tmp_path / "m", early_stopping=True).fit(stores["dense"])
    usage = module.shutil.disk_usage(tmp_path)
    with pytest.MonkeyPatch.context() as patch:
        # Weights and mean of 64 x 10 numbers, the model, a block, and the log-sum-exps; with patience the best ones.
        room = 3 * 2560 + 2048 + 4 * 500 * 3
        patch.setattr(module.shutil, "disk_usage", lambda _: usage._replace(free=room))
        made(tmp_path / "m", max_iter=1).fit(stores["dense"])
        with pytest.raises(MemoryError, match="use another disk"):
            made(tmp_path / "n", max_iter=1, early_stopping=True).fit(stores["dense"])
    assert not (tmp_path / "n").exists()


def test_progress_has_a_line_for_each_epoch(tmp_path, noisy, stores, capsys):
    held = dict(zip(("X_val", "y_val"), noisy[2:]))
    model = made(tmp_path / "m", verbose=1, max_iter=3).fit(stores["dense"], **held)
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[0] for line in lines] == ["1", "2", "3", "epoch", "3"]
    for line, found in zip(lines, model.history_.validation):
        assert f"validation {found.score:.4f}" in line
    assert lines[-1].split()[-1] == f"{model.history_.validation[-1].score:.4f}"


# --- several processes ------------------------------------------------------------------------------------------------


def test_ranks_stop_together_and_keep_the_best_epoch(tmp_path, noisy, stores):
    X_val, y_val = noisy[2:]
    told = []

    def early(comm):
        held = {"X_val": X_val, "y_val": y_val} if comm.rank == 1 else {}
        callback = (lambda now: told.append(now.validation)) if comm.rank == 0 else None
        model = made(tmp_path / "m", comm=comm, max_iter=60, early_stopping=2, random_state=None)
        model.fit(stores["dense"], callback=callback, **held)
        assert model.history_.outcome == "patience"
        return model.n_iter_, model.objective_, [found.score for found in model.history_.validation]

    found = run_threads(3, early, timeout=60)
    assert all(other == found[0] for other in found)
    n_iter, _, scores = found[0]
    assert told == scores
    assert n_iter == int(np.argmax(scores)) + 3
    assert np.mean(load(tmp_path / "m").predict(X_val) == y_val) == pytest.approx(max(scores))


@pytest.mark.parametrize("rank", [0, 1])
def test_a_callback_of_one_rank_ends_all(tmp_path, stores, rank):
    def stopped(comm):
        callback = (lambda now: now.iteration == 2) if comm.rank == rank else None
        model = made(tmp_path / "m", comm=comm).fit(stores["dense"], callback=callback)
        return model.n_iter_, model.history_.outcome

    assert run_threads(2, stopped, timeout=60) == [(2, "stopped")] * 2


def test_an_error_or_an_interrupt_in_a_callback_of_one_rank_ends_all(tmp_path, stores):
    def failing(comm, error):
        def each(now):
            if now.iteration == 2:
                raise error

        model = made(tmp_path / "m", comm=comm)
        return model.fit(stores["dense"], callback=each if comm.rank == 0 else None).history_.outcome

    with pytest.raises(ArithmeticError, match="a bug in the callback"):
        run_threads(2, lambda comm: failing(comm, ArithmeticError("a bug in the callback")), timeout=60)
    assert not any(tmp_path.iterdir())
    assert run_threads(2, lambda comm: failing(comm, KeyboardInterrupt()), timeout=60) == ["interrupted"] * 2
    assert load(tmp_path / "m").record["n_iter"] == 2


# --- the command line -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("valid", [True, False])
def test_the_command_stops_early(capsys, tmp_path, stores, valid):
    words = ["fit", stores["dense"].path, "-o", tmp_path / "m", "--solver", "out_of_core", "--alpha", ALPHA]
    words += ["--valid", stores["held"].path] if valid else []
    ran = run(capsys, *words, "--early-stopping", 2, "--max-iter", 60, "--history", tmp_path / "h.csv")
    assert ran.code == 0, ran.err
    assert "best held-out score" in ran.out
    model = load(tmp_path / "m")
    assert model.record["outcome"] == "patience"
    scores = [row["score"] for row in model.record["history"]["validation"]]
    assert (tmp_path / "h.csv").read_text().count("\n") == 1 + len(scores)
    if valid:
        assert f"{max(scores):.4f}" in next(line for line in ran.out.splitlines() if "accuracy" in line.lower())
