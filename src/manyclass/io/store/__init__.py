"""Row stores: folders of shards with the rows of data larger than memory, which are mapped window by window."""

from manyclass.io.folder import StoreError, folder_format

from .rows import RowStore
from .view import RowView, Window
from .writer import RowStoreWriter, write_store

__all__ = [
    "RowStore",
    "RowStoreWriter",
    "RowView",
    "StoreError",
    "Window",
    "folder_format",
    "write_store",
]
