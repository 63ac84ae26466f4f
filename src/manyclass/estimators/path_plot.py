"""The picture of a regularization path."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import scipy.sparse as sp

from manyclass.objective.problem import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes


__all__ = ["new_axes", "plot_path"]

#: Most lines that a legend tells apart.
_NAMED = 10


def new_axes(ax: Axes | None) -> Axes:
    """``ax``, or the axes of a new figure.

    Raises
    ------
    ImportError
        Without matplotlib, with what to install.
    """
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError(
            "figures need matplotlib: install it with  python -m pip install 'manyclass[plot]'"
        ) from error
    return plt.subplots()[1]


def plot_path(path: Any, ax: Axes | None, max_features: int) -> Axes:
    """See `RegularizationPath.plot`."""
    ax = new_axes(ax)
    from mpl_toolkits.axes_grid1 import make_axes_locatable  # type: ignore[import-untyped]

    features, lines = _lines(path, max_features)
    names = path.models[0].feature_names
    for feature, line in zip(features.tolist(), lines.T):
        ax.plot(path.alphas, line, linewidth=1, label=str(feature if names is None else names[feature]))
    ax.set_xscale("log")
    if not ax.xaxis_inverted():
        ax.invert_xaxis()  # as the path is walked: features enter from the left
    ax.set_ylabel("weight" if path.models[0].n_outputs == 1 else "norm of the weights of a feature")
    ax.grid(alpha=0.3)
    if 0 < len(features) <= _NAMED:
        ax.legend(fontsize="small", title="feature", loc="upper left", ncols=2)

    below = make_axes_locatable(ax).append_axes("bottom", size="45%", pad=0.12, sharex=ax)
    ax.tick_params(labelbottom=False)
    below.step(path.alphas, path.n_features, where="mid", color="tab:blue", label="features in use")
    below.set_ylim(bottom=0)
    below.set_xlabel("alpha")
    below.set_ylabel("features", color="tab:blue")
    below.grid(alpha=0.3)
    gaps = below.twinx()
    gaps.semilogy(path.alphas, path.gaps, ".", color="tab:red", label="certified relative gap")
    if path.tol > 0:
        gaps.axhline(path.tol, color="tab:red", linewidth=0.8, linestyle=":")
    gaps.set_ylabel("relative gap", color="tab:red")
    return ax


def _lines(path: Any, max_features: int) -> tuple[Array, Array]:
    """The features that become largest, and what is drawn of them: (n_alphas, n_lines)."""
    largest = np.max([_norms(model.weights) for model in path.models], axis=0)
    chosen = np.argsort(-largest, kind="stable")[:max_features]
    chosen = np.sort(chosen[largest[chosen] > 0])
    single = path.models[0].n_outputs == 1
    lines = [_signed(model.weights, chosen) if single else _norms(model.weights)[chosen] for model in path.models]
    return chosen, np.stack(lines)


def _signed(weights: Any, chosen: Array) -> Array:
    return np.asarray(weights[chosen].toarray() if sp.issparse(weights) else weights[chosen])[:, 0]


def _norms(weights: Any) -> Array:
    squares = weights.multiply(weights) if sp.issparse(weights) else np.square(weights)
    return np.sqrt(np.asarray(squares.sum(axis=1), np.float64).ravel())
