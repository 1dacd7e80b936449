"""How topics lie in JetStream, and what is known of a partition's stream.

A partition is a JetStream stream, and an offset is its sequence number. A topic that
``streamfactory topics create`` made has

- the streams ``<topic>-0``, ``<topic>-1``, ... with the subjects ``<topic>.0``, ...,
- the stream ``<topic>-staged``: rows of epochs that are not decided,
- the stream ``<topic>-commits``: one message for each writer, and one for the epoch
  that is being placed (see `streamfactory_nats.commits`).

Any other JetStream stream is a topic of its own name with the one partition 0. It can
be read, not written.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from nats.aio.client import Client
from streamfactory import spi

from streamfactory_nats.connection import STREAM_NOT_FOUND, ApiError, request

_NAME: Final = re.compile(r"[^\s.*>/\\\x00-\x1f\x7f]+")
_PARTITION: Final = re.compile(r"(?P<topic>.+)-(?P<id>0|[1-9][0-9]{0,9})")


def topic_problem(name: str) -> str | None:
    """What is wrong with a topic's name; None if nothing."""
    if _NAME.fullmatch(name) is None:
        return "is not a name of a stream: dots, spaces, *, >, / and \\ are not allowed"
    return None


def stream_name(topic: str, partition: int) -> str:
    """The JetStream stream of a partition."""
    return f"{topic}-{partition}"


def subject_name(topic: str, partition: int) -> str:
    """The subject of a partition."""
    return f"{topic}.{partition}"


def staged_stream(topic: str) -> str:
    """The stream of undecided rows."""
    return f"{topic}-staged"


def staged_subject(topic: str, attempt: str) -> str:
    """The subject of one attempt's rows."""
    return f"{topic}._staged.{attempt}"


def commits_stream(topic: str) -> str:
    """The stream of the writers' state."""
    return f"{topic}-commits"


def commits_subject(topic: str, name: str) -> str:
    """The subject of one record of the state."""
    return f"{topic}._commits.{name}"


@dataclass(frozen=True)
class StreamInfo:
    """What JetStream says of the stream of a partition at one moment."""

    stream: str
    partition: spi.Partition
    created: str
    """Time of creation: changes when the stream is deleted and created again."""
    first: int
    """First sequence number that is held; one beyond ``last`` where none is."""
    last: int
    """Last sequence number that was given; 0 in a new stream."""
    managed: bool
    """Whether it belongs to a topic with a stream of commits."""


def parse_info(partition: spi.Partition, answer: dict[str, Any]) -> StreamInfo:
    """Make a `StreamInfo` of a JetStream answer."""
    state = answer["state"]
    last = int(state["last_seq"])
    first = int(state["first_seq"]) if state["messages"] else last + 1
    name = answer["config"]["name"]
    managed = name == stream_name(partition.topic, partition.id)
    return StreamInfo(name, partition, answer["created"], first, last, managed)


async def fetch_info(
    client: Client, stream: str, partition: spi.Partition, timeout: float
) -> StreamInfo:
    """Ask for the stream of a partition.

    Raises:
        spi.TopicNotFound: permanent; there is no such stream.
    """
    try:
        answer = await request(client, f"STREAM.INFO.{stream}", timeout=timeout)
    except ApiError as error:
        if error.code != STREAM_NOT_FOUND:
            raise
        msg = f"JetStream has no stream {stream!r}"
        raise spi.TopicNotFound(msg) from error
    return parse_info(partition, answer)


async def fetch_partitions(
    client: Client, topic: str, timeout: float
) -> Sequence[StreamInfo]:
    """Ask for all partitions of a topic: one call for each 256 of them.

    A topic is there while its partition 0 is: that is made last, and deleted last.

    Raises:
        spi.TopicNotFound: permanent; there is none.
        spi.PartialMetadata: transient; some stream has no leader now.
    """
    found = await fetch_streams(client, topic, timeout)
    if found and found[0].partition.id == 0:
        return found
    return [await fetch_info(client, topic, spi.Partition(topic, 0), timeout)]


async def fetch_streams(
    client: Client, topic: str, timeout: float
) -> Sequence[StreamInfo]:
    """Ask for the streams of partitions, also of a topic that is not whole.

    Raises:
        spi.PartialMetadata: transient; some stream has no leader now.
    """
    found: list[StreamInfo] = []
    listed = 0
    while True:
        body = {"subject": f"{topic}.*", "offset": listed}
        answer = await request(client, "STREAM.LIST", body, timeout=timeout)
        if answer.get("missing"):
            msg = f"streams {answer['missing']} of topic {topic!r} do not answer"
            raise spi.PartialMetadata(msg)
        streams = answer.get("streams") or []
        for stream in streams:
            match = _PARTITION.fullmatch(stream["config"]["name"])
            if match is None or match["topic"] != topic:
                continue
            partition = spi.Partition(topic, int(match["id"]))
            # A stream of another program may have such a name, and a like subject.
            if stream["config"]["subjects"] == [subject_name(topic, partition.id)]:
                found.append(parse_info(partition, stream))
        listed += len(streams)
        if not streams or listed >= answer["total"]:
            break
    return sorted(found, key=lambda info: info.partition)


async def fetch_topics(client: Client, timeout: float) -> Sequence[str]:
    """Ask for the names of all topics."""
    names: list[str] = []
    while True:
        body = {"offset": len(names)}
        answer = await request(client, "STREAM.NAMES", body, timeout=timeout)
        page = answer.get("streams") or []
        names += page
        if not page or len(names) >= answer["total"]:
            break
    known = set(names)
    topics: set[str] = set()
    for name in names:
        base, _, suffix = name.rpartition("-")
        if commits_stream(base) not in known:
            topics.add(name)
        elif suffix == "0":
            topics.add(base)
    return sorted(topics)
