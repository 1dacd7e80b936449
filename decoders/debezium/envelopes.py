"""Events that are JSON: their envelopes, and the texts of the rows in them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, Final, final

import msgspec
import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.decoders.columns.messages import BadMessages

_ABSENT: Final = (b"", b"null")


class _Envelope(msgspec.Struct, gc=False):
    """The members that are read; with a schema, the event is the ``payload``."""

    op: str | None = None
    ts_ms: Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    before: msgspec.Raw = msgspec.Raw()
    after: msgspec.Raw = msgspec.Raw()
    source: msgspec.Raw = msgspec.Raw()
    schema: msgspec.Raw = msgspec.Raw()
    payload: msgspec.Raw = msgspec.Raw()


_DECODER: Final = msgspec.json.Decoder(_Envelope)


@final
@dataclass(slots=True)
class Envelopes:
    """The envelopes of a batch, by column."""

    messages: list[int] = field(default_factory=list)
    operations: list[str | None] = field(default_factory=list)
    times: list[int | None] = field(default_factory=list)
    before: list[bytes | None] = field(default_factory=list)
    after: list[bytes | None] = field(default_factory=list)
    source: list[bytes | None] = field(default_factory=list)
    schemas: list[bytes | None] = field(default_factory=list)

    def add(self, message: int, found: _Envelope, schema: bytes | None) -> None:
        """Add the event of a message."""
        self.messages.append(message)
        self.operations.append(found.op)
        self.times.append(found.ts_ms)
        self.before.append(_text(found.before))
        self.after.append(_text(found.after))
        self.source.append(_text(found.source))
        self.schemas.append(schema)


def envelopes_of(texts: pa.StringArray, findings: BadMessages) -> Envelopes:
    """Open the envelopes of messages; a null text is not looked at.

    Args:
        texts: The messages.
        findings: Receives those that are not JSON, or no event.
    """
    found = Envelopes()
    for message, text in enumerate(texts.to_pylist()):
        if text is None:
            continue
        try:
            one, schema = _DECODER.decode(text), None
            inner = _text(one.payload)
            if one.op is None and inner is not None:
                schema, one = _text(one.schema), _DECODER.decode(inner)
        except msgspec.ValidationError:
            what = "the envelope has a member of another type"
            findings.add([message], "schema", what)
        except msgspec.DecodeError:
            findings.add([message], "malformed", "the message is not JSON")
        else:
            found.add(message, one, schema)
    return found


def _text(raw: Any) -> bytes | None:
    found = bytes(raw)
    return None if found in _ABSENT else found


def present(texts: list[bytes | None]) -> np.ndarray:
    """Which texts are there."""
    return np.array([text is not None for text in texts], bool)
