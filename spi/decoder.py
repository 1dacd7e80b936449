"""Bytes to rows, a whole batch at a time (rules D1 to D4), and the way back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import isfinite, isinf
from typing import TYPE_CHECKING, Any, ClassVar, Final, final

from streamfactory.spi.errors import StreamError, Unsupported

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

    from streamfactory.spi.positions import Partition


@dataclass(frozen=True, slots=True)
class DecodeContext:
    """Where the messages of one call come from."""

    partition: Partition
    fields_to_read: Sequence[str] | None = None
    """Columns wanted; None means all. A decoder may read more."""
    headers: pa.Array | None = None
    """`headers_type`, one entry a message, where the stream has them."""
    undeclared: bool | None = None
    """What becomes of a field that a message has and the schema lacks. None: what the
    decoder's own options say. True: it is left out, and its row is a `Misfit`. False:
    it is left out. A format whose messages have no fields of their own ignores this."""
    salvage: bool = False
    """Whether a value that does not fit its column becomes null, and its row a
    `Misfit`, where the message would be bad otherwise."""


@dataclass(frozen=True, slots=True)
class BadMessage:
    """Why one message became no row."""

    message: int
    """Index into the values of the call."""
    code: str
    """Stable and short: ``malformed``, ``schema``, ``unknown_schema_id``, ..."""
    what: str
    """One sentence. Never the payload itself: it may hold what nobody should log."""


@dataclass(frozen=True, slots=True)
class Misfit:
    """Rows that do not fit the schema; the contract of the stream decides about them.

    Reported only where `DecodeContext` asks for it.
    """

    rows: pa.Int32Array
    """Their indices in `Decoded.rows`, rising."""
    column: str | None
    """The column whose value was made null; None where the message has a field that
    the schema lacks."""
    what: str
    """One sentence; it names columns of the schema only, and never a value."""


@dataclass(frozen=True, slots=True)
class Decoded:
    """What a decoder answers."""

    rows: pa.RecordBatch
    """The rows, in the order of their messages, in the decoder's schema."""
    source: pa.Int32Array | None = None
    """The index of the message that each row came from, rising. None means one row
    for every message, in order, and no errors."""
    errors: Sequence[BadMessage] = ()
    misfits: Sequence[Misfit] = ()
    lookalikes: Sequence[str] = ()
    """Columns of the schema that a message lacks, while it has a field whose name
    differs only in the case of letters. As far as the decoder happens to know: a look
    at its first messages is enough."""


class MessageDecoder(ABC):
    """Decodes the messages of one stream. One per thread.

    Args:
        options: The declared options, parsed, by their key.
        topic: Name of the topic.
    """

    MESSAGE_BY_MESSAGE: ClassVar[bool] = False
    """Whether Python runs for each message, rather than for each batch."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        self.options = options
        self.topic = topic

    @classmethod
    def infer(cls, values: pa.Array, options: Mapping[str, Any]) -> pa.Schema:  # noqa: ARG003
        """A schema that fits a sample: an ability, shown by overriding.

        Called by ``streamfactory schema --infer``, never while a stream is read: the
        answer is printed, for somebody to look at and to declare.

        Args:
            values: binary, no nulls: some messages of the stream, bad ones among them.
            options: As for the constructor.

        Raises:
            Unsupported: misuse; this format has no schema that a sample shows.
            SchemaUnknown: config; none of the messages is good.
        """
        msg = "this decoder cannot infer a schema"
        raise Unsupported(msg, remedy="declare it")

    @abstractmethod
    def schema(self) -> pa.Schema:
        """The schema of all rows to come; known before the first message.

        Raises:
            SchemaUnknown: config; it has to be declared.
        """

    @abstractmethod
    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        """Decode binary values. Bad data never raises (rule D1).

        Args:
            values: binary or large_binary, no nulls: the framework makes the rows of
                tombstones itself (rule D2).
            context: Where they come from.

        Returns:
            0 to n rows for each message, and a `BadMessage` for each that is bad. A
            message without row and without error was filtered on purpose. Rows that
            do not fit the schema are reported as the context asks.
        """

    def close(self) -> None:  # noqa: B027 - a decoder that holds nothing may keep this
        """Give back all that was opened."""


class PerMessageDecoder(MessageDecoder):
    """For those who have one function of one message.

    Every policy holds, as for any decoder; but Python runs for each message, some
    hundred thousand a second at the most. Where that is too slow, derive from
    `MessageDecoder`, and decode whole columns.

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

        Whatever it raises makes the message bad, under the code ``malformed``, and of
        the error only the type is told: its text may hold what nobody should log.

        Returns:
            A row, several, or None for a message without any. A column that a row
            lacks is null; one that the schema lacks makes the message bad.
        """

    @final
    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        """Call `decode_message` for each, and keep apart what is bad."""
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
                raise  # about what the decoder needs, not about the message
            except Exception as error:  # noqa: BLE001 - whatever a function raises
                errors.append(_bad(message, error))
            else:
                found += rows
                source += [message] * len(rows)
        misfits: dict[str, list[int]] = {}
        try:
            batch = _batch(found, schema)
        except Exception:  # noqa: BLE001 - of all rows; which, is found one by one
            if context.salvage:
                found = [_salvaged(n, r, schema, misfits) for n, r in enumerate(found)]
                relaxed = pa.schema([field.with_nullable(True) for field in schema])
                columns = _batch(found, relaxed).columns
                batch = pa.RecordBatch.from_arrays(columns, schema=schema)
            else:
                found, source, unfit = _apart(found, source, schema)
                errors += unfit
                batch = _batch(found, schema)
        names = frozenset(schema.names)
        odd = [at for at, row in enumerate(found) if not row.keys() <= names]
        reported = [
            Misfit(pa.array(rows, pa.int32()), name, _holds_none(name, schema))
            for name, rows in misfits.items()
        ]
        if odd and context.undeclared:
            reported.append(Misfit(pa.array(odd, pa.int32()), None, UNDECLARED))
        index = pa.array(source, pa.int32())
        return Decoded(batch, index, errors, reported, sorted(lookalikes))


UNDECLARED: Final = "it has a field that is not in the schema"
"""What is wrong with a message that has one; the field's name may be confidential."""


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
    """Refuse columns that the schema lacks, unless somebody else decides about them."""
    names = frozenset(schema.names)
    for row in rows:
        if row.keys() <= names:
            continue
        lookalikes.update(find_lookalikes(row.keys(), schema.names))
        if context.undeclared is None:
            msg = f"column {min(row.keys() - names)!r} is not in the schema"
            raise _UnfitError(msg)


