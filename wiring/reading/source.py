"""A stream opened for reading, as used by Spark, the command line and `open()`."""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, final

from streamfactory.conversion.conform import check_columns
from streamfactory.conversion.differences import schema_difference
from streamfactory.spi import (
    ClosedError,
    ConfigError,
    ConsumerFactory,
    Partition,
    PartitionInfo,
    Role,
    SchemaMismatch,
    Unsupported,
    Yields,
    envelope_schema,
)
from streamfactory.wiring.config.guarantees import (
    check_guarantee,
    end_verdict,
    transport_of,
)
from streamfactory.wiring.core.canonical import canonical_schema, declared_schema
from streamfactory.wiring.core.clock import Clock
from streamfactory.wiring.core.guard import Guard, log_warnings
from streamfactory.wiring.core.throttle import Rate, Throttle
from streamfactory.wiring.decoding.deadletters import EVIDENCE
from streamfactory.wiring.decoding.row_schema import Shaper, metadata_fields
from streamfactory.wiring.decoding.stages import StageFactory
from streamfactory.wiring.decoding.typed_rows import TypedRows
from streamfactory.wiring.reading.metadata import Metadata
from streamfactory.wiring.reading.reader import Reader, ReaderSettings

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from streamfactory.spi import PartitionLevelConsumer
    from streamfactory.wiring.config.settled import Configured
    from streamfactory.wiring.decoding.stage import DecodeStage

    Wrap = Callable[[ConsumerFactory], ConsumerFactory]

_NUMBERS: Final = itertools.count()


def unique_client_id(prefix: str) -> str:
    """Return an id that is unique among the clients of this machine."""
    return f"{prefix}-{os.getpid()}-{next(_NUMBERS)}"


