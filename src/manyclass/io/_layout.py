"""How a table was read, so that the next one of its kind is read in the same way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

__all__ = ["TableLayout"]


@dataclass(frozen=True)
class TableLayout:
    """The header, the columns and the quoting of a table that was read.

    Attributes
    ----------
    header : bool
        Whether the first line names the columns.
    columns : int
        The number of columns.
    text_column : str or int
        The column of the texts: its name in the header; its position from 0 where there is no header, or where the
        name is not unique.
    label_column : str, int or None
        The column of the labels; None if no labels were read from the table.
    delimiter : str
        What stands between fields.
    quote : str or None
        What surrounds fields that hold delimiters or line ends.
    label_separator : str or None
        What stands between the labels of a row, where it may have several.

    Examples
    --------
    >>> layout = TableLayout(True, 2, "title", "queue", ",", '"', None)
    >>> TableLayout.from_dict(layout.to_dict()) == layout
    True
    """

    header: bool
    columns: int
    text_column: str | int
    label_column: str | int | None
    delimiter: str
    quote: str | None
    label_separator: str | None

    def to_dict(self) -> dict[str, Any]:
        """The attributes, fit for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, facts: Mapping[str, Any]) -> TableLayout:
        """The layout whose `to_dict` this is.

        Raises
        ------
        ValueError
            If it is damaged.
        """
        try:
            layout = cls(**facts)
        except TypeError as error:
            raise ValueError(f"the layout of the table is damaged ({error})") from error
        types: dict[str, tuple[type, ...]] = {
            "header": (bool,),
            "columns": (int,),
            "text_column": (str, int),
            "label_column": (str, int, type(None)),
            "delimiter": (str,),
            "quote": (str, type(None)),
            "label_separator": (str, type(None)),
        }
        for each in fields(layout):
            value = getattr(layout, each.name)
            if type(value) not in types[each.name]:
                raise ValueError(f"the layout of the table is damaged: its {each.name} is {value!r}")
        names = {type(layout.text_column), type(layout.label_column)}
        positions = [place for place in (layout.text_column, layout.label_column) if isinstance(place, int)]
        if (str in names and not layout.header) or not all(0 <= place < layout.columns for place in positions):
            raise ValueError(f"the layout of the table is damaged: {layout!r}")
        if len(layout.delimiter) != 1 or (layout.quote is not None and len(layout.quote) != 1):
            raise ValueError(f"the layout of the table is damaged: {layout!r}")
        return layout
