"""The changes of a Delta table in Kafka: upserts and tombstones, each once.

A table of accounts is copied into a topic that Kafka compacts: the key of a message is
the account's id, its value the row as JSON. First the table's rows are copied, then the
changes of later commits; a deleted row becomes a tombstone, a message without a value.
The last message of each key is the state of the table.

    KAFKA=localhost:9092 python examples/delta_to_kafka.py

Needs: pip install 'streamfactory[delta,kafka,json]', and a broker: docs/kafka.md starts
one, and so does the compose file of `streamfactory init`. Deletes its topic at the end.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa

import streamfactory

try:
    from confluent_kafka.admin import (  # type: ignore[attr-defined]  # not in its stubs
        AdminClient,
        NewTopic,
    )
    from deltalake import DeltaTable, QueryBuilder, write_deltalake
except ImportError:
    sys.exit("run: pip install 'streamfactory[delta,kafka,json]'")

KAFKA = os.environ.get("KAFKA", "localhost:9092")
TOPIC = f"accounts-{uuid.uuid4().hex[:8]}"
MESSAGES = {
    "streamType": "kafka",
    "stream.kafka.broker.list": KAFKA,
    "stream.kafka.topic.name": TOPIC,
    "stream.kafka.decoder.class.name": "raw",
}


def main() -> None:
    admin = AdminClient({"bootstrap.servers": KAFKA})
    compacted = NewTopic(TOPIC, 4, config={"cleanup.policy": "compact"})
    admin.create_topics([compacted])[TOPIC].result()
    try:
        with tempfile.TemporaryDirectory() as folder:
            run(Path(folder, "accounts"))
    finally:
        admin.delete_topics([TOPIC])[TOPIC].result()


def run(lake: Path) -> None:
    """Create the table, change it, and copy what is new."""
    ids = list(range(1000))
    accounts = pa.table({"id": ids, "balance": [100 * number for number in ids]})
    feed = {"delta.enableChangeDataFeed": "true"}
    write_deltalake(lake, accounts, configuration=feed)
    copy(lake, "the rows of the table")
    paid = pa.table({"id": [7, 8, 1000], "balance": [1, 2, 3]})
    merge = DeltaTable(lake).merge(paid, "t.id = s.id", "s", "t")
    merge.when_matched_update_all().when_not_matched_insert_all().execute()
    DeltaTable(lake).delete("id >= 990 and id < 1000")
    copy(lake, "3 upserts and 10 deletions")
    copy(lake, "nothing new")
    messages, state = read()
    # Not `to_pyarrow_table`: Arrow's threads may still be releasing its files when
    # Python ends, which aborts the process (apache/arrow#39862).
    table = QueryBuilder().register("accounts", DeltaTable(lake))
    rows = pa.table(table.execute("select * from accounts")).to_pylist()
    same = state == {row["id"]: row for row in rows}
    print(f"{messages:,} messages, {len(state)} accounts, as the table: {same}")


def copy(lake: Path, what: str) -> None:
    """Copy what is new in the table; the topic stores how far the copy is."""
    table = {"streamType": "delta", "stream.delta.path": str(lake)}
    upserts = MESSAGES | {
        "stream.kafka.decoder.class.name": "json",
        "stream.kafka.staging.location": str(lake.parent / "staging"),
        "producer.key.columns": "id",
        "producer.change.column": "_change",
    }
    copied = streamfactory.copy(table, upserts)
    print(f"{what}: {copied.rows:,} changes")


def read() -> tuple[int, dict[int, Any]]:
    """The number of messages, and the rows by the last message of each key."""
    messages, state = 0, dict[int, Any]()
    with streamfactory.open(MESSAGES) as stream:
        for batch in stream:
            for message in batch.rows.to_pylist():
                messages += 1
                key, value = int(message["key"]), message["value"]
                if value is None:
                    del state[key]
                    continue
                row = json.loads(value)
                state[key] = {name: row[name] for name in ("id", "balance")}
    return messages, state


if __name__ == "__main__":
    main()
