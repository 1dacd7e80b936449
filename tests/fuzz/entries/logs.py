"""A log folder that others can write: segments, records, snapshots, index parts."""

from __future__ import annotations

import base64
import io
import json
import shutil
import uuid
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from tests.fuzz import mutating
from tests.fuzz.columns import batch_of
from tests.fuzz.corpus import Seed, write_random, write_stream
from tests.fuzz.entries.base import Entry, numbered

import streamfactory
from streamfactory.arrowlog import Epoch
from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.spi import Summary
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    import random
    from collections.abc import Generator

_FEW: Final = 6
"""Epochs of a topic that is read from its first record."""
_MANY: Final = 80
"""So many that a snapshot is due, and records follow it."""
_READ: Final = 8
"""The newest files of a kind are those that are read."""
_WORDS: Final = b"precious"
_NAMES: Final = ("int64", "string", "dictionary32", "list", "struct", "decimal128")


class _Clock:
    """The same times whenever a topic is made."""

    def __init__(self) -> None:
        self.ms = 1_700_000_000_000.0

    def __call__(self) -> float:
        self.ms += 1
        return self.ms


def _make_topic(root: Path, epochs: int, form: str, *, carried: bool) -> None:
    """A topic of two partitions; with many epochs it has a snapshot and an index."""
    storage = LocalStorage(root, fsync="never")
    settings = Settings(merge_files=16, segment_format=form)
    store = DiskLogStore(storage, settings, _Clock())
    names = _NAMES if form == "arrow" else [n for n in _NAMES if n != "dictionary32"]
    batch = batch_of(*names)
    log = store.create("t", batch.schema, 2)
    for epoch in range(epochs):
        if epoch == _MANY - 3:
            log.compact()
        stage = log.stage(uuid.uuid4().hex)
        stage.append(epoch % 2, batch.slice(epoch % 3))
        staged = stage.seal(carried=carried)
        log.commit(Epoch("w", epoch, [staged], Summary(8 - epoch % 3)))
    store.close()


def _names(root: Path) -> list[Path]:
    return sorted(path.relative_to(root) for path in root.rglob("*"))


class _Log(Entry):
    """One file of a topic is damaged; the topic is read as a whole."""

    PATTERN = "data/*.arrow"
    EPOCHS = _FEW
    FORMAT = "arrow"
    CARRIED = False
    """Whether the rows are within the records."""
    SOUND = 0.25
    """How many files stay as they were."""

    def prepare(self) -> None:
        self._sound = self.folder / "sound"
        with numbered():
            _make_topic(self._sound, self.EPOCHS, self.FORMAT, carried=self.CARRIED)
        # What only this user can write is trusted: others can write all of this.
        for path in (self._sound, *self._sound.rglob("*")):
            path.chmod(0o777 if path.is_dir() else 0o666)
        self.root = self.folder / "damaged"
        shutil.copytree(self._sound, self.root)
        self._guard = self.folder / "precious"
        self._guard.write_bytes(_WORDS)
        self.files = [
            path.relative_to(self._sound)
            for path in sorted(self._sound.rglob(self.PATTERN))[-_READ:]
        ]
        assert self.files, self.PATTERN
        self.properties = {
            "streamType": "file",
            "stream.file.path": str(self.root),
            "stream.file.topic.name": "t",
        }

    def make(self, chance: random.Random) -> bytes:
        number = chance.randrange(len(self.files))
        content = (self._sound / self.files[number]).read_bytes()
        if chance.random() >= self.SOUND:
            content = self.damaged(content, chance)
        return bytes([number]) + content

    def damaged(self, content: bytes, chance: random.Random) -> bytes:
        """What stands in the file's place."""
        raise NotImplementedError

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        name = self.files[data[0] % len(self.files) if data else 0]
        path = self.root / name
        path.write_bytes(data[1:])
        try:
            yield from self.use()
        finally:
            path.write_bytes((self._sound / name).read_bytes())
            if _names(self.root) != _names(self._sound):
                shutil.rmtree(self.root)
                shutil.copytree(self._sound, self.root)

    def use(self) -> Generator[pa.RecordBatch]:
        """Read all of the topic."""
        with streamfactory.open(self.properties) as stream:
            for batch in stream:
                yield batch.rows

    def check(self) -> str | None:
        if not self._guard.exists() or self._guard.read_bytes() != _WORDS:
            self._guard.write_bytes(_WORDS)
            return "a file outside of the topic was changed"
        return None


