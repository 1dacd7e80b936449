"""Decoders and encoders: from bytes to rows and back, by batches (rules D1 to D4)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from math import isfinite, isinf
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

from streamfactory.spi.ddl import type_text
from streamfactory.spi.errors import StreamError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from streamfactory.spi.partitions import Partition


@dataclass(frozen=True, slots=True)
class DecodeContext:
    """The origin of the messages of one call.

    Args:
        partition: Where the messages come from.
        fields_to_read: Columns to decode; None means all. A decoder may decode more.
        headers: Of type `headers_type`, one entry per message, if the stream has
            headers. They may be null unless `Decoder.reads_headers` is set.
        undeclared: How to treat a message field that is not in the schema. None: by the
            decoder's options. True: it is dropped, and its row reported as a `Misfit`.
            False: it is dropped. Formats whose messages do not name their fields ignore
            this.
        salvage: Whether a value that does not fit its column becomes null and its row a
            `Misfit`; otherwise the message is bad.
    """

    partition: Partition
    fields_to_read: Sequence[str] | None = None
    headers: pa.Array | None = None
    undeclared: bool | None = None
    salvage: bool = False


@dataclass(frozen=True, slots=True)
class BadMessage:
    """A message that could not be decoded, with the cause.

    Args:
        message: Index into the values of the call.
        code: Stable and short: ``malformed``, ``schema``, ``unknown_schema_id``, ...
        what: One sentence. Never the payload: it may be confidential.
    """

    message: int
    code: str
    what: str


@dataclass(frozen=True, slots=True)
class Misfit:
    """Rows that do not fit the schema; the stream's schema contract decides about them.

    Reported only if `DecodeContext` requests it.

    Args:
        rows: Indices of the rows in `Decoded.rows`, ascending.
        column: The column whose value was replaced by null; None for a message field
            that is not in the schema.
        what: One sentence; it contains column names of the schema only, and no value.
    """

    rows: pa.Int32Array
    column: str | None
    what: str


@dataclass(frozen=True, slots=True)
class Decoded:
    """The result of a decoder.

    Args:
        rows: The rows, in the order of their messages, in the decoder's schema.
        source: For each row the index of its message, ascending. None means one row per
            message, in order, and no errors.
        errors: Messages that could not be decoded, in order.
        misfits: Values that do not fit the declared schema, in order.
        lookalikes: Columns of the schema that are missing in a message which has a
            field of the same name in another case. Best effort: checking the first
            messages is enough.
    """

    rows: pa.RecordBatch
    source: pa.Int32Array | None = None
    errors: Sequence[BadMessage] = ()
    misfits: Sequence[Misfit] = ()
    lookalikes: Sequence[str] = ()


class MessageDecoder(ABC):
    """Decodes the messages of one stream. One per thread.

    Created by the framework for each reader of a partition, and to find the schema of a
    stream. One thread at a time calls it: that which reads. It is closed once, by that
    thread or the one that closes the reader.

    Args:
        options: The declared options, parsed, by their key.
        topic: Name of the topic.
    """

    MESSAGE_BY_MESSAGE: ClassVar[bool] = False
    """Whether Python code runs per message, rather than per batch."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        self.options = options
        self.topic = topic

    @classmethod
    def infer(cls, values: pa.Array, options: Mapping[str, Any]) -> pa.Schema:  # noqa: ARG003
        """Infer a schema from a sample; override it to support this.

        Called by ``streamfactory schema --infer``, never while a stream is read: the
        result is printed, for the user to review and declare.

        Args:
            values: binary, no nulls: a sample of messages of the stream, which may
                contain bad ones.
            options: As for the constructor.

        Raises:
            Unsupported: misuse; a schema cannot be inferred for this format.
            SchemaUnknown: config; no message of the sample can be decoded.
        """
        msg = "this decoder cannot infer a schema"
        raise Unsupported(msg, remedy="declare it")

    @abstractmethod
    def schema(self) -> pa.Schema:
        """Return the schema of all rows; known before the first message.

        Called when a stream is opened, a reader is created, or a configuration is
        checked; always with the same answer.

        Raises:
            SchemaUnknown: config; the schema must be declared.
        """

    @abstractmethod
    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        """Decode binary values. Bad data never raises (rule D1).

        Called for each batch of messages, by the thread that reads. May block only for
        a resource of the decoder (a schema registry).

        Args:
            values: binary or large_binary, no nulls: the framework creates the rows of
                tombstones (rule D2).
            context: Their origin.

        Returns:
            0 to n rows per message, and a `BadMessage` for each bad one. A message
            without row and without error was filtered on purpose. Rows that do not fit
            the schema are reported as the context requests.
        """

    def close(self) -> None:  # noqa: B027 - not abstract: it may have no resources
        """Release all resources. Called once."""


