"""Creates the storage of a configuration: a folder, an object store, a file system.

Used by the stream type `file` and by servers that keep topics.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.arrowlog.disk.folders import Modes
from streamfactory.arrowlog.disk.local import LocalStorage
from streamfactory.arrowlog.disk.names import ARROW
from streamfactory.arrowlog.disk.rules import KINDS, scheme_of
from streamfactory.arrowlog.disk.settings import Settings
from streamfactory.arrowlog.disk.single import SingleWriterStorage

if TYPE_CHECKING:
    from streamfactory.arrowlog.disk.objects import ObjectStorage
    from streamfactory.arrowlog.disk.storage import Storage
    from streamfactory.spi import StreamConfig

_READ: Final = 0o444


def storage_of(config: StreamConfig) -> Storage:
    """Create the storage of ``path``.

    Raises:
        NotInstalled: plugin.
    """
    path: str = config["path"]
    scheme = scheme_of(path)
    single = bool(config["single.writer"])
    # Imported here: a local folder needs none of what object stores need.
    if scheme in KINDS:
        return object_storage(config)
    if scheme:
        from streamfactory.arrowlog.disk.filesystems import FileSystemStorage

        return FileSystemStorage.of(path, single_writer=single)
    local = SingleWriterStorage if single else LocalStorage
    return local(
        Path(path),
        fsync=config["fsync"],
        interval=config["fsync.interval.millis"] / 1000,
        modes=_modes(config),
    )


def _modes(config: StreamConfig) -> Modes:
    """Permissions of what is made."""
    file, folder = config.get("mode"), config.get("folder.mode")
    if folder is None and file is not None:
        folder = file | (file & _READ) >> 2
    return Modes(file, folder)


def object_storage(config: StreamConfig, location: str | None = None) -> ObjectStorage:
    """Create the storage of a URL of an object store.

    Args:
        config: With the options ``storage.*``.
        location: The URL; None means ``path``.

    Raises:
        NotInstalled: plugin.
    """
    from streamfactory.arrowlog.disk.objectclient import ObjectOptions
    from streamfactory.arrowlog.disk.objects import ObjectStorage

    location = config["path"] if location is None else location
    kind = KINDS[scheme_of(location)]
    client: dict[str, Any] = {
        name: config[key] for key, name in kind.items() if key in config
    }
    if config["storage.anonymous"]:
        client["skip_signature"] = True
    options = ObjectOptions(
        config=client,
        allow_http=config["storage.allow.http"],
        certificate=config.get("storage.certificate"),
        timeout=config["storage.timeout.millis"] / 1000,
    )
    return ObjectStorage(location, options)


def settings_of(config: StreamConfig) -> Settings:
    """How segments are written."""
    compression = config["compression"]
    return Settings(
        segment_size=config["compaction.bytes"],
        compression=None if compression == "none" else compression,
        merge_files=config["compaction.files"],
        inline_size=config["inline.bytes"],
        check_values=config.get("check.values", True),
        segment_format=config.get("segment.format", ARROW),
    )
