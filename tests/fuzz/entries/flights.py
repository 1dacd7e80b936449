"""Messages of the Flight protocol: to a server, and of a server to its clients.

Most are handed to the service in this process; some thousands go over a connection.
Compressed streams are left out where Arrow unpacks them before our code is called, and
allocates what their headers say: nothing here can refuse them.
"""

from __future__ import annotations

import base64
import itertools
import json
import threading
import uuid
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.flight as fl
from tests.fuzz import mutating
from tests.fuzz.entries.base import VARIED, Entry

from streamfactory.arrowlog import Epoch, PartitionBounds
from streamfactory.backends.flight.client.checkpoints import RemoteCheckpointStore
from streamfactory.backends.flight.client.connection import Connection
from streamfactory.backends.flight.client.remote import RemoteLog, RemoteLogStore
from streamfactory.backends.flight.client.subscription import Subscription
from streamfactory.backends.flight.protocol import messages as m
from streamfactory.backends.flight.protocol.codec import Digest, decode, encode
from streamfactory.backends.flight.protocol.failures import from_status
from streamfactory.backends.flight.protocol.schemas import encode_schema
from streamfactory.backends.flight.reading import FlightMetadata
from streamfactory.backends.flight.server import FlightServer
from streamfactory.backends.flight.server.actions import ACTIONS
from streamfactory.backends.flight.server.reading import read_range
from streamfactory.spi import (
    FetchLimits,
    FormatRefused,
    Partition,
    Position,
    StreamError,
    Summary,
)
from streamfactory.wiring.config.definition import Property
from streamfactory.wiring.serving.servers import open_server

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Generator, Iterator


TOPIC: Final = "t"
SCHEMA: Final = pa.schema({"n": pa.int64(), "s": pa.string()})
ROWS: Final = pa.RecordBatch.from_pydict(
    {"n": [1, 2, 3], "s": ["a", None, "c"]}, schema=SCHEMA
)
_DESCRIPTORS: Final = 150
"""More than at the beginning: a log on disk keeps 64 folders open, and gRPC some."""
_THREADS: Final = 40
"""More than at the beginning: gRPC keeps some."""
_ATTEMPT: Final = "attempt-of-an-input"
"""Stands for an attempt, or a writer, of its own for each input."""
_PARTS: Final = ("command", "metadata", "stream")
"""What is damaged of an upload: one part, so that the others are reached."""
_TEXT: Final = Position({Partition(TOPIC, 0): 3}, {Partition(TOPIC, 0): "i"}).to_json()

REQUESTS: Final[dict[str, tuple[Any, ...]]] = {
    "topics": (m.Done(),),
    "health": (m.Done(),),
    "statistics": (m.Done(),),
    "describe": (m.Topic(TOPIC),),
    "partitions": (m.Topics((TOPIC,)),),
    "offsets-at": (m.OffsetsAt(0, {TOPIC: (0, 1)}),),
    "create": (m.Create("u", encode_schema(SCHEMA), 2),),
    "grow": (m.Grow(TOPIC, 3),),
    "truncate": (m.Truncate(TOPIC, {0: 1}),),
    "retain": (m.Retain(TOPIC, m.Retention(1000, 10, 1000), {0: 1}),),
    "delete": (m.Topic(TOPIC),),
    "compact": (m.Topic(TOPIC),),
    "verify": (m.Topic(TOPIC),),
    "facts": (m.Topic(TOPIC),),
    "claim": (m.Claim(TOPIC, "w", "i"),),
    "last": (m.Last(TOPIC, "w"),),
    "discard": (m.Discard(TOPIC, m.Sealed("a", ({"name": "x", "size": 1},))),),
    "checkpoints-claim": (m.ClaimCheckpoint("g", "0-of-1", "o"),),
    "checkpoints-groups": (m.Done(),),
    "checkpoints-delete": (m.Group("g"),),
    "checkpoints-load": (m.Group("g"),),
    "checkpoints-save": (m.SaveCheckpoint("g", "0-of-1", "o", 1, _TEXT),),
}
ANSWERS: Final = (
    m.TopicDescription(TOPIC, "i", (PartitionBounds(0, 0, 3),), encode_schema(SCHEMA)),
    m.Names((TOPIC,)),
    m.Descriptions((m.TopicDescription(TOPIC, "i", (PartitionBounds(0, 0, 3),)),)),
    m.Offsets({TOPIC: {0: 1, 1: None}}),
    m.Committed(m.LastCommit(1, 3, None, _TEXT), (m.Placed(0, 0, 3),)),
    m.Checkpoints({"0-of-1": m.SavedCheckpoint(1, _TEXT)}),
    m.Verified(3, ("a problem",)),
    m.Facts({"segments": 1}),
    m.Done(),
)


