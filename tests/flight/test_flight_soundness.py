"""Every way of rows into a topic of a server leads through the validator."""

from __future__ import annotations

import struct
import uuid
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.flight as fl
import pytest
from tests.flight.hostile import (
    DOORS,
    HostileClient,
    connected,
    failure,
    inline_attempt,
    stream_of,
)
from tests.malformed import MALFORMED, ROWS, rows_of

import streamfactory
from streamfactory.spi import (
    BatchValidator,
    CorruptData,
    FormatRefused,
    SchemaMismatch,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from streamfactory.wiring.serving.process import ServerProcess


@pytest.fixture(scope="module", params=["memory", "folder"])
def server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ServerProcess]:
    folder: Path = tmp_path_factory.mktemp("topics")
    place = {"memory": True} if request.param == "memory" else {"path": str(folder)}
    with streamfactory.serve(**place) as server:
        yield server


@pytest.fixture
def client(server: ServerProcess) -> Iterator[HostileClient]:
    with connected(server.location) as client:
        yield client


def _is_mended(rows: pa.RecordBatch) -> bool:
    """Whether Arrow writes other run ends than the rows have."""
    with pa.ipc.open_stream(stream_of(rows)) as reader:
        try:
            BatchValidator(rows.schema).validate(reader.read_next_batch())
        except CorruptData:
            return False
    return True


SENT = {kind: arrays for kind, arrays in MALFORMED.items() if "run end" not in kind}


def test_arrow_sends_what_is_malformed() -> None:
    mended = [kind for kind, (_, bad) in SENT.items() if _is_mended(rows_of(bad))]
    assert mended == []


@pytest.mark.parametrize("door", DOORS)
def test_malformed_rows_are_refused_at_every_door(
    client: HostileClient, door: str
) -> None:
    for kind, (sound, malformed) in SENT.items():
        topic = uuid.uuid4().hex
        client.create(topic, rows_of(sound).schema)
        with pytest.raises((fl.FlightError, pa.ArrowException)) as caught:
            DOORS[door](client, topic, rows_of(malformed))
        assert failure(caught.value).code == CorruptData.code, kind
        assert "'c'" in failure(caught.value).what, kind
        DOORS[door](client, topic, rows_of(sound))
        found = client.read(topic)
        found.validate(full=True)
        assert found.num_rows == ROWS, kind


def test_rows_that_a_plain_put_converts_are_validated_again(
    client: HostileClient,
) -> None:
    required = pa.field("n", pa.int64(), nullable=False)
    schema = pa.schema([pa.field("c", pa.struct([required]))])
    topic = uuid.uuid4().hex
    client.create(topic, schema)
    rows = rows_of(pa.array([{"n": 1}, {"n": None}]))
    with pytest.raises(pa.ArrowException) as caught:
        client.plain(topic, rows)
    assert failure(caught.value).code == SchemaMismatch.code
    client.plain(topic, rows.slice(0, 1))
    assert client.read(topic).num_rows == 1


def test_malformed_run_ends_within_a_commit_are_refused(client: HostileClient) -> None:
    rows, topic = rows_of(MALFORMED["negative run end"][0]), uuid.uuid4().hex
    client.create(topic, rows.schema)
    stream, ends = stream_of(rows), struct.pack("<2i", 2, 3)
    assert stream.count(ends) == 1
    for malformed in ((-7, 3), (3, 3), (0, 3)):
        sent = stream.replace(ends, struct.pack("<2i", *malformed))
        with pytest.raises((fl.FlightError, pa.ArrowException)) as caught:
            client.commit(topic, inline_attempt(sent))
        assert failure(caught.value).code in (CorruptData.code, FormatRefused.code)
    client.commit(topic, inline_attempt(stream))
    assert client.read(topic).num_rows == ROWS


def test_aborted_commit_of_malformed_rows_keeps_no_bytes(client: HostileClient) -> None:
    sound, malformed = map(rows_of, MALFORMED["UTF-8"])
    topic = uuid.uuid4().hex
    client.create(topic, sound.schema)
    for _ in range(3):
        with pytest.raises(fl.FlightError):
            client.inline(topic, malformed)
    found = client.act("statistics")["metrics"]
    staged = [one["value"] for one in found if one["name"] == "server.staged.bytes"]
    assert staged == [0]
