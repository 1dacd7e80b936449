"""Lag of a position: a remark names each partition that is not simply behind."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest
from tests.proving.sessions import Topic

from streamfactory.spi import Partition, Position
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.lag import PartitionLag, measure_lag
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from pathlib import Path

FIRST = Partition("t", 0)


@pytest.mark.parametrize(
    ("offset", "lag"),
    [
        (None, (4, 10, 6, "new")),
        (2, (2, 10, 8, "2 expired")),
        (4, (4, 10, 6, None)),
        (9, (9, 10, 1, None)),
        (10, (10, 10, 0, None)),
        (11, (11, 10, None, "beyond latest")),
    ],
)
def test_a_partition_is_behind_by_what_is_left_of_it(
    offset: int | None, lag: tuple[int, int, int | None, str | None], tmp_path: Path
) -> None:
    topic = Topic(tmp_path, "t")
    topic.write(id=[*range(10)])
    topic.truncate({0: 4})
    position = Position() if offset is None else Position({FIRST: offset})
    assert lags(topic, position) == {FIRST: PartitionLag(FIRST, *lag)}


def test_partitions_that_came_and_went_are_named(tmp_path: Path) -> None:
    topic = Topic(tmp_path, "t")
    topic.write(id=[1, 2])
    topic.grow(2)
    gone = Partition("t", 7)
    position = Position({FIRST: 1, gone: 3})
    assert lags(topic, position) == {
        FIRST: PartitionLag(FIRST, 1, 2, 1, None),
        Partition("t", 1): PartitionLag(Partition("t", 1), 0, 0, 0, "new"),
        gone: PartitionLag(gone, 3, None, None, "vanished"),
    }


def lags(topic: Topic, position: Position) -> dict[Partition, PartitionLag]:
    configured = configure(from_mapping(topic.options), default_manager(), use="read")
    with closing(Source(configured)) as source:
        return {one.partition: one for one in measure_lag(position, source)}