class _Sealed(_Log):
    """JSON with a checksum, which whoever writes the folder can make."""

    def damaged(self, content: bytes, chance: random.Random) -> bytes:
        body, _, _ = content.partition(b"\n")
        how = chance.randrange(10)
        if how == 0:
            return mutating.text_of(content, chance)
        if how <= 3:
            damaged = mutating.text_of(body, chance)
        else:
            plain: Any = json.loads(body)
            damaged = mutating.json_of(plain, chance).encode("utf-8", "surrogatepass")
        return b"%b\n%08x\n" % (damaged, zlib.crc32(damaged))


class LogRecords(_Sealed):
    """Commit records."""

    NAME = "log-record"
    SOUND = 0.35
    SHARE = 2
    PATTERN = "log/*.json"


class LogSnapshots(_Sealed):
    """Snapshots."""

    NAME = "log-snapshot"
    TOLERANT = True  # the records before it are read instead
    SOUND = 0.0
    SHARE = 2
    PATTERN = "log/*.snapshot"
    EPOCHS = _MANY


class LogKeeping(_Sealed):
    """Records and snapshots, in the way of whoever compacts and verifies a topic."""

    NAME = "log-keeping"
    SOUND = 0.0
    PATTERN = "log/*"
    EPOCHS = _MANY

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        name = self.files[data[0] % len(self.files) if data else 0]
        shutil.rmtree(self.root)
        shutil.copytree(self._sound, self.root)
        (self.root / name).write_bytes(data[1:])
        yield from self.use()

    def use(self) -> Generator[pa.RecordBatch]:
        with open_admin(self.properties) as admin:
            admin.verify()
            admin.compact()
        yield from super().use()


class LogIndexes(_Log):
    """Parts of the index, which are Arrow files."""

    NAME = "log-index"
    SOUND = 0.0
    PATTERN = "index/*"
    EPOCHS = _MANY

    def damaged(self, content: bytes, chance: random.Random) -> bytes:
        batches = pa.ipc.open_file(content).read_all().to_batches()
        return _damaged_file(content, batches, chance, self._plain)


class LogSegments(_Log):
    """Segments, which are Arrow files."""

    NAME = "log-segment"
    SHARE = 3

    def damaged(self, content: bytes, chance: random.Random) -> bytes:
        with pa.ipc.open_file(content) as file:
            batches = [file.get_batch(at) for at in range(file.num_record_batches)]
        return _damaged_file(content, batches, chance, self._plain)


class LogInlineSegments(LogSegments):
    """Segments within records whose checksums match."""

    NAME = "log-inline"
    PATTERN = "log/*.json"
    CARRIED = True

    def damaged(self, content: bytes, chance: random.Random) -> bytes:
        plain = json.loads(content.partition(b"\n")[0])
        for segment in plain.get("segments", ()):
            rows = super().damaged(base64.b64decode(segment["content"]), chance)
            segment.update(content=base64.b64encode(rows).decode(), bytes=len(rows))
        body = json.dumps(plain).encode()
        return b"%b\n%08x\n" % (body, zlib.crc32(body))


