"""Problems of pipelines, and the errors that they are raised as."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.spi import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from streamfactory.spi import Problem


def refuse(problems: Sequence[Problem], origin: str) -> None:
    """Raise if there are errors.

    Raises:
        ConfigError: config; with all of them.
    """
    found = errors(problems)
    if found:
        msg = f"{len(found)} problem{'s' * (len(found) > 1)} in {origin}"
        raise ConfigError(msg, problems=found)


def errors(problems: Iterable[Problem]) -> list[Problem]:
    """The problems that prevent a run."""
    return [one for one in problems if one.level == "error"]
