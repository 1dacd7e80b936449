"""The process that evaluates a SQL expression: it can open no file and no connection.

Started by `RowFilter`. Reads frames from standard input and answers each of them: a
frame is its length in 8 bytes, and its content. The first one is a document with the
expression and the names of columns; each of the others is a batch as an Arrow stream.
"""

from __future__ import annotations

import json
import resource
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa

from streamfactory.engines.installing import load
from streamfactory.spi.causes import first_line

MEMORY: Final = 1 << 30
"""Bytes that the process may allocate beside what it has when it starts."""
MOST_TEXT: Final = 4000
"""Characters of an expression."""
_REFUSED: Final = {
    "SUBQUERY": "a subquery",
    "STAR": "a star",
    "WINDOW": "a window function",
    "PARAMETER": "a parameter",
    "DEFAULT": "a default",
}
_SETTINGS: Final = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "memory_limit": "512MB",
    "max_temp_directory_size": "0B",
    "threads": "1",
    "preserve_insertion_order": "true",
    "lock_configuration": "true",
}
_ROWS: Final = "rows"


class Refused(Exception):
    """The expression cannot be evaluated; the text says why."""


class Evaluator:
    """Evaluates one expression on batches."""

    def __init__(self) -> None:
        self._duckdb = load("duckdb")
        self._connection = self._duckdb.connect(":memory:", config=_SETTINGS)
        self._expression = ""
        self._checked = False
        """Whether the expression has one value for each row."""

    def prepare(self, expression: str, names: list[str]) -> list[str]:
        """Check an expression, and return the columns that it uses.

        Raises:
            Refused: It is not one expression, or has a part that is not allowed.
        """
        if len(expression) > MOST_TEXT:
            msg = f"it has more than {MOST_TEXT} characters"
            raise Refused(msg)
        # On lines of its own: a comment at its end would hide the bracket.
        text = f"SELECT (\n{expression}\n)"
        columns: set[str] = set()
        _walk(self._parsed(text), columns)
        known = {name.lower(): name for name in names}
        found = [
            known[name.lower()] for name in sorted(columns) if name.lower() in known
        ]
        self._expression, self._checked = expression, False
        return list(dict.fromkeys(found))

    def evaluate(self, rows: pa.RecordBatch) -> bytes:
        """Whether the expression is true, a byte for each row."""
        count = rows.num_rows
        if not rows.num_columns:
            rows = pa.RecordBatch.from_arrays([pa.nulls(count)], [""])
        if not self._checked:
            self._checked = True
            # An aggregate has a value without a row.
            self._selected(rows.slice(0, 0))
        found = self._selected(rows)
        if not count:
            return b""
        hits = found.column(0).cast(pa.uint8()).combine_chunks()
        # Not `to_numpy`, which imports pandas.
        return bytes(memoryview(hits.buffers()[1])[hits.offset :][:count])

    def _selected(self, rows: pa.RecordBatch) -> pa.Table:
        """One column: whether the expression is true."""
        relation = self._connection.from_arrow(pa.Table.from_batches([rows]))
        sql = f"SELECT coalesce(CAST((\n{self._expression}\n) AS BOOLEAN), false)"
        try:
            found = relation.query(_ROWS, f"{sql} FROM {_ROWS}").to_arrow_table()
        except self._duckdb.Error as error:
            raise Refused(first_line(error)) from None
        if found.num_rows != rows.num_rows:
            msg = "it has not one value for each row: aggregates are not allowed"
            raise Refused(msg)
        return found

    def _parsed(self, text: str) -> dict[str, Any]:
        """The select node of a statement that has nothing but one expression."""
        try:
            ((answer,),) = self._connection.execute(
                "SELECT json_serialize_sql($1::VARCHAR)", [text]
            ).fetchall()
        except self._duckdb.Error as error:
            raise Refused(first_line(error)) from None
        found = json.loads(answer)
        if found.get("error"):
            raise Refused(str(found.get("error_message", "it is no SQL")))
        node = found["statements"][0]["node"]
        alone = len(found["statements"]) == 1 and len(node.get("select_list", ())) == 1
        if not alone or node["type"] != "SELECT_NODE" or _has_clauses(node):
            msg = "it is not one expression"
            raise Refused(msg)
        return dict(node["select_list"][0])


def _has_clauses(node: dict[str, Any]) -> bool:
    return bool(
        node["modifiers"]
        or node["cte_map"]["map"]
        or node["from_table"]["type"] != "EMPTY"
        or node.get("where_clause")
        or node.get("group_expressions")
        or node.get("having")
        or node.get("qualify")
        or node.get("sample")
    )


def _walk(tree: Any, columns: set[str]) -> None:
    """Collect the names of columns; refuse what is more than an expression of a row."""
    waiting = [tree]
    while waiting:
        one = waiting.pop()
        if isinstance(one, list):
            waiting += one
        elif isinstance(one, dict):
            kind = one.get("class")
            if kind in _REFUSED:
                msg = f"it has {_REFUSED[str(kind)]}, which is not allowed"
                raise Refused(msg)
            if kind == "COLUMN_REF":
                columns.update(one["column_names"])
            waiting += one.values()


# --- the process ----------------------------------------------------------------


def main() -> None:
    """Answer frames until standard input ends."""
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    evaluator = Evaluator()
    _warm_up(evaluator)
    _confine()
    asked = json.loads(_read(source) or b"{}")
    try:
        used = evaluator.prepare(asked["expression"], asked["names"])
        _answer(sink, {"columns": used})
    except Refused as error:
        _answer(sink, {"error": str(error)})
        return
    while (frame := _read(source)) is not None:
        try:
            with pa.ipc.open_stream(frame) as reader:
                hits = evaluator.evaluate(reader.read_next_batch())
        except Refused as error:
            _answer(sink, {"error": str(error)})
        except MemoryError:
            _answer(sink, {"error": "it needs too much memory"})
        else:
            _write(sink, b"r" + hits)


def _warm_up(evaluator: Evaluator) -> None:
    """Import what is imported at the first use, while files can be opened."""
    evaluator.prepare("a LIKE 'x%' AND b > now()", ["a", "b"])
    # Not `array`, which imports pandas.
    columns = [pa.nulls(1, pa.string()), pa.nulls(1, pa.timestamp("us", "UTC"))]
    rows = pa.RecordBatch.from_arrays(columns, ["a", "b"])
    buffer = pa.BufferOutputStream()
    with pa.ipc.new_stream(buffer, rows.schema) as writer:
        writer.write_batch(rows)
    with pa.ipc.open_stream(buffer.getvalue()) as reader:
        evaluator.evaluate(reader.read_next_batch())


def _confine() -> None:
    """Allow no new file, connection or process, no writing, and a bounded memory."""
    pages = int(Path("/proc/self/statm").read_text("ascii").split()[0])
    most = pages * resource.getpagesize() + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Descriptors that are open stay so; the limit is for the number of the next one.
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))


def _read(source: BinaryIO) -> bytes | None:
    head = source.read(8)
    if len(head) < 8:
        return None
    return source.read(struct.unpack("<Q", head)[0])


def _answer(sink: BinaryIO, document: dict[str, Any]) -> None:
    _write(sink, b"j" + json.dumps(document).encode())


def _write(sink: BinaryIO, content: bytes) -> None:
    sink.write(struct.pack("<Q", len(content)) + content)
    sink.flush()


if __name__ == "__main__":
    main()