class Context:
    """Of a call in this process."""

    cancelled = False

    def peer(self) -> str:
        return "fuzz"

    def is_cancelled(self) -> bool:
        return self.cancelled


class Gone(Context):
    """Of a call whose client has gone: it follows nothing."""

    cancelled = True


class Upload:
    """The reader of a put: a damaged stream, or sound rows, with damaged metadata."""

    def __init__(self, stream: bytes, metadata: bytes) -> None:
        self._reader = pa.ipc.open_stream(pa.py_buffer(stream))
        self.schema = self._reader.schema
        self._metadata = metadata

    def read_chunk(self) -> Any:
        rows = self._reader.read_next_batch()
        return _Chunk(rows, pa.py_buffer(self._metadata))


class _Chunk:
    def __init__(self, data: pa.RecordBatch, app_metadata: pa.Buffer) -> None:
        self.data, self.app_metadata = data, app_metadata


class Replies:
    """The writer of a put, or of an exchange."""

    def write(self, data: bytes) -> None:
        assert len(data) < 1 << 20

    write_metadata = write


def damaged(message: Any, chance: random.Random) -> bytes:
    """The bytes of a message, damaged; many are sound, and differ."""
    data = encode(message)
    if chance.random() < VARIED:
        plain = json.loads(data)
        return mutating.varied_json(plain, chance, values=False).encode()
    if chance.random() < 0.7:
        return mutating.json_of(json.loads(data), chance).encode("utf-8", "replace")
    return mutating.text_of(data, chance)


def packed(name: str, data: bytes, more: bytes = b"") -> bytes:
    """A name, and two parts."""
    return b"%b\n%d\n%b%b" % (name.encode(), len(data), data, more)


def unpacked(data: bytes) -> tuple[str, bytes, bytes]:
    """What `packed` made; an input of `reproduce` may be cut anywhere."""
    name, _, rest = data.partition(b"\n")
    size, _, rest = rest.partition(b"\n")
    length = int(size) if size.isdigit() else 0
    return name.decode("utf-8", "replace"), rest[:length], rest[length:]


class _Service(Entry):
    """What all messages to a server share: a service, and one topic."""

    def prepare(self) -> None:
        settings = {"address": "127.0.0.1:0", "batch.bytes": "4M", **self.place()}
        given = [Property(key, text, "fuzz") for key, text in settings.items()]
        server = open_server("flight", given)
        assert isinstance(server, FlightServer)
        self.server, self.service, self.limits = server, server._service, server._limits
        self.store: Any = server._service.store
        self.count = 0
        self.refill()
        self.descriptors = _descriptors()
        self.threads = threading.active_count()

    def place(self) -> dict[str, str]:
        """Where the server keeps its topics."""
        return {"memory": "true"}

    def refill(self) -> None:
        """Have the one topic that the messages are about, and no other."""
        for name in self.store.names():
            if name != TOPIC:
                self.store.delete(name)
        if TOPIC not in self.store.names():
            log = self.store.create(TOPIC, SCHEMA, 2)
            stage = log.stage(uuid.uuid4().hex)
            stage.append(0, ROWS)
            log.commit(Epoch("w", 0, [stage.seal()], Summary(3)))

    def call(self, function: Callable[[], Any]) -> Any:
        """Call a handler of the service, and raise what the client would."""
        self.count += 1
        if self.count % 10 == 0:
            self.refill()
        try:
            return function()
        except fl.FlightError as error:
            raise (from_status(error) or error) from error

    def check(self) -> str | None:
        if self.limits.open_calls or self.limits.changing:
            return "a call is still counted"
        if self.count % 200 == 0:
            if _descriptors() > self.descriptors + _DESCRIPTORS:
                return "descriptors are leaked"
            if threading.active_count() > self.threads + _THREADS:
                return "threads are leaked"
        return None

    def close(self) -> None:
        self.server.close()
        self.service.shutdown()


