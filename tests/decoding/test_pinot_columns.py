"""Pinot's metadata columns: a table that names one reads streams that carry it."""

from __future__ import annotations

from typing import Any

import pytest

from streamfactory.wiring.config.imports.pinot import read_pinot

STREAM = {"streamType": "kafka", "stream.kafka.topic.name": "t"}


def read(*expressions: str, **keys: Any) -> tuple[dict[str, str], list[str]]:
    """The properties of the only stream, and the notes of the columns."""
    transforms = [
        {"columnName": f"c{n}", "transformFunction": text}
        for n, text in enumerate(expressions)
    ]
    ingestion = {
        "streamIngestionConfig": {"streamConfigMaps": [STREAM | keys]},
        "transformConfigs": transforms,
    }
    body = {"tableName": "t", "ingestionConfig": ingestion}
    (definition,) = read_pinot(body, lambda pointer: pointer, "t")
    found = {p.key: p.text for p in definition.properties}
    notes = [str(n) for n in definition.notes if n.key.startswith("__")]
    return found, notes


def test_columns_get_their_names_of_here() -> None:
    found, notes = read(
        "__key", "concat(__header$kind, __metadata$offset, '-')", "__metadata$topic"
    )
    assert (found["metadata.columns"], found["includeHeaders"]) == ("true", "true")
    place = "/ingestionConfig/transformConfigs"
    header = "__header$kind: is the entry 'kind' of the column _headers here"
    assert notes == [
        f"{header} [{place}/1/transformFunction]",
        f"__key: is the column _key here [{place}/0/transformFunction]",
        f"__metadata$offset: is the column _offset here [{place}/1/transformFunction]",
        f"__metadata$topic: is the column _topic here [{place}/2/transformFunction]",
    ]


def test_headers_are_not_carried_for_a_key_alone() -> None:
    found, _ = read("__key")
    assert found["metadata.columns"] == "true"
    assert "includeHeaders" not in found


def test_time_of_a_message_has_a_column() -> None:
    _, (note,) = read("__metadata$recordTimestamp")
    assert note.startswith("__metadata$recordTimestamp: is the column _timestamp here")


def test_column_without_a_counterpart_is_reported_and_carries_nothing() -> None:
    found, (note,) = read("__metadata$recordSerializedValueSize")
    assert "has no equivalent here" in note
    assert "metadata.columns" not in found


@pytest.mark.parametrize(
    "text", ["my__key", "__keys", "__key$x", "$__key", "a__header$b"]
)
def test_other_names_are_none_of_them(text: str) -> None:
    found, notes = read(text)
    assert notes == []
    assert "metadata.columns" not in found


def test_what_the_stream_says_itself_stays() -> None:
    found, _ = read("__header$a", **{"metadata.columns": "false"})
    assert found["metadata.columns"] == "false"
    assert found["includeHeaders"] == "true"
