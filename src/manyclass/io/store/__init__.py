"""Row stores: folders of shards with the rows of data larger than memory, which are mapped window by window."""

from __future__ import annotations

from typing import TYPE_CHECKING

from manyclass.runtime.lazy import on_first_use

if TYPE_CHECKING:  # "as": re-exported for type checkers
    from manyclass.io.folder import StoreError as StoreError, folder_format as folder_format
    from manyclass.io.store.rows import RowStore as RowStore
    from manyclass.io.store.view import RowView as RowView, Window as Window
    from manyclass.io.store.writer import RowStoreWriter as RowStoreWriter, write_store as write_store

#: Public name -> its module, which is imported when the name is first used.
_MODULES = {
    **dict.fromkeys(("StoreError", "folder_format"), "folder"),
    "RowStore": "store.rows",
    **dict.fromkeys(("RowView", "Window"), "store.view"),
    **dict.fromkeys(("RowStoreWriter", "write_store"), "store.writer"),
}

__all__ = list(_MODULES)

__getattr__, __dir__ = on_first_use(__name__, {name: f"manyclass.io.{module}" for name, module in _MODULES.items()})
