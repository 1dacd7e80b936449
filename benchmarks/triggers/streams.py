"""The streams whose triggers are measured: ours, Spark's rate, and the ceiling."""

from __future__ import annotations

import json
from contextlib import closing
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from benchmarks.measuring.brokers import filled
from benchmarks.measuring.on_spark import topic
from benchmarks.triggers.queries import ROWS

from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.spi import Summary
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.microbatch import Planner
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

_SLOWLY: Final = {"startingOffsets": "earliest", "maxOffsetsPerTrigger": "1"}
_ONE: Final = pa.record_batch({"id": [0]})


def file_stream(folder: Path, partitions: int) -> dict[str, str]:
    """Return a topic of `file`, whose last partition has `ROWS` rows to be read.

    Each row was committed alone. In all partitions one more row is before the start of
    the query.
    """
    name = f"of-{partitions}"
    store = DiskLogStore(LocalStorage(folder / "topics", fsync="never"), Settings())
    with closing(store):
        log = store.create(name, _ONE.schema, partitions)
        last = partitions - 1
        for epoch, written in enumerate([range(partitions), *[[last]] * ROWS]):
            stage = log.stage(str(epoch))
            for partition in written:
                stage.append(partition, _ONE)
            log.commit(Epoch(None, 0, [stage.seal()], Summary(len(written))))
    starts = {str(partition): 1 for partition in range(partitions)}
    more = {**_SLOWLY, "startingOffsets": json.dumps({name: starts})}
    return topic(folder, name, **more)


def kafka_stream(bootstrap: str) -> dict[str, str]:
    """Return a topic of Kafka with `ROWS` rows in one partition."""
    return {
        "streamType": "kafka",
        "stream.kafka.broker.list": bootstrap,
        "stream.kafka.topic.name": filled(bootstrap, ROWS, lambda _: b'{"id": 0}'),
        "stream.kafka.decoder.class.name": "json",
        "schema": "id bigint",
        **_SLOWLY,
    }


def check(options: Mapping[str, str]) -> None:
    """Check that there are `ROWS` batches of one row, which each have one task."""
    configured = configure(from_mapping(options), default_manager(), use="spark")
    with closing(Source(configured)) as source:
        planner = Planner(source)
        start = planner.initial()
        for _ in range(ROWS):
            end = planner.latest(start)
            (only,) = planner.ranges(start, end)
            assert only.size == 1
            start = end
        assert planner.latest(start) == start
