"""Decoder of JSON: compiled or by layout, else many at once, else one by one."""

from __future__ import annotations

import re
from contextlib import suppress
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.compiled.core import core
from streamfactory.compiled.flatjson import CompiledMessages
from streamfactory.decoders.columns.buffers import offsets_of
from streamfactory.decoders.columns.casting import Casting
from streamfactory.decoders.columns.messages import (
    BadMessages,
    answer,
    as_texts,
    joined,
)
from streamfactory.decoders.columns.options import UNITS, declared_schema
from streamfactory.decoders.json.inferring import infer
from streamfactory.decoders.json.nesting import too_deep
from streamfactory.decoders.json.structs import FIELDS, Structs
from streamfactory.decoders.json.uniform import UniformMessages, in_order
from streamfactory.spi import DecodeContext, Decoded, MessageDecoder, Partition
from streamfactory.spi.arrowjson import to_arrow_json
from streamfactory.spi.ddl import type_text
from streamfactory.spi.decoder import UNDECLARED, find_lookalikes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.decoders.columns.misfits import Misfits

    Bad = dict[int, tuple[str, str]]

_CHUNK: Final = 8_192
"""Messages decoded per step. More objects do not fit the processor's caches."""
_PIECE: Final = 32
"""Messages decoded together while bad ones are isolated."""
_SAMPLED: Final = 100
"""Messages whose field names are compared with the schema."""


