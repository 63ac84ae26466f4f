"""What is minimized, when to stop, and what a fit gives back."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

__all__ = ["Fit", "Stop", "Task"]


@dataclass(frozen=True)
class Task:
    """``(1/n) sum_i phi(W^T x_i + b; y_i) + alpha ((1 - l1_ratio)/2 ||W||^2 + l1_ratio ||W||_1)``.

    Attributes
    ----------
    objective : str
        The loss phi: multinomial, crammer_singer, log_loss, hinge, smooth_hinge, squared_hinge (the last four one
        class against the rest, summed); "margin" for MEMOIR's steps; or "tree" for label trees, which have no
        objective in common.
    alpha, l1_ratio, gamma : float
        ``C`` of others is 1 / (alpha n). gamma smooths crammer_singer and smooth_hinge.
    intercept : bool
        An intercept b, free of penalty.
    options : pairs of name and value
        Of a method whose objective is its own: what its file says.
    """

    objective: str = "multinomial"
    alpha: float = 1e-4
    l1_ratio: float = 0.0
    gamma: float = 0.0
    intercept: bool = False
    options: tuple[tuple[str, Any], ...] = ()

    def C(self, n: int) -> float:
        """The same strength as a weight of the SUM of losses."""
        return 1.0 / (self.alpha * n)


@dataclass(frozen=True)
class Stop:
    """When to stop: ``tol`` in the method's own meaning (None: its default), ``max_iter`` iterations at most."""

    tol: float | None = None
    max_iter: int | None = None

    def given(self, **names: str) -> dict[str, Any]:
        """What is not None, under the names a library knows: ``given(tol="eps")``."""
        renamed = {names.get(key, key): getattr(self, key) for key in ("tol", "max_iter")}
        return {key: value for key, value in renamed.items() if value is not None}


@dataclass
class Fit:
    """A fitted model.

    Attributes
    ----------
    seconds : float
        Wall-clock time of the library's training call, everything in it counted.
    cpu_seconds : float, optional
        Processor time of this process in it: on one thread and a quiet machine, the same.
    predict : callable
        Labels of rows: class numbers, or a CSR indicator after a multi-label fit.
    weights, intercept : ndarray, optional
        d x K (one column for two classes) and K, of a linear model.
    model_bytes : int, optional
        Of the weights in memory, or of the model's files where the library keeps it in files.
    iterations : int, optional
    solver_seconds : float, optional
        Without evaluations and compilation, where the method keeps them apart.
    certificate : dict
        primal, dual and relative_gap, where the method certifies.
    estimate : dict
        Where ``seconds`` is estimated from some of the classes: what was measured.
    facts : dict
        What else the method tells of the fit.
    """

    seconds: float
    predict: Callable[[Any], Any]
    cpu_seconds: float | None = None
    weights: Any = None
    intercept: Any = None
    model_bytes: int | None = None
    iterations: int | None = None
    solver_seconds: float | None = None
    compile_seconds: float = 0.0
    certificate: dict[str, float] = field(default_factory=dict)
    estimate: dict[str, float] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)