def _descriptors() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


class FlightActions(_Service):
    """Names and bodies of actions."""

    NAME = "flight-actions"
    SHARE = 4

    def make(self, chance: random.Random) -> bytes:
        name = chance.choice([*REQUESTS, "commit", "commit", "create"])
        if name == "commit":
            request: Any = self.commit(chance)
        else:
            request = chance.choice(REQUESTS.get(name, (m.Done(),)))
        body = damaged(request, chance)
        if chance.random() < 0.02:
            name = chance.choice(("", "x" * 500, *ACTIONS))
        return packed(name, body)

    def commit(self, chance: random.Random) -> m.Commit:
        """A commit whose rows travel with it."""
        stream = mutating.stream_of(self.seed(chance), chance, self._plain)
        if chance.random() < 0.7:
            sink = pa.BufferOutputStream()
            with pa.ipc.new_stream(sink, SCHEMA) as writer:
                part = {b"part": damaged(m.Part(0), chance)}
                writer.write_batch(ROWS, custom_metadata=part)
            stream = sink.getvalue().to_pybytes()
            if chance.random() < 0.4:
                stream = mutating.bytes_of(stream, chance)
        inline = {"inline": base64.b64encode(stream).decode()}
        sealed = m.Sealed("a", (inline,))
        return m.Commit(
            topic=TOPIC,
            writer=None,
            instance="i",
            retention=m.Retention(None, 5),
            epoch=0,
            rows=3,
            sums={"crc": Digest(1)},
            position=_TEXT,
            staged=(sealed,),
        )

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        name, body, _ = unpacked(data)
        action = fl.Action(name, body)
        answers = self.call(lambda: self.service.do_action(Context(), action))
        for answer in answers:
            assert json.loads(answer)["v"] == 1
        if TOPIC not in self.store.names():
            return
        log = self.store.open(TOPIC)
        for partition in log.bounds():
            if partition.latest > partition.earliest:
                found = log.read(
                    partition.id, partition.latest - 1, max_rows=1, max_bytes=1 << 20
                )
                assert found.rows is not None
                yield found.rows


class FlightDiskActions(FlightActions):
    """The same, on a log on disk."""

    NAME = "flight-disk-actions"
    SHARE = 2

    def place(self) -> dict[str, str]:
        return {"path": str(self.folder / "log"), "fsync": "never"}

    def check(self) -> str | None:
        if self.count % 50 == 0:
            strange = [
                path
                for path in self.folder.glob("log/*.topic/*/data/*")
                if path.name.startswith(".tmp")
            ]
            if strange:
                return "temporary files are left"
        return super().check()