class JsonDecoder(MessageDecoder):
    """Decodes one object per message."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        super().__init__(options, topic)
        self._schema = declared_schema(options, topic, "JSON")
        unit = options.get("timestamp.unit")
        self._casting = Casting(None if unit is None else UNITS[unit])
        self._structs = self._made(strict=options["unknown.fields"] == "error")
        self._strict: Structs | None = None
        self._flat = self._flat_messages()
        self._seen = 0
        """Messages whose field names were compared so far."""

    def _flat_messages(self) -> CompiledMessages | UniformMessages | None:
        """What decodes messages without nested values sooner than msgspec does."""
        kinds = self._structs.flat
        if not kinds:
            return None
        compiled, all_fields = core(), self.options["missing.fields"] == "error"
        if compiled is None:
            return UniformMessages(kinds, all_fields=all_fields)
        return CompiledMessages(compiled, kinds, all_fields=all_fields)

    def _made(self, *, strict: bool) -> Structs:
        options = self.options
        return Structs(
            self._schema,
            strict_fields=strict,
            all_fields=options["missing.fields"] == "error",
            numbers_as_text=options["numbers.as.text"],
            numeric_times=options.get("timestamp.unit") is not None,
        )

    @classmethod
    def infer(cls, values: pa.Array, options: Mapping[str, Any]) -> pa.Schema:
        def decodes(sample: pa.Array, schema: pa.Schema) -> bool:
            decoder = cls({**options, "schema": to_arrow_json(schema)}, "")
            context = DecodeContext(Partition("sample", 0))
            return not decoder.decode(sample, context).errors

        return infer(values, decodes)

    def schema(self) -> pa.Schema:
        return self._schema

    def decode(self, values: pa.Array, context: DecodeContext) -> Decoded:
        findings = BadMessages(context)
        texts = as_texts(values, findings)
        findings.add(too_deep(texts), "too_deep", "the message is nested too deeply")
        source = None
        if findings.errors:
            kept = np.ones(len(texts), bool)
            kept[findings.messages] = False
            source = np.flatnonzero(kept)
            texts = texts.filter(pa.array(kept))
        call = self._call(findings.misfits)
        columns = self._columns(texts, call)
        messages = np.arange(len(texts)) if source is None else source
        for index, error in call.bad.items():
            findings.add([messages[index]], *error)
        source = np.delete(messages, list(call.bad)) if call.bad else source
        findings.misfits.add_undeclared(messages[call.undeclared])
        for number, indices in call.wrong.items():
            field = self._schema.field(number)
            kind = type_text(field.type)
            what = f"column {field.name!r} does not contain a valid {kind}"
            findings.misfits.add(messages[indices], field.name, what)
        findings.misfits.lookalikes |= self._lookalikes(texts)
        return answer(columns, self._schema, self._casting, findings, source)

    def _call(self, misfits: Misfits) -> _Call:
        if misfits.undeclared and self._strict is None:
            self._strict = self._made(strict=True)
        first = self._strict if misfits.undeclared else None
        return _Call(first or self._structs, self._structs, salvage=misfits.salvage)

    def _lookalikes(self, texts: pa.StringArray) -> set[str]:
        """Columns whose name the first messages spell in another case."""
        looked = texts[: max(0, _SAMPLED - self._seen)]
        self._seen += len(looked)
        found: set[str] = set()
        for text in looked.to_pylist():
            with suppress(msgspec.MsgspecError, RecursionError):
                found |= find_lookalikes(FIELDS.decode(text), self._schema.names)
        return found

    def _columns(self, texts: pa.StringArray, call: _Call) -> Sequence[pa.Array]:
        """The columns of the good messages."""
        if self._flat is None:
            return self._parsed(texts, call)
        strict = self.options["unknown.fields"] == "error" or call.is_strict
        parts, others = self._flat.parts(texts, undeclared=not strict)
        if not parts:
            return self._parsed(texts, call)
        if len(others):
            columns = self._parsed(texts.take(pa.array(others)), call)
            call.renumber(others)
            parts.append((np.setdiff1d(others, list(call.bad)), columns))
        return in_order(parts)

    def _parsed(self, texts: pa.StringArray, call: _Call) -> list[pa.Array]:
        count, lines = len(texts), joined(texts, "\n")
        fine, starts = _enclosed(texts), _starts(texts)
        parts: list[list[pa.Array]] = []
        for first in range(0, max(count, 1), _CHUNK):
            last = min(first + _CHUNK, count)
            rows = call.rows(lines, starts, fine, first, last)
            parts.append(self._structs.columns(rows))
        if len(parts) == 1:
            return parts[0]
        return [pa.concat_arrays(part) for part in zip(*parts, strict=True)]


@final
class _Call:
    """Decodes the messages of one ``decode`` call and records the bad ones.

    Args:
        first: Tried first.
        second: Tried if the first refuses a message: the same, or one that accepts
            undeclared fields.
        salvage: Whether values that do not fit become null.
    """

    def __init__(self, first: Structs, second: Structs, *, salvage: bool) -> None:
        self._first, self._second, self._salvage = first, second, salvage
        self.bad: Bad = {}
        self.undeclared: list[int] = []
        """Messages with a field that the schema lacks."""
        self.wrong: dict[int, list[int]] = {}
        """By column index: messages whose value does not fit."""

    @property
    def is_strict(self) -> bool:
        """Whether undeclared fields are looked for."""
        return self._first is not self._second

    def renumber(self, messages: np.ndarray) -> None:
        """Replace the index of each message by the one that it has in the batch."""
        numbers = messages.tolist()
        self.bad = {numbers[index]: error for index, error in self.bad.items()}
        self.undeclared = [numbers[index] for index in self.undeclared]
        self.wrong = {
            column: [numbers[index] for index in indices]
            for column, indices in self.wrong.items()
        }

    def rows(
        self,
        lines: pa.Buffer,
        starts: np.ndarray,
        fine: np.ndarray,
        first: int,
        last: int,
    ) -> Sequence[Any]:
        """The rows of a range of messages: at once, in small pieces, or one by one."""
        view = memoryview(lines)
        if fine[first:last].all():
            together = self._lines(view[starts[first] : starts[last] - 1], last - first)
            if together is not None:
                return together
        rows: list[Any] = []
        if last - first > _PIECE:
            for piece in range(first, last, _PIECE):
                end = min(piece + _PIECE, last)
                rows += self.rows(lines, starts, fine, piece, end)
            return rows
        at = pairwise(starts[first : last + 1].tolist())
        for index, (begin, end) in enumerate(at, first):
            row = self._one(view[begin : end - 1], index)
            if row is not None:
                rows.append(row)
        return rows

    def _lines(self, lines: Any, count: int) -> Sequence[Any] | None:
        # Neither an object nor a string can span "}", line end, "{". So each message
        # contains at least one object, and an equal count proves exactly one each.
        try:
            rows = self._first.decoder.decode_lines(lines)
        except (msgspec.MsgspecError, RecursionError):
            return None
        return rows if len(rows) == count else None

    def _one(self, text: memoryview, index: int) -> Any:
        """The row of a message; None if it is bad."""
        try:
            with suppress(msgspec.ValidationError):
                return self._first.decoder.decode(text)
            try:
                row = self._second.decoder.decode(text)
            except msgspec.ValidationError:
                if not self._salvage:
                    raise
                row, wrong, undeclared = self._second.salvage(text)
                for number in wrong:
                    self.wrong.setdefault(number, []).append(index)
            else:
                undeclared = True  # the only other reason of `first`
            if undeclared:
                self.undeclared.append(index)
        except msgspec.ValidationError as error:
            self.bad[index] = "schema", _described(error)
        except msgspec.DecodeError:
            self.bad[index] = "malformed", "the message is not JSON"
        except RecursionError:
            self.bad[index] = "too_deep", "the message is nested too deeply"
        else:
            return row
        return None


_JSON: Final = {"int": "integer", "float": "number", "str": "string", "bool": "boolean"}
"""JSON's names of types, by those of Python, which msgspec uses."""
_TYPES: Final = re.compile(r"(?<=expected `)[^`]*|(?<=got `)[^`]*")
_NAME: Final = re.compile(rf"\b(?:{'|'.join(_JSON)})\b")


def _named_in_json(types: re.Match[str]) -> str:
    return _NAME.sub(lambda name: _JSON[name[0]], types[0])


def _described(error: msgspec.ValidationError) -> str:
    """The text of msgspec's error, without names of undeclared fields."""
    text = str(error)
    if "unknown field" in text:
        return UNDECLARED
    text = _TYPES.sub(_named_in_json, text[:1].lower() + text[1:])
    return f"the message does not fit the schema: {text}"


def _starts(texts: pa.StringArray) -> np.ndarray:
    """Start offset of each message in the joined lines, and the end."""
    at = offsets_of(texts)
    starts: np.ndarray = at - at[0] + np.arange(len(at))
    return starts


def _enclosed(texts: pa.StringArray) -> np.ndarray:
    """Whether each message begins and ends with braces."""
    both = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    return np.asarray(both.fill_null(False))
