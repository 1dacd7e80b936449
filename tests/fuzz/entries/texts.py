"""Text of others: configurations, positions, checkpoints, records of Kafka."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Final

from tests.fuzz import mutating
from tests.fuzz.entries.base import VARIED, Entry

from streamfactory.backends.kafka.markers import Marker
from streamfactory.spark.checkpoints.places import Place
from streamfactory.spark.checkpoints.reading import read_query
from streamfactory.spark.checkpoints.record import read_record
from streamfactory.spark.checkpoints.resolving import Reset
from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.pipelines.detection import is_pipeline
from streamfactory.spi import ConfigError, Position
from streamfactory.spi.arrowjson import parse_schema
from streamfactory.wiring.config.catalogue import read_definitions
from streamfactory.wiring.config.configure import inspect
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.streams.checkpoints import FileCheckpointStore

if TYPE_CHECKING:
    import random
    from collections.abc import Generator, Sequence

    import pyarrow as pa

_ROOT: Final = Path(__file__).parents[3]
_DATA: Final = _ROOT / "tests" / "data"


class _Text(Entry):
    """Text, damaged as text or, where it is JSON, as JSON."""

    DAMAGES: ClassVar[int] = 1
    """How often a text is damaged: more often where most damage is allowed."""

    def prepare(self) -> None:
        self.texts = [text.encode() for text in self.sound()]

    def sound(self) -> Sequence[str]:
        """Sound texts."""
        raise NotImplementedError

    def make(self, chance: random.Random) -> bytes:
        text = chance.choice(self.texts)
        if chance.random() < VARIED:
            return _varied(text, chance)
        if text.startswith(b"{") and chance.random() < 0.5:
            try:
                plain = json.loads(text)
            except ValueError:
                pass
            else:
                damaged = mutating.json_of(plain, chance)
                return damaged.encode("utf-8", "surrogatepass")
        for _ in range(self.DAMAGES):
            text = mutating.text_of(text, chance, chance.choice(self.texts))
        return text

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        self.take(data)
        yield from ()

    def take(self, data: bytes) -> None:
        """Hand the text in."""
        raise NotImplementedError


def _varied(text: bytes, chance: random.Random) -> bytes:
    """The same in other bytes; text that is not JSON as it is."""
    try:
        plain = json.loads(text)
    except ValueError:
        return text
    return mutating.varied_json(plain, chance, values=False).encode()


class _Config(_Text):
    """A file of stream definitions, read and validated; nothing is opened."""

    SUFFIX = ".toml"

    def take(self, data: bytes) -> None:
        path = self.folder / f"damaged{self.SUFFIX}"
        path.write_bytes(data)
        for definition in read_definitions(path):
            inspect(definition, default_manager(), use="read")


class TomlConfigs(_Config):
    """Our own files."""

    NAME = "config-toml"

    def sound(self) -> Sequence[str]:
        return [p.read_text() for p in sorted(_ROOT.glob("configs/streams/*.toml"))]


class JsonConfigs(_Config):
    """JSON of our own form."""

    NAME = "config-json"
    SUFFIX = ".json"

    def sound(self) -> Sequence[str]:
        properties = {
            "streamType": "file",
            "stream.file.path": "/tmp/x",
            "stream.file.topic.name": "t",
            "batch.rows": 100,
            "nested": {"deep": {"key": True}},
        }
        return [
            json.dumps({"name": "a", "description": "b", "properties": properties}),
            json.dumps({"name": "a", "properties": properties}, indent=2),
        ]


class PropertiesConfigs(_Config):
    """Java's properties."""

    NAME = "config-properties"
    DAMAGES = 6
    SUFFIX = ".properties"

    def sound(self) -> Sequence[str]:
        lines = (
            "# a comment",
            "streamType = file",
            "stream.file.path: /tmp/\\u00e9\\",
            "   and/more",
            "stream.file.topic.name=t",
            "batch.rows 100",
            "! another",
        )
        return ["\n".join(lines), "streamType=socket\nstream.socket.listen=unix:/tmp/s"]


class PinotConfigs(_Config):
    """Table configs of Pinot."""

    NAME = "config-pinot"
    SUFFIX = ".json"

    def sound(self) -> Sequence[str]:
        return [path.read_text() for path in sorted(_DATA.glob("pinot/*.json"))]


class HopConfigs(_Config):
    """Metadata elements of Hop."""

    NAME = "config-hop"
    SUFFIX = ".json"

    def sound(self) -> Sequence[str]:
        return [path.read_text() for path in sorted(_DATA.glob("hop/*.json"))]


