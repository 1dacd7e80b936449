"""Rules over several options that all live transports have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import Problem, StreamConfig

_NEED_REPLAY: Final = (
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
)


def side_of(config: StreamConfig, listening: str) -> str | Problem:
    """The only one of two options for addresses that is set, or the problem.

    Args:
        config: With ``connect`` and the other option.
        listening: The other option, for the side that waits for connections.
    """
    given = [key for key in (listening, "connect") if key in config]
    if len(given) == 1:
        return given[0]
    what = "excludes connect" if given else "or connect is required"
    return config.problem(listening, what, "set one of them")


def replay_problems(
    config: StreamConfig, remedy: str, *, resumes: bool = False
) -> Iterator[Problem]:
    """Problems of options for reading that require replay.

    Args:
        config: The configuration.
        remedy: How to make rows durable.
        resumes: Whether senders keep rows until a reader has stored them.
    """
    for key in _NEED_REPLAY:
        if key in config:
            what = f"{config.settings[key].text!r} requires replay"
            yield config.problem(key, what, remedy)
    if config["consumer.type"] == "highlevel" and not resumes:
        what = "highlevel requires replay: the stream cannot be read from a checkpoint"
        yield config.problem("consumer.type", what, remedy)


def without_effect(config: StreamConfig, key: str, why: str) -> Iterator[Problem]:
    """Warn of an option that was set, and has no effect."""
    if config.given(key):
        yield config.problem(key, f"has no effect {why}", level="warning")
