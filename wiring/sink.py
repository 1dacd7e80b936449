"""One stream opened for writing: what Spark, the command line and pipelines hold.

`Sink`, `Writer` and `Committer` make the [f] rules of W true once: routing, schema,
draining of what is there already, comparison of summaries, refusal of epochs whose
predecessor nobody remembers.
"""

from __future__ import annotations

import threading
import uuid
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, final

import pyarrow as pa

from streamfactory.spi import (
    GuaranteeRefused,
    MessageEncoder,
    ProducerFactory,
    Unsupported,
    Verdict,
    WriteContext,
    WriteKind,
    envelope_schema,
    sink_guarantee,
)
from streamfactory.wiring.canonical import canonical_schema
from streamfactory.wiring.clock import Clock
from streamfactory.wiring.committer import Committer
from streamfactory.wiring.conform import conform
from streamfactory.wiring.guard import Guard
from streamfactory.wiring.routing import SPECIAL
from streamfactory.wiring.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.spi import End
    from streamfactory.wiring.configure import Configured

    Wrap = Callable[[ProducerFactory], ProducerFactory]

T = TypeVar("T")
"""What a guarded call answers."""


@final
class Sink:
    """A stream's writers and committers. Thread-safe; connects when something is asked.

    Args:
        configured: The configuration and its plug-ins.
        clock: Time; another one in simulations.
        wrap: Puts something around the author's factory: faults, in simulations.

    Raises:
        Unsupported: misuse; the type cannot be written.
    """

    def __init__(
        self,
        configured: Configured,
        *,
        clock: Clock | None = None,
        wrap: Wrap | None = None,
    ) -> None:
        self.config = configured.config
        backend = configured.backend
        if backend.producer_factory is None:
            msg = f"the stream type {backend.name!r} cannot be written"
            raise Unsupported(msg, stream=self.config.name)
        factory = backend.producer_factory(self.config)
        self.factory = factory if wrap is None else wrap(factory)
        self.guard = Guard(self.config, backend, clock or Clock())
        self.claims = self.factory.claims()
        self._descriptor = configured.decoder
        self._closed = threading.Event()

    def guarantee(self, *, writer_id: str | None) -> Verdict:
        """What writing under this id promises.

        Raises:
            GuaranteeRefused: config; ``guarantee`` asks for more.
        """
        verdict = sink_guarantee(self.claims, writer_id=writer_id is not None)
        wanted = self.config.get("guarantee")
        if wanted is not None and wanted > verdict.guarantee:
            msg = f"{wanted} is wanted, this sink gives {verdict}"
            raise GuaranteeRefused(msg, stream=self.config.name)
        return verdict

    @cached_property
    def schema(self) -> pa.Schema | None:
        """The schema that rows have to fit; None where the first rows decide it."""
        return self.ask(
            "ask for the schema",
            lambda: self.factory.fetch_schema(self.config.get("topic.name", "")),
        )

    @cached_property
    def partitions(self) -> int:
        """How many partitions rows are spread over."""
        topic = self.config.get("topic.name", "")
        return self.ask(
            "ask for partitions", lambda: self.factory.fetch_partition_count(topic)
        )

    def writer(
        self,
        schema: pa.Schema,
        *,
        writer_id: str | None = None,
        epoch: int = 0,
        task: int = 0,
        kind: WriteKind = WriteKind.STREAMING,
    ) -> Writer:
        """The writer of one attempt. The caller commits or aborts, and closes it.

        Args:
            schema: Of the rows to come, the framework's columns (``_key``, ...) among
                them.
            writer_id: Survives restarts; None claims no idempotence.
            epoch: At least 0, rising per writer.
            task: Number of the task within the epoch.
            kind: Whether epochs continue one another.

        Raises:
            GuaranteeRefused: config.
            SchemaMismatch: permanent; rows of this schema do not fit the sink.
        """
        self.guarantee(writer_id=writer_id)
        encoder = self._encoder()
        if encoder is None:
            target = self._target(schema)
        else:
            target = pa.schema([pa.field("value", pa.binary())])
        context = WriteContext(writer_id, epoch, task, uuid.uuid4().hex, kind, target)
        return Writer(self, context, encoder)

    def committer(
        self, *, writer_id: str | None = None, kind: WriteKind = WriteKind.STREAMING
    ) -> Committer:
        """The committer of one writer. The caller closes it."""
        author = self.ask(
            "make a committer", lambda: self.factory.create_committer(writer_id)
        )
        return Committer(self, author, writer_id, kind)

    def end_stream(self, end: End) -> None:
        """Tell readers how the stream ends, where its kind has an end."""
        self.ask("end the stream", lambda: self.factory.end_stream(end))

    def close(self) -> None:
        """Close what the factory shares; twice is fine."""
        if not self._closed.is_set():
            self._closed.set()
            self.factory.close()

    def ask(self, operation: str, function: Callable[[], T]) -> T:
        """Call the author's code; tried again after passing trouble."""
        timeout = self.config["connection.timeout.millis"] / 1000
        return self.guard.call(
            operation, function, closed=self._closed, timeout=timeout
        )

    def call(self, function: Callable[[], T]) -> T:
        """Call the author's code once: what cannot be repeated blindly."""
        try:
            return function()
        except Exception as error:
            found = self.guard.translate(error)
            if found is error:
                raise
            raise found from error

    def _target(self, schema: pa.Schema) -> pa.Schema:
        plain = pa.schema([field for field in schema if field.name not in SPECIAL])
        wanted = self.schema
        if wanted is None:
            return canonical_schema(plain)
        if wanted.equals(envelope_schema()):
            wanted = pa.schema([wanted.field("value")])
        # Told now rather than with the first rows: an empty table has to fit as well.
        conform(pa.RecordBatch.from_pylist([], schema=plain), wanted)
        return wanted

    def _encoder(self) -> MessageEncoder | None:
        if self._descriptor is None or self._descriptor.encoder is None:
            return None
        topic = self.config.get("topic.name", "")
        return self._descriptor.encoder(self.config.decoder_options(), topic)
