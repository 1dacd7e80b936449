"""Messages of ``cloudevents`` for the conformance kit."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pyarrow as pa

_REQUIRED = {"specversion": "1.0", "id": "1", "source": "/kit", "type": "click"}


class CloudEventsHarness:
    """Encodes a number as data of a structured event."""

    several = False

    def options(self) -> Mapping[str, str]:
        """Columns of data, and the attributes that each event has."""
        return {"schema": "number bigint not null, text string"}

    def message(self, numbers: Sequence[int]) -> bytes:
        """A structured event."""
        [number] = numbers
        data = {"number": number, "text": f"a text, {number}"}
        return _event(data, time="2013-01-01T05:00:00Z", subject=f"s{number}")

    def undeclared(self, number: int) -> bytes:
        """A field of data that is not in the schema."""
        return _event({"number": number, "unread": {"deep": [[1]]}})

    def misfit(self, number: int) -> bytes:
        """A number in a column of text."""
        return _event({"number": number, "text": 1})

    def numbers(self, rows: pa.RecordBatch) -> list[int]:
        """The column ``number``."""
        return list(rows.column("number").to_pylist())

    def bad(self) -> Mapping[str, bytes]:
        """Messages that are no events, or whose data does not fit."""
        return {
            "empty": b"",
            "no JSON": b"number",
            "a list": b"[1]",
            "null": b"null",
            "no event": b'{"number": 1}',
            "another version": _event({"number": 1}, specversion="0.1"),
            "no id": _event({"number": 1}, id=None),
            "an id that is an object": _event({"number": 1}, id={}),
            "no time": _event({"number": 1}, time="yesterday"),
            "no data": _event(None),
            "no number": _event({"number": "1"}),
            "data of another type": _event({"number": 1}, datacontenttype="text/xml"),
            "no base64": json.dumps({**_REQUIRED, "data_base64": "~"}).encode(),
        }


def _event(data: Any, **attributes: Any) -> bytes:
    return json.dumps({**_REQUIRED, **attributes, "data": data}).encode()
