"""Data sets: read and write files of rows, features and labels.

Modules are imported when their names are first used: loading a model needs one of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from manyclass.runtime.lazy import on_first_use

if TYPE_CHECKING:  # "as": re-exported for type checkers
    from ._write_lines import write_svmlight as write_svmlight, write_xmc as write_xmc
    from .arrays import (
        read_labels as read_labels,
        read_npy as read_npy,
        read_npz as read_npz,
        write_npy as write_npy,
        write_npz as write_npz,
    )
    from .conversion import convert as convert
    from .dataset import Dataset as Dataset
    from .encoder import TableEncoder as TableEncoder
    from .errors import DataFormatError as DataFormatError
    from .folder import verify as verify
    from .formats import FORMATS as FORMATS, detect_format as detect_format, named_format as named_format
    from .reader import read as read, write as write
    from .svmlight import read_svmlight as read_svmlight
    from .tables import TableLayout as TableLayout, read_table as read_table
    from .text import TextVectorizer as TextVectorizer
    from .xmc import read_xmc as read_xmc

#: Public name -> its module.
_MODULES = {
    **dict.fromkeys(("write_svmlight", "write_xmc"), "_write_lines"),
    **dict.fromkeys(("read_labels", "read_npy", "read_npz", "write_npy", "write_npz"), "arrays"),
    "convert": "conversion",
    "Dataset": "dataset",
    "TableEncoder": "encoder",
    "DataFormatError": "errors",
    "verify": "folder",
    **dict.fromkeys(("FORMATS", "detect_format", "named_format"), "formats"),
    **dict.fromkeys(("read", "write"), "reader"),
    "read_svmlight": "svmlight",
    **dict.fromkeys(("TableLayout", "read_table"), "tables"),
    "TextVectorizer": "text",
    "read_xmc": "xmc",
}

__all__ = list(_MODULES)

__getattr__, __dir__ = on_first_use(__name__, {name: f"manyclass.io.{module}" for name, module in _MODULES.items()})