class FlightTickets(_Service):
    """Tickets, and descriptors of infos."""

    NAME = "flight-tickets"
    SHARE = 2

    def make(self, chance: random.Random) -> bytes:
        if chance.random() < 0.2:
            path = damaged(m.Topic(TOPIC), chance)[:300]
            return packed("info", chance.choice((path, b"t", b"t\0" + path)))
        ticket = chance.choice(
            (
                m.Ticket(TOPIC, 0),
                m.Ticket(TOPIC, 0, 1, 3, fields=("n",)),
                m.Ticket(TOPIC, 0, 2, follow=True, incarnation="i"),
            )
        )
        return packed("get", damaged(ticket, chance))

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        what, body, _ = unpacked(data)
        if what == "info":
            descriptor = fl.FlightDescriptor.for_path(*body.split(b"\0"))
            self.call(lambda: self.service.get_flight_info(Context(), descriptor))
            return
        self.call(lambda: self.service.do_get(Context(), fl.Ticket(body)))
        _, batches = read_range(
            self.store,
            decode(body, m.Ticket),
            Gone(),
            self.service.stopping,
            self.service._meters,
        )
        for rows, _ in itertools.islice(batches, 20):
            yield rows


class FlightUploads(_Service):
    """Puts: descriptors, metadata of batches, and the batches themselves."""

    NAME = "flight-uploads"
    SHARE = 4

    def prepare(self) -> None:
        super().prepare()
        self.open = [seed for seed in self._plain if seed.name.endswith(" None")]

    def make(self, chance: random.Random) -> bytes:
        kind, at = chance.choice(("stage", "stage", "plain")), chance.choice(_PARTS)
        stage, part = m.Stage(TOPIC, _ATTEMPT), m.Part(0)
        command = damaged(stage, chance) if at == "command" else encode(stage)
        if kind == "plain":
            paths = (b"t", b"t\0001", b"new", b"t\0-1", b"\xff")
            command = chance.choice(paths if at == "command" else paths[:3])
        metadata = damaged(part, chance) if at == "metadata" else encode(part)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as writer:
            for _ in range(3):
                writer.write_batch(ROWS)
        stream = sink.getvalue().to_pybytes()
        if at == "stream" and chance.random() < 0.5:
            stream = mutating.bytes_of(stream, chance)
        elif at == "stream":
            stream = mutating.stream_of(chance.choice(self.open), chance, self._plain)
        return packed(kind, command, packed("", metadata, stream))

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        kind, command, rest = unpacked(data)
        _, metadata, stream = unpacked(rest)
        if kind == "plain":
            descriptor = fl.FlightDescriptor.for_path(*command.split(b"\0"))
        else:
            command = command.replace(_ATTEMPT.encode(), b"a%d" % self.count)
            descriptor = fl.FlightDescriptor.for_command(command)
        try:
            upload = Upload(stream, metadata)
        except (pa.ArrowException, OSError, EOFError):
            msg = "Flight refuses it before the service is called"
            raise FormatRefused(msg) from None
        put = self.service.do_put
        self.call(lambda: put(Context(), descriptor, upload, Replies()))
        yield from ()


class FlightSessions(FlightUploads):
    """Exchanges that commit: descriptors, metadata of epochs, and their batches."""

    NAME = "flight-sessions"
    SHARE = 2

    def make(self, chance: random.Random) -> bytes:
        session = m.CommitSession(
            topic=TOPIC,
            writer=_ATTEMPT,
            instance="i",
            writer_memory_ms=1000,
            retention=m.Retention(None, 5),
        )
        at = chance.choice(_PARTS)
        command = damaged(session, chance) if at == "command" else encode(session)
        parts = (m.PartRows(0, 1), m.PartRows(1, 2))
        epoch = chance.randrange(1 << 40)
        request = m.CommitRows(
            epoch=epoch,
            rows=3,
            sums={"crc": Digest(1)},
            position=_TEXT,
            attempt=_ATTEMPT,
            parts=parts,
        )
        metadata = damaged(request, chance) if at == "metadata" else encode(request)
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, SCHEMA) as writer:
            writer.write_batch(ROWS)
        stream = sink.getvalue().to_pybytes()
        if at == "stream":
            stream = mutating.bytes_of(stream, chance)
        return packed("session", command, packed("", metadata, stream))

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        _, command, rest = unpacked(data)
        _, metadata, stream = unpacked(rest)
        own = b"a%d" % self.count
        command = command.replace(_ATTEMPT.encode(), own)
        descriptor = fl.FlightDescriptor.for_command(command)
        metadata = metadata.replace(_ATTEMPT.encode(), own)
        try:
            upload = Upload(stream, metadata)
        except (pa.ArrowException, OSError, EOFError):
            msg = "Flight refuses it before the service is called"
            raise FormatRefused(msg) from None
        if b'"writer"' not in command:
            return  # a subscription, which waits for its client
        exchange = self.service.do_exchange
        self.call(lambda: exchange(Context(), descriptor, upload, Replies()))
        yield from ()


