"""Rules over several options of ``file``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.arrowlog.disk.rules import place_problems
from streamfactory.backends.file.options import LOG
from streamfactory.spi import Role

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import Problem, StreamConfig

_OF_FOLDERS: Final = ("state.folder", "order", "names")


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
    elif config.given("segment.format"):
        what = f"has no effect with format={config['format']}: it applies to topics"
        yield config.problem("segment.format", what, level="warning")
