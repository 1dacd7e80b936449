"""Creates the storage of a configuration: a folder, an object store, a file system.

Used by the stream type `file` and by servers that keep topics.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from streamfactory.arrowlog.disk.filesystems import FileSystemStorage
from streamfactory.arrowlog.disk.folders import Modes
from streamfactory.arrowlog.disk.local import LocalStorage
from streamfactory.arrowlog.disk.names import ARROW
from streamfactory.arrowlog.disk.objectclient import ObjectOptions
from streamfactory.arrowlog.disk.objects import ObjectStorage
from streamfactory.arrowlog.disk.options import MODE_OPTIONS, STORAGE_OPTIONS
from streamfactory.arrowlog.disk.settings import Settings
from streamfactory.arrowlog.disk.single import SingleWriterStorage

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

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
"""Object stores by scheme: the client's names of our options."""
_ALL_KINDS: Final = (
    "storage.anonymous",
    "storage.allow.http",
    "storage.certificate",
    "storage.timeout.millis",
)
_READ: Final = 0o444


def scheme_of(path: str) -> str:
    """Return the scheme of a URL, in lower case; empty for a local folder."""
    return path.partition("://")[0].lower() if "://" in path else ""


def storage_options(scheme: str) -> frozenset[str]:
    """Return the options ``storage.*`` that apply to a scheme."""
    kind = _KINDS.get(scheme)
    return frozenset() if kind is None else frozenset({*kind, *_ALL_KINDS})


def storage_of(config: StreamConfig) -> Storage:
    """Create the storage of ``path``.

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
    client: dict[str, Any] = {
        name: config[key] for key, name in kind.items() if key in config
    }
    if config["storage.anonymous"]:
        client["skip_signature"] = True
    return ObjectOptions(
        config=client,
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
        segment_format=config.get("segment.format", ARROW),
    )


def place_problems(config: StreamConfig, *, writes: bool) -> Iterator[Problem]:
    """Yield problems of storage options that do not apply, or exclude each other.

    Args:
        config: With the options of `arrowlog.disk.options` and ``path``.
        writes: Whether the configuration may be used for writing.
    """
    yield from storage_problems(config, storage_options(scheme_of(config["path"])))
    yield from _mode_problems(config)
    if (
        writes
        and config["fsync"] != "interval"
        and config.given("fsync.interval.millis")
    ):
        what = "has no effect without fsync=interval"
        yield config.problem("fsync.interval.millis", what, level="warning")


def storage_problems(
    config: StreamConfig,
    applies: Collection[str],
    hints: Mapping[str, str] | None = None,
) -> Iterator[Problem]:
    """Yield options ``storage.*`` that do not apply to ``path``, and plain HTTP.

    Args:
        config: With ``STORAGE_OPTIONS`` and ``path``.
        applies: The options ``storage.*`` that apply to the scheme of ``path``; empty
            where it is not in an object store.
        hints: What to do instead of an option that does not apply, by its key.
    """
    scheme = scheme_of(config["path"])
    for option in STORAGE_OPTIONS:
        if option.key in applies or not config.given(option.key):
            continue
        if applies:
            what = f"has no effect for {scheme}://"
            hint = (hints or {}).get(option.key, "omit it, or check path")
            yield config.problem(option.key, what, hint)
        else:
            what = "has no effect: path is not in an object store"
            yield config.problem(option.key, what, level="warning")
    yield from _plain_http(config)


def _mode_problems(config: StreamConfig) -> Iterator[Problem]:
    """Yield permissions for storage without permissions.

    An error, as they protect data.
    """
    scheme = scheme_of(config["path"])
    for option in MODE_OPTIONS:
        if scheme and config.given(option.key):
            what = f"has no effect for {scheme}://"
            hint = "omit it, and set the permissions of the bucket"
            yield config.problem(option.key, what, hint)


def _plain_http(config: StreamConfig) -> Iterator[Problem]:
    """Yield an endpoint without TLS, unless it is explicitly allowed."""
    endpoint = str(config.get("storage.endpoint", ""))
    if endpoint.lower().startswith("http:") and not config["storage.allow.http"]:
        what = "is not encrypted: keys and rows could be read on the network"
        key = config.settings["storage.endpoint"].full_key
        allow = key.removesuffix("endpoint") + "allow.http"
        hint = f"use https://, or set {allow}=true"
        yield config.problem("storage.endpoint", what, hint)