class FlightWire(_Service):
    """The same messages over a connection; the server stays up."""

    NAME = "flight-wire"

    def prepare(self) -> None:
        super().prepare()
        options = [("grpc.max_receive_message_length", -1)]
        self.client = fl.FlightClient(self.service.location, generic_options=options)

    def make(self, chance: random.Random) -> bytes:
        kind = chance.choice(("action", "get", "put", "plain", "exchange", "info"))
        message: Any = {
            "action": m.Topic(TOPIC),
            "get": m.Ticket(TOPIC, 0),
            "put": m.Stage(TOPIC, "a"),
            "plain": m.Part(0),
            "exchange": m.Subscribe(TOPIC, 0),
            "info": m.Topic(TOPIC),
        }[kind]
        second: Any = m.Fetch(1, 0, 10, 1000) if kind == "exchange" else m.Part(0)
        first = damaged(message, chance) if chance.random() < 0.5 else encode(message)
        return packed(kind, first, damaged(second, chance))

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        kind, first, second = unpacked(data)
        found = self.call(lambda: list(self.ask(kind, first, second)))
        yield from found
        assert list(self.client.list_actions()), "the server is down"

    def ask(self, kind: str, first: bytes, second: bytes) -> Iterator[pa.RecordBatch]:
        options = fl.FlightCallOptions(timeout=30)
        command = fl.FlightDescriptor.for_command(first)
        if kind == "action":
            name = [*ACTIONS][len(second) % len(ACTIONS)]
            list(self.client.do_action(fl.Action(name, first), options))
        elif kind == "info":
            path = fl.FlightDescriptor.for_path(first[:200].decode("utf-8", "replace"))
            self.client.get_flight_info(path, options)
        elif kind == "get":
            if b'"follow":true' in first:
                return
            reader = self.client.do_get(fl.Ticket(first), options)
            with suppress(StopIteration):
                while True:
                    yield reader.read_chunk().data
        elif kind == "exchange":
            yield from self.exchange(command, second, options)
        else:
            path = fl.FlightDescriptor.for_path(TOPIC)
            descriptor = path if kind == "plain" else command
            writer, _ = self.client.do_put(descriptor, SCHEMA, options)
            with _closed(writer):
                writer.write_with_metadata(ROWS, second)

    def exchange(
        self, command: fl.FlightDescriptor, request: bytes, options: Any
    ) -> Iterator[pa.RecordBatch]:
        writer, reader = self.client.do_exchange(command, options)
        with _closed(writer):
            writer.write_metadata(request)
            writer.done_writing()
            with suppress(StopIteration):
                while True:
                    yield reader.read_chunk().data

    def check(self) -> str | None:
        return None  # a call may end a moment after the client has its answer

    def close(self) -> None:
        self.client.close()
        super().close()


@contextmanager
def _closed(writer: fl.FlightStreamWriter) -> Iterator[None]:
    """Close a writer; after an error too, or Arrow prints what the server said."""
    try:
        yield
    except BaseException:
        with suppress(fl.FlightError, pa.ArrowException, OSError):
            writer.close()
        raise
    writer.close()


