"""Trace contexts of messages: the header ``traceparent`` of W3C Trace Context."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, final

import pyarrow.compute as pc

from streamfactory.conversion.arrays import list_parts
from streamfactory.spi import headers_type

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pyarrow as pa

HEADER: Final = "traceparent"
_MOST: Final = 128
"""Links of a span: the SDK's own limit."""
_COLUMNS: Final = ("_headers", "headers")
"""Of rows, and of messages that are not decoded."""
_LENGTH: Final = 55
"""Characters of the known fields. Later versions may have more, of any length."""
_CONTEXT: Final = re.compile(
    r"(?P<version>(?!ff)[0-9a-f]{2})-(?P<trace>(?!0{32})[0-9a-f]{32})"
    r"-(?P<span>(?!0{16})[0-9a-f]{16})-(?P<flags>[0-9a-f]{2})(?P<more>-.*)?"
)


@final
class Traceparents:
    """The contexts of the messages of one batch, each once, 128 at most. One thread."""

    def __init__(self) -> None:
        self._found: dict[str, None] = {}

    def add(self, rows: pa.RecordBatch) -> None:
        """Add those of rows that have headers. Values that are none are left out."""
        headers = next(filter(None, (_headers(rows, name) for name in _COLUMNS)), None)
        if headers is None or len(self._found) >= _MOST:
            return
        pairs = list_parts(headers)[1]
        values = pairs.field("value").filter(pc.equal(pairs.field("key"), HEADER))
        # More than are kept: some may be none, or known.
        for value in pc.unique(values)[: 2 * _MOST].to_pylist():
            text = "" if value is None else value.decode("latin-1")
            if len(self._found) < _MOST and parse_traceparent(text) is not None:
                self._found[text[:_LENGTH]] = None

    def take(self) -> Sequence[str]:
        """The contexts that were added since the last call, in their order."""
        found, self._found = [*self._found], {}
        return found


def parse_traceparent(text: str) -> tuple[int, int, int] | None:
    """Parse a context: trace id, span id and flags; None if it is none.

    Of a version after 00 the known fields are used, as the specification requires.
    """
    match = _CONTEXT.fullmatch(text)
    if match is None or (match["version"] == "00" and match["more"]):
        return None
    trace, span, flags = (int(match[name], 16) for name in ("trace", "span", "flags"))
    return trace, span, flags


def _headers(rows: pa.RecordBatch, name: str) -> pa.Array | None:
    index = rows.schema.get_field_index(name)
    found = rows.column(index) if index >= 0 else None
    return found if found is not None and found.type == headers_type() else None
