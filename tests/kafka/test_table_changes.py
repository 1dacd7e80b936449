"""Changes of a Delta table in Kafka: upserts and tombstones, each once."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.kafka.conftest import stream_of
from tests.kafka.proving import read_messages
from tests.pipelines.reverse_proving import TOMBSTONE, ChangingTable, hunt

import streamfactory

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka.broker import Addresses


def test_a_copied_table_is_upserts_and_tombstones_by_key(
    kafka: Addresses, topic: str, tmp_path: Path
) -> None:
    table = ChangingTable(tmp_path / "lake", 4)
    source = {"streamType": "delta", "stream.delta.path": str(tmp_path / "lake")}
    sink = stream_of(kafka.bootstrap, topic) | {
        "stream.kafka.decoder.class.name": "json",
        "stream.kafka.staging.location": str(tmp_path / "staging"),
        "producer.key.columns": "id",
        "producer.change.column": "_change",
    }
    streamfactory.copy(source, sink)
    for _ in range(6):
        table.change()
    for _ in range(2):
        streamfactory.copy(source, sink)
    found: dict[int, list[int]] = {}
    for key, value in read_messages(kafka.bootstrap, topic, 1)[0]:
        message = None if value is None else json.loads(value)
        assert message is None or "_change" not in message
        number = TOMBSTONE if message is None else message["number"]
        found.setdefault(int(key or b""), []).append(number)
    wanted = {
        key: [
            TOMBSTONE if kind == "delete" else number
            for kind, number in changes
            if kind != "update_before"
        ]
        for key, changes in table.changes.items()
    }
    assert found == wanted
    assert any(TOMBSTONE in numbers for numbers in wanted.values())


@pytest.mark.repeated(
    "drivers of Spark are killed, with changes as rows",
    shown_by="tests/kafka/test_kafka_writing_spark.py::test_rows_survive_tasks_and_drivers_that_are_killed",
)
@pytest.mark.usefixtures("own_spark")
def test_changes_survive_pipelines_that_are_killed(
    kafka: Addresses, tmp_path: Path
) -> None:
    verdict = hunt(3, 5, tmp_path, kafka.bootstrap)
    assert verdict.good, str(verdict)
    assert verdict.kills == 3
