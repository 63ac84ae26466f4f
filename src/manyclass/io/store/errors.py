"""What opening or verifying a wrong folder raises."""

from __future__ import annotations

import os

__all__ = ["StoreError"]


class StoreError(ValueError):
    """A folder or one of its files is not what its manifest says.

    Parameters
    ----------
    path : str or os.PathLike
        The folder or the file.
    what : str
        What is wrong with it, and what to do.

    Examples
    --------
    >>> print(StoreError("train.store", "there is no manifest.json in it"))
    train.store: there is no manifest.json in it
    """

    def __init__(self, path: str | os.PathLike[str], what: str) -> None:
        # Both are handed to the base class so that the exception survives pickling (a worker process).
        super().__init__(os.fspath(path), what)
        self.path = os.fspath(path)
        self.what = what

    def __str__(self) -> str:
        return f"{self.path}: {self.what}"