@final
class Source:
    """Creates the readers and the metadata of a stream. Thread-safe.

    Connects on first use.

    Args:
        configured: The configuration and its plug-ins.
        fields: Columns to read, in this order; None means all.
        client_id: Prefix of the client id in the source's logs.
        clock: The clock; simulations replace it.
        wrap: Wraps the backend's factory, to inject faults in simulations.
        aside: Whether dead letters are in `MessageBatch.dead_letters`, instead of among
            the rows; None: among the rows, but dropped if a group would write them.
        raw_keys: Whether ``_key`` is not decoded, although a key decoder is set.
        source_schema: The schema of the consumers' rows, if known: saves a call.
        cancelled: Cancels every call for metadata when set; by default, closing does.
        opening: From the source of another process, to read as it does.

    Raises:
        Unsupported: misuse; the type cannot be read.
        GuaranteeRefused: config; ``guarantee`` is stronger than that of the source.
    """

    def __init__(
        self,
        configured: Configured,
        *,
        fields: Sequence[str] | None = None,
        client_id: str = "streamfactory",
        clock: Clock | None = None,
        wrap: Wrap | None = None,
        aside: bool | None = None,
        raw_keys: bool = False,
        source_schema: pa.Schema | None = None,
        cancelled: threading.Event | None = None,
        opening: bytes | None = None,
    ) -> None:
        self.config = configured.config
        self._stages = StageFactory(configured, aside=aside, raw_keys=raw_keys)
        self.origin = self._stages.origin
        """The origin of this stream's dead letters."""
        self._fields = None if fields is None else tuple(fields)
        self._client_id = unique_client_id(client_id)
        self.clock = clock or Clock()
        backend = configured.backend
        self._envelopes = backend.yields is Yields.ENVELOPE
        if backend.consumer_factory is None:
            msg = f"stream type {backend.name!r} cannot be read"
            raise Unsupported(msg, stream=self.config.name)
        self.guard = Guard(self.config, backend, self.clock)
        with self.guard.border():
            factory = backend.consumer_factory(self.config)
            if opening is not None:
                factory.pin(opening)
            self.factory = factory if wrap is None else wrap(factory)
            self.claims = self.factory.claims()
            transport = transport_of(factory)
        verdict = end_verdict(self.config, self.claims, Role.READ, transport=transport)
        self.guarantee = check_guarantee("source", verdict, [self.config])
        self.metadata = Metadata(
            self.config, self.factory, self.guard, self._client_id, cancelled
        )
        self._source_schema = source_schema
        self._opened_at: dict[Partition, int] = {}
        """Where partitions ended when their first readers were created."""
        self._closing = ExitStack()
        self._closed = threading.Event()
        self._shaped: tuple[pa.Schema, frozenset[str]] | None = None
        """The schema, and the columns that are added."""
        self._settings = ReaderSettings.of(self.config)
        self.rate = Rate(
            self.config.get("max.rows.per.second"),
            self.config.get("max.bytes.per.second"),
        )
        """The configured limits of what is read per second."""
        self.throttle: Throttle | None = None
        """Applies limits to readers that are created from now on."""
        if self.rate:
            self.throttle = Throttle(lambda: self.rate, self.clock)
        log_warnings(self.config)

    @property
    def decodes(self) -> bool:
        """Whether messages are decoded."""
        return self._stages.decodes

    # Not `cached_property`: on Python 3.11 it has one lock for all instances, and
    # fetching a schema may block.
    @property
    def source_schema(self) -> pa.Schema:
        """The schema of the consumers' rows, before decoding."""
        if self._source_schema is None:
            self._source_schema = self._ask_schema()
        return self._source_schema

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch: decoded, projected, with metadata columns.

        Raises:
            SchemaUnknown: config.
            ConfigError: config; a selected column does not exist.
        """
        return self._shape[0]

    @property
    def added_columns(self) -> frozenset[str]:
        """Columns of the schema that the stream itself does not have.

        Metadata columns, except those that a column of the stream hides, and the
        evidence of dead letters.

        Raises:
            StreamError: See `schema`.
        """
        return self._shape[1]

    @property
    def metadata_columns(self) -> frozenset[str]:
        """Those of `added_columns` that say where a row comes from."""
        return self.added_columns.difference(field.name for field in EVIDENCE)

    @property
    def _shape(self) -> tuple[pa.Schema, frozenset[str]]:
        if self._shaped is None:
            shaper = self.shaper(Partition("schema", 0))
            shaper.close()
            self._shaped = shaper.schema, frozenset(shaper.added)
        return self._shaped

    @property
    def opening(self) -> bytes | None:
        """What readers in other processes need to read as this source does."""
        _ = self.schema  # the stream is open behind it
        with self.guard.border():
            return self.factory.opening()

    def differs_from_declared(self) -> str | None:
        """Return how the columns of a topic of rows differ from the option ``schema``.

        None if they do not, if none are declared, or for messages.
        """
        found, declared = self.source_schema, declared_schema(self.config)
        if declared is None or found.equals(envelope_schema()):
            return None
        return schema_difference(canonical_schema(found), declared)

    def reader(
        self,
        partition: Partition,
        *,
        info: PartitionInfo | None = None,
        incarnation: str | None = None,
        counted: bool = True,
    ) -> Reader:
        """Create the reader of one partition. The caller closes it.

        Args:
            partition: The partition.
            info: Its bounds, if just fetched: saves a look-up.
            incarnation: Incarnation of the caller's offsets; another one raises
                `IncarnationChanged`.
            counted: Whether the metrics of the process count what is read: not for a
                look at the stream by a person.

        Raises:
            ClosedError: misuse; the source is closed.
        """
        self._check_open()
        if info is not None and info.latest is not None:
            self._opened_at.setdefault(partition, info.latest)
        return Reader(
            partition,
            self._settings,
            create=lambda: self._create(partition),
            look_up=lambda closed: self.metadata.info(partition, closed),
            identify=lambda closed: self.metadata.incarnations([partition], closed)[
                partition
            ],
            shaper=self.shaper(partition),
            guard=self.guard,
            clock=self.clock,
            info=info,
            incarnation=incarnation,
            counted=counted,
            throttle=self.throttle,
        )

    def shaper(self, partition: Partition) -> Shaper:
        """Create the converter from one consumer's results to rows of the schema."""
        source = self.source_schema
        with self.guard.border():
            stage = self.decode_stage(partition)
        base = source if stage is None else stage.schema
        populate = self.config["metadata.populate"]
        added: list[pa.Field] = []
        if populate or self.config["metadata.columns"]:
            headers = populate or self.config["includeHeaders"]
            keys = None if stage is None else stage.keys
            key = None if keys is None or keys.columns else keys.type
            added = metadata_fields(
                source,
                headers=headers,
                tombstones=self.config["includeTombstones"],
                key=key,
                # Dead letters need the place of each row: nothing hides it.
                own=() if self._stages.policy.evidence else base.names,
            )
        if stage is not None and self._stages.policy.evidence:
            added += EVIDENCE
        envelopes = source.equals(envelope_schema())
        try:
            self._check_columns(base, added)
            typed = None
            if stage is None and not envelopes:
                typed = TypedRows(base, self._stages.policy, partition, self._fields)
            return Shaper(
                base,
                fields=self._fields,
                added=added,
                envelopes=envelopes,
                stage=stage,
                typed=typed,
                opened_at=self._opened_at.get(partition),
            )
        except BaseException:
            if stage is not None:
                stage.close()
            raise

    def close_with(self, close: Callable[[], object]) -> None:
        """Register a function that is called first when this source is closed."""
        self._closing.callback(close)

    def close(self) -> None:
        """Close the metadata and the factory; the caller closes readers before."""
        self.guard.end(self._close)

    def _create(self, partition: Partition) -> PartitionLevelConsumer:
        # A closed factory would open again what nothing closes.
        self._check_open()
        return self.factory.create_partition_level_consumer(
            f"{self._client_id}-{partition}", partition, self._pushed_fields()
        )

    def _check_open(self) -> None:
        if self._closed.is_set():
            msg = "the stream is closed"
            raise ClosedError(msg, stream=self.config.name)

    def _close(self) -> None:
        self._closed.set()
        try:
            self._closing.close()
            self.metadata.close()
        finally:
            with self.guard.border():
                self.factory.close()

    def _ask_schema(self) -> pa.Schema:
        # For envelopes, `schema` declares the decoded rows.
        declared = self._envelopes and "schema" in self.config
        schema = envelope_schema() if declared else self.metadata.schema()
        decoder = self._stages.decoder
        if schema.equals(envelope_schema()):
            if decoder is None:
                msg = "this stream has undecoded messages, but no decoder is configured"
                key = f"stream.{self.config.type}.decoder.class.name"
                raise ConfigError(
                    msg,
                    stream=self.config.name,
                    remedy=f"set {key}; use raw to read them undecoded",
                )
        elif decoder is not None:
            name = decoder.name
            msg = f"this stream has typed rows, so the decoder {name!r} cannot be used"
            raise ConfigError(msg, stream=self.config.name, remedy="omit it")
        return schema

    def _pushed_fields(self) -> Sequence[str] | None:
        return self._fields if self._stages.decoder is None else None

    def decode_stage(self, partition: Partition) -> DecodeStage | None:
        """Create the decoding stage of a partition; None if messages are not decoded.

        The caller closes it.
        """
        return self._stages.create(partition, self._fields)

    def _check_columns(self, base: pa.Schema, added: Sequence[pa.Field]) -> None:
        try:
            check_columns(base)
        except SchemaMismatch as error:  # of a topic of another program
            error.at(stream=self.config.name)
            error.remedy = "write the rows again, to another topic"
            raise
        names, complaint = list(base.names), None
        wanted = names if self._fields is None else list(self._fields)
        known = frozenset(names)
        missing = [name for name in wanted if name not in known]
        counts = Counter([*wanted, *(field.name for field in added)])
        twice = [name for name in wanted if counts[name] > 1]
        if not wanted:
            complaint = "no columns are selected"
        elif missing:
            complaint = (
                f"column {missing[0]!r} does not exist; available are "
                + ", ".join(names)
            )
        elif twice:
            complaint = f"column {twice[0]!r} is selected twice"
        if complaint is not None:
            raise ConfigError(complaint, stream=self.config.name)
