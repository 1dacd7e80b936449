"""Topics in folders, checkpoints as Spark writes them, and commands over both."""

from __future__ import annotations

import json
import shutil
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.proving.commands import Outcome, command_of

from streamfactory.arrowlog.disk import DiskLogStore, LocalStorage, Settings
from streamfactory.spi import Partition, Position
from streamfactory.wiring.config.configure import configure
from streamfactory.wiring.config.definition import StreamDefinition
from streamfactory.wiring.microbatch import BatchOffset
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

FIXTURES = Path(__file__).with_name("fixtures")


@pytest.fixture
def frozen(tmp_path: Path) -> Callable[[str], Path]:
    """Copies a checkpoint that Spark wrote, to be spoilt."""

    def copy(name: str) -> Path:
        folder = tmp_path / "frozen" / name
        shutil.copytree(FIXTURES / name, folder)
        return folder

    return copy


class Topic:
    """A topic of ``file``."""

    def __init__(self, root: Path, name: str) -> None:
        self.name = name
        self.root = root
        self.options = {
            "streamType": "file",
            "stream.file.path": str(root),
            "stream.file.topic.name": name,
            "stream.file.partitions": "2",
            "stream.file.fsync": "never",
        }
        self._epoch = 0

    def write(self, *rows: int) -> None:
        """One epoch: so many rows for each partition."""
        partitions = [
            partition for partition, number in enumerate(rows) for _ in range(number)
        ]
        table = pa.table(
            {"_partition": pa.array(partitions, pa.int32()), "id": partitions}
        )
        with open_sink(self.options) as sink:
            sink.put(table, writer_id="test", epoch=self._epoch)
        self._epoch += 1

    def truncate(self, before: dict[int, int]) -> None:
        store = self._store()
        store.open(self.name).truncate(before)
        store.close()

    def delete(self) -> None:
        store = self._store()
        store.delete(self.name)
        store.close()
        self._epoch = 0

    def _store(self) -> DiskLogStore:
        return DiskLogStore(LocalStorage(self.root, fsync="never"), Settings())

    def at(self, *offsets: int, counted: bool = True) -> Position:
        """A position in it, with its incarnation unless it is not to be counted."""
        flat = {Partition(self.name, i): o for i, o in enumerate(offsets)}
        if not counted:
            return Position(flat)
        with ExitStack() as stack:
            source = self.source(stack)
            infos = source.metadata.partitions()
            lives = {i.partition: str(i.incarnation) for i in infos}
        return Position(flat, lives)

    def source(self, stack: ExitStack, **options: str) -> Source:
        definition = StreamDefinition.of(self.name, {**self.options, **options})
        source = Source(configure(definition, default_manager(), use="spark"))
        stack.callback(source.close)
        return source

    def file(self, folder: Path, **options: str) -> Path:
        """A file that defines the stream."""
        path = folder / f"{self.name}.json"
        body = {"name": self.name, "properties": {**self.options, **options}}
        path.write_text(json.dumps(body), encoding="utf-8")
        return path


@pytest.fixture
def topic(tmp_path: Path) -> Topic:
    """Ten rows in one partition, four in the other."""
    made = Topic(tmp_path / "topics", "clicks")
    made.write(10, 4)
    return made


@pytest.fixture
def other(tmp_path: Path) -> Topic:
    made = Topic(tmp_path / "topics", "views")
    made.write(3, 3)
    return made


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@dataclass
class QueryFolder:
    """A checkpoint, written as Spark does."""

    folder: Path
    batches: list[list[str]] = field(default_factory=list)

    def begin(self) -> None:
        """What is there before the first batch."""
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "metadata").write_text('{"id":"a-query"}', encoding="utf-8")
        for name in ("offsets", "commits"):
            (self.folder / name).mkdir(exist_ok=True)

    def plan(self, *ends: Position, begun: Sequence[Position] = ()) -> None:
        """One batch more."""
        self.begin()
        starts = [*begun, *([Position()] * len(ends))]
        lines = [
            BatchOffset(e, b).to_text() for e, b in zip(ends, starts, strict=False)
        ]
        self.write(lines)

    def write(self, lines: Sequence[str]) -> None:
        """One batch more, of these lines."""
        head = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": 1767225600000})
        number = len(self.batches)
        path = self.folder / "offsets" / str(number)
        path.write_text("\n".join(["v1", head, *lines]), encoding="utf-8")
        self.batches.append(list(lines))

    def commit(self, number: int | None = None) -> None:
        """The last batch is done, or that one."""
        done = len(self.batches) - 1 if number is None else number
        path = self.folder / "commits" / str(done)
        path.write_text('v1\n{"nextBatchWatermarkMs":0}', encoding="utf-8")


@pytest.fixture
def query(tmp_path: Path) -> QueryFolder:
    return QueryFolder(tmp_path / "query")


@pytest.fixture
def ran() -> Callable[..., QueryFolder]:
    """Leaves in a folder what Spark leaves of one batch, or of none."""

    def run(folder: str | Path, *ends: Position) -> QueryFolder:
        made = QueryFolder(Path(folder))
        made.begin()
        if ends:
            made.plan(*ends)
            made.commit()
        return made

    return run


@pytest.fixture
def checkpoint(capsys: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Runs ``checkpoint`` in this process."""
    return command_of(capsys, "checkpoint")
