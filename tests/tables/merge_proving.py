"""``make prove PATHS=merges``: a table that changes at random is copied by key.

A program changes a Delta table with a change feed: 100 times N inserts, updates,
deletes and re-inserts at random. Its stream is copied into a Delta and an Iceberg
table in epochs of random length, which end within commits, too. Behind each copy the
tables are equal, row by row, as another program reads them.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from tests.proving.verdict import Verdict
from tests.tables.lakes import DeltaLake, IcebergLake

import streamfactory

if TYPE_CHECKING:
    from pathlib import Path

    from tests.tables.lakes import Lake

KEYS: Final = 150
"""So few that each is deleted and inserted again."""
_COMMIT: Final = 50
"""Changes of a commit."""
_COMMITS: Final = 4
"""Between two copies."""
_SCHEMA: Final = pa.schema(
    [
        pa.field("id", pa.int64()),
        pa.field("name", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("tags", pa.list_(pa.string())),
    ]
)


def prove(rounds: int, seed: int, root: Path) -> Verdict:
    """Make so many hundred changes, and copy them."""
    chance, total = random.Random(seed), Verdict()
    source = Source(str(root / "source"), chance)
    lakes = [DeltaLake(root / "delta"), IcebergLake(root / "iceberg")]
    made = epochs = 0
    while made < 100 * rounds:
        for _ in range(_COMMITS):
            made += source.change()
        for lake in lakes:
            # Of no use twice: the second one continues behind the first.
            for _ in range(2):
                epochs += copied(source, lake, chance.randint(20, 300))
            total += same(source.rows(), lake.rows())
    total.notes.append(f"{made} changes in {epochs} epochs")
    return total


class Source:
    """A Delta table that another program changes.

    Args:
        path: Of the table.
        chance: Decides.
    """

    def __init__(self, path: str, chance: random.Random) -> None:
        self.config = {"streamType": "delta", "stream.delta.path": path}
        self._chance = chance
        feed = {"delta.enableChangeDataFeed": "true"}
        self._table = DeltaTable.create(path, _SCHEMA, configuration=feed)
        write_deltalake(self._table, self._batch(range(KEYS // 2)), mode="append")

    def change(self) -> int:
        """Commit changes of random keys, and return how many."""
        keys = self._chance.sample(range(KEYS), _COMMIT)
        half = _COMMIT // 2
        self._table.delete(f"id in ({', '.join(map(str, keys[:half]))})")
        merge = self._table.merge(
            self._batch(keys[half // 2 :]), "t.id = s.id", "s", "t"
        )
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        return half + _COMMIT - half // 2

    def rows(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self._table.to_pyarrow_table().to_pylist()
        return found

    def _batch(self, keys: Any) -> pa.RecordBatch:
        draw = self._chance.random
        rows = [
            {
                "id": key,
                "name": None if draw() < 0.1 else f"n{draw()}",
                "value": draw(),
                "tags": None if draw() < 0.1 else [str(key)] * int(3 * draw()),
            }
            for key in keys
        ]
        return pa.RecordBatch.from_pylist(rows, _SCHEMA)


def copied(source: Source, lake: Lake, rows: int) -> int:
    """Copy what is there, in epochs of so many rows, and return how many epochs."""
    options = {
        "producer.key.columns": "id",
        "realtime.segment.flush.threshold.rows": str(rows),
    }
    before = lake.last("copy")[0] if lake.folder.exists() else None
    source_config = {**source.config, "batch.rows": str(rows)}
    streamfactory.copy(source_config, {**lake.config, **options}, writer_id="copy")
    after = lake.last("copy")[0]
    return (-1 if after is None else after) - (-1 if before is None else before)


def same(wanted: list[dict[str, Any]], found: list[dict[str, Any]]) -> Verdict:
    """Rows of two tables."""
    here, there = Counter(map(repr, wanted)), Counter(map(repr, found))
    return Verdict((here - there).total(), (there - here).total())
