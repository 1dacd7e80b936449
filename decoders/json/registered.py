"""JSON in the frame of a Schema Registry, validated by its JSON Schemas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, final

import msgspec
import numpy as np
import pyarrow as pa

from streamfactory.decoders import framing
from streamfactory.decoders.columns.messages import BadMessages, as_texts
from streamfactory.decoders.isolation import plain
from streamfactory.decoders.json.decoder import JsonDecoder
from streamfactory.decoders.json.encoder import JsonEncoder
from streamfactory.decoders.json.jsonschemas import (
    SchemaRefused,
    columns_of,
    schema_of,
    validator_of,
)
from streamfactory.decoders.json.nesting import too_deep
from streamfactory.decoders.registry import Registry, UnknownId
from streamfactory.spi import ConfigError, Decoded, SchemaMismatch, SchemaUnknown
from streamfactory.spi.arrowjson import to_arrow_json

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from streamfactory.spi import DecodeContext

    Validator = Callable[[Any], bool]

KIND: Final = "JSON"
_REMEDY: Final = "declare the schema, or set schema.registry.subject to one that exists"


@final
class RegistryJsonDecoder(JsonDecoder):
    """Decodes JSON messages, framed if a registry is given.

    Rows have the declared schema, else that of the latest schema of the subject.
    """

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        self._registry: Registry | None = None
        self._validators: dict[int, Validator | tuple[str, str] | None] = {}
        if options.get("schema.registry.rest.url") is not None:
            self._registry = Registry(options, topic)
        try:
            if self._registry is not None and options.get("schema") is None:
                columns = to_arrow_json(_latest(self._registry))
                options = {**options, "schema": columns}
            super().__init__(options, topic)
        except BaseException:
            self.close()
            raise

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        if self._registry is None:
            return super().decode(values, context)
        findings, values = BadMessages(), plain(values)
        kept = np.zeros(len(values), bool)
        for number, framed, which in framing.by_schema(
            values, np.arange(len(values)), lambda at, why: findings.add(at, *why)
        ):
            payloads = framing.stripped(framed, framing.HEADER)
            kept[which[self._valid(number, payloads, which, findings)]] = True
        at = np.flatnonzero(kept)
        payloads = framing.stripped(values.take(pa.array(at)), framing.HEADER)
        decoded = super().decode(payloads, context)
        for error in decoded.errors:
            findings.add([at[error.message]], error.code, error.what)
        source = at if decoded.source is None else at[decoded.source.to_numpy()]
        return Decoded(
            decoded.rows,
            pa.array(source, pa.int32()),
            findings.errors,
            decoded.misfits,
            decoded.lookalikes,
        )

    def close(self) -> None:
        if self._registry is not None:
            self._registry.close()

    def _valid(
        self, number: int, payloads: pa.Array, which: np.ndarray, findings: BadMessages
    ) -> np.ndarray:
        """Which messages of a schema are valid; of others the cause is found later."""
        everything = np.ones(len(payloads), bool)
        try:
            valid = self._validator(number)
        except UnknownId:
            # Not cached: the schema may be registered later.
            why = f"the Schema Registry has no JSON Schema with the id {number}"
            findings.add(which, "unknown_schema_id", why)
            return ~everything
        if isinstance(valid, tuple):
            findings.add(which, *valid)
            return ~everything
        if valid is None:
            return everything
        fine = _are_valid(payloads, valid)
        what = f"the message is not valid by schema {number} of the registry"
        findings.add(which[~fine], "schema", what)
        return fine

    def _validator(self, number: int) -> Validator | tuple[str, str] | None:
        if number not in self._validators:
            assert self._registry is not None
            found = self._registry.by_id(number, KIND)
            made: Validator | tuple[str, str] | None = None
            if self.options.get("schema.registry.validate", True):
                try:
                    made = validator_of(found.schema_str)
                except SchemaRefused as error:
                    made = "schema", f"schema {number} cannot be used: {error}"
            self._validators[number] = made
        return self._validators[number]


def _are_valid(payloads: pa.Array, valid: Validator) -> np.ndarray:
    """Which messages are valid; those that are not JSON are left to the decoder."""
    findings = BadMessages()
    texts = as_texts(payloads, findings)
    fine = np.ones(len(payloads), bool)
    deep = set(too_deep(texts).tolist())
    for index, text in enumerate(texts.to_pylist()):
        if text is None or index in deep:
            continue
        try:
            value = msgspec.json.decode(text)
        except (msgspec.MsgspecError, RecursionError):
            continue
        fine[index] = valid(value)
    return fine


def _latest(registry: Registry) -> pa.Schema:
    try:
        return columns_of(registry.latest(KIND).schema.schema_str)
    except UnknownId as error:
        msg = f"the Schema Registry has no JSON Schema of subject {registry.subject!r}"
        raise SchemaUnknown(msg, remedy=_REMEDY) from error
    except SchemaRefused as error:
        msg = f"the JSON Schema of subject {registry.subject!r} has no columns: {error}"
        raise SchemaUnknown(msg, remedy=_REMEDY) from error


@final
class RegistryJsonEncoder(JsonEncoder):
    """Encodes rows as JSON, framed if a registry is given.

    With ``schema.registry.auto.register`` the schema of the columns is registered; else
    messages have to be valid by the latest schema of the subject.
    """

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        super().__init__(options, topic)
        self._registry: Registry | None = None
        self._head: bytes | None = None
        self._validator: Validator | None = None
        if options.get("schema.registry.rest.url") is not None:
            self._registry = Registry(options, topic)

    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        if self._registry is None:
            return super().encode(rows)
        if self._head is None:
            self._head = framing.head(self._number(self._registry, rows.schema))
        values = super().encode(rows)
        if self._validator is not None:
            wrong = np.flatnonzero(~_are_valid(values, self._validator))
            if len(wrong):
                msg = f"row {wrong[0]} is not valid by the latest JSON Schema of "
                msg += f"subject {self._registry.subject!r}"
                raise SchemaMismatch(msg, remedy="write rows that the schema allows")
        return framing.framed(values, self._head)

    def close(self) -> None:
        if self._registry is not None:
            self._registry.close()

    def _number(self, registry: Registry, schema: pa.Schema) -> int:
        registry.record = registry.record or "row"
        if self.options.get("schema.registry.auto.register", True):
            text = schema_of(schema, registry.record.rpartition(".")[2])
            return registry.register(text, KIND, new=True)
        try:
            latest = registry.latest(KIND)
            if self.options.get("schema.registry.validate", True):
                self._validator = validator_of(latest.schema.schema_str)
        except (UnknownId, SchemaRefused) as error:
            msg = f"subject {registry.subject!r} has no JSON Schema to write with"
            remedy = "register it, or set schema.registry.auto.register to true"
            raise ConfigError(msg, remedy=remedy) from error
        return int(latest.schema_id)