class FlightFailures(Entry):
    """Errors of a hostile server."""

    NAME = "flight-failures"
    TOLERANT = True  # what is no failure of ours is an error without its members

    def make(self, chance: random.Random) -> bytes:
        failure = m.Failure("offset_out_of_range", "what", "do", "t", 0, 5, 1, 3)
        return damaged(failure, chance)

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        error = from_status(fl.FlightServerError("x", extra_info=data))
        assert isinstance(error, StreamError)
        assert len(str(error)) < 1 << 20
        yield from ()


class FlightAnswers(Entry):
    """Messages of a hostile server, as its clients decode them."""

    NAME = "flight-answers"
    SHARE = 2

    def make(self, chance: random.Random) -> bytes:
        answer = chance.choice(ANSWERS)
        return packed(type(answer).__name__, damaged(answer, chance))

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        name, body, _ = unpacked(data)
        answering = _Answering(body)
        store = RemoteLogStore(answering)
        calls: dict[str, Callable[[], Any]] = {
            "TopicDescription": lambda: store.open(TOPIC).bounds(),
            "Descriptions": lambda: FlightMetadata(answering).fetch_partitions((), ()),
            "Names": store.names,
            "Committed": lambda: _log(store).last("w"),
            "Checkpoints": lambda: RemoteCheckpointStore(store.connection).load("g"),
            "Verified": lambda: _log(store).verify(),
            "Facts": lambda: _log(store).facts(),
            "Offsets": lambda: _log(store).offsets_at(0, [0, 1]),
        }
        kind = getattr(m, name, m.Done)
        try:
            calls.get(name, lambda: decode(body, kind))()
        except Exception as error:  # as the framework translates what comes out
            raise (from_status(error) or error) from error
        yield from ()


def _log(store: RemoteLogStore) -> Any:
    return RemoteLog(store.connection, TOPIC, SCHEMA, "i")


class _Answering(Connection):
    """Answers each call with the same bytes."""

    def __init__(self, body: bytes) -> None:
        super().__init__(["grpc://127.0.0.1:1"], 1, 1, lambda: ({}, []))
        self._body = body

    def call(self, action: str, request: Any, answer: type[Any]) -> Any:
        return decode(self._body, answer)


class FlightDeliveries(Entry):
    """Batches of a hostile server over a connection, as a reader gets them."""

    NAME = "flight-deliveries"

    def prepare(self) -> None:
        self.server = _Hostile()
        location = f"grpc://127.0.0.1:{self.server.port}"
        self.connection = Connection([location], 30, 30, lambda: ({}, []))

    def make(self, chance: random.Random) -> bytes:
        delivery = damaged(m.Delivery(0, 0, 3, 1), chance)
        return packed("", delivery, chance.choice(self._plain).stream)

    def feed(self, data: bytes) -> Generator[pa.RecordBatch]:
        _, self.server.delivery, stream = unpacked(data)
        with pa.ipc.open_stream(pa.py_buffer(stream)) as reader:
            self.server.rows = reader.read_next_batch()
        wanted = m.Subscribe(TOPIC, 0)
        subscription = Subscription(self.connection, wanted)
        with closing(subscription):
            found = subscription.fetch(0, None, FetchLimits(100, 1 << 20, 0.0))
            yield found.rows

    def close(self) -> None:
        self.connection.close()
        self.server.shutdown()


class _Hostile(fl.FlightServerBase):  # type: ignore[misc]
    rows: pa.RecordBatch
    delivery: bytes

    def __init__(self) -> None:
        super().__init__("grpc://127.0.0.1:0")

    def do_exchange(
        self, context: Any, descriptor: Any, reader: Any, writer: Any
    ) -> None:
        writer.begin(self.rows.schema)
        reader.read_chunk()
        writer.write_with_metadata(self.rows, self.delivery)
        with suppress(StopIteration):
            reader.read_chunk()
