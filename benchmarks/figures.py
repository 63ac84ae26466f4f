"""What several figures need."""

from __future__ import annotations

from typing import Any

__all__ = ["legend_below", "log_seconds"]


def log_seconds(ax: Any, label: str) -> None:
    """A logarithmic horizontal axis of seconds, with numbers that people read: 0.2, 5, 100."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    ax.set_xscale("log")
    low, high = ax.get_xlim()
    subs = (1.0, 2.0, 5.0) if high / low < 500 else (1.0,)
    ax.xaxis.set_major_locator(LogLocator(subs=subs))
    ax.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    ax.xaxis.set_minor_formatter(NullFormatter())
    ax.set_xlabel(label)
    ax.grid(axis="x", alpha=0.3)


def legend_below(ax: Any, columns: int = 4) -> None:
    """The legend of ``ax`` under the figure, where it covers nothing."""
    ax.figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=columns, fontsize=7)
