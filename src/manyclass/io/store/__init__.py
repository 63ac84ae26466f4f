"""Row stores: folders of shards with the rows of data larger than memory, which are mapped window by window."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

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


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"manyclass.io.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
