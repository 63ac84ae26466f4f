"""Softmax where the rows are: ours, PyTorch's and scikit-learn's L-BFGS on the tensors of one device.

Generated embeddings are made on the device. Ours is fitted to a certified gap of 1e-3, once per run with a seed of its
own; the worst of the objectives is the target. PyTorch's L-BFGS ends at the evaluation that is at the target;
scikit-learn's, which cannot be watched, gets the least number of iterations that reaches it, found off the clock.
What a row calls iterations are of PyTorch evaluations of the objective. Objectives are computed in float64 on the
device.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np

from benchmarks.bench import Bench
from benchmarks.datasets import embeddings
from benchmarks.devices import device_facts, matrix_peak, memory_peak, no_torch, settled
from benchmarks.measure import Stopwatch, quiet, spread_text
from benchmarks.search import Iterations, Trial

__all__ = ["METHODS", "run"]

TOL = 1e-3
#: Rows that are judged at a time.
_ROWS = 1 << 14


@dataclass
class Case:
    """A problem on a device: X, y and the rows to test are PyTorch's tensors."""

    X: Any
    y: Any
    X_test: Any
    y_test: Any
    n_classes: int
    alpha: float
    intercept: bool
    threads: int

    def objective(self, W: Any, b: Any) -> float:
        """The objective in float64."""
        import torch

        W, b, losses = W.double(), b.double(), 0.0
        for begin in range(0, len(self.X), _ROWS):
            scores = self.X[begin : begin + _ROWS].double() @ W + b
            losses += float(torch.nn.functional.cross_entropy(scores, self.y[begin : begin + _ROWS], reduction="sum"))
        return losses / len(self.X) + 0.5 * self.alpha * float((W * W).sum())

    def accuracy(self, W: Any, b: Any) -> float:
        """The fraction of the test rows whose class has the highest score."""
        return float(((self.X_test @ W + b).argmax(dim=1) == self.y_test).double().mean())


@dataclass
class Fitted:
    """A fit: weights and intercept on the device, seconds, and what else is known of it."""

    W: Any
    b: Any
    seconds: float
    iterations: int
    facts: dict[str, Any]


# --- methods ----------------------------------------------------------------------------------------------------------


def _ours(X: Any, y: Any, case: Case, seed: int) -> Fitted:
    import torch

    from manyclass import LinearClassifier

    def make(tol: float) -> Any:
        given = {"alpha": case.alpha, "fit_intercept": case.intercept, "tol": tol, "random_state": seed}
        return LinearClassifier("multinomial", n_jobs=case.threads, **given)

    device = str(case.X.device)
    with quiet():
        make(1.0).fit(X[: 20 * case.n_classes], y[: 20 * case.n_classes])  # compiles, and loads the libraries
        model = make(TOL)
        settled(device)
        with Stopwatch() as watch:
            model.fit(X, y)
            settled(device)
    last = model.history_.last
    n, d = case.X.shape
    # One of the passes is that of the second moments; of NumPy's rows the first, at weights of 0, has no products.
    others = 2 if isinstance(X, np.ndarray) else 1
    work = 4.0 * n * d * case.n_classes * (last.passes - others)
    facts = {
        "solver": model.solver_,
        "relative_gap": last.relative_gap,
        "solver_seconds": last.seconds,
        "passes": last.passes,
        "gflops": work / last.seconds / 1e9,
    }
    W = torch.from_numpy(np.ascontiguousarray(model.model_.weights)).to(case.X)
    return Fitted(W, torch.from_numpy(model.intercept_.copy()).to(case.X), watch.seconds, int(model.n_iter_), facts)


def _on_device(case: Case, seed: int) -> Fitted:
    return _ours(case.X, case.y, case, seed)


def _on_cupy(case: Case, seed: int) -> Fitted:
    import cupy

    return _ours(cupy.from_dlpack(case.X), cupy.from_dlpack(case.y), case, seed)


def _on_processor(case: Case, seed: int) -> Fitted:
    return _ours(case.X.cpu().numpy(), case.y.cpu().numpy(), case, seed)


class _Reached(Exception):
    """The objective is at the target."""


@contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    import torch

    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high" if allowed else "highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _torch(case: Case, target: float, most: int, *, tf32: bool) -> Fitted:
    """PyTorch's L-BFGS on full batches, with its strong Wolfe line search."""
    import torch

    d, device = case.X.shape[1], case.X.device
    evaluations = 0
    with _tf32(tf32), Stopwatch() as watch:
        W = torch.zeros((d, case.n_classes), dtype=case.X.dtype, device=device, requires_grad=True)
        b = torch.zeros(case.n_classes, dtype=case.X.dtype, device=device, requires_grad=case.intercept)
        how = {"max_iter": most, "max_eval": 30 * most, "history_size": 10, "line_search_fn": "strong_wolfe"}
        solver = torch.optim.LBFGS([W, b] if case.intercept else [W], tolerance_grad=0, tolerance_change=0, **how)

        def evaluate() -> torch.Tensor:
            nonlocal evaluations
            solver.zero_grad()
            loss = torch.nn.functional.cross_entropy(case.X @ W + b, case.y) + 0.5 * case.alpha * (W * W).sum()
            evaluations += 1
            if float(loss.detach()) <= target * (1 + 6e-8):  # half of the last place of float32
                raise _Reached
            loss.backward()
            return loss

        reached = False
        try:
            solver.step(evaluate)
        except _Reached:
            reached = True
        settled(str(device))
    return Fitted(W.detach(), b.detach(), watch.seconds, evaluations, {"reached": reached})


def _sklearn(case: Case, target: float, most: int) -> Fitted:
    """scikit-learn's LogisticRegression(solver="lbfgs") by its array API dispatch."""
    import torch
    from sklearn import config_context
    from sklearn.linear_model import LogisticRegression

    model = LogisticRegression(
        C=1.0 / (case.alpha * len(case.X)), fit_intercept=case.intercept, tol=1e-12, max_iter=most
    )
    with _tf32(False), quiet(), config_context(array_api_dispatch=True), Stopwatch() as watch:
        model.fit(case.X, case.y)
        settled(str(case.X.device))
    b = torch.zeros(case.n_classes).to(case.X) + torch.as_tensor(model.intercept_).to(case.X)
    return Fitted(torch.as_tensor(model.coef_).T.to(case.X), b, watch.seconds, most, {})


OURS: dict[str, Callable[[Case, int], Fitted]] = {
    "on_device": _on_device,
    "on_device_cupy": _on_cupy,
    "on_processor": _on_processor,
}
PEERS: dict[str, Callable[[Case, float, int], Fitted]] = {
    "torch_lbfgs": lambda case, target, most: _torch(case, target, most, tf32=False),
    "torch_lbfgs_tf32": lambda case, target, most: _torch(case, target, most, tf32=True),
    "sklearn_array_lbfgs": _sklearn,
}
METHODS = (*OURS, *PEERS)


def _refusal(name: str, device: str) -> str | None:
    """Why a method cannot run on this device."""
    cuda = device.startswith("cuda")
    if name == "on_device_cupy" and not (cuda and find_spec("cupy")):
        return "needs CuPy and a CUDA device"
    if name == "torch_lbfgs_tf32" and not cuda:
        return "TF32 is of CUDA devices"
    if name != "sklearn_array_lbfgs":
        return None
    from sklearn.linear_model import LogisticRegression

    if not LogisticRegression().__sklearn_tags__().array_api_support:
        return "this version's LogisticRegression takes no arrays of other libraries: scikit-learn 1.9 does"
    return None if os.environ.get("SCIPY_ARRAY_API") == "1" else "set SCIPY_ARRAY_API=1, which its dispatch needs"


# --- the experiment ---------------------------------------------------------------------------------------------------


def run(bench: Bench) -> None:
    """See the module."""
    if no_torch():
        bench.skip(str(no_torch()))
        return
    import torch

    device = str(bench.options.device)
    torch.set_num_threads(bench.options.threads)
    chosen = []
    for name in bench.options.only or ("on_device", *PEERS):
        reason = _refusal(name, device)
        if reason:
            bench.skip(reason, method=name)
        else:
            chosen.append(name)
    if not set(chosen) & set(OURS):
        bench.skip(f"no fit of ours that sets the target: add one of {', '.join(OURS)}")
        return
    for name in bench.options.datasets or ("mnist", "embeddings/100", "embeddings/1000", "embeddings/imagenet"):
        parts = _parts(bench, name, device)
        if parts is None:
            continue
        for alpha in bench.alphas(1e-4, 1e-6, 1.0 / len(parts[0])):
            K = int(parts[1].max()) + 1
            case = Case(*parts, K, alpha, bench.options.intercept == "yes", bench.options.threads)
            _contest(bench, name, case, chosen)
        del parts, case
        if device.startswith("cuda"):
            torch.cuda.empty_cache()
    _report(bench)


