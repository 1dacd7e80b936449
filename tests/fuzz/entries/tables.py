"""Tables of others: the metadata, logs and files that Delta, Iceberg and Hudi wrote."""

from __future__ import annotations

import io
import json
from typing import TYPE_CHECKING, Any, ClassVar, Final

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from tests.fuzz import mutating
from tests.fuzz.entries.base import Entry
from tests.tables.states import Fixture
from tests.tables.streams import table_properties
from tests.tables.writers.capture import ROOT

import streamfactory

if TYPE_CHECKING:
    import random
    from collections.abc import Generator
    from pathlib import Path

_CANARY: Final = "outside-of-the-root"
_LEAST_METADATA: Final = 0.85
"""How many inputs damage what names files; the others damage files of rows."""
_VARIED: Final = 0.1
"""How many inputs say the same in other words."""
_UNREAD: Final = {".inflight", ".requested", ".crc"}
"""What Hudi leaves behind of completed actions."""
_MOST_BYTES: Final = 1 << 20


class _Table(Entry):
    """One file of a table is damaged; the table is read as a stream."""

    KIND: ClassVar[str]
    FIXTURE: ClassVar[str]
    DAMAGES: ClassVar[int] = 1
    """How often a file is damaged: more often where most damage is allowed."""

    def prepare(self) -> None:
        fixture = Fixture(self.FIXTURE, self.folder)
        fixture.show(len(fixture.states) - 1)
        self._root = fixture.folder
        files = [p for p in sorted(self._root.rglob("*")) if p.is_file()]
        self._sound = {path: path.read_bytes() for path in files}
        self._files = [p for p in files if len(self._sound[p]) < _MOST_BYTES]
        self._named = [
            path
            for path in self._files
            if _is_metadata(path.relative_to(self._root)) and path.suffix not in _UNREAD
        ]
        assert self._named, files
        outside = pa.table({"id": [1], "word": [_CANARY]})
        pq.write_table(outside, self.folder / "outside.parquet")
        self._properties = table_properties(self.KIND, self._root)

    def make(self, chance: random.Random) -> bytes:
        named = chance.random() < _LEAST_METADATA
        path = chance.choice(self._named if named else self._files)
        # Wherever the table is, the input is the same.
        data = self._sound[path].replace(str(self._root).encode(), ROOT.encode())
        if chance.random() < _VARIED:
            changed = _varied(path, data, chance)
        else:
            changed = data
            for _ in range(self.DAMAGES):
                changed = self._damaged(path, changed, chance) or data
        return self._files.index(path).to_bytes(2, "little") + changed

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        number = int.from_bytes(data[:2], "little") % len(self._files)
        path = self._files[number]
        path.write_bytes(data[2:].replace(ROOT.encode(), str(self._root).encode()))
        try:
            with streamfactory.open(self._properties, follow=False) as stream:
                for batch in stream:
                    text = str(batch.rows.to_pydict()) if batch.num_rows < 100 else ""
                    assert _CANARY not in text, "a file outside of the root was read"
                    yield batch.rows
        finally:
            path.write_bytes(self._sound[path])

    def check(self) -> str | None:
        found = {path for path in self._root.rglob("*") if path.is_file()}
        return None if found == self._sound.keys() else "the table was changed"

    def _damaged(self, path: Path, data: bytes, chance: random.Random) -> bytes:
        if chance.random() < 0.1:
            places = (f"{ROOT}/../outside.parquet", "../outside.parquet")
            outside = chance.choice(places)
            return _renamed(data, outside.encode(), chance)
        if path.suffix == ".avro" and chance.random() < 0.7:
            return _avro(data, chance)
        if _is_text(data) and chance.random() < 0.7:
            lines = data.splitlines()
            at = chance.randrange(len(lines)) if lines else 0
            try:
                whole = json.loads(data if len(lines) > 1 else b"x")
            except ValueError:
                whole = None
            if whole is not None:
                return mutating.json_of(whole, chance).encode("utf-8", "replace")
            try:
                plain = json.loads(lines[at])
            except (ValueError, IndexError):
                return mutating.text_of(data, chance)
            lines[at] = mutating.json_of(plain, chance).encode("utf-8", "replace")
            return b"\n".join(lines)
        return mutating.bytes_of(data, chance)


def _is_metadata(path: Path) -> bool:
    """Whether a file of a table names others."""
    return path.parts[0] in {"_delta_log", "metadata", ".hoodie"}


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return bool(data)


def _renamed(data: bytes, outside: bytes, chance: random.Random) -> bytes:
    """A file whose names of Parquet files are another one's."""
    at = [i for i in range(len(data)) if data.startswith(b".parquet", i)]
    if not at:
        return mutating.bytes_of(data, chance, outside)
    end = chance.choice(at) + len(b".parquet")
    begin = max(data.rfind(mark, 0, end) for mark in (b'"', b"\0", b"\x02", b"\n")) + 1
    return data[:begin] + outside + data[end:]


def _avro(data: bytes, chance: random.Random) -> bytes:
    """A manifest with a damaged record, or damaged bytes if that does not fit."""
    try:
        reader = fastavro.reader(io.BytesIO(data))
        records: list[Any] = list(reader)
        record = chance.choice(records)
        key = chance.choice(list(record))
        plain = json.loads(
            mutating.json_of(json.loads(json.dumps(record[key])), chance)
        )
        record[key] = plain
        return _written(reader, records)
    except Exception:
        return mutating.bytes_of(data, chance)


def _written(reader: Any, records: list[Any]) -> bytes:
    kept = {k: v for k, v in reader.metadata.items() if not k.startswith("avro.")}
    sink = io.BytesIO()
    marker = b"0123456789abcdef"
    fastavro.writer(
        sink,
        reader.writer_schema,
        records,
        metadata=kept,
        sync_marker=marker,
    )
    return sink.getvalue()


def _varied(path: Path, data: bytes, chance: random.Random) -> bytes:
    """The same content in other bytes, as another writer would write it."""
    if path.suffix == ".avro":
        reader = fastavro.reader(io.BytesIO(data))
        return _written(reader, list(reader))
    if path.suffix == ".json" and _is_text(data):
        lines = data.splitlines()
        try:
            if len(lines) == 1 or path.parent.name == "_delta_log":
                return b"\n".join(_varied_json(line, chance) for line in lines if line)
            return _varied_json(data, chance)
        except ValueError:
            return data
    return data


def _varied_json(text: bytes, chance: random.Random) -> bytes:
    plain = json.loads(text)
    if isinstance(plain, dict):
        items = list(plain.items())
        chance.shuffle(items)
        plain = dict(items)
        if chance.random() < 0.3:
            plain["x-of-somebody"] = {"a": [1, None]}
    separators = chance.choice(((",", ":"), (", ", " : ")))
    return json.dumps(plain, separators=separators).encode()


class DeltaTables(_Table):
    """Logs, checkpoints and files of a Delta table."""

    NAME = "table-delta"
    KIND = "delta"
    FIXTURE = "delta-feed"
    DAMAGES = 4


class DeltaMappedTables(_Table):
    """The same, with mapped columns."""

    NAME = "table-delta-mapped"
    KIND = "delta"
    FIXTURE = "delta-mapped"


class IcebergTables(_Table):
    """Metadata, manifests and files of an Iceberg table."""

    NAME = "table-iceberg"
    KIND = "iceberg"
    FIXTURE = "iceberg-mor"
    DAMAGES = 2


class HudiTables(_Table):
    """The timeline and files of a Hudi table."""

    NAME = "table-hudi"
    KIND = "hudi"
    FIXTURE = "hudi-mor"
    DAMAGES = 8
