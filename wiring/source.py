"""One stream opened for reading: what Spark, the command line and `open()` hold."""

from __future__ import annotations

import itertools
import logging
import os
from typing import TYPE_CHECKING, Final, final

from streamfactory.spi import (
    ConfigError,
    ConsumerFactory,
    GuaranteeRefused,
    Partition,
    PartitionInfo,
    Unsupported,
    Verdict,
    envelope_schema,
    source_guarantee,
)
from streamfactory.wiring.clock import Clock
from streamfactory.wiring.decoding import DecodePolicy, DecodeStage
from streamfactory.wiring.guard import Guard, log
from streamfactory.wiring.metadata import Metadata
from streamfactory.wiring.reader import Reader, ReaderSettings
from streamfactory.wiring.shaping import Shaper, metadata_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from streamfactory.wiring.configure import Configured

    Wrap = Callable[[ConsumerFactory], ConsumerFactory]

_NUMBERS: Final = itertools.count()


def unique_client_id(prefix: str) -> str:
    """An id that no other client of this process, or of another one here, has."""
    return f"{prefix}-{os.getpid()}-{next(_NUMBERS)}"


@final
class Source:
    """A stream's readers and metadata, made from its configuration. Thread-safe.

    Nothing is connected before something is asked for.

    Args:
        configured: The configuration and its plug-ins.
        fields: Columns wanted, in this order; None means all.
        client_id: Prefix of the name in the source's logs.
        clock: Time; another one in simulations.
        wrap: Puts something around the author's factory: faults, in simulations.

    Raises:
        Unsupported: misuse; the type cannot be read.
        GuaranteeRefused: config; ``guarantee`` asks for more than the source can give.
    """

    def __init__(
        self,
        configured: Configured,
        *,
        fields: Sequence[str] | None = None,
        client_id: str = "streamfactory",
        clock: Clock | None = None,
        wrap: Wrap | None = None,
    ) -> None:
        self.config = configured.config
        self._decoder = configured.decoder
        self._fields = None if fields is None else tuple(fields)
        self._client_id = unique_client_id(client_id)
        self.clock = clock or Clock()
        backend = configured.backend
        if backend.consumer_factory is None:
            msg = f"the stream type {backend.name!r} cannot be read"
            raise Unsupported(msg, stream=self.config.name)
        self.guard = Guard(self.config, backend, self.clock)
        with self.guard.border():
            factory = backend.consumer_factory(self.config)
            self.factory = factory if wrap is None else wrap(factory)
            self.claims = self.factory.claims()
        self.guarantee = self._promise()
        self.metadata = Metadata(self.config, self.factory, self.guard, self._client_id)
        self._source_schema: pa.Schema | None = None
        self._schema: pa.Schema | None = None
        self._settings = ReaderSettings(
            stream=self.config.name,
            timeout=self.config["fetch.timeout.millis"] / 1000,
            max_rows=self.config["batch.rows"],
            max_bytes=self.config["batch.bytes"],
            out_of_range=self.config["out.of.range"],
            idle=max(0, self.config["idle.timeout.millis"]) / 1000,
        )
        for warning in self.config.warnings:
            level = logging.INFO if warning.level == "note" else logging.WARNING
            log.log(level, "stream %r: %s", self.config.name, warning)

    # Not `cached_property`: on Python 3.11 that has one lock for all instances, and
    # a schema may be waited for.
    @property
    def source_schema(self) -> pa.Schema:
        """The schema of what the consumers answer, before decoding."""
        if self._source_schema is None:
            self._source_schema = self._ask_schema()
        return self._source_schema

    @property
    def schema(self) -> pa.Schema:
        """The schema of every batch: decoded, projected, with metadata columns.

        Raises:
            SchemaUnknown: config.
            ConfigError: config; a wanted column is not there.
        """
        if self._schema is None:
            shaper = self.shaper(Partition("schema", 0))
            shaper.close()
            self._schema = shaper.schema
        return self._schema

    def reader(
        self,
        partition: Partition,
        *,
        info: PartitionInfo | None = None,
        incarnation: str | None = None,
    ) -> Reader:
        """A reader of one partition. The caller closes it.

        Args:
            partition: Which.
            info: The partition, if it was seen just now: spares a look-up.
            incarnation: What the caller's offsets count; another one is
                `IncarnationChanged`.
        """
        return Reader(
            partition,
            self._settings,
            create=lambda: self.factory.create_partition_level_consumer(
                f"{self._client_id}-{partition}", partition, self._pushed_fields()
            ),
            look_up=lambda closed: self.metadata.info(partition, closed),
            shaper=self.shaper(partition),
            guard=self.guard,
            clock=self.clock,
            info=info,
            incarnation=incarnation,
        )

    def shaper(self, partition: Partition) -> Shaper:
        """What turns the answers of one consumer into rows of the schema."""
        source = self.source_schema
        with self.guard.border():
            stage = self._stage(partition)
        base = source if stage is None else stage.schema
        populate = self.config["metadata.populate"]
        added: list[pa.Field] = []
        if populate or self.config["metadata.columns"]:
            headers = populate or self.config["includeHeaders"]
            added = metadata_fields(source, headers=headers)
        try:
            self._check_columns(base, added)
            return Shaper(
                base,
                fields=self._fields,
                added=added,
                envelopes=source.equals(envelope_schema()),
                stage=stage,
            )
        except BaseException:
            if stage is not None:
                stage.close()
            raise

    def close(self) -> None:
        """Close the metadata and what the factory shares; readers are closed before."""
        try:
            self.metadata.close()
        finally:
            with self.guard.border():
                self.factory.close()

    def _ask_schema(self) -> pa.Schema:
        schema = self.metadata.schema()
        if schema.equals(envelope_schema()):
            if self._decoder is None:
                msg = "this stream holds undecoded messages, and no decoder is named"
                key = f"stream.{self.config.type}.decoder.class.name"
                raise ConfigError(
                    msg, stream=self.config.name, remedy=f"set {key}; raw keeps them so"
                )
        elif self._decoder is not None:
            name = self._decoder.name
            msg = f"this stream has typed rows: the decoder {name!r} is refused"
            raise ConfigError(msg, stream=self.config.name, remedy="leave it out")
        return schema

    def _promise(self) -> Verdict:
        policy = self.config["out.of.range"]
        verdict = source_guarantee(self.claims, out_of_range=policy)
        wanted = self.config.get("guarantee")
        if wanted is not None and wanted > verdict.guarantee:
            msg = f"{wanted} is wanted, this source gives {verdict}"
            raise GuaranteeRefused(msg, stream=self.config.name)
        return verdict

    def _pushed_fields(self) -> Sequence[str] | None:
        return self._fields if self._decoder is None else None

    def _stage(self, partition: Partition) -> DecodeStage | None:
        descriptor = self._decoder
        if descriptor is None or descriptor.decoder is None:
            return None
        topic = self.config.get("topic.name", "")
        decoder = descriptor.decoder(self.config.decoder_options(), topic)
        policy = DecodePolicy.of(self.config)
        try:
            return DecodeStage(decoder, policy, partition, self._fields)
        except BaseException:
            decoder.close()
            raise

    def _check_columns(self, base: pa.Schema, added: Sequence[pa.Field]) -> None:
        names, complaint = list(base.names), None
        wanted = names if self._fields is None else list(self._fields)
        missing = [name for name in wanted if name not in names]
        added_names = [field.name for field in added]
        twice = [name for name in wanted if (wanted + added_names).count(name) > 1]
        if not wanted:
            complaint = "no columns are wanted"
        elif missing:
            complaint = f"there is no column {missing[0]!r}; there are " + ", ".join(
                names
            )
        elif twice:
            complaint = f"the column {twice[0]!r} would be there twice"
        if complaint is not None:
            raise ConfigError(complaint, stream=self.config.name)