def _parts(bench: Bench, name: str, device: str) -> tuple[Any, Any, Any, Any] | None:
    """X, y, X_test, y_test on the device; None if the raw files are not there, which is recorded."""
    import torch

    base, _, variant = name.partition("/")
    if base == "embeddings":
        return embeddings.on_device("small" if bench.options.quick else variant or "100", device)
    for source in bench.datasets(name):
        if source.name == name:
            data = source.read().cast("float32")
            given = data.X, data.y.astype(np.int64), data.X_test, data.y_test.astype(np.int64)
            return tuple(torch.from_numpy(np.ascontiguousarray(part)).to(device) for part in given)  # type: ignore[return-value]
    return None


def _contest(bench: Bench, name: str, case: Case, chosen: list[str]) -> None:
    n, d = case.X.shape
    about = {"data": name, "alpha": case.alpha, "intercept": case.intercept, "dtype": "float32", "tol": TOL}
    about |= {"n": n, "d": d, "K": case.n_classes, **device_facts(str(case.X.device))}
    about |= {f"peak_gflops{key}": peak / 1e9 for key, peak in matrix_peak(case.X, case.n_classes).items()}
    target = -np.inf

    def record(method: str, number: int, fitted: Fitted, **more: Any) -> float:
        found = case.objective(fitted.W, fitted.b)
        told = {"seconds": fitted.seconds, "iterations": fitted.iterations, **memory_peak(str(case.X.device))}
        told |= {"objective": found, "accuracy": case.accuracy(fitted.W, fitted.b)}
        bench.record(**about, method=method, run=number, **told, **fitted.facts, **more)
        bench.say(f"{name} {case.alpha:g} {method}: {fitted.seconds:.3g} s, {fitted.iterations}, {found:.8g}")
        return found

    for number in range(bench.options.runs):
        for method in (method for method in chosen if method in OURS):
            if number and method == "on_processor":
                continue
            found = record(method, number, OURS[method](case, number))
            target = max(target, found)
    for method in (method for method in chosen if method in PEERS):
        try:
            for number, fitted in enumerate(_peer(bench, case, method, target)):
                record(method, number, fitted, target=target)
        except RuntimeError as error:  # out of the device's memory
            bench.fail(str(error).splitlines()[0], **about, method=method)


def _peer(bench: Bench, case: Case, method: str, target: float) -> Iterator[Fitted]:
    """The runs of a peer. PyTorch's stops by itself; of scikit-learn's the least number of iterations is searched."""
    fit = PEERS[method]
    if method != "sklearn_array_lbfgs":
        each = fit(case, target, 4).seconds / 4
        most = max(8, min(4096, int(bench.options.budget / max(1e-3, each))))
        for _ in range(bench.options.runs):
            yield fit(case, target, most)
        return

    def trial(most: int) -> Trial:
        fitted = fit(case, target, most)
        return Trial(case.objective(fitted.W, fitted.b), fitted.seconds, most)

    found = Iterations(trial, bench.options.budget).search(target, None)
    for _ in range(bench.options.runs):
        fitted = fit(case, target, int(found.setting))
        fitted.facts["reached"] = found.reached
        yield fitted


def _report(bench: Bench) -> None:
    """Seconds, and operations per second of our fits as a fraction of the device's products alone."""
    cases: dict[tuple[str, float], dict[str, list[dict[str, Any]]]] = {}
    for row in bench.rows:
        if row["status"] == "measured":
            cases.setdefault((row["data"], row["alpha"]), {}).setdefault(row["method"], []).append(row)
    lines = []
    for (data, alpha), methods in cases.items():
        mine = median(row["seconds"] for row in methods["on_device"]) if "on_device" in methods else None
        for method, rows in methods.items():
            seconds = [row["seconds"] for row in rows]
            shares = [row.get("gflops", 0) / row["peak_gflops"] for row in rows]
            lines.append(
                [
                    f"{data} {alpha:g}",
                    method,
                    spread_text(seconds),
                    None if mine is None else f"{median(seconds) / mine:.2f}",
                    rows[0]["iterations"],
                    f"{rows[0]['objective']:.7g}",
                    spread_text(shares) if method in OURS else None,
                ]
            )
    columns = ("case", "method", "fit s", "ratio", "iterations", "objective", "of products in float32")
    if lines:
        bench.table(f"Seconds to the same objective on {bench.options.device}", columns, lines)
