"""Change events made by hand from the format that Debezium documents."""

from __future__ import annotations

import base64
import json
from typing import Any

COMMITTED = 1_700_000_000_123
PROCESSED = 1_700_000_000_999
DEBEZIUM = "io.debezium"
CONNECT = "org.apache.kafka.connect.data"
POSTGRES = {
    "version": "3.0.0.Final",
    "connector": "postgresql",
    "name": "shop",
    "ts_ms": COMMITTED,
    "snapshot": "false",
    "db": "inventory",
    "sequence": '["24023119","24023128"]',
    "schema": "public",
    "table": "goods",
    "txId": 555,
    "lsn": 24_023_128,
    "xmin": None,
}
MYSQL = {
    "version": "3.0.0.Final",
    "connector": "mysql",
    "name": "shop",
    "ts_ms": COMMITTED,
    "ts_us": COMMITTED * 1000 + 456,
    "ts_ns": COMMITTED * 1_000_000 + 456_789,
    "snapshot": "false",
    "db": "inventory",
    "sequence": None,
    "table": "goods",
    "server_id": 223_344,
    "gtid": None,
    "file": "mysql-bin.000003",
    "pos": 484,
    "row": 0,
    "thread": 7,
    "query": None,
}


def payload(
    op: str | None,
    before: dict[str, Any] | None = None,
    after: dict[str, Any] | None = None,
    source: dict[str, Any] | None = POSTGRES,
) -> dict[str, Any]:
    """The event as the JSON converter writes it with schemas.enable=false."""
    found = {"before": before, "after": after, "source": source, "transaction": None}
    return {**found, "op": op, "ts_ms": PROCESSED}


def event(*args: Any, **named: Any) -> bytes:
    return json.dumps(payload(*args, **named)).encode()


def column(name: str, kind: str, logical: str | None = None, **more: Any) -> Any:
    """A field of a Connect schema."""
    found = {"type": kind, "optional": True, "field": name, **more}
    return found if logical is None else {**found, "name": logical, "version": 1}


def with_schema(columns: list[Any], found: dict[str, Any]) -> bytes:
    """The event as the JSON converter writes it with schemas.enable=true."""
    states = [
        {"type": "struct", "optional": True, "field": name, "fields": columns}
        for name in ("before", "after")
    ]
    fields = [
        *states,
        {"type": "struct", "optional": False, "field": "source", "fields": []},
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]
    schema = {"type": "struct", "fields": fields, "name": "shop.goods.Envelope"}
    return json.dumps({"schema": schema, "payload": found}).encode()


def decimal(number: int, width: int = 4) -> str:
    """An unscaled number as the converter writes it: big-endian bytes in base64."""
    return base64.b64encode(number.to_bytes(width, "big", signed=True)).decode()
