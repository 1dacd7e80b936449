"""What the fuzz suite found: messages that were answered as a defect of the server."""

from __future__ import annotations

import base64
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.flight as fl
import pytest

from streamfactory.arrowlog import MemoryLogStore
from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.codec import decode, encode
from streamfactory.backends.flight.protocol.failures import from_status
from streamfactory.backends.flight.protocol.rows import decode_rows, encode_rows
from streamfactory.backends.flight.protocol.schemas import decode_schema
from streamfactory.backends.flight.server.batches import Incoming
from streamfactory.spi import (
    BatchValidator,
    CorruptData,
    FormatRefused,
    MisuseError,
    OffsetOutOfRange,
)

if TYPE_CHECKING:
    from collections.abc import Callable

SCHEMA = pa.schema({"n": pa.int64()})
ROWS = BatchValidator(SCHEMA)


class Broken:
    """The reader of a put whose second message is damaged."""

    schema = SCHEMA

    def __init__(self, error: Exception) -> None:
        self._error = error

    def read_chunk(self) -> Any:
        raise self._error


@pytest.mark.parametrize(
    "error",
    [
        pa.ArrowInvalid("negative length"),
        pa.ArrowKeyError("no dictionary"),
        pa.ArrowNotImplementedError("a type of the future"),
        OSError("truncated"),
    ],
)
def test_batch_that_arrow_cannot_read_is_refused(error: Exception) -> None:
    with pytest.raises(FormatRefused, match="a batch cannot be decoded: "):
        next(Incoming("c", None, Broken(error), 1000).sound())


def test_errors_of_flight_itself_stay_what_they_are() -> None:
    error = fl.FlightCancelledError("gone")
    with pytest.raises(fl.FlightCancelledError):
        next(Incoming("c", None, Broken(error), 1000).sound())


@pytest.mark.parametrize("read", [decode_schema, lambda t: [*decode_rows(t, ROWS)]])
@pytest.mark.parametrize("text", ["\ufeff", "é", "=", "%%%", "AAAA", ""])
def test_text_that_is_no_arrow_data_is_refused(
    read: Callable[[str], Any], text: str
) -> None:
    with pytest.raises(FormatRefused):
        read(text)


def test_rows_of_a_type_that_arrow_cannot_read_are_refused() -> None:
    rows = pa.RecordBatch.from_pydict({"n": [1]}, schema=SCHEMA)
    data = base64.b64decode(encode_rows([(0, rows)], SCHEMA))
    outcomes: Counter[str] = Counter()
    for at in range(len(data)):
        for value in (0xFF, data[at] ^ 1):
            damaged = bytearray(data)
            damaged[at] = value
            text = base64.b64encode(bytes(damaged)).decode()
            try:
                found = list(decode_rows(text, ROWS))
            except (FormatRefused, CorruptData) as error:  # any other is the defect
                outcomes[error.code] += 1
            else:
                outcomes["read"] += 1
                assert all(one.batch.schema.equals(SCHEMA) for _, one in found)
    # Most bytes matter; those of the value and of padding do not.
    assert outcomes["format_refused"] > outcomes["read"] > 0, outcomes


@pytest.mark.parametrize("where", ["topic", "key"])
def test_text_that_is_not_unicode_is_refused(where: str) -> None:
    kind: type[Any]
    if where == "topic":
        data, kind = b'{"v":1,"topic":"\\ud800","partition":0}', m.Ticket
    else:
        data = b'{"v":1,"timestamp_ms":0,"partitions":{"\\ud800":[0]}}'
        kind = m.OffsetsAt
    with pytest.raises(FormatRefused, match="not Unicode"):
        decode(data, kind)


def test_error_of_a_server_with_an_impossible_partition_is_typed() -> None:
    failure = m.Failure("offset_out_of_range", "what", topic="t", partition=2**31)
    error = from_status(fl.FlightServerError("x", extra_info=encode(failure)))
    assert isinstance(error, OffsetOutOfRange)
    assert error.partition is None
    json.dumps(str(error))


def test_topic_in_memory_has_no_more_partitions_than_one_on_disk() -> None:
    store = MemoryLogStore()
    with pytest.raises(MisuseError, match="1 to 100000 partitions, not 2147483647"):
        store.create("t", SCHEMA, 2**31 - 1)
    log = store.create("t", SCHEMA, 1)
    with pytest.raises(MisuseError, match="at most 100000 partitions"):
        log.grow(2**31 - 1)
    assert len(log.bounds()) == 1


@pytest.mark.parametrize("version", ["true", "1.0", "2", '"1"', "null", "[1]"])
def test_version_that_only_equals_one_is_refused(version: str) -> None:
    data = f'{{"v":{version},"topic":"t"}}'.encode()
    with pytest.raises(FormatRefused, match="has protocol version"):
        decode(data, m.Topic)
    assert decode(b'{"v":1,"topic":"t"}', m.Topic).topic == "t"


COMMIT = {"v": 1, "topic": "t", "writer": "w", "instance": "i", "staged": []}


@pytest.mark.parametrize(
    ("members", "where"),
    [
        ({"retention": {"age_ms": -1}}, "retention: age_ms"),  # unlimited, elsewhere
        ({"retention": {"rows": -1}}, "retention: rows"),
        ({"writer_memory_ms": -1}, "writer_memory_ms"),
        ({"epoch": -1}, "epoch"),
        ({"rows": 2**62 + 1}, "rows"),
        ({"writer": "w" * 1025}, "writer: text of 1025 characters; 1024 are allowed"),
        ({"instance": "i" * 1025}, "instance"),
    ],
)
def test_numbers_and_ids_that_a_log_cannot_keep_are_refused(
    members: dict[str, Any], where: str
) -> None:
    sent = {**COMMIT, "epoch": 2**62, "rows": 0, "writer": "w" * 1024}
    assert decode(json.dumps(sent).encode(), m.Commit).rows == 0
    with pytest.raises(FormatRefused, match=f"a Commit message is malformed: {where}"):
        decode(json.dumps(sent | members).encode(), m.Commit)
