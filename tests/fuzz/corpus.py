"""Sound streams and files of Arrow, made once: what the fuzz suite mutates."""

from __future__ import annotations

import pickle
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from tests.fuzz.columns import AMPLIFIERS, amplifier, any_batch, batch_of, columns

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_MIXES: Final = 80
_LARGEST: Final = 64 * 1024
"""Bytes: what is longer is no small input."""
_CODECS: Final = (None, "lz4", "zstd")


@dataclass(frozen=True, slots=True)
class Seed:
    """Batches of one schema, written."""

    name: str
    stream: bytes
    random: bytes
    """The same as a random-access file; empty where there is no such file."""
    schema: bytes

    @property
    def amplifies(self) -> bool:
        """Whether it is small here, and large when it is unpacked."""
        return self.name.startswith("amplifier")


def write_stream(
    batches: Sequence[pa.RecordBatch], codec: str | None = None, *, deltas: bool = False
) -> bytes:
    """Batches as a stream."""
    return _write(pa.ipc.new_stream, batches, codec, deltas=deltas)


def write_random(batches: Sequence[pa.RecordBatch], codec: str | None = None) -> bytes:
    """Batches as a random-access file."""
    return _write(pa.ipc.new_file, batches, codec, deltas=False)


def _write(
    make: object, batches: Sequence[pa.RecordBatch], codec: str | None, *, deltas: bool
) -> bytes:
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(
        compression=codec, emit_dictionary_deltas=deltas, allow_64bit=True
    )
    assert callable(make)
    with make(sink, batches[0].schema, options=options) as writer:
        for batch in batches:
            writer.write_batch(batch)
    return bytes(sink.getvalue())


def _seed(name: str, batches: Sequence[pa.RecordBatch], codec: str | None) -> Seed:
    stream = write_stream(batches, codec)
    return Seed(
        f"{name} {codec}",
        stream,
        write_random(batches, codec),
        bytes(batches[0].schema.serialize()),
    )


def _parts(batch: pa.RecordBatch) -> list[pa.RecordBatch]:
    """Several small batches, as a reader joins them; one begins within its column."""
    return [batch, batch.slice(3, 4), batch.slice(0, 1), batch]


def _dictionaries() -> list[Seed]:
    """Streams whose dictionaries grow, and are replaced."""
    found = []
    for words in (["a", "b", "c", "dd"], [1, 2, 3, 4]):
        indices = pa.array([0, 1, 0, 1], pa.int8())
        grown = [
            pa.record_batch(
                [pa.DictionaryArray.from_arrays(indices, pa.array(words[:count]))],
                names=["d"],
            )
            for count in (2, 3, 4)
        ]
        schema = bytes(grown[0].schema.serialize())
        for codec in _CODECS:
            delta = write_stream(grown, codec, deltas=True)
            found.append(Seed(f"delta {codec}", delta, b"", schema))
            replaced = write_stream(grown[::-1], codec)
            found.append(Seed(f"replacement {codec}", replaced, b"", schema))
    return found


def build(path: Path) -> None:
    """Write all seeds to a file."""
    chance = random.Random(0)
    found = [
        _seed(name, _parts(batch_of(name)), codec)
        for name in columns()
        for codec in (None, chance.choice(_CODECS[1:]))
    ]
    for number in range(_MIXES):
        codec = chance.choice((None, None, *_CODECS))
        found.append(_seed(f"mix {number}", _parts(any_batch(chance)), codec))
    found += _dictionaries()
    for name in AMPLIFIERS:
        for codec in _CODECS:
            if codec is None and amplifier(name).nbytes > _LARGEST:
                continue
            seed = _seed(f"amplifier {name}", [amplifier(name)] * 2, codec)
            if len(seed.stream) <= _LARGEST:
                found.append(seed)
    path.write_bytes(pickle.dumps(found))


def load(path: Path) -> list[Seed]:
    """The seeds of a file that `build` wrote."""
    found: list[Seed] = pickle.loads(path.read_bytes())
    return found
