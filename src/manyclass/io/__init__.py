"""Data sets: read and write files of rows, features and labels."""

from ._layout import TableLayout
from ._write_lines import write_svmlight, write_xmc
from .arrays import read_labels, read_npy, read_npz, write_npy, write_npz
from .convert import convert
from .dataset import Dataset
from .errors import DataFormatError
from .reader import FORMATS, detect_format, named_format, read, write
from .svmlight import read_svmlight
from .tables import read_table
from .text import TextVectorizer
from .xmc import read_xmc

__all__ = [
    "convert",
    "FORMATS",
    "DataFormatError",
    "Dataset",
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
    "write",
    "write_npy",
    "write_npz",
    "write_svmlight",
    "write_xmc",
]
