"""The first rows of a pipeline's source, for previews. Commits nothing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from streamfactory.spark.pipelines.model import Source

_GOOD_ONLY: Final = {"decode.on.error": "skip"}


@dataclass(frozen=True, slots=True)
class Sample:
    """Some rows of one id."""

    id: str
    rows: pa.Table


def first_rows(source: Source, rows: int, *, dead_letters: bool) -> pa.Table:
    """The first rows of a source by its start options, without bad messages."""
    stream = source.stream
    if dead_letters:
        stream = stream.with_overrides(_GOOD_ONLY)
    with open_stream(stream) as opened:
        batches, count = [], 0
        for batch in opened:
            batches.append(batch.rows)
            count += batch.rows.num_rows
            if count >= rows:
                break
        return pa.Table.from_batches(batches, opened.schema).slice(0, rows)
