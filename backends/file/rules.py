"""Rules over several options of ``file``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.arrowlog.disk.rules import (
    KINDS,
    place_problems,
    plain_http_problems,
    scheme_of,
)
from streamfactory.backends.file.options import LOG
from streamfactory.spi import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import Problem, StreamConfig

_OF_OBJECTS: Final = ("list.interval.millis", "queue.url")
_OF_FOLDERS: Final = ("state.folder", "order", "names", *_OF_OBJECTS)


def check_options(config: StreamConfig, role: Role | None) -> Iterator[Problem]:
    """See `Backend.check_options`."""
    yield from place_problems(config, writes=role is not Role.READ)
    if config["format"] == LOG:
        for key in _OF_FOLDERS:
            if config.given(key):
                what = (
                    f"has no effect with format={LOG}: it applies to files of other "
                    "programs"
                )
                yield config.problem(key, what, level="warning")
        return
    if config.given("segment.format"):
        what = f"has no effect with format={config['format']}: it applies to topics"
        yield config.problem("segment.format", what, level="warning")
    yield from _arrival_problems(config)


def _arrival_problems(config: StreamConfig) -> Iterator[Problem]:
    """Yield problems of files of other programs that depend on where they are."""
    scheme = scheme_of(config["path"])
    if scheme and scheme not in KINDS:
        what = f"is of {scheme}://, where only topics can be kept (format={LOG})"
        hint = "use a folder, or a prefix of s3://, gs:// or abfs://"
        yield config.problem("path", what, hint)
    if scheme and config.given("follow.links"):
        what = f"has no effect for {scheme}://: it has no links"
        yield config.problem("follow.links", what, level="warning")
    if not scheme:
        for key in _OF_OBJECTS:
            if config.given(key):
                what = "has no effect: path is not in an object store"
                yield config.problem(key, what, level="warning")
    elif scheme not in ("s3", "s3a") and config.given("queue.url"):
        what = f"is of S3's events: path is of {scheme}://"
        yield config.problem("queue.url", what, "omit it: the prefix is listed")
    yield from plain_http_problems(config, "queue.url")
