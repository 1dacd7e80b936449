"""Decides the schemas in which the rows of a sink are checked and stored."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, final

import pyarrow as pa

from streamfactory.conversion.conform import (
    check_columns,
    check_names,
    columns_of,
    conform,
    empty_rows,
)
from streamfactory.conversion.evolution import evolved
from streamfactory.spi import (
    ConfigError,
    ProducerFactory,
    SchemaMismatch,
    StreamError,
    Unsupported,
    envelope_schema,
)
from streamfactory.wiring.core.canonical import canonical_schema, declared_schema
from streamfactory.wiring.decoding.contracts import discards
from streamfactory.wiring.writing.changes import change_column, check_changes
from streamfactory.wiring.writing.guessed import warn_of_guesses
from streamfactory.wiring.writing.routing import check_unreserved, framework_columns
from streamfactory.wiring.writing.writer import Target

if TYPE_CHECKING:
    from streamfactory.spi import Decoder, MessageEncoder
    from streamfactory.wiring.writing.keys import KeyColumns
    from streamfactory.wiring.writing.producer import Producer


@final
class Targets:
    """Decides the `Target` of rows from their schema. Thread-safe; has no end.

    Args:
        producer: Calls the backend.
        decoder: The decoder whose encoder makes the messages; None for typed rows.
        keys: Which columns are encoded to keys; None without a decoder of keys.
    """

    def __init__(
        self, producer: Producer, decoder: Decoder | None, keys: KeyColumns | None
    ) -> None:
        self._producer = producer
        self._config = producer.config
        self._decoder = decoder
        self._keys = keys
        self._contract: str | None = producer.config.get("schema.contract")
        self._schema: pa.Schema | None = None
        self._warned = False
        """Whether the types of first rows were looked at."""
        self._last: tuple[pa.Schema, Target] | None = None
        """The schema that was decided last, and its target."""

    @property
    def schema(self) -> pa.Schema | None:
        """See `Sink.schema`."""
        # None is not cached: a first writer may have decided it meanwhile.
        if self._schema is None:
            topic = self._config.get("topic.name", "")
            factory = self._producer.factory
            self._schema = self._producer.ask(
                "fetch the schema", lambda: factory.fetch_schema(topic)
            )
        if self._schema is None and self._decoder is None:
            return self.declared
        return self._schema

    @cached_property
    def declared(self) -> pa.Schema | None:
        """See `Sink.declared`."""
        return declared_schema(
            self._config, dictionaries=self._producer.keeps_dictionaries
        )

    @property
    def refuses(self) -> bool:
        """See `Sink.refuses`."""
        return not (discards(self._contract) or self._evolves)

    @property
    def _evolves(self) -> bool:
        """Whether the topic gets the columns that it lacks."""
        author = type(self._producer.factory).evolve_schema
        can = author is not ProducerFactory.evolve_schema
        return can and self._contract == "evolve"

    @property
    def framework_columns(self) -> frozenset[str]:
        """See `Sink.framework_columns`."""
        schema = self.schema
        messages = schema is not None and schema.equals(envelope_schema())
        return framework_columns(self._producer.factory.CARRIES, messages=messages)

    def canonical(self, schema: pa.Schema) -> pa.Schema:
        """See `Sink.canonical`."""
        return canonical_schema(schema, dictionaries=self._producer.keeps_dictionaries)

    def decide(self, schema: pa.Schema) -> Target:
        """Return the target of rows of a schema; creates nothing.

        Args:
            schema: Of the rows, with the framework's columns.

        Raises:
            ConfigError: config; typed rows with a decoder, or messages without one.
            SchemaMismatch: permanent; has the column.
            Unsupported: misuse; the decoder cannot encode.
        """
        last = self._last
        if last is not None and last[0].equals(schema, check_metadata=True):
            return last[1]
        try:
            target = self._decide(schema)
        except SchemaMismatch as error:
            if error.remedy is None:
                error.remedy = self._remedy()
            error.at(stream=self._config.name)
            raise
        except StreamError as error:
            error.at(stream=self._config.name)
            raise
        if self._schema is not None:  # else the first rows decide it
            self._last = schema, target
        return target

    def encoder(self) -> MessageEncoder | None:
        """Create the encoder of rows to messages; None if rows are written unchanged.

        The caller closes it.

        Raises:
            StreamError: Of the decoder's options.
        """
        if self._decoder is None or self._decoder.encoder is None:
            return None
        topic = self._config.get("topic.name", "")
        make, options = self._decoder.encoder, self._config.decoder_options()
        return self._producer.call(lambda: make(options, topic))

    def warn_of_guesses(
        self, rows: pa.Schema, inferred: frozenset[str] = frozenset()
    ) -> None:
        """Log the types that the first rows of a topic decide; once.

        Args:
            rows: Of the rows, with the framework's columns.
            inferred: Columns whose type was inferred from the values.
        """
        if self._warned or self.schema is not None:
            return
        special = self.framework_columns
        own = pa.schema([field for field in rows if field.name not in special])
        warn_of_guesses(self._config.name, self.canonical(own), inferred)
        self._warned = True

    def _decide(self, schema: pa.Schema) -> Target:
        check_names(schema)
        if self._keys is not None:
            schema = self._keys.rest(schema)
        wanted, carries = self.schema, self._producer.factory.CARRIES
        changes = change_column(self._config)
        if changes is not None:
            check_changes(self._config, schema, wanted, carries)
        messages = wanted is not None and wanted.equals(envelope_schema())
        special = framework_columns(carries, messages=messages)
        left = {*special, changes}
        plain = pa.schema([field for field in schema if field.name not in left])
        if messages:
            stored = pa.schema([envelope_schema().field("value")])
            rows = stored
            if self._encodes():
                # without columns, `raw` would read rows as tombstones
                check_columns(plain)
                rows = self.declared or canonical_schema(plain)
        else:
            self._refuse_decoder()
            check_columns(plain)
            stored = rows = self._columns_for(plain, wanted)
            check_unreserved(stored, special)
        contract = self._contract if not messages and wanted is not None else None
        if not discards(contract):
            # Checked here, not with the first rows: an empty table must fit as well.
            self._producer.call(lambda: conform(empty_rows(plain), rows))
        return Target(rows, stored, special, carries & special, contract)

    def _columns_for(self, rows: pa.Schema, wanted: pa.Schema | None) -> pa.Schema:
        """Return the columns that a sink of typed rows has for rows of a schema.

        Args:
            rows: Without the framework's columns.
            wanted: The topic's, or the declared ones; None if the rows decide them.
        """
        rows = self.canonical(rows)
        if wanted is None:
            return rows
        if not self._evolves:
            return wanted
        topic, factory = self._config.get("topic.name", ""), self._producer.factory
        found = self._producer.ask(
            "fetch the schema", lambda: factory.evolve_schema(topic, rows)
        )
        if found is None:  # the topic is created with them
            return pa.schema(evolved(list(wanted), list(rows)))
        if found != wanted:
            self._schema = None  # that of the topic changes with the next writer
        return found

    def _remedy(self) -> str | None:
        """The remedy for rows that do not fit."""
        known = self._schema
        if known is not None and not known.equals(envelope_schema()):
            topic = self._config.get("topic.name")
            return f"write the columns of topic {topic!r}: {columns_of(known)}"
        if self.declared is None:
            return None
        return f"write the columns of the option schema: {columns_of(self.declared)}"

    def _refuse_decoder(self) -> None:
        if self._decoder is not None:
            name = self._decoder.name
            msg = f"this stream has typed rows, so the decoder {name!r} cannot be used"
            raise ConfigError(msg, stream=self._config.name, remedy="omit it")

    def _encodes(self) -> bool:
        """Whether rows are encoded to messages; ``raw`` writes them unchanged."""
        decoder = self._decoder
        if decoder is None:
            msg = "this stream has undecoded messages, but no decoder is configured"
            key = f"stream.{self._config.type}.decoder.class.name"
            remedy = f"set {key}; raw writes the column `value` unchanged"
            raise ConfigError(msg, stream=self._config.name, remedy=remedy)
        if decoder.encoder is None and decoder.decoder is not None:
            msg = f"the decoder {decoder.name!r} cannot encode messages"
            raise Unsupported(msg, stream=self._config.name)
        return decoder.encoder is not None