class PerMessageDecoder(MessageDecoder):
    """Base class of decoders that decode one message at a time.

    All policies apply as for any decoder; but Python code runs per message, at most
    some hundred thousand per second. If that is too slow, derive from `MessageDecoder`
    and decode whole columns.

    ::

        class Clicks(PerMessageDecoder):
            def schema(self):
                return pa.schema({"page": pa.string(), "at": pa.int64()})

            def decode_message(self, value):
                page, at = value.split(b" ")
                return {"page": page.decode(), "at": int(at)}
    """

    MESSAGE_BY_MESSAGE = True

    @abstractmethod
    def decode_message(
        self, value: bytes
    ) -> Mapping[str, Any] | Sequence[Mapping[str, Any]] | None:
        """Decode one message.

        Any exception makes the message bad, with the code ``malformed``. Only the
        exception's type is reported: its text may be confidential.

        Returns:
            A row, several rows, or None. A missing column is null; a column that is not
            in the schema makes the message bad.
        """

    @final
    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        """Call `decode_message` for each message, and separate the bad ones."""
        import pyarrow as pa

        schema = self.schema()
        found: list[Mapping[str, Any]] = []
        source: list[int] = []
        errors: list[BadMessage] = []
        lookalikes: set[str] = set()
        for message, value in enumerate(values.to_pylist()):
            try:
                rows = _rows(self.decode_message(value))
                _check_names(rows, schema, context, lookalikes)
            except StreamError:
                raise  # of the decoder (a package, a registry), not of the message
            except Exception as error:  # noqa: BLE001 - the user's function may raise anything
                errors.append(_bad(message, error))
            else:
                found += rows
                source += [message] * len(rows)
        misfits: dict[str, list[int]] = {}
        try:
            batch = _batch(found, schema)
        except Exception:  # noqa: BLE001 - the bad rows are then found one by one
            if context.salvage:
                found = [_salvaged(n, r, schema, misfits) for n, r in enumerate(found)]
                relaxed = pa.schema([field.with_nullable(True) for field in schema])
                columns = _batch(found, relaxed).columns
                batch = pa.RecordBatch.from_arrays(columns, schema=schema)
            else:
                found, source, unfit = _apart(found, source, schema)
                errors += unfit
                batch = _batch(found, schema)
        odd = [at for at, row in enumerate(found) if _unknown(row, schema) is not None]
        reported = [
            Misfit(pa.array(rows, pa.int32()), name, _holds_none(name, schema))
            for name, rows in misfits.items()
        ]
        if odd and context.undeclared:
            reported.append(Misfit(pa.array(odd, pa.int32()), None, UNDECLARED))
        index = pa.array(source, pa.int32())
        return Decoded(batch, index, errors, reported, sorted(lookalikes))


UNDECLARED: Final = "it has a field that is not in the schema"
"""The cause, without the field's name, which may be confidential."""


def _rows(
    answer: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None,
) -> Sequence[Mapping[str, Any]]:
    if answer is None:
        return ()
    return [answer] if isinstance(answer, Mapping) else list(answer)


def _check_names(
    rows: Sequence[Mapping[str, Any]],
    schema: pa.Schema,
    context: DecodeContext,
    lookalikes: set[str],
) -> None:
    """Refuse columns that are not in the schema, unless the schema contract decides."""
    names = frozenset(schema.names)
    for row in rows:
        path = _unknown(row, schema)
        if path is None:
            continue
        if not row.keys() <= names:
            lookalikes.update(find_lookalikes(row.keys(), schema.names))
        if context.undeclared is None:
            msg = f"column {path!r} is not in the schema"
            raise _UnfitError(msg)


def _unknown(value: Any, fields: Iterable[pa.Field], parent: str = "") -> str | None:
    """Return the dotted path of a key that fields lack; None if there is none.

    Arrow drops it without an error.
    """
    kinds = {field.name: field.type for field in fields}
    unknown = value.keys() - kinds.keys()
    if unknown:
        return f"{parent}{min(unknown)}"
    for name, one in value.items():
        found = _unknown_within(one, kinds[name], f"{parent}{name}")
        if found is not None:
            return found
    return None


def _unknown_within(value: Any, kind: pa.DataType, path: str) -> str | None:
    import pyarrow as pa

    types = pa.types
    if value is None or not types.is_nested(kind):
        return None
    if types.is_struct(kind):
        mapping = isinstance(value, Mapping)
        return _unknown(value, kind, f"{path}.") if mapping else None
    if types.is_map(kind):
        pairs = value.items() if isinstance(value, Mapping) else value
        item = kind.item_field
        parts = ((one, item) for _, one in pairs)
    elif hasattr(kind, "value_field"):
        parts = ((one, kind.value_field) for one in value)
    else:
        return None
    found = (
        _unknown_within(one, field.type, f"{path}.{field.name}") for one, field in parts
    )
    return next((one for one in found if one is not None), None)


