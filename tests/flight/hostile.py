"""A client of the protocol that sends what no client of ours sends."""

from __future__ import annotations

import base64
import json
import uuid
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.flight as fl

from streamfactory.backends.flight.protocol.codec import decode
from streamfactory.backends.flight.protocol.messages import Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

PART: Final = {"partition": 0}
DEADLINE: Final = 60.0


class HostileClient:
    """Calls of the protocol, from plain values.

    Args:
        client: Its connection.
        token: Sent with each call.
    """

    def __init__(self, client: fl.FlightClient, token: str | None = None) -> None:
        self.client = client
        self._headers = []
        if token is not None:
            self._headers = [(b"authorization", f"Bearer {token}".encode())]

    def options(self, **more: Any) -> fl.FlightCallOptions:
        """Options of a call: a deadline and the token."""
        timeout = more.pop("timeout", DEADLINE)
        return fl.FlightCallOptions(timeout=timeout, headers=self._headers, **more)

    def act(self, action: str, **members: Any) -> Any:
        """Call an action; returns its answer."""
        call = fl.Action(action, message(**members))
        (answer,) = self.client.do_action(call, self.options())
        return json.loads(answer.body.to_pybytes())

    def create(self, topic: str, schema: pa.Schema, partitions: int = 1) -> None:
        """Create a topic."""
        text = base64.b64encode(schema.serialize()).decode()
        self.act("create", topic=topic, schema=text, partitions=partitions)

    def upload(self, topic: str, rows: pa.RecordBatch, **part: Any) -> dict[str, Any]:
        """Stage rows by ``DoPut``; returns what the server has sealed."""
        wanted = message(topic=topic, attempt=uuid.uuid4().hex)
        descriptor = fl.FlightDescriptor.for_command(wanted)
        writer, replies = self.client.do_put(descriptor, rows.schema, self.options())
        metadata = message(**{**PART, "acknowledge": False, **part})
        writer.write_with_metadata(rows, metadata)
        writer.done_writing()
        reply = replies.read()
        writer.close()  # raises why there is none
        sealed = json.loads(reply.to_pybytes())
        return {key: sealed[key] for key in ("attempt", "files") if key in sealed}

    def commit(self, topic: str, *staged: dict[str, Any], **members: Any) -> Any:
        """Commit what was staged, for a new writer."""
        of_writer = {"writer": uuid.uuid4().hex, "instance": "", "epoch": 0, "rows": 0}
        return self.act(
            "commit", topic=topic, staged=staged, **{**of_writer, **members}
        )

    # --- each way of rows into a topic ------------------------------------------------

    def put(self, topic: str, rows: pa.RecordBatch) -> None:
        """Stage by ``DoPut``, then commit."""
        self.commit(topic, self.upload(topic, rows))

    def inline(self, topic: str, rows: pa.RecordBatch, **ipc: Any) -> None:
        """Send the rows within the commit."""
        self.commit(topic, inline_attempt(stream_of(rows, **ipc)))

    def session(self, topic: str, rows: pa.RecordBatch) -> None:
        """Send the rows over a ``DoExchange`` of commits."""
        writer_id = uuid.uuid4().hex
        self.act("claim", topic=topic, writer=writer_id, instance="i")
        wanted = message(topic=topic, writer=writer_id, instance="i")
        descriptor = fl.FlightDescriptor.for_command(wanted)
        writer, reader = self.client.do_exchange(descriptor, self.options())
        writer.begin(rows.schema)
        parts = [{"partition": 0, "rows": rows.num_rows}]
        epoch = message(
            epoch=0, attempt=uuid.uuid4().hex, parts=parts, rows=rows.num_rows
        )
        writer.write_with_metadata(rows, epoch)
        reader.read_chunk()
        writer.close()

    def plain(self, topic: str, rows: pa.RecordBatch) -> None:
        """Put to the path of the topic."""
        path = fl.FlightDescriptor.for_path(topic)
        writer, _ = self.client.do_put(path, rows.schema, self.options())
        writer.write_batch(rows)
        writer.close()

    def read(self, topic: str, partition: int = 0) -> pa.RecordBatch:
        """The first rows of a partition, as a subscription returns them."""
        wanted = message(topic=topic, partition=partition)
        descriptor = fl.FlightDescriptor.for_command(wanted)
        writer, reader = self.client.do_exchange(descriptor, self.options())
        fetch = message(id=1, start=0, max_rows=1 << 20, max_bytes=8 << 20)
        writer.write_metadata(fetch)
        rows = reader.read_chunk().data
        writer.close()
        return rows


DOORS: Final[dict[str, Callable[[HostileClient, str, pa.RecordBatch], None]]] = {
    "put": HostileClient.put,
    "inline": HostileClient.inline,
    "session": HostileClient.session,
    "plain": HostileClient.plain,
}
"""How rows come into a topic of a server."""


@contextmanager
def connected(location: str, token: str | None = None) -> Iterator[HostileClient]:
    """A client with a connection of its own."""
    own = [("grpc.use_local_subchannel_pool", 1)]
    with closing(fl.connect(location, generic_options=own)) as client:
        yield HostileClient(client, token)


def message(**members: Any) -> bytes:
    """A message of the protocol."""
    return json.dumps({"v": 1, **members}).encode()


def stream_of(rows: pa.RecordBatch, *, partition: int = 0, **ipc: Any) -> bytes:
    """An Arrow stream as a commit carries it."""
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(**ipc)
    with pa.ipc.new_stream(sink, rows.schema, options=options) as writer:
        part = {b"part": message(partition=partition)}
        writer.write_batch(rows, custom_metadata=part)
    return bytes(sink.getvalue())


def inline_attempt(stream: bytes) -> dict[str, Any]:
    """An attempt whose rows travel with the commit."""
    text = base64.b64encode(stream).decode()
    return {"attempt": uuid.uuid4().hex, "files": [{"inline": text}]}


def failure(error: Exception) -> Failure:
    """What a server has answered instead."""
    info = getattr(error, "extra_info", b"")
    assert info, error
    return decode(bytes(info), Failure)
