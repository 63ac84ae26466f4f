"""The rows of a table while they are read for an encoder."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ._columns import MISSING, UNKNOWN, Categories, Column, Numbers, Texts
from ._layout import find_names, listed
from .errors import counted

if TYPE_CHECKING:
    from .encoder import TableEncoder

__all__ = ["TableRows"]


class TableRows:
    """The rows of a table, collected for an encoder some at a time.

    Parameters
    ----------
    encoder : TableEncoder
        The encoder.
    names : list of str
        The columns of the table.
    some : callable or None
        Returns some values of a column, given its name, and the encoder is to be fitted. None: it is fitted.
    typed : bool
        Whether numbers are numbers, or texts as in CSV.

    Raises
    ------
    ValueError
        If the columns do not fit the encoder.
    """

    def __init__(
        self, encoder: TableEncoder, names: Sequence[str], some: Callable[[str], Sequence[Any]] | None, *, typed: bool
    ) -> None:
        self._encoder, self._fit = encoder, some is not None
        if some is not None:
            encoder._choose(names, some, typed)
        found = [find_names(names, column) for column in encoder.columns]
        absent = [column for column, places in zip(encoder.columns, found) if not places]
        if absent:
            raise ValueError(
                f"the table lacks {counted(len(absent), 'column')} of the fit, {listed(absent)} (it has "
                f"{listed(names)}): add it, empty where it has no values"
            )
        twice = [names[places[0]] for places in found if len(places) > 1]
        if twice:
            raise ValueError(f"the table has several columns {twice[0]!r}; expected different names: rename one")
        #: The place in the table of each of `columns`.
        self.places = [places[0] for places in found]
        known = [None] * len(encoder.category_columns_) if self._fit else encoder.categories_
        self.columns: list[Column] = [
            *map(Numbers, encoder.number_columns_),
            *map(Categories, encoder.category_columns_, known),
            *map(Texts, encoder.text_columns_),
        ]

    def extend(self, rows: Sequence[Sequence[Any]]) -> None:
        """Add rows, each with the values of all columns of the table; a `BadValue` has the index of a wrong one."""
        for place, column in zip(self.places, self.columns):
            column.extend([row[place] for row in rows])

    def features(self) -> Any:
        """The features of all rows, after the fit if there is to be one."""
        if self._fit:
            self._encoder._learn(self.columns)
        X = self._encoder._encode(self.columns, self._fit)
        self._encoder._named()
        return X

    def gaps(self) -> list[tuple[str, int, str]]:
        """Column, number of rows, and what is missing in them or not known to the encoder."""
        found = []
        for column in self.columns:
            if isinstance(column, Numbers):
                found.append((column.name, int(np.isnan(column.values).sum()), "without a number"))
            elif isinstance(column, Categories):
                codes = column.values
                found.append((column.name, int((codes == MISSING).sum()), "without a category"))
                found.append((column.name, int((codes == UNKNOWN).sum()), "with a category that the fit did not have"))
        return [gap for gap in found if gap[1]]