class LogParquetSegments(_Log):
    """Segments, which are Parquet files."""

    NAME = "log-parquet"
    SHARE = 2
    PATTERN = "data/*.parquet"
    FORMAT = "parquet"

    def damaged(self, content: bytes, chance: random.Random) -> bytes:
        if chance.random() < 0.3:
            return mutating.bytes_of(content, chance)
        # Without checksums, which would refuse most of the damage to pages.
        table, sink = pq.read_table(pa.BufferReader(content)), io.BytesIO()
        pq.write_table(
            table,
            sink,
            compression=chance.choice(("none", "lz4", "zstd", "snappy")),
            use_dictionary=chance.choice((True, False)),
            data_page_version=chance.choice(("1.0", "2.0")),
            store_schema=chance.random() < 0.8,
        )
        return mutating.bytes_of(sink.getvalue(), chance)


class LogStagedFiles(Entry):
    """Parquet files that a job of Spark left in the stage of an epoch."""

    NAME = "log-staged"
    SHARE = 2

    def prepare(self) -> None:
        self._root = self.folder / "topics"
        columns = [name for name in _NAMES if name != "dictionary32"]
        self._rows = pa.Table.from_batches([batch_of(*columns)])
        self._others = [
            self._rows.select(columns[:-1]),
            self._rows.rename_columns([*columns[:-1], "other"]),
            pa.concat_tables([self._rows] * 3),
        ]
        self._left: list[str] = []

    def make(self, chance: random.Random) -> bytes:
        mine = self._written(self._rows, chance)
        other = self._written(chance.choice(self._others), chance)
        how = chance.random()
        if how > 0.55:
            return mine
        if how < 0.1:
            return mine[: chance.randrange(len(mine))]
        if how < 0.3:  # the footer of another file
            end = 8 + int.from_bytes(other[-8:-4], "little")
            return mine[: chance.randrange(len(mine))] + other[-end:]
        return mutating.bytes_of(chance.choice((mine, mine, other)), chance, other)

    def _written(self, table: pa.Table, chance: random.Random) -> bytes:
        sink = io.BytesIO()
        pq.write_table(
            table,
            sink,
            compression=chance.choice(("none", "none", "lz4", "zstd", "snappy")),
            use_dictionary=chance.random() < 0.1,
            row_group_size=chance.choice((2, 8)),
            store_schema=False,
            write_page_checksum=chance.random() < 0.5,
        )
        return sink.getvalue()

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        shutil.rmtree(self._root, ignore_errors=True)
        settings = Settings(segment_format="parquet")
        storage = LocalStorage(self._root, fsync="never")
        store = DiskLogStore(storage, settings, _Clock())
        try:
            log = store.create("t", self._rows.schema, 1)
            stage = log.stage_files(uuid.uuid4().hex)
            folder = Path(stage.folder)
            folder.mkdir()
            (folder / "x.parquet").write_bytes(data)
            topic, staged = folder.parents[2], None
            try:
                staged = stage.seal([(0, "x.parquet")])
            finally:
                self._left = [str(path) for path in topic.glob("staging/*")]
                if staged is None:
                    self._left += [str(path) for path in topic.glob("data/*")]
            rows = sum(count for count, _ in stage.counts.values())
            log.commit(Epoch(None, 0, [staged], Summary(rows)))
            at = 0
            while at < rows:
                found = log.read(0, at, max_rows=1000, max_bytes=1 << 24)
                assert found.rows is not None
                yield found.rows
                at += found.rows.num_rows
        finally:
            store.close()

    def check(self) -> str | None:
        left, self._left = self._left, []
        return "files were left" if left else None


def _damaged_file(
    content: bytes, batches: list[pa.RecordBatch], chance: random.Random, others: Any
) -> bytes:
    if chance.random() < 0.3:
        return mutating.bytes_of(content, chance, chance.choice(others).random)
    codec = chance.choice((None, None, "lz4", "zstd"))
    schema = bytes(batches[0].schema.serialize())
    seed = Seed(
        "file", write_stream(batches, codec), write_random(batches, codec), schema
    )
    return mutating.random_of(seed, chance, others)
