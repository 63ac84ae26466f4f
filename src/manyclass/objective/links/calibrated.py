"""A learned link: least squares predictions from simple functions of the scores, then projected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from manyclass.objective.links._arrays import Array, as_float
from manyclass.objective.links.projection import onto_box, onto_simplex
from manyclass.runtime.threads import ranges

__all__ = ["BASES", "Basis", "Calibration", "expand"]

#: Name -> the powers of the scores in the basis, besides a constant.
BASES: dict[str, tuple[int, ...]] = {"linear": (1,), "quadratic": (1, 2), "cubic": (1, 2, 3)}
#: A name, or a function that maps scores (n, K) to features (n, q).
Basis = str | Callable[[Array], Array]

#: Number of rows expanded at a time.
_ROWS = 8192


@dataclass(frozen=True, eq=False)
class Calibration:
    """Predictions ``clip(G(scores) @ coefficients)``: the second half-step of calibrated least squares.

    Parameters
    ----------
    basis : {"cubic", "quadratic", "linear"} or callable
        G: a constant and the powers of each score up to degree 3, 2 or 1; a callable maps scores (n, K) to features
        (n, q), to which no constant is added.
    coefficients : ndarray of shape (n_basis, K)
        For a named basis of degree r, 1 + K r rows: the constant, the scores, their squares, their cubes.
    domain : {"simplex", "box", None}, default="simplex"
        The set that predictions are projected on: the probability simplex (one class per row), the hypercube [0, 1]^K
        (multilabel), or none.

    Raises
    ------
    ValueError
        If the basis or the domain is unknown, or the coefficients are not finite or of the wrong shape.

    References
    ----------
    Agarwal, Kakade, Karampatziakis, Song and Valiant, "Least squares revisited: scalable approaches for multi-class
    prediction", ICML 2014, algorithm 2, equation 19.

    Examples
    --------
    >>> import numpy as np
    >>> plain = Calibration("linear", np.vstack([np.zeros(2), np.eye(2)]), "simplex")
    >>> plain(np.array([[0.5, 0.5], [3.0, 1.0]]))
    array([[0.5, 0.5],
           [1. , 0. ]])
    """

    basis: Basis
    coefficients: Array
    domain: str | None = "simplex"

    def __post_init__(self) -> None:
        check_basis(self.basis)
        if self.domain not in ("simplex", "box", None):
            raise ValueError(f"domain must be 'simplex', 'box' or None, got {self.domain!r}")
        found = self.coefficients
        if not isinstance(found, np.ndarray) or found.ndim != 2 or found.dtype not in (np.float32, np.float64):
            raise ValueError(f"coefficients must be a float32 or float64 array of two dimensions, got {found!r}")
        if not np.isfinite(found).all():
            raise ValueError("coefficients must be finite numbers, got NaN or infinity")
        if isinstance(self.basis, str) and len(found) != 1 + len(BASES[self.basis]) * found.shape[1]:
            raise ValueError(
                f"coefficients of basis {self.basis!r} for {found.shape[1]} outputs must have "
                f"{1 + len(BASES[self.basis]) * found.shape[1]} rows, got {len(found)}"
            )

    @property
    def n_outputs(self) -> int:
        """Number of outputs K."""
        return int(self.coefficients.shape[1])

    def __call__(self, scores: Any, out: Array | None = None) -> Array:
        """Predictions for scores (n, K), of the shape and dtype of the scores; ``out=scores`` is allowed.

        Raises
        ------
        ValueError
            If the scores do not have K columns, or the predictions are not finite.
        """
        array = as_float(scores)
        if array.ndim != 2 or array.shape[1] != self.n_outputs:
            raise ValueError(f"scores must have shape (n, {self.n_outputs}), got {array.shape}")
        out = np.empty_like(array) if out is None else out
        project: Callable[..., Array] | None = None
        if self.domain is not None:
            project = onto_simplex if self.domain == "simplex" else onto_box
        for begin, end in ranges(len(array), _ROWS):
            with np.errstate(over="ignore", invalid="ignore"):
                part = np.asarray(expand(self.basis, array[begin:end]) @ self.coefficients, array.dtype)
            if not np.isfinite(part).all():
                raise ValueError(
                    "calibrated scores must be finite, got NaN or infinity: check the data for NaN, infinity and "
                    "huge values"
                )
            out[begin:end] = part if project is None else project(part, out=part)
        return out

    def to_state(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """The state as a dict for JSON and a dict of arrays; `from_state` is the inverse.

        Raises
        ------
        ValueError
            If the basis is a callable: files do not contain code.
        """
        if not isinstance(self.basis, str):
            raise ValueError(
                f"a calibration whose basis is a callable ({getattr(self.basis, '__name__', self.basis)!r}) cannot be "
                f"saved to a file: fit with a named basis, one of {', '.join(map(repr, BASES))}"
            )
        return {"basis": self.basis, "domain": self.domain}, {"coefficients": self.coefficients}

    @classmethod
    def from_state(cls, state: dict[str, Any], arrays: dict[str, Array]) -> Calibration:
        """The calibration with the state that `to_state` returned.

        Raises
        ------
        ValueError
            If the state is incomplete or invalid.
        """
        missing = [
            name for name, found in (("basis", state), ("domain", state), ("coefficients", arrays)) if name not in found
        ]
        if missing:
            raise ValueError(f"the state of a calibration needs {', '.join(missing)}")
        if not isinstance(state["basis"], str):
            raise ValueError(f"basis must be one of {', '.join(map(repr, BASES))}, got {state['basis']!r}")
        return cls(state["basis"], arrays["coefficients"], state["domain"])


def check_basis(basis: Any) -> None:
    """Raise a ValueError unless ``basis`` is the name of a basis or a callable."""
    if not callable(basis) and (not isinstance(basis, str) or basis not in BASES):
        raise ValueError(f"basis must be one of {', '.join(map(repr, BASES))} or a callable, got {basis!r}")


def expand(basis: Basis, scores: Array) -> Array:
    """G(scores) for scores (n, K), an array (n, 1 + K r) for a named basis.

    Raises
    ------
    ValueError
        If a callable does not return n rows of numbers.
    """
    if not isinstance(basis, str):
        made = np.asarray(basis(scores))
        if made.ndim != 2 or len(made) != len(scores) or made.dtype.kind not in "biuf":
            raise ValueError(
                f"basis must return one row of numbers for each of the {len(scores)} rows of scores, got an array of "
                f"{made.dtype} and shape {made.shape}"
            )
        return made
    n, K = scores.shape
    powers = BASES[basis]
    out = np.empty((n, 1 + K * len(powers)), scores.dtype)
    out[:, 0] = 1.0
    for at in range(len(powers)):
        block = out[:, 1 + at * K : 1 + (at + 1) * K]
        np.multiply(out[:, 1 + (at - 1) * K : 1 + at * K] if at else 1.0, scores, out=block)
    return out
