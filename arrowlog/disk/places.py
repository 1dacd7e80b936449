"""The storage that a configuration names: a folder, an object store, a file system.

Used by the stream type `file` and by servers that keep topics.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.arrowlog.disk.filesystems import FileSystemStorage
from streamfactory.arrowlog.disk.folders import Modes
from streamfactory.arrowlog.disk.local import LocalStorage
from streamfactory.arrowlog.disk.objectclient import ObjectOptions
from streamfactory.arrowlog.disk.objects import ObjectStorage
from streamfactory.arrowlog.disk.options import MODE_OPTIONS, STORAGE_OPTIONS
from streamfactory.arrowlog.disk.settings import Settings
from streamfactory.arrowlog.disk.single import SingleWriterStorage

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from streamfactory.arrowlog.disk.storage import Storage
    from streamfactory.spi import Problem, StreamConfig

_S3: Final = {
    "storage.endpoint": "endpoint",
    "storage.region": "region",
    "storage.access.key": "access_key_id",
    "storage.secret.key": "secret_access_key",
    "storage.token": "session_token",
}
_GS: Final = {
    "storage.endpoint": "base_url",
    "storage.token": "bearer_token",
    "storage.service.account": "service_account",
}
_AZ: Final = {
    "storage.endpoint": "endpoint",
    "storage.account": "account_name",
    "storage.secret.key": "account_key",
    "storage.token": "sas_key",
}
_KINDS: Final = {
    **dict.fromkeys(("s3", "s3a"), _S3),
    "gs": _GS,
    **dict.fromkeys(("az", "azure", "abfs", "abfss"), _AZ),
}
"""Object stores by scheme: what our options are called by the client."""
_ALL_KINDS: Final = (
    "storage.anonymous",
    "storage.allow.http",
    "storage.certificate",
    "storage.timeout.millis",
)
_READ: Final = 0o444


def scheme_of(path: str) -> str:
    """Of a URL, in lower case; empty for a folder of this machine."""
    return path.partition("://")[0].lower() if "://" in path else ""


def storage_options(scheme: str) -> frozenset[str]:
    """Which options ``storage.*`` have a meaning for URLs of a scheme."""
    kind = _KINDS.get(scheme)
    return frozenset() if kind is None else frozenset({*kind, *_ALL_KINDS})


def storage_of(config: StreamConfig) -> Storage:
    """The storage that ``path`` names.

    Raises:
        NotInstalled: plugin.
    """
    path: str = config["path"]
    scheme = scheme_of(path)
    kind = _KINDS.get(scheme)
    if kind is not None:
        return ObjectStorage(path, _object_options(config, kind))
    single = bool(config["single.writer"])
    if scheme:
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


def _object_options(config: StreamConfig, kind: Mapping[str, str]) -> ObjectOptions:
    said: dict[str, Any] = {
        name: config[key] for key, name in kind.items() if key in config
    }
    if config["storage.anonymous"]:
        said["skip_signature"] = True
    return ObjectOptions(
        config=said,
        allow_http=config["storage.allow.http"],
        certificate=config.get("storage.certificate"),
        timeout=config["storage.timeout.millis"] / 1000,
    )


def settings_of(config: StreamConfig) -> Settings:
    """How segments are written."""
    compression = config["compression"]
    return Settings(
        segment_size=config["compaction.bytes"],
        compression=None if compression == "none" else compression,
        merge_files=config["compaction.files"],
        check_values=config.get("check.values", True),
    )


def place_problems(config: StreamConfig, *, writes: bool) -> Iterator[Problem]:
    """Options of the place that do not fit its kind or one another.

    Args:
        config: With the options of `arrowlog.disk.options` and ``path``.
        writes: Whether the configuration may be used for writing.
    """
    yield from _strays(config)
    yield from _mode_problems(config)
    yield from _plain_http(config)
    if (
        writes
        and config["fsync"] != "interval"
        and config.given("fsync.interval.millis")
    ):
        what = "has no effect without fsync=interval"
        yield config.problem("fsync.interval.millis", what, level="warning")


def _strays(config: StreamConfig) -> Iterator[Problem]:
    """Options of another kind of store than ``path`` names."""
    scheme = scheme_of(config["path"])
    known = storage_options(scheme)
    for option in STORAGE_OPTIONS:
        if option.key in known or not config.given(option.key):
            continue
        if known:
            what = f"has no meaning for {scheme}://"
            hint = "leave it out, or look at path"
            yield config.problem(option.key, what, hint)
        else:
            what = "has no effect: path is not in an object store"
            yield config.problem(option.key, what, level="warning")


def _mode_problems(config: StreamConfig) -> Iterator[Problem]:
    """Permissions for a path that has none: who sets them relies on them."""
    scheme = scheme_of(config["path"])
    for option in MODE_OPTIONS:
        if scheme and config.given(option.key):
            what = f"has no meaning for {scheme}://"
            hint = "leave it out, and set the rights of the bucket"
            yield config.problem(option.key, what, hint)


def _plain_http(config: StreamConfig) -> Iterator[Problem]:
    """An endpoint without TLS, which has to be wanted."""
    endpoint = str(config.get("storage.endpoint", ""))
    if endpoint.lower().startswith("http:") and not config["storage.allow.http"]:
        what = "is not encrypted: keys and rows would be readable on the way"
        key = config.settings["storage.endpoint"].full_key
        allow = key.removesuffix("endpoint") + "allow.http"
        hint = f"say https://, or {allow}=true"
        yield config.problem("storage.endpoint", what, hint)
