"""Clients of the object stores that tables lie in, by the options ``storage.*``."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from streamfactory.arrowlog.disk.rules import scheme_of, storage_problems
from streamfactory.spi import Unsupported
from streamfactory.tables.forks import ForkGuard

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyarrow import fs

    from streamfactory.spi import Problem, Role, StreamConfig

_S3: Final = {
    "storage.region": ("region", "aws_region"),
    "storage.access.key": ("access_key", "aws_access_key_id"),
    "storage.secret.key": ("secret_key", "aws_secret_access_key"),
    "storage.token": ("session_token", "aws_session_token"),
}
"""Names of options of S3 for Arrow, and for the Rust clients."""
_ALL: Final = frozenset({"storage.anonymous", "storage.timeout.millis"})
_APPLIES: Final = {
    **dict.fromkeys(
        ("s3", "s3a"),
        _ALL | {*_S3, "storage.endpoint", "storage.allow.http"},
    ),
    "gs": _ALL,
}
"""Options that the clients of all formats apply, by the scheme of ``path``."""
_SUPPORTED: Final = "use a folder, s3:// or gs://"
_BY_ENVIRONMENT: Final = (
    "omit it, and name the key file of a service account in the environment variable "
    "GOOGLE_APPLICATION_CREDENTIALS"
)
_HINTS: Final = {
    "gs": {
        "storage.token": _BY_ENVIRONMENT,
        "storage.service.account": _BY_ENVIRONMENT,
    }
}
_CREDENTIALS: Final = ("storage.access.key", "storage.secret.key", "storage.token")
_guard = ForkGuard("object stores cannot be read")


def check_options(config: StreamConfig, role: Role | None) -> Iterator[Problem]:  # noqa: ARG001 - the same for readers and writers
    """Yield problems of the storage of a table: see `Backend.check_options`."""
    yield from location_problems(config, "path")


def location_problems(config: StreamConfig, key: str) -> Iterator[Problem]:
    """Yield problems of the storage that an option names.

    Args:
        config: With the options of a table.
        key: Of the option: a folder or a URL.
    """
    scheme = scheme_of(config[key])
    if scheme and scheme not in _APPLIES:
        yield config.problem(key, f"tables at {scheme}:// are not read", _SUPPORTED)
        return
    applies = _APPLIES.get(scheme, frozenset())
    yield from storage_problems(config, applies, _HINTS.get(scheme), key)
    if "storage.access.key" in applies:
        yield from _credential_problems(config)


def _credential_problems(config: StreamConfig) -> Iterator[Problem]:
    given = [key for key in _CREDENTIALS if config.given(key)]
    if given and config["storage.anonymous"]:
        what = "excludes storage.anonymous=true"
        yield config.problem(given[0], what, "keep one of them")
    elif given and not {*_CREDENTIALS[:2]} <= {*given}:
        what = "requires both storage.access.key and storage.secret.key"
        yield config.problem(given[0], what, "set both, or neither")


def file_system(config: StreamConfig, scheme: str) -> fs.FileSystem:
    """Arrow's file system of an object store.

    Raises:
        Unsupported: misuse; the scheme is not known, or this process was forked from
            one that has used an object store.
    """
    # Imported here: the rules above are checked without Arrow.
    from pyarrow import fs

    _guard.check()
    seconds = config["storage.timeout.millis"] / 1000
    if scheme == "gs":
        return fs.GcsFileSystem(
            anonymous=config["storage.anonymous"],
            retry_time_limit=timedelta(seconds=2 * seconds),
        )
    if scheme not in ("s3", "s3a"):
        what = f"tables at {scheme}:// are not read"
        raise Unsupported(what, remedy=_SUPPORTED)
    given: dict[str, Any] = {
        names[0]: config[key] for key, names in _S3.items() if key in config
    }
    endpoint = config.get("storage.endpoint")
    if endpoint is not None:
        scheme, _, host = endpoint.rpartition("://")
        given |= {"endpoint_override": host, "scheme": scheme or "https"}
    return fs.S3FileSystem(
        **given,
        anonymous=config["storage.anonymous"],
        connect_timeout=seconds,
        request_timeout=seconds,
    )


def client_options(config: StreamConfig) -> dict[str, str]:
    """Options of ``path`` for the Rust client of ``hudi``."""
    scheme = scheme_of(config["path"])
    if not scheme:
        return {}
    given = {"timeout": f"{config['storage.timeout.millis']}ms"}
    if config["storage.anonymous"]:
        given["skip_signature"] = "true"
    if scheme == "gs":
        return given
    given |= {names[1]: config[key] for key, names in _S3.items() if key in config}
    if "storage.endpoint" in config:
        endpoint = config["storage.endpoint"]
        host = endpoint if "://" in endpoint else f"https://{endpoint}"
        given["aws_endpoint"] = host
    if config["storage.allow.http"]:
        given["allow_http"] = "true"
    return given
