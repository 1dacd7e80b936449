"""Attributes of events: in the headers of messages, or in an envelope of JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.decoders.columns.base64 import from_base64

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.decoders.columns.messages import BadMessages

PREFIX: Final = "ce_"
VERSION: Final = "specversion"
CONTENT: Final = "datacontenttype"
REQUIRED: Final = ("id", "source", "type")
STRUCTURED: Final = "application/cloudevents"
CONTENT_HEADER: Final = "content-type"
JSON: Final = r"(?i)^[^;]*[/+]json\s*(;.*)?$"
"""Content types of JSON."""
_FIELDS: Final = msgspec.json.Decoder(dict[str, msgspec.Raw])
_TEXT: Final = msgspec.json.Decoder(str)


class Headers:
    """The headers of a batch of messages.

    Args:
        headers: Of type `headers_type`; None if the stream has none.
        count: Number of messages.
    """

    def __init__(self, headers: pa.Array | None, count: int) -> None:
        self._count = count
        self._pairs: tuple[pa.Array, pa.Array, np.ndarray] | None = None
        if headers is not None:
            keys, values = headers.flatten().flatten()
            parents = np.asarray(pc.list_parent_indices(headers))
            self._pairs = keys, values, parents

    def text(self, name: str) -> pa.StringArray:
        """The last header of this name of each message; null if there is none.

        Text that is not UTF-8 is missing.
        """
        if self._pairs is None:
            return pa.nulls(self._count, pa.string())
        keys, values, parents = self._pairs
        at = np.flatnonzero(pc.equal(keys, name).fill_null(False))
        place = np.full(self._count, -1)
        place[parents[at]] = at
        found = values.take(pa.array(place, mask=place < 0))
        try:
            return found.cast(pa.string())
        except pa.ArrowInvalid:
            return pa.array([_decoded(one) for one in found.to_pylist()], pa.string())

    def attribute(self, name: str) -> pa.StringArray:
        """An attribute of events in binary mode."""
        if name == CONTENT:
            return self.text(CONTENT_HEADER)
        return self.text(PREFIX + name)


def _decoded(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


class Envelopes:
    """The envelopes of structured events, by message.

    Args:
        texts: The messages; a null text is not opened.
        findings: Receives those that are no event.
    """

    def __init__(self, texts: pa.StringArray, findings: BadMessages) -> None:
        self._members: list[Mapping[str, msgspec.Raw]] = []
        self.data: list[bytes | None] = []
        """Text of the JSON data, or the bytes of binary data."""
        self.is_binary: list[bool] = []
        """Whether data was given in base64."""
        for message, text in enumerate(texts.to_pylist()):
            members: Mapping[str, msgspec.Raw] = {}
            data: bytes | None = None
            if text is not None:
                try:
                    members = _FIELDS.decode(text)
                    data = _data(members)
                except msgspec.ValidationError:
                    what = "the message is no event: neither headers nor an envelope"
                    findings.add([message], "schema", what)
                except msgspec.DecodeError:
                    what = "the message is not JSON, and its headers are of no event"
                    findings.add([message], "malformed", what)
                except pa.ArrowInvalid:
                    what = "data_base64 is not base64"
                    findings.add([message], "value", what)
            self._members.append(members)
            self.data.append(data)
            self.is_binary.append("data_base64" in members)

    def attribute(self, name: str, findings: BadMessages) -> pa.StringArray:
        """An attribute of each event; null if it has none."""
        found: list[str | None] = []
        for message, members in enumerate(self._members):
            raw = bytes(members.get(name, b"null"))
            text = None if raw == b"null" else raw
            try:
                found.append(_value(text))
            except msgspec.MsgspecError:
                found.append(None)
                what = "an attribute of the event is neither text nor a number"
                findings.add([message], "schema", what)
        return pa.array(found, pa.string())


def _data(members: Mapping[str, msgspec.Raw]) -> bytes | None:
    if bytes(members.get("data_base64", b"null")) != b"null":
        text = _TEXT.decode(members["data_base64"])
        return bytes(from_base64(pa.array([text]))[0].as_py())
    found = bytes(members.get("data", b"null"))
    return None if found == b"null" else found


def _value(raw: bytes | None) -> str | None:
    """Text of an attribute: a text, an integer or a boolean."""
    if raw is None:
        return None
    if raw[:1] == b'"':
        return str(_TEXT.decode(raw))
    msgspec.json.decode(raw, type=int | bool)
    return raw.decode()
