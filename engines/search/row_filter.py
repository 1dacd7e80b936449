"""Selects rows by a SQL expression, in a process of its own."""

from __future__ import annotations

import json
import os
import selectors
import struct
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow as pa

from streamfactory.engines.installing import load
from streamfactory.engines.search.columns import hidden, search_names, searchable
from streamfactory.spi import MisuseError, StreamTimeout
from streamfactory.wiring.core.closing import Closing

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np

SECONDS: Final = 60.0
"""For one answer of the process, its start included."""
_INVALID: Final = "its process returned an invalid answer"
_ENDED: Final = "it needs too much memory, or ended its process"
_MOST_ANSWER: Final = 1 << 24
_PASSED: Final = ("PATH", "PYTHONPATH", "LD_LIBRARY_PATH", "VIRTUAL_ENV", "LANG")
"""Environment variables of the process: none of them has a secret."""


@final
class RowFilter(Closing):
    """Evaluates an expression on batches of one schema. A context manager.

    The expression is evaluated by DuckDB in a process that can open no file and no
    connection, and is killed if it does not answer in time. One thread uses it.

    Args:
        expression: SQL, true for the rows wanted. Names are those of `search_names`.
        schema: Of the batches.
        mask: Masks what is secret in a text; the expression sees masked values.

    Raises:
        NotInstalled: plugin; names the command that installs DuckDB.
        MisuseError: misuse; the expression is refused.
        StreamTimeout: transient; the process does not answer.
    """

    def __init__(
        self,
        expression: str,
        schema: pa.Schema,
        *,
        mask: Callable[[str], str] | None = None,
    ) -> None:
        load("duckdb")
        self._expression, self._mask = expression, mask
        self._names = search_names(schema.names)
        self._process = subprocess.Popen(
            [sys.executable, "-m", "streamfactory.engines.search.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={name: os.environ[name] for name in _PASSED if name in os.environ},
        )
        try:
            for pipe in self._pipes():
                os.set_blocking(pipe, False)
            asked = {"expression": expression, "names": list(self._names)}
            answer = self._exchange(json.dumps(asked).encode(), SECONDS)
            used: list[str] = self._document(answer)["columns"]
            self._used = {one: self._names[one] for one in used if one in self._names}
            # Names and types are checked where there are no rows, too.
            self.matches(pa.RecordBatch.from_pylist([], schema))
        except BaseException:
            self.close()
            raise

    def matches(self, rows: pa.RecordBatch, *, seconds: float = SECONDS) -> np.ndarray:
        """Whether the expression is true, for each row.

        Args:
            rows: A batch of the schema.
            seconds: To wait for the answer.

        Raises:
            MisuseError: misuse; the expression cannot be evaluated on these rows.
            StreamTimeout: transient; no answer in time: it cannot be used any more.
        """
        import numpy as np

        columns = {
            name: self._column(rows.column(at)) for name, at in self._used.items()
        }
        if not columns:  # the number of rows is needed
            columns = {"": pa.nulls(rows.num_rows)}
        batch = pa.record_batch(columns)
        buffer = pa.BufferOutputStream()
        with pa.ipc.new_stream(buffer, batch.schema) as writer:
            writer.write_batch(batch)
        answer = self._exchange(buffer.getvalue(), seconds)
        if answer[:1] != b"r":
            self._document(answer)
        hits: np.ndarray = np.frombuffer(answer, np.uint8, offset=1) == 1
        if len(hits) != rows.num_rows:
            raise self._failed(_INVALID)
        return hits

    def close(self) -> None:
        """End the process. Twice is allowed."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def _column(self, column: pa.Array) -> pa.Array:
        converted = searchable(column)
        return (
            converted if self._mask is None else hidden(column, converted, self._mask)
        )

    def _pipes(self) -> tuple[int, int]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        return self._process.stdin.fileno(), self._process.stdout.fileno()

    def _document(self, answer: bytes) -> dict[str, Any]:
        try:
            found = json.loads(answer[1:])
        except ValueError:
            raise self._failed(_INVALID) from None
        if not isinstance(found, dict) or "columns" not in found:
            reason = str(found.get("error", "")) if isinstance(found, dict) else ""
            raise self._failed(reason[:500] or "no reason is known")
        return found

    def _failed(self, reason: str) -> MisuseError:
        return MisuseError(
            f"the expression cannot be evaluated: {reason}",
            remedy="use SQL of DuckDB that is true or false for a row, such as "
            "id > 5 AND name LIKE 'a%'; quote names that are words of SQL: "
            '"offset"; columns: ' + ", ".join(list(self._names)[:40]),
        )

    def _exchange(self, content: Any, seconds: float) -> bytes:
        """Send a frame, and return the answer."""
        deadline = time.monotonic() + seconds
        view = memoryview(content).cast("B")
        sending = memoryview(struct.pack("<Q", len(view)))
        queue, received, wanted = [sending, view], bytearray(), 8
        into, out = self._pipes()
        with selectors.DefaultSelector() as selector:
            selector.register(into, selectors.EVENT_WRITE)
            selector.register(out, selectors.EVENT_READ)
            while len(received) < wanted:
                left = deadline - time.monotonic()
                ready = selector.select(left) if left > 0 else []
                if not ready:
                    raise self._late(seconds)
                for key, _ in ready:
                    if key.fd == out:
                        received += self._received(out)
                    else:
                        queue = self._sent(into, queue)
                        if not queue:
                            selector.unregister(into)
                if len(received) >= 8:
                    wanted = 8 + struct.unpack_from("<Q", received)[0]
                    if wanted > _MOST_ANSWER:
                        raise self._failed(_INVALID)
        return bytes(received[8:])

    def _received(self, out: int) -> bytes:
        found = os.read(out, 1 << 16)
        if not found:
            self.close()
            raise self._failed(_ENDED)
        return found

    def _sent(self, into: int, queue: list[memoryview]) -> list[memoryview]:
        try:
            count = os.write(into, queue[0][: 1 << 20])
        except BrokenPipeError:
            return []  # the answer says why, or that it ended
        rest = queue[0][count:]
        return [rest, *queue[1:]] if len(rest) else queue[1:]

    def _late(self, seconds: float) -> StreamTimeout:
        self.close()
        msg = f"the expression was not evaluated within {seconds:.1f} s"
        return StreamTimeout(msg, remedy="use a simpler expression")
