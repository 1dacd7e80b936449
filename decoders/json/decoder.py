"""Decodes JSON: many messages together where that is safe, else one by one."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.columns.buffers import offsets_of
from streamfactory.decoders.columns.casting import Casting
from streamfactory.decoders.columns.messages import Findings, answer, as_texts, joined
from streamfactory.decoders.columns.options import UNITS, declared_schema
from streamfactory.decoders.json.inferring import infer
from streamfactory.decoders.json.nesting import too_deep
from streamfactory.decoders.json.structs import Structs
from streamfactory.spi import DecodeContext, Decoded, MessageDecoder, Partition
from streamfactory.spi.arrowjson import to_arrow_json

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Bad = dict[int, tuple[str, str]]

_CHUNK: Final = 8_192
"""Messages whose objects are in memory at the same time: more do not fit its caches."""
_PIECE: Final = 32
"""Messages that are decoded together while looking for bad ones."""


class JsonDecoder(MessageDecoder):
    """One object a message."""

    def __init__(self, options: Mapping[str, Any], topic: str) -> None:
        super().__init__(options, topic)
        self._schema = declared_schema(options, topic, "JSON")
        unit = options.get("timestamp.unit")
        self._casting = Casting(None if unit is None else UNITS[unit], finite=True)
        strict, whole = (
            options[key] == "error" for key in ("unknown.fields", "missing.fields")
        )
        self._structs = Structs(
            self._schema,
            strict_fields=strict,
            all_fields=whole,
            numbers_as_text=options["numbers.as.text"],
            numeric_times=unit is not None,
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
        findings = Findings()
        texts = as_texts(values, findings)
        findings.add(too_deep(texts), "too_deep", "it is nested too deeply")
        source = None
        if findings.errors:
            kept = np.ones(len(texts), bool)
            kept[findings.messages] = False
            source = np.flatnonzero(kept)
            texts = texts.filter(pa.array(kept))
        columns, bad = self._columns(texts)
        messages = np.arange(len(texts)) if source is None else source
        for index, complaint in bad.items():
            findings.add([messages[index]], *complaint)
        source = np.delete(messages, list(bad)) if bad else source
        return answer(columns, self._schema, self._casting, findings, source)

    def _columns(self, texts: pa.StringArray) -> tuple[list[pa.Array], Bad]:
        """The columns of good messages, and what is wrong with the others."""
        count, lines = len(texts), joined(texts, "\n")
        fine, starts = _enclosed(texts), _starts(texts)
        parts: list[list[pa.Array]] = []
        bad: Bad = {}
        for first in range(0, max(count, 1), _CHUNK):
            last = min(first + _CHUNK, count)
            rows, found = self._rows(lines, starts, fine, first, last)
            parts.append(self._structs.columns(rows))
            bad |= found
        if len(parts) == 1:
            return parts[0], bad
        return [pa.concat_arrays(part) for part in zip(*parts, strict=True)], bad

    def _rows(
        self,
        lines: pa.Buffer,
        starts: np.ndarray,
        fine: np.ndarray,
        first: int,
        last: int,
    ) -> tuple[Sequence[Any], Bad]:
        """The rows of some messages: together, in small pieces, or one by one."""
        view = memoryview(lines)
        if fine[first:last].all():
            together = self._lines(view[starts[first] : starts[last] - 1], last - first)
            if together is not None:
                return together, {}
        if last - first > _PIECE:
            rows: list[Any] = []
            bad: Bad = {}
            for piece in range(first, last, _PIECE):
                end = min(piece + _PIECE, last)
                found, wrong = self._rows(lines, starts, fine, piece, end)
                rows += found
                bad |= wrong
            return rows, bad
        at = pairwise(starts[first : last + 1].tolist())
        alone = [self._one(view[a : b - 1]) for a, b in at]
        good = [row for row, complaint in alone if complaint is None]
        return good, {i: wrong for i, (_, wrong) in enumerate(alone, first) if wrong}

    def _lines(self, lines: Any, count: int) -> Sequence[Any] | None:
        # Between a closing and an opening brace, with a line end, nothing goes on: not
        # an object, and not a text. So each message has one object at least, and where
        # there are as many objects as messages, each has one.
        try:
            rows = self._structs.decoder.decode_lines(lines)
        except (msgspec.MsgspecError, RecursionError):
            return None
        return rows if len(rows) == count else None

    def _one(self, text: memoryview) -> tuple[Any, tuple[str, str] | None]:
        try:
            return self._structs.decoder.decode(text), None
        except msgspec.ValidationError as error:
            return None, ("schema", _described(error))
        except msgspec.DecodeError:
            return None, ("malformed", "it is no JSON")
        except RecursionError:
            return None, ("too_deep", "it is nested too deeply")


def _described(error: msgspec.ValidationError) -> str:
    """What msgspec says, but for the names of fields that only the message has."""
    text = str(error)
    if "unknown field" in text:
        return "it has a field that is not in the schema"
    return f"it does not fit the schema: {text[:1].lower()}{text[1:]}"


def _starts(texts: pa.StringArray) -> np.ndarray:
    """Where each message begins in the lines, and where one more would."""
    at = offsets_of(texts)
    starts: np.ndarray = at - at[0] + np.arange(len(at))
    return starts


def _enclosed(texts: pa.StringArray) -> np.ndarray:
    """Whether each message begins and ends with a brace."""
    both = pc.and_(pc.starts_with(texts, "{"), pc.ends_with(texts, "}"))
    return np.asarray(both.fill_null(False))
