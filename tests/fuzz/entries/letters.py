"""Dead letters that others wrote, on their way through again."""

from __future__ import annotations

import base64
import json
import threading
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from tests.fuzz import mutating
from tests.fuzz.entries.base import Entry

import streamfactory
from streamfactory.arrowlog import message_schema
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.spi import headers_type
from streamfactory.transfer.replaying import open_replay
from streamfactory.wiring.config.definition import from_mapping
from streamfactory.wiring.decoding.deadletters import DEAD_LETTER_SCHEMA
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    import random
    from collections.abc import Generator

_LETTERS: Final = pa.schema([f.with_nullable(True) for f in DEAD_LETTER_SCHEMA])
_LETTER: Final = {
    "value": "eyJpZCI6IDF9",
    "key": "aw==",
    "headers": [["a", "Yg=="]],
    "topic": "clicks",
    "partition": 0,
    "offset": 7,
    "ordinal": None,
    "incarnation": "i",
    "timestamp": 1_700_000_000_000_000,
    "error_code": "bad_message",
    "error_message": "it is bad",
    "decoder": "json",
    "decoder_version": "1",
    "failed_at": "2026-01-01T00:00:00.000000Z",
    "stream": "clicks",
}


class DeadLetters(Entry):
    """Rows of a stream of dead letters: typed, their values anything."""

    NAME = "dead-letters"

    def prepare(self) -> None:
        self._topics = self.folder / "topics"
        self._store = DiskLogStore(LocalStorage(self._topics), Settings())
        self._store.create("clicks", message_schema(), 2)
        self._is_row = False

    def accepted(self) -> int:
        return int(self._is_row)

    def close(self) -> None:
        self._store.close()

    def make(self, chance: random.Random) -> bytes:
        letters = [
            {
                **_LETTER,
                "offset": number,
                "partition": number % 2,
                "ordinal": chance.choice((None, 0, 1)),
            }
            for number in range(4)
        ]
        return mutating.json_of(letters, chance).encode("utf-8", "surrogatepass")

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        try:
            rows = _rows(json.loads(data))
        except (ValueError, TypeError, OverflowError, AttributeError, RecursionError):
            self._is_row = False  # Arrow cannot hold it
            return
        self._is_row = True
        for name in ("letters", "sink"):
            if name in self._store.names():
                self._store.delete(name)
        self._store.create("sink", pa.schema({"id": pa.int64()}), 2)
        letters, clicks, sink = (self._stream(n) for n in ("letters", "clicks", "sink"))
        with open_sink(letters) as written:
            written.put(rows, writer_id="fuzz", epoch=0)
        of = from_mapping(
            {
                **clicks,
                "stream.file.decoder.class.name": "json",
                "schema": "id BIGINT",
            },
            name="clicks",
        )
        source, to = from_mapping(letters), from_mapping(sink)
        with open_replay(source, to, lambda _: of, of=of) as replay:
            replay.run(threading.Event())
        with streamfactory.open(sink) as opened:
            yield from opened.to_reader()

    def _stream(self, topic: str) -> dict[str, str]:
        return {
            "streamType": "file",
            "stream.file.topic.name": topic,
            "stream.file.path": str(self._topics),
            "stream.file.fsync": "never",
        }


def _rows(letters: list[dict[str, Any]]) -> pa.RecordBatch:
    columns = {
        field.name: pa.array(
            [_value(field.name, one.get(field.name)) for one in letters], field.type
        )
        for field in _LETTERS
    }
    assert columns["headers"].type == headers_type()
    return pa.record_batch(columns, schema=_LETTERS)


def _value(name: str, value: Any) -> Any:
    if name in ("value", "key") and value is not None:
        return base64.b64decode(value)
    if name == "headers" and value is not None:
        return [(key, base64.b64decode(held)) for key, held in value]
    return value
