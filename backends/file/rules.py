"""Which options of ``file`` exclude or disable one another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.backends.file.options import LOG, MODE_OPTIONS, STORAGE_OPTIONS
from streamfactory.backends.file.stores import scheme_of, storage_options
from streamfactory.spi import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import Problem, StreamConfig

_OF_FOLDERS: Final = ("state.folder", "order", "names")


def check_options(config: StreamConfig, role: Role | None) -> Iterator[Problem]:
    """See `Backend.check_options`."""
    yield from _strays(config)
    yield from _modes(config)
    yield from _plain_http(config)
    unused = config["fsync"] != "interval" and config.given("fsync.interval")
    if unused and role is not Role.READ:
        what = "has no effect without fsync=interval"
        yield config.problem("fsync.interval", what, level="warning")
    if config["format"] == LOG:
        for key in _OF_FOLDERS:
            if config.given(key):
                what = f"has no effect with format={LOG}: it is for files of others"
                yield config.problem(key, what, level="warning")


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


def _modes(config: StreamConfig) -> Iterator[Problem]:
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
        hint = f"say https://, or stream.{config.type}.storage.allow.http=true"
        yield config.problem("storage.endpoint", what, hint)
