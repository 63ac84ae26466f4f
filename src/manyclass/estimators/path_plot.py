"""Plots against alpha: of a regularization path, and of the scores by which alpha was chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import scipy.sparse as sp

from manyclass.objective.problem import Array

if TYPE_CHECKING:
    from matplotlib.axes import Axes


__all__ = ["ScoreCurve", "Scored", "plot_path"]

#: Maximum number of lines with an entry in the legend.
_NAMED = 10


def _new_axes(ax: Axes | None) -> Axes:
    """``ax``, or the axes of a new figure.

    Raises
    ------
    ImportError
        If matplotlib is missing; the message says what to install.
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


def _over_alpha(ax: Axes) -> None:
    """Use a logarithmic axis with alphas that decrease to the right, the order in which they are fitted."""
    ax.set_xscale("log")
    if not ax.xaxis_inverted():
        ax.invert_xaxis()
    ax.grid(alpha=0.3)


class ScoreCurve(NamedTuple):
    """Scores by alpha: arrays of alphas and scores, and of standard errors if known."""

    label: str
    alphas: Any
    scores: Any
    errors: Any = None


class Scored:
    """Mixin of estimators that choose alpha by scores; adds `plot`."""

    def _score_curves(self) -> tuple[str, list[ScoreCurve], dict[str, float]]:
        """The name of the scores, the scores, and the alphas to mark by a line."""
        from sklearn.exceptions import NotFittedError

        estimator: Any = self
        scores = getattr(self, "validation_scores_", None)
        if scores is None:
            raise NotFittedError("there are no scores to plot: plot needs a fit with alpha='auto', call fit first")
        curve = ScoreCurve("held-out rows", list(scores), list(scores.values()))
        return "score on held-out rows", [curve], {"best": estimator.alpha_}

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the scores by which alpha was chosen; requires the extra ``manyclass[plot]``.

        With ``alpha="auto"`` these are the scores on held-out rows, ``validation_scores_``; with cross-validation the
        mean scores for each l1_ratio, with their standard errors. A solid line marks the best alpha, a dashed line the
        largest alpha within one standard error of it.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to draw on; by default those of a new figure.

        Returns
        -------
        matplotlib Axes
            The axes.

        Raises
        ------
        ImportError
            If matplotlib is missing; the message says what to install.
        NotFittedError
            If the estimator is not fitted, or alpha was not chosen by scores.

        Examples
        --------
        >>> from matplotlib.figure import Figure
        >>> from sklearn.datasets import load_iris
        >>> from manyclass import LinearClassifier
        >>> model = LinearClassifier(alpha="auto", random_state=0).fit(*load_iris(return_X_y=True))
        >>> ax = model.plot(Figure().subplots())
        >>> ax.get_xlabel(), ax.get_ylabel()
        ('alpha', 'score on held-out rows')
        """
        name, curves, marks = self._score_curves()
        ax = _new_axes(ax)
        for curve in curves:
            ax.errorbar(curve.alphas, curve.scores, curve.errors, marker=".", linewidth=1, capsize=2, label=curve.label)
        for (label, alpha), style in zip(marks.items(), ("-", "--")):
            ax.axvline(alpha, color="black", linewidth=0.8, linestyle=style, label=f"{label}: {alpha:.3g}")
        _over_alpha(ax)
        ax.set_xlabel("alpha")
        ax.set_ylabel(name)
        ax.legend(fontsize="small")
        return ax


def plot_path(path: Any, ax: Axes | None, max_features: int) -> Axes:
    """See `RegularizationPath.plot`."""
    own = ax is None
    ax = _new_axes(ax)
    if own:
        ax.figure.subplots_adjust(right=0.86)  # for the label of the gaps
    from mpl_toolkits.axes_grid1 import make_axes_locatable  # type: ignore[import-untyped]

    features, lines = _lines(path, max_features)
    names = path.models[0].feature_names
    for feature, line in zip(features.tolist(), lines.T):
        ax.plot(path.alphas, line, linewidth=1, label=str(feature if names is None else names[feature]))
    _over_alpha(ax)
    ax.set_ylabel("weight" if path.models[0].n_outputs == 1 else "norm of the weights of a feature")
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
    """The features with the largest weights on the path, and their curves (n_alphas, n_lines)."""
    largest: Array = np.max([_norms(model.weights) for model in path.models], axis=0)
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