class PipelineConfigs(_Text):
    """Pipelines."""

    NAME = "config-pipeline"

    def sound(self) -> Sequence[str]:
        return [p.read_text() for p in sorted(_ROOT.glob("configs/pipelines/*.toml"))]

    def take(self, data: bytes) -> None:
        path = self.folder / "damaged.toml"
        path.write_bytes(data)
        is_pipeline(path)
        read_pipeline(path)


class Schemas(_Text):
    """Schemas as Spark's DDL and as Arrow's JSON: texts of options."""

    NAME = "schema-text"

    def sound(self) -> Sequence[str]:
        kinds = {"name": "n", "type": {"name": "int", "bitWidth": 64, "isSigned": True}}
        fields = [{**kinds, "nullable": True, "children": []}]
        return [
            "id bigint not null, t string comment 'x', at timestamp, m map<string,int>",
            "a array<struct<b:decimal(10,2),c:binary>>, `odd name` double",
            json.dumps({"fields": fields}),
        ]

    def take(self, data: bytes) -> None:
        try:
            parse_schema(data.decode("utf-8", "replace"))
        except ValueError as error:  # what an option's validator shows to a user
            raise ConfigError(str(error)) from None


def _positions() -> list[str]:
    """Positions as they are written; a fixture says what each contains, too."""
    files = sorted(_DATA.glob("positions/*.json"))
    return [str(json.loads(path.read_text())["text"]) for path in files]


class Positions(_Text):
    """Positions, and resets, which hold one."""

    NAME = "position"

    def sound(self) -> Sequence[str]:
        return _positions()

    def take(self, data: bytes) -> None:
        text = data.decode("utf-8", "replace")
        try:
            found = Position.from_json(text)
        finally:
            _refused_or(lambda: Reset.parse(text))
        assert Position.from_json(found.to_json()) == found, "another position"


def _refused_or(use: Any) -> None:
    """Run it; a refusal of ours is as good as an answer."""
    from streamfactory.spi import StreamError

    try:
        use()
    except StreamError:
        return


class GroupCheckpoints(_Text):
    """Checkpoints of groups."""

    NAME = "checkpoint-group"

    def sound(self) -> Sequence[str]:
        return [
            json.dumps({"version": 1, "generation": 3, "position": json.loads(text)})
            for text in _positions()
        ]

    def take(self, data: bytes) -> None:
        folder = self.folder / "group"
        folder.mkdir(exist_ok=True)
        (folder / "one.json").write_bytes(data)
        FileCheckpointStore(self.folder).load("group")


class QueryCheckpoints(_Text):
    """Checkpoints of Spark's queries: offsets, commits, metadata."""

    NAME = "checkpoint-spark"

    def prepare(self) -> None:
        root = _ROOT / "tests" / "checkpoints" / "fixtures"
        self._files = [
            path
            for path in sorted(root.rglob("*"))
            if path.is_file() and path.parent.name in {"offsets", "commits"}
        ]
        metadata = sorted(root.rglob("metadata"))
        self._metadata = metadata[0].read_bytes()
        super().prepare()

    def sound(self) -> Sequence[str]:
        # What a commit says is no offset: most texts are of offsets.
        offsets = [path for path in self._files if path.parent.name == "offsets"]
        found = [path.read_bytes() for path in [*self._files, *offsets * 9]]
        return [one.decode() for one in found if not one.startswith(b"crc")]

    def take(self, data: bytes) -> None:
        for folder in ("offsets", "commits"):
            (self.folder / folder).mkdir(exist_ok=True)
            (self.folder / folder / "0").write_bytes(data)
        (self.folder / "metadata").write_bytes(self._metadata)
        query = read_query(Place.of(str(self.folder)))
        _refused_or(lambda: query.watermark)
        (self.folder / "metadata").write_bytes(data)
        _refused_or(lambda: read_query(Place.of(str(self.folder))))
        query.batch(0)


class PipelineRecords(_Text):
    """The record of a pipeline's checkpoint."""

    NAME = "checkpoint-pipeline"

    def sound(self) -> Sequence[str]:
        path = _ROOT / "tests" / "checkpoints" / "fixtures" / "pipeline-1.json"
        return [path.read_text()]

    def take(self, data: bytes) -> None:
        (self.folder / "streamfactory.json").write_bytes(data)
        from streamfactory.spark.checkpoints.record import RECORD

        (self.folder / RECORD).write_bytes(data)
        read_record(Place.of(str(self.folder)))


class KafkaMarkers(_Text):
    """What Kafka remembers of a writer."""

    NAME = "kafka-marker"

    def sound(self) -> Sequence[str]:
        body = {
            "version": 1,
            "instance": "a",
            "claim": 2,
            "epoch": 5,
            "position": json.loads(_positions()[-1]),
            "summary": {"rows": 3, "sums": {"a": 5}},
        }
        return [json.dumps(body)]

    def take(self, data: bytes) -> None:
        Marker.decode(data)
