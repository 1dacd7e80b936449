"""The environment of one case of a decoder: good and hostile messages (D1 to D4).

The author supplies a harness: good messages that carry numbers, and the way back. The
kit mixes them with hostile ones, which may be good to one decoder and bad to another:
decode has to raise nothing, account for every message, disclose no payload and keep
the neighbours of a bad message.
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa

from streamfactory.conformance.expectations import Excluded, Mismatch, expect, require
from streamfactory.conformance.harness import DecoderHarness, HasBadMessages
from streamfactory.conformance.patience import SECONDS
from streamfactory.conformance.workbench import Workbench
from streamfactory.spi import (
    DecodeContext,
    Decoded,
    Decoder,
    MessageDecoder,
    Partition,
    envelope_schema,
)
from streamfactory.wiring.decoding.stage import DecodePolicy, DecodeStage

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from streamfactory.conformance.workbench import Requirements

TOPIC: Final = "conformance"
PARTITION_0: Final = Partition(TOPIC, 0)
MARK: Final = b"PLANTEDq7x"
"""In every payload that can contain it; no error may contain it."""

_CODE: Final = re.compile("[a-z][a-z0-9_]{0,31}")


@final
class DecoderBench(Workbench[DecoderHarness]):
    """The environment of a case. Closes the decoders that it created.

    Args:
        decoder: Under test.
        harness: The author's.
        seed: Seed of the random choices.
    """

    def __init__(self, decoder: Decoder, harness: Any, seed: int = 0) -> None:
        super().__init__(harness, seed)
        self.descriptor = decoder
        self.random = self.chance()

    def excluded(self, case: Requirements) -> None:
        """Raise `Excluded` where a case does not apply."""
        if self.descriptor.decoder is None:
            msg = f"{self.descriptor.name!r} leaves messages as they are"
            raise Excluded(msg)
        super().excluded(case)

    # --- decoders -------------------------------------------------------------------

    def decoder(self) -> MessageDecoder:
        """A decoder with the harness's options, parsed as the framework does."""
        given = dict(self.harness.options())
        options = {}
        for option in self.descriptor.options:
            text = given.pop(option.key, option.default)
            if text is not None:
                options[option.key] = option.parse(text)
        require(not given, f"options that the decoder does not declare: {list(given)}")
        assert self.descriptor.decoder is not None
        return self.closing(self.descriptor.decoder(options, TOPIC))

    def stage(
        self,
        on_error: str,
        max_errors: int | None = None,
        max_ratio: float | None = None,
        contract: str | None = None,
    ) -> DecodeStage:
        """The framework's own decoding, over a new decoder."""
        policy = DecodePolicy(on_error, max_errors, max_ratio, contract)
        return DecodeStage(self.decoder(), policy, PARTITION_0, None)

    # --- messages -------------------------------------------------------------------

    def good(self, numbers: Sequence[int]) -> list[bytes]:
        """A good message for each number."""
        return [self.harness.message([number]) for number in numbers]

    def hostile(self) -> dict[str, bytes]:
        """Payloads by name: hostile ones, and good ones that were mutated."""
        found = {
            "empty": b"",
            "one byte": b"\x00",
            "NULs": b"\x00" * 64 + MARK,
            "invalid UTF-8": MARK + b"\xff\xfe\x80\xc3",
            "a lone surrogate": MARK + b"\xed\xa0\x80",
            "line ends": b"\r\n\n\r" + MARK,
            "noise": self.random.randbytes(300) + MARK,
            "a huge length": b"\xff" * 16 + MARK,
            "huge": MARK + b"a" * 2**20,
            "deep brackets": b"[" * 100_000,
            "deep objects": b'{"a":' * 50_000,
            "a long number": b"9" * 10_000,
            "a wrong type": b'{"' + MARK + b'": [1, {"' + MARK + b'": null}]}',
        }
        found |= self.mutants(40)
        return found | dict(self.bad())

    def mutants(self, count: int) -> dict[str, bytes]:
        """Good messages with bits flipped, pieces cut, doubled, or put in."""
        found = {}
        for index in range(count):
            payload = bytearray(self.harness.message([index]))
            for _ in range(self.random.randint(1, 3)):
                at = self.random.randint(0, len(payload))
                what = self.random.choice(["flip", "cut", "double", "put", "set"])
                if what == "flip" and at < len(payload):
                    payload[at] ^= 1 << self.random.randrange(8)
                elif what == "set" and at < len(payload):
                    payload[at] = self.random.choice([0, 0x7F, 0x80, 0xFF])
                elif what == "cut":
                    del payload[at:]
                elif what == "double":
                    payload[at:at] = payload[:at]
                else:
                    payload[at:at] = MARK
            found[f"mutant {index}"] = bytes(payload)
        return found

    def bad(self) -> Mapping[str, bytes]:
        """Payloads that the author says are bad; may be empty."""
        return self.use(HasBadMessages).bad() if self.has(HasBadMessages) else {}

    def one_bad(self) -> bytes:
        """A payload that this decoder refuses."""
        for payload in [*self.bad().values(), *self.hostile().values()]:
            if self.decode(self.decoder(), [payload]).errors:
                return payload
        msg = "no message is bad to this decoder"
        raise Excluded(msg)

    # --- decoding -------------------------------------------------------------------

    def decode(
        self,
        decoder: MessageDecoder,
        payloads: Sequence[bytes],
        *,
        undeclared: bool | None = None,
        salvage: bool = False,
    ) -> Decoded:
        """Decode, and see that the answer accounts for every message (rule D1)."""
        context = DecodeContext(PARTITION_0, undeclared=undeclared, salvage=salvage)
        values = pa.array(payloads, pa.binary())
        started = time.monotonic()
        try:
            decoded = decoder.decode(values, context)
        except Exception as error:
            # Not what it says: that may hold the payload.
            msg = f"decode raised {type(error).__name__} on {_described(payloads)}"
            raise Mismatch(msg) from error
        took = time.monotonic() - started
        require(took < SECONDS, f"decode took {took:.1f} s on {_described(payloads)}")
        self._account(decoder, decoded, payloads, context)
        return decoded

    def _account(
        self,
        decoder: MessageDecoder,
        decoded: Decoded,
        payloads: Sequence[bytes],
        context: DecodeContext,
    ) -> None:
        rows, count = decoded.rows, len(payloads)
        require(
            rows.schema.equals(decoder.schema()),
            f"rows are {_types(rows.schema)}, declared {_types(decoder.schema())}",
        )
        rows.validate(full=True)
        if decoded.source is None:
            expect(rows.num_rows, count, "rows, if source is None")
            expect(len(decoded.errors), 0, "errors, if source is None")
        source = sources(decoded)
        expect(len(source), rows.num_rows, "sources of the rows")
        require(source == sorted(source), "the sources of the rows do not rise")
        bad = [error.message for error in decoded.errors]
        for name, indices in (("source", source), ("bad message", bad)):
            outside = [index for index in indices if not 0 <= index < count]
            expect(outside, [], f"{name} indices outside of the {count} messages")
        expect(len(bad), len(set(bad)), "bad messages, each reported once")
        expect(sorted(set(bad) & set(source)), [], "messages both bad and with rows")
        for misfit in decoded.misfits:
            of_field = misfit.column is None
            asked = context.undeclared if of_field else context.salvage
            require(asked, "misfits are reported that the context does not ask for")
            for row in misfit.rows.to_pylist():
                require(0 <= row < rows.num_rows, f"a misfit is row {row}, of {count}")
                _hides(misfit.what, payloads[source[row]])
        for error in decoded.errors:
            require(_CODE.fullmatch(error.code), f"{error.code!r} is not a short code")
            _hides(f"{error.code}: {error.what}", payloads[error.message])

    def envelopes(self, values: Sequence[bytes | None]) -> pa.RecordBatch:
        """Envelopes with these values; offsets have gaps."""
        count = len(values)
        columns: dict[str, Sequence[Any]] = {
            "key": [b"key"] * count,
            "value": values,
            "topic": [TOPIC] * count,
            "partition": [0] * count,
            "offset": [7 * index for index in range(count)],
            "timestamp": [1_700_000_000_000_000] * count,
            "timestampType": [0] * count,
            "headers": [None] * count,
        }
        arrays = [pa.array(columns[f.name], f.type) for f in envelope_schema()]
        return pa.RecordBatch.from_arrays(arrays, schema=envelope_schema())


def sources(decoded: Decoded) -> list[int]:
    """The message of each row."""
    if decoded.source is None:
        return list(range(decoded.rows.num_rows))
    return [int(index) for index in decoded.source.to_pylist()]


def _hides(text: str, payload: bytes) -> None:
    mark = MARK.decode().lower()
    forms = (mark, MARK.hex())
    shown = MARK in payload and any(form in text.lower() for form in forms)
    require(not shown, "an error contains its payload, which must not be logged")
    require(
        len(text) <= 500,
        f"an error of {len(text)} characters is longer than a sentence",
    )


def _described(payloads: Sequence[bytes]) -> str:
    if len(payloads) == 1:
        return f"a message of {len(payloads[0])} bytes"
    return f"a batch of {len(payloads)} messages"


def _types(schema: pa.Schema) -> str:
    return ", ".join(str(field) for field in schema)
