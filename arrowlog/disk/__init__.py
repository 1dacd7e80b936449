"""The log on disk: topics of segments and records, in a folder or an object store.

`docs/log-format.md` is the manual of what lies there.
"""

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
