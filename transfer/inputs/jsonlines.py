"""JSON lines: one object a line."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from streamfactory.spi import SchemaMismatch, SchemaUnknown
from streamfactory.transfer.inputs.text import Bad, Cause, TextInput

if TYPE_CHECKING:
    from streamfactory.transfer.inputs.text import Ends

_LF, _CR, _OPEN = b"\n\r{"
_MARK: Final = b"\xef\xbb\xbf"
"""A byte order mark."""
_LINES_REMEDY: Final = (
    "write each object of the array on one line, as `jq -c '.[]'` does"
)
_DECLARE: Final = "omit the field, or declare it with `schema=`"


class JsonInput(TextInput):
    """One JSON object a line."""

    format = "json"

    def columns(self, timeout: float) -> pa.Schema | None:
        """The columns of the first block."""
        data = self._blocks.peek(timeout) if self._begin(timeout) else b""
        if not data and not self._blocks.finished:
            return None
        if data.strip() and self._expected is None:
            return self._guess(data)
        return self._schema()

    def cut(self, data: bytearray) -> int:
        """Up to the last newline."""
        return data.rfind(b"\n") + 1

    def ends(self, data: bytes) -> Ends:
        """Where the lines end: text of JSON contains no newline."""
        return np.flatnonzero(np.frombuffer(data, np.uint8) == _LF) + 1

    def messages(self, data: bytes) -> pa.Array:
        """A message a line, without the line ends; blank lines are none."""
        octets = np.frombuffer(data, np.uint8)
        ends = np.flatnonzero(octets == _LF)
        kept = np.ones(len(octets), bool)
        kept[ends] = False
        before = np.maximum(ends - 1, 0)
        kept[before[octets[before] == _CR]] = False
        edges = np.unique(np.concatenate([[0], ends, [len(octets)]]))
        lengths = np.add.reduceat(kept, edges[:-1], dtype=np.int64)
        offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        text = octets[kept]
        lines = pa.Array.from_buffers(
            pa.binary(),
            len(lengths),
            [None, pa.py_buffer(offsets), pa.py_buffer(text)],
        )
        filled = lengths > 0
        odd = np.flatnonzero(filled)[text[offsets[:-1][filled]] != _OPEN]
        blank = [at for at in odd.tolist() if not lines[at].as_py().strip()]
        filled[blank] = False
        return lines if filled.all() else lines.filter(pa.array(filled))

    def explain(self, bad: Bad) -> Cause:
        """Name what the decoder does not: it keeps contents confidential."""
        record = bad.record.lstrip(_MARK).strip()
        if record.startswith(b"["):
            what = "one JSON object a line is expected, not an array"
            return Cause(what, _LINES_REMEDY)
        if record.startswith(b"null"):
            return Cause("a record is null, not an object")
        if self._expected is not None:
            path = _unknown(_loaded(record), self._expected, "")
            if path is not None:
                what = f"column {path!r} is not in the declared schema"
                return Cause(what, _DECLARE, SchemaMismatch)
        return super().explain(bad)

    def _begin(self, timeout: float) -> bool:
        if not self._blocks.consumed:
            data = self._blocks.peek(timeout)
            if not data and not self._blocks.finished:
                return False
            if data.startswith(_MARK):
                self._blocks.first(len(_MARK))
        return True

    def _schema(self) -> pa.Schema:
        if self._expected is None:
            msg = f"{self.name} is empty: its columns are unknown"
            raise SchemaUnknown(msg, remedy="declare them with `schema=`")
        return self._expected

    def _decoder_options(self) -> dict[str, str]:
        return {"unknown.fields": "error"}


def _loaded(record: bytes) -> Any:
    try:
        return json.loads(record)
    except (ValueError, RecursionError):
        return None


def _unknown(value: Any, kind: pa.Schema | pa.DataType, path: str) -> str | None:
    """Return the dotted path of a field that a schema lacks; None if there is none."""
    if isinstance(kind, pa.Schema):
        kind = pa.struct(list(kind))
    if pa.types.is_struct(kind) and isinstance(value, dict):
        fields = {field.name: field.type for field in kind}
        parts = [(path + name, fields.get(name), one) for name, one in value.items()]
    elif pa.types.is_map(kind) and isinstance(value, dict):
        parts = [(path + name, kind.item_type, one) for name, one in value.items()]
    elif pa.types.is_list(kind) and isinstance(value, list):
        parts = [(f"{path}{kind.value_field.name}", kind.value_type, v) for v in value]
    else:
        return None
    for name, inner, one in parts:
        found = name if inner is None else _unknown(one, inner, f"{name}.")
        if found is not None:
            return found
    return None
