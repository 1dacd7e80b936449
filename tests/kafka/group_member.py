"""A member of a group that writes down what it reads, until it is killed.

``python -m tests.kafka.group_member BOOTSTRAP TOPIC GROUP FILE`` appends lines to a
file: ``row PARTITION OFFSET`` for each row, ``commit PARTITION OFFSET`` after each
commit, and ``mine COUNT`` of partitions, when its assignment has changed.
"""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from tests.kafka.conftest import stream_of
from tests.kafka.streams import opened

from streamfactory.backends.kafka.groups import KafkaGroupMember
from streamfactory.spi import FetchLimits, Partition, Position

if TYPE_CHECKING:
    from typing import TextIO

EVERY = 7
"""Batches between two commits."""
LIMITS = FetchLimits(50, 2**20, 0.1)
SETTINGS = {"heartbeat.interval.ms": "200", "session.timeout.ms": "6000"}


def main() -> None:
    bootstrap, topic, group, file = sys.argv[1:]
    settings = {f"stream.kafka.consumer.prop.{k}": v for k, v in SETTINGS.items()}
    properties = {**stream_of(bootstrap, topic), **settings}
    with (
        opened(properties, startingOffsets="earliest") as source,
        closing(KafkaGroupMember(source.config, "test", group)) as member,
        Path(file).open("a") as out,
    ):
        follow(member, out)


def follow(member: KafkaGroupMember, out: TextIO) -> None:
    """Read for ever."""
    following: dict[Partition, int] = {}
    batches, mine = 0, 0
    while True:
        answer = member.fetch_messages(LIMITS)
        if len(member.assignment()) != mine:
            mine = len(member.assignment())
            out.write(f"mine {mine}\n")
        partition, fetched = answer or (None, None)
        if partition and fetched and fetched.rows is not None:
            offsets = fetched.rows.column("offset").to_pylist()
            out.writelines(f"row {partition.id} {offset}\n" for offset in offsets)
            following[partition] = fetched.next_offset
            batches += 1
        out.flush()
        if batches == EVERY:
            member.commit(Position(following))
            out.writelines(f"commit {p.id} {o}\n" for p, o in following.items())
            batches = 0


if __name__ == "__main__":
    main()
