"""Data sets: read and write files of rows, features and labels."""

from typing import TYPE_CHECKING, Any

from ._write_lines import write_svmlight, write_xmc
from .arrays import read_labels, read_npy, read_npz, write_npy, write_npz
from .convert import convert
from .dataset import Dataset
from .errors import DataFormatError
from .folder import verify
from .reader import FORMATS, detect_format, named_format, read, write
from .svmlight import read_svmlight
from .tables import TableLayout, read_table
from .xmc import read_xmc

if TYPE_CHECKING:
    from .encoder import TableEncoder as TableEncoder
    from .text import TextVectorizer as TextVectorizer

__all__ = [
    "convert",
    "FORMATS",
    "DataFormatError",
    "Dataset",
    "TableEncoder",
    "TableLayout",
    "TextVectorizer",
    "detect_format",
    "named_format",
    "read",
    "read_labels",
    "read_npy",
    "read_npz",
    "read_svmlight",
    "read_table",
    "read_xmc",
    "verify",
    "write",
    "write_npy",
    "write_npz",
    "write_svmlight",
    "write_xmc",
]


def __getattr__(name: str) -> Any:
    """`TextVectorizer` and `TableEncoder`, which import scikit-learn, when they are first asked for."""
    if name == "TextVectorizer":
        from .text import TextVectorizer

        return TextVectorizer
    if name == "TableEncoder":
        from .encoder import TableEncoder

        return TableEncoder
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
