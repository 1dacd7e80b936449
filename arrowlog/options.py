"""The options of every backend that keeps its streams in a log."""

from __future__ import annotations

from typing import Final
from urllib.parse import quote

from streamfactory.spi import BOOLEAN, INTEGER, PERIOD, SIZE, Option
from streamfactory.spi.topics import topic_name_problem

LONGEST_QUOTED: Final = 200
"""Characters of a topic's name, quoted: file systems take 255 bytes."""

LOG_OPTIONS: Final = (
    Option(
        "partitions",
        "Partitions of a topic that is created.",
        INTEGER,
        default="1",
        minimum=1,
        maximum=100_000,
    ),
    Option(
        "messages",
        "Create the topic for undecoded messages rather than typed rows.",
        BOOLEAN,
        default="false",
    ),
    Option(
        "retention.age.millis",
        "Keep rows for so long after they were appended; for ever, when not set.",
        PERIOD,
        minimum=0,
        example="7d",
        former=("retention.age",),
    ),
    Option(
        "retention.rows",
        "Keep so many rows of each partition; all, when not set.",
        INTEGER,
        minimum=0,
    ),
    Option(
        "retention.bytes",
        "Keep about so many bytes of each partition, as rows are in memory; all, when "
        "not set.",
        SIZE,
        minimum=0,
    ),
)
"""Under ``stream.<type>.``: read by `LogProducerFactory` and `LogTopicAdmin`."""


def folder_name_problem(name: str) -> str | None:
    """Return why no folder can have a topic's name; None if one can.

    The validator of ``topic.name`` where each topic has a folder.
    """
    wrong = topic_name_problem(name)
    if wrong is None and len(quote(name, safe="")) > LONGEST_QUOTED:
        wrong = f"is longer than {LONGEST_QUOTED} characters when URL-encoded"
    return wrong
