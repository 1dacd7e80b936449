"""The log on disk: topics of segments and records, in a folder or an object store.

`docs/log-format.md` specifies the files.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from streamfactory.arrowlog.disk.local import LocalStorage
    from streamfactory.arrowlog.disk.log import DiskLog
    from streamfactory.arrowlog.disk.settings import Settings
    from streamfactory.arrowlog.disk.storage import NewBlob, Storage, Watch
    from streamfactory.arrowlog.disk.store import DiskLogStore

__all__ = [
    "DiskLog",
    "DiskLogStore",
    "LocalStorage",
    "NewBlob",
    "Settings",
    "Storage",
    "Watch",
]

_WHERE: Final = {
    "DiskLog": "streamfactory.arrowlog.disk.log",
    "DiskLogStore": "streamfactory.arrowlog.disk.store",
    "LocalStorage": "streamfactory.arrowlog.disk.local",
    "NewBlob": "streamfactory.arrowlog.disk.storage",
    "Settings": "streamfactory.arrowlog.disk.settings",
    "Storage": "streamfactory.arrowlog.disk.storage",
    "Watch": "streamfactory.arrowlog.disk.storage",
}


def __getattr__(name: str) -> Any:
    # Lazy: declarations of options are here too, and must not load Arrow.
    if name not in _WHERE:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    return getattr(import_module(_WHERE[name]), name)