def find_lookalikes(found: Iterable[str], columns: Iterable[str]) -> set[str]:
    """Return missing columns of which a name in another case is present.

    For decoders.
    """
    given = frozenset(found)
    folded = {name.casefold() for name in given}
    return {name for name in columns if name not in given and name.casefold() in folded}


def _holds_none(name: str, schema: pa.Schema) -> str:
    return f"column {name!r} has a value that is not of type {schema.field(name).type}"


def _salvaged(
    number: int,
    row: Mapping[str, Any],
    schema: pa.Schema,
    misfits: dict[str, list[int]],
) -> Mapping[str, Any]:
    """Replace values that do not fit by null, and add them to ``misfits``."""
    import pyarrow as pa

    wrong = []
    for field in schema:
        try:
            _batch([row], pa.schema([field]))
        except Exception:  # noqa: BLE001 - whatever Arrow raises
            wrong.append(field.name)
            misfits.setdefault(field.name, []).append(number)
    return {**row, **dict.fromkeys(wrong)} if wrong else row


def _batch(rows: Sequence[Mapping[str, Any]], schema: pa.Schema) -> pa.RecordBatch:
    import pyarrow as pa

    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    for field, column in zip(schema, batch.columns, strict=True):
        if column.null_count and not field.nullable:
            msg = f"column {field.name!r} is null"
            raise _UnfitError(msg)
        loses = _loser(field.type)  # Arrow converts 1.5 to 1 without an error
        if loses is not None and any(loses(row.get(field.name)) for row in rows):
            kind = type_text(field.type)
            msg = f"column {field.name!r} has a value that is not of type {kind}"
            raise _UnfitError(msg)
    return batch


def _loser(kind: pa.DataType) -> Callable[[Any], bool] | None:
    """Return a check whether Arrow changes a value's number; None if it never does."""
    import pyarrow as pa

    types = pa.types
    if types.is_integer(kind):
        return lambda v: type(v) is not int and v is not None and v != int(v)
    if types.is_float32(kind) or types.is_float16(kind):
        return lambda v: (
            v is not None and isfinite(v) and isinf(pa.scalar(v, kind).as_py())
        )
    if types.is_date(kind):
        return lambda v: isinstance(v, datetime)  # Arrow drops the time of day
    if types.is_timestamp(kind):
        naive = kind.tz is None
        return lambda v: isinstance(v, datetime) and (v.tzinfo is None) != naive
    if not types.is_nested(kind):
        return None
    inner = [_loser(kind.field(at).type) for at in range(kind.num_fields)]
    if not any(inner):
        return None
    if types.is_struct(kind):
        pairs = [(f.name, one) for f, one in zip(kind, inner, strict=True) if one]
        return lambda v: v is not None and any(one(v.get(name)) for name, one in pairs)
    (item,) = inner
    assert item is not None
    if types.is_map(kind):
        names = kind.key_field.name, kind.item_field.name
        return lambda v: (
            v is not None
            and any(
                item(dict(zip(names, pair, strict=True)))
                for pair in (v.items() if isinstance(v, Mapping) else v)
            )
        )
    return lambda v: v is not None and any(map(item, v))


def _apart(
    rows: Sequence[Mapping[str, Any]], source: Sequence[int], schema: pa.Schema
) -> tuple[list[Mapping[str, Any]], list[int], list[BadMessage]]:
    """Separate the rows of messages that fit the schema from the other messages."""
    bad: dict[int, BadMessage] = {}
    for row, message in zip(rows, source, strict=True):
        try:
            _batch([row], schema)
        except Exception as error:  # noqa: BLE001 - whatever Arrow raises
            bad.setdefault(message, _bad(message, error))
    good = [pair for pair in zip(rows, source, strict=True) if pair[1] not in bad]
    return [row for row, _ in good], [at for _, at in good], [*bad.values()]


class _UnfitError(Exception):
    """A row does not fit the schema; the text contains no value."""


def _bad(message: int, error: Exception) -> BadMessage:
    if isinstance(error, _UnfitError):
        return BadMessage(message, "schema", str(error))
    what = f"it cannot be decoded: {type(error).__name__}"
    return BadMessage(message, "malformed", what)


class MessageEncoder(ABC):
    """Encodes rows, one message each. The rules of `MessageDecoder` apply.

    Created by the framework for each writer; called by the thread that writes.
    """

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        self.options = options
        self.topic = topic

    @abstractmethod
    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """Return one binary value per row.

        Called for each batch, before any row of it is written.

        Raises:
            SchemaMismatch: permanent; rows of these types cannot be encoded.
        """

    def encode_headers(self, rows: pa.RecordBatch) -> pa.Array | None:
        """Return the headers that belong to the messages of rows; None for none.

        Called after `encode`, with the same rows. They replace headers of the same
        names in the column ``_headers``. A sink that stores no headers refuses them.

        Returns:
            An array of `headers_type`, one entry per row.
        """
        return None

    def close(self) -> None:  # noqa: B027 - not abstract: it may have no resources
        """Release all resources. Called once."""
