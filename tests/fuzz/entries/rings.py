"""A topic in shared memory that another program of the same user can write."""

from __future__ import annotations

import json
import os
import uuid
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from tests.fuzz import mutating
from tests.fuzz.columns import batch_of
from tests.fuzz.corpus import Seed
from tests.fuzz.entries.base import VARIED, Entry, numbered

from streamfactory.arrowlog import Epoch
from streamfactory.backends.shm import layout
from streamfactory.backends.shm.messages import RowEncoder
from streamfactory.backends.shm.settings import Settings
from streamfactory.backends.shm.store import ShmLogStore
from streamfactory.spi import Summary

if TYPE_CHECKING:
    import random
    from collections.abc import Generator
    from pathlib import Path

    from streamfactory.backends.shm.log import ShmLog

_NAMES: Final = ("int64", "string", "list", "struct", "decimal128")
_EPOCHS: Final = 5
_CAPACITY: Final = 1 << 16
_READS: Final = 40
_EXTENT: Final = 4096


class ShmTopics(Entry):
    """The control file, the rings, the staged rows and the leases of a topic.

    An input is a list of places: file, byte and what stands there instead. Checksums
    are made right again most of the time: they keep nobody out.
    """

    NAME = "shm-topic"
    SHARE = 4
    COLUMNS: tuple[str, ...] = _NAMES

    def prepare(self) -> None:
        self._settings = Settings(capacity=_CAPACITY, patience=0.2)
        self._batch = batch_of(*self.COLUMNS)
        self._made = self.folder / "made"
        with numbered():
            self._folder = self._make(self._made)
        self._extents = {
            path.relative_to(self._made): _extents(path)
            for path in sorted(self._made.rglob("*"))
            if path.is_file()
        }
        control = (self._folder / layout.CONTROL).read_bytes()
        self._schema: int = layout.CONTROL_HEAD.unpack_from(control)[5]
        number = int.from_bytes(control[64:72], "little")
        self._slot_at = layout.slot_at(number, self._schema, layout.SLOT)
        self._slot = control[self._slot_at : self._slot_at + layout.SLOT]
        self._state, where = layout.decode_state(memoryview(self._slot))
        self._writers = self._slot[where[0] : where[0] + where[1]]
        self._ring = (self._folder / "0.ring").read_bytes()[layout.PAGE :]
        [self._staged] = (self._folder / layout.STAGING).iterdir()
        self._place = self.folder / "topics"
        self._place.mkdir(0o700)

    def _make(self, root: Path) -> Path:
        store = ShmLogStore(root, self._settings)
        log = store.create("t", self._batch.schema, 2)
        for number in range(_EPOCHS):
            self._append(log, number, self._batch.slice(number % 3))
        stage = log.stage(uuid.uuid4().hex)
        stage.append(0, self._batch)
        stage.append(1, self._batch.slice(1))
        self._left = stage.seal()
        store.close()
        return root / "t.topic"

    def _append(self, log: ShmLog, number: int, rows: pa.RecordBatch) -> None:
        stage = log.stage(uuid.uuid4().hex)
        stage.append(0, rows)
        staged = stage.seal(carried=number % 2 == 0)
        log.commit(Epoch("w", number, [staged], Summary(rows.num_rows)))

    # --- inputs -------------------------------------------------------------------

    def make(self, chance: random.Random) -> bytes:
        if chance.random() < VARIED:
            return json.dumps([self._other_rows(chance)]).encode()
        kinds = (
            self._other_state,
            self._other_writers,
            self._other_record,
            self._other_payload,
            self._other_stage,
            self._any_byte,
        )
        found = [chance.choice(kinds)(chance) for _ in range(chance.choice((1, 1, 2)))]
        return json.dumps(found).encode()

    def _other_rows(self, chance: random.Random) -> list[Any]:
        """A sound record of other rows, as long as one of the ring or shorter."""
        record = self._record(chance)
        columns = [
            column.take(pa.array(chance.choices(range(len(column)), k=record.rows)))
            for column in self._batch.columns
        ]
        rows = pa.record_batch(columns, schema=self._batch.schema)
        payload = self._encoded(rows)
        if len(payload) > record.length - layout.RECORD_HEAD:
            rows = self._batch.slice(0, 1).take(pa.array([0] * record.rows))
            payload = self._encoded(rows)
        # A message may end before its record does.
        if layout.record_length(len(payload)) != record.length:
            return ["0.ring", 0, ""]
        record = record._replace(payload=len(payload))
        return self._written(record, payload)

    def _other_state(self, chance: random.Random) -> list[Any]:
        parts = [list(part) for part in self._state.parts]
        numbers = [self._state.number, self._state.appended_ms, len(parts)]
        for _ in range(chance.choice((1, 1, 2))):
            changed = chance.choice([*parts, numbers])
            at = chance.randrange(len(changed))
            changed[at] = self._number(chance, changed[at])
        if chance.random() < 0.2:
            parts = chance.choice((parts[:1], [], [*parts, parts[0]] * 9))
            numbers[2] = len(parts)
        numbers[2] %= 2**32
        state = layout.State(numbers[0], numbers[1], [layout.Part(*p) for p in parts])
        data = bytearray(layout.encode_state(state, self._writers))
        if numbers[2] != len(parts):
            data[16:20] = numbers[2].to_bytes(4, "little")
        return [layout.CONTROL, self._slot_at, self._damaged(bytes(data), chance)]

    def _other_writers(self, chance: random.Random) -> list[Any]:
        text = mutating.json_of(json.loads(self._writers), chance)
        writers = text.encode("utf-8", "surrogatepass")
        data = layout.encode_state(self._state, writers)
        return [layout.CONTROL, self._slot_at, data.hex()]

    def _other_record(self, chance: random.Random) -> list[Any]:
        record = self._record(chance)
        name = chance.choice([n for n in record._fields if n != "position"])
        other = self._number(chance, getattr(record, name))
        if name == "kind":
            other %= 2**32
        data = layout.encode_record(record._replace(**{name: other}))
        at = layout.PAGE + record.position
        return ["0.ring", at, self._damaged(data, chance)]

    def _other_payload(self, chance: random.Random) -> list[Any]:
        """A record whose message is damaged, header and body."""
        record = self._record(chance)
        begin = record.position + layout.RECORD_HEAD
        payload = self._ring[begin : begin + record.payload]
        schema = self._batch.schema.serialize().to_pybytes()
        whole = payload if record.kind == layout.STREAM else schema + payload
        seed = Seed("ring", whole, b"", schema)
        damage = chance.choice((mutating.headers_of, mutating.bodies_of))
        found = damage(seed, chance)
        if record.kind != layout.STREAM:
            found = found[len(schema) :]
        found = found[: record.length - layout.RECORD_HEAD]
        if chance.random() < 0.2:
            found = mutating.bytes_of(payload, chance)[: record.payload]
        return self._written(record, found.ljust(record.payload, b"\0"))

    def _other_stage(self, chance: random.Random) -> list[Any]:
        data = self._staged.read_bytes()
        schema = self._batch.schema.serialize().to_pybytes()
        seed = Seed("staged", data, b"", schema)
        found = mutating.stream_of(seed, chance, self._plain)
        return [f"{layout.STAGING}/{self._staged.name}", 0, found.hex()]

    def _any_byte(self, chance: random.Random) -> list[Any]:
        places = ((layout.CONTROL, 12288), ("0.ring", 8192), ("1.ring", 64))
        name, most = chance.choice(places)
        width = chance.choice((1, 2, 4, 8))
        at = chance.randrange(most)
        return [name, at, mutating.number(chance, width).hex()]

    def _record(self, chance: random.Random) -> layout.Record:
        found = []
        part = self._state.parts[0]
        at = part.tail
        while at < part.head:
            head = memoryview(self._ring)[at : at + layout.RECORD_HEAD]
            found.append(layout.decode_record(head, at, _CAPACITY))
            at += found[-1].length
        return chance.choice(found)

    def _encoded(self, rows: pa.RecordBatch) -> bytes:
        return b"".join(map(bytes, RowEncoder(rows.schema).encode(rows)))

    def _written(self, record: layout.Record, payload: bytes) -> list[Any]:
        data = layout.encode_record(record) + payload
        return ["0.ring", layout.PAGE + record.position, data.hex()]

    def _number(self, chance: random.Random, near: int) -> int:
        return int.from_bytes(mutating.number(chance, 8, near)[:8], "little")

    def _damaged(self, data: bytes, chance: random.Random) -> str:
        """Now and then with a wrong checksum."""
        if chance.random() < 0.05:
            data = mutating.bytes_of(data, chance)[: len(data)]
        return data.hex()

    # --- feeding ------------------------------------------------------------------

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        self._restore()
        for name, at, content in json.loads(data):
            path = self._place / "t.topic" / name
            with path.open("r+b") as file:
                if name.startswith(layout.STAGING):
                    file.truncate()
                file.seek(at)
                file.write(bytes.fromhex(content))
        store = ShmLogStore(self._place, self._settings)
        try:
            log = store.open("t")
            log.facts()
            log.remembered()
            yield from self._read(log)
            log.commit(Epoch("x", 1, [self._left], Summary(1)))
            self._append(log, 9, self._batch)
            yield from self._read(log)
        finally:
            store.close()

    def _read(self, log: ShmLog) -> Generator[pa.RecordBatch]:
        for bounds in log.bounds()[:3]:
            at = bounds.earliest
            log.offsets_at(0, [bounds.id])
            for _ in range(_READS):
                if at >= bounds.latest:
                    break
                part = bounds.id
                found = log.read(part, at, max_rows=1000, max_bytes=1 << 20)
                if found.rows is None:
                    break
                yield found.rows
                assert found.rows.num_rows > 0, "a read that goes nowhere"
                at += found.rows.num_rows

    def _restore(self) -> None:
        for name, (size, extents) in self._extents.items():
            path = self._place / name
            path.parent.mkdir(0o700, parents=True, exist_ok=True)
            path.unlink(missing_ok=True)  # what is mapped keeps its bytes
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            try:
                for at, content in extents:
                    os.pwrite(file, content, at)
                os.ftruncate(file, size)
            finally:
                os.close(file)
        (self._place / "t.topic" / layout.LEASES).mkdir(exist_ok=True)


class ShmDictionaries(ShmTopics):
    """A topic whose records have dictionaries, nested ones too."""

    NAME = "shm-dictionaries"
    SHARE = 2
    COLUMNS = (
        "int64",
        "dictionary32",
        "list_of_dictionaries",
        "struct_of_dictionaries",
    )


def _extents(path: Path) -> tuple[int, list[tuple[int, bytes]]]:
    """The length of a file, and what is not zero in it."""
    data = path.read_bytes()
    found = [
        (at, data[at : at + _EXTENT])
        for at in range(0, len(data), _EXTENT)
        if data[at : at + _EXTENT].strip(b"\0")
    ]
    return len(data), found
