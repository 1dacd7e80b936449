"""Rules over several options of ``kafka``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.backends.kafka.writing_options import TASK
from streamfactory.spi import Role
from streamfactory.spi.references import has_reference

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.spi import Problem, StreamConfig

_LEVEL: Final = "isolation.level"
_OF_STAGING: Final = ("staging.location", "staging.inline.bytes", "staging.age.millis")


def check_options(config: StreamConfig, role: Role | None) -> Iterator[Problem]:
    """See `Backend.check_options`."""
    if role is not Role.WRITE:
        ours = config.get(_LEVEL)
        theirs = config.client.get("consumer", {}).get(_LEVEL)
        if ours and theirs and not has_reference(theirs.text) and theirs.text != ours:
            what = f"{ours!r} disagrees with {theirs.full_key}"
            yield config.problem(_LEVEL, what, "set it once")
        if config["consumer.type"] == "highlevel" and "assign" in config:
            what = (
                "is not supported in a group: Kafka assigns partitions to its members"
            )
            hint = "set topic.name, subscribe or subscribePattern"
            yield config.problem("assign", what, hint)
    if role is not Role.READ and config["commit.mode"] == TASK:
        for key in _OF_STAGING:
            if config.given(key):
                what = f"has no effect with commit.mode={TASK}: no rows are staged"
                yield config.problem(key, what, level="warning")