def find_lookalikes(found: Iterable[str], columns: Iterable[str]) -> set[str]:
    """Columns that are not found, while a name in another case is: for decoders."""
    given = frozenset(found)
    folded = {name.casefold() for name in given}
    return {name for name in columns if name not in given and name.casefold() in folded}


def _holds_none(name: str, schema: pa.Schema) -> str:
    return f"column {name!r} holds no {schema.field(name).type}"


def _salvaged(
    number: int,
    row: Mapping[str, Any],
    schema: pa.Schema,
    misfits: dict[str, list[int]],
) -> Mapping[str, Any]:
    """A row whose values that do not fit are null; they are added to ``misfits``."""
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
        loses = _loser(field.type)  # Arrow makes 1 of 1.5 without a word
        if loses is not None and any(loses(row.get(field.name)) for row in rows):
            msg = f"column {field.name!r} has a value that is no {field.type}"
            raise _UnfitError(msg)
    return batch


def _loser(kind: pa.DataType) -> Callable[[Any], bool] | None:
    """Tells whether a value that Arrow took becomes another number; None: never."""
    import pyarrow as pa

    types = pa.types
    if types.is_integer(kind):
        return lambda v: type(v) is not int and v is not None and v != int(v)
    if types.is_float32(kind) or types.is_float16(kind):
        return lambda v: (
            v is not None and isfinite(v) and isinf(pa.scalar(v, kind).as_py())
        )
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
    """The rows of messages that fit the schema, and the other messages."""
    bad: dict[int, BadMessage] = {}
    for row, message in zip(rows, source, strict=True):
        try:
            _batch([row], schema)
        except Exception as error:  # noqa: BLE001 - whatever Arrow raises
            bad.setdefault(message, _bad(message, error))
    good = [pair for pair in zip(rows, source, strict=True) if pair[1] not in bad]
    return [row for row, _ in good], [at for _, at in good], [*bad.values()]


class _UnfitError(Exception):
    """A row does not fit the schema; its text tells no value."""


def _bad(message: int, error: Exception) -> BadMessage:
    if isinstance(error, _UnfitError):
        return BadMessage(message, "schema", str(error))
    what = f"it does not decode: {type(error).__name__}"
    return BadMessage(message, "malformed", what)


class MessageEncoder(ABC):
    """The way back: rows to one message each. The rules of `MessageDecoder` hold."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        self.options = options
        self.topic = topic

    @abstractmethod
    def encode(self, rows: pa.RecordBatch) -> pa.Array:
        """One binary value for each row.

        Raises:
            SchemaMismatch: permanent; rows of these types cannot be encoded.
        """

    def close(self) -> None:  # noqa: B027 - an encoder that holds nothing may keep this
        """Give back all that was opened."""
