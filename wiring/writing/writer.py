"""The final `Writer`: the rows of one attempt, routed, checked and counted."""

from __future__ import annotations

import threading
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, final

import pyarrow as pa

from streamfactory.conversion.arrays import memory_bytes, unshared
from streamfactory.conversion.conform import conform
from streamfactory.conversion.input_check import InputCheck
from streamfactory.conversion.tabular import Rows, rows_of
from streamfactory.spi import (
    ClosedError,
    CommitMessage,
    ConnectionFailed,
    ContractBroken,
    Failed,
    MessageEncoder,
    Outgoing,
    ReaderFinished,
    SchemaMismatch,
    StreamError,
    StreamWriter,
    Unsupported,
    WriteContext,
    headers_type,
)
from streamfactory.spi.waits import wait_in_slices
from streamfactory.wiring.core.closing import Closing
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.decoding.deadletters import varying_columns
from streamfactory.wiring.metrics.registry import registry
from streamfactory.wiring.writing.changes import (
    apply_changes,
    change_column,
    tombstones_of,
    without_values,
)
from streamfactory.wiring.writing.counters import SinkTally, Timing, WriteCounters
from streamfactory.wiring.writing.counting import Counting, PartitionCounts
from streamfactory.wiring.writing.fitting import RowFitting
from streamfactory.wiring.writing.headers import merged_headers
from streamfactory.wiring.writing.routing import Parcel, Router, unpack
from streamfactory.wiring.writing.summary import Summing

if TYPE_CHECKING:
    from collections.abc import Sequence

    from streamfactory.spi import End
    from streamfactory.wiring.writing.keys import KeyEncoder
    from streamfactory.wiring.writing.producer import Producer


@dataclass(frozen=True, slots=True)
class Target:
    """The schemas of rows of one input schema."""

    rows: pa.Schema
    """The schema that rows must fit."""
    stored: pa.Schema
    """The stored schema: the same, or one column of encoded messages."""
    special: frozenset[str]
    """The framework's columns, which are not among the rows: `framework_columns`."""
    carries: frozenset[str]
    """Those of them that are stored with each row."""
    contract: str | None = None
    """Mode of ``schema.contract``; None if rows decide the columns, or are encoded."""


@final
class Writer(Closing):
    """Writes the rows of one attempt. One thread writes; any thread may close.

    At the end of a ``with`` block it is closed; after an error in the block it is
    aborted. A writer with rows that is closed or dropped without `commit` or `abort`
    warns: a ``ResourceWarning`` has the number of rows that are not written.

    Args:
        producer: Calls the backend.
        context: The attempt.
        target: The schemas of the rows.
        encoder: Encodes rows to messages; None if rows are stored unencoded.
        home: Modulo the number of partitions, the partition of rows without key or
            partition.
        fresh: Whether the epoch is known not to be committed.
        shared: Whether the caller may change the memory of the rows before the commit.
        keys: Encodes keys; closed with this writer. None if they are bytes already.
        warns: Whether it warns of rows that are never committed.
    """

    def __init__(
        self,
        producer: Producer,
        context: WriteContext,
        target: Target,
        encoder: MessageEncoder | None,
        home: int,
        *,
        fresh: bool = False,
        shared: bool = True,
        keys: KeyEncoder | None = None,
        warns: bool = True,
    ) -> None:
        self._warns = warns
        self.context = context
        self.counters = WriteCounters()
        self._timing = Timing(self.counters)
        tally = SinkTally(producer.config.name, self.counters)
        self._end_metrics = registry.track(self, tally)
        self._producer = producer
        self._shared = shared
        self._target = target
        self._encoder = encoder
        self._keys = keys
        compared = producer.compares(context)
        self._summing = Summing(content=compared, without=varying_columns(target.rows))
        messages = target.stored.names == ["value"] and "_key" in target.carries
        topic = producer.config.get("topic.name", producer.config.name)
        self._counting = Counting(topic, messages=messages)
        self._state = "open"
        self._busy = threading.Lock()
        self._closing = threading.Event()
        columns = producer.config.get("producer.key.columns", ())
        self._router = Router(producer.partition_count, home, columns)
        self._changes = change_column(producer.config)
        self._plain: pa.Schema | None = None
        """Schema of the last rows; None if they had columns of the framework."""
        self._final = self._final_schema()
        computes = bool(encoder or keys or columns)
        self._input = InputCheck(None if computes else self._final)
        # A committed epoch is not staged again, but its input is read to the end:
        # Spark's stateful operators rely on that (rule W3).
        self._author: StreamWriter | None = None
        if fresh or not producer.has_epoch(context):
            self._author = producer.ask(
                "create a writer", lambda: producer.factory.create_writer(context)
            )

    @property
    def end(self) -> End | None:
        """Return how the other side ended the stream; None if it has not."""
        author = self._author
        return None if author is None else self._producer.call(lambda: author.end)

    @property
    def written(self) -> tuple[PartitionCounts, ...]:
        """What was written to each partition; nothing of an epoch that is there."""
        return self._counting.total()

    def write(self, rows: object) -> None:
        """Write rows, as they are now; blocks while the sink is full.

        Args:
            rows: A batch, or whatever else `Sink.put` takes.

        Raises:
            MisuseError: misuse; the object has no rows.
            SchemaMismatch: permanent; the rows do not fit. None of their batch was
                written.
            ConnectionFailed: transient; the other side broke off. The attempt has
                failed.
            StreamError: The sink's error, translated. The attempt has failed.
            ClosedError: misuse; closed before or during the call.
        """
        with self._busy:
            self._check_open()
            found = rows if isinstance(rows, Rows) else rows_of(rows)
            for batch in found.batches:
                with self._timing:
                    self._take(batch, foreign=found.foreign)

    def commit(self) -> CommitMessage:
        """End the attempt; pass the returned message to the committer.

        Raises:
            StreamError: The sink's error, translated. The attempt has failed.
        """
        with self._busy:
            self._check_open()
            author, payload = self._author, None
            if author is not None:
                try:
                    with self._timing:
                        payload = self._producer.call(author.commit)
                except StreamError:
                    self._give_up()
                    raise
            self._state = "committed"
            return CommitMessage(
                replace(self.context, schema=None),
                self._summing.total(),
                payload,
                self._producer.config_digest,
                drained=author is None,
            )

    def abort(self) -> None:
        """Remove staged rows; may be called after a failure, and twice."""
        with self._busy:
            self._abort()

    def close(self) -> None:
        """Close; aborts an uncommitted attempt. May be called twice.

        Wakes a blocked write of another thread.

        Warns:
            ResourceWarning: Rows were written, and neither committed nor aborted.
        """
        self._warn_of_uncommitted()
        self._closing.set()
        if not self._busy.acquire(blocking=False):
            self._wake()
            wait_in_slices(lambda left: self._busy.acquire(timeout=left))
        try:
            if self._state == "closed":
                return
            with ExitStack() as last:
                if self._encoder is not None:
                    last.callback(self._producer.call, self._encoder.close)
                if self._keys is not None:
                    last.callback(self._keys.close)
                if self._author is not None:
                    last.callback(self._producer.call, self._author.close)
                last.callback(self._end_metrics)
                last.callback(setattr, self, "_state", "closed")
                self._abort()
        finally:
            self._busy.release()

    def __exit__(self, *error: object) -> None:
        if error[0] is not None:
            with self._busy:
                self._give_up()
        self.close()

    def __del__(self) -> None:
        if hasattr(self, "_author"):  # else it was not created
            self._warn_of_uncommitted()

    def _warn_of_uncommitted(self) -> None:
        """Warn if rows were written that are not going to be committed."""
        rows, open_ = self.counters.rows, self._state == "open"
        pending = open_ and rows and self._author is not None
        if self._warns and pending and not self._closing.is_set():
            text = f"stream {self._producer.config.name!r}: {rows} rows were written "
            text += "and never committed: call commit(), and pass what it returns to "
            text += "the committer; or abort()"
            warnings.warn(text, ResourceWarning, stacklevel=3, source=self)

    def _take(self, rows: pa.RecordBatch, *, foreign: bool) -> None:
        if self._shared:
            rows = unshared(rows, foreign=foreign)
        try:
            self._input.check(rows)
            parcel, deleted = self._unpacked(rows)
            if deleted is None:
                deleted = tombstones_of(parcel, self._target.stored)
            carried = self._carried(parcel)
            routed = self._routed(parcel, carried, deleted)
        except StreamError as error:
            if isinstance(error, SchemaMismatch) and error.row is not None:
                error.row += self.counters.rows
            error.at(stream=self._producer.config.name)
            raise
        plain, counters = parcel.rows, self.counters
        size = memory_bytes(plain)
        self._summing.add(plain, carried)
        counters.rows += plain.num_rows
        counters.bytes += size
        counters.batches += 1
        if self._author is None:
            counters.drained += plain.num_rows
        for outgoing in routed:
            whole = outgoing.rows is plain
            self._write(outgoing, size if whole else memory_bytes(outgoing.rows))

    def _unpacked(self, rows: pa.RecordBatch) -> tuple[Parcel, pa.Array | None]:
        """Return the rows, and which of them are deletions, if rows are changes."""
        if self._keys is not None:
            rows = self._keys.encode(rows)
        final = self._final
        if final is not None and rows.schema.equals(final, check_metadata=True):
            return Parcel(rows, {}), None
        if self._plain is not None and rows.schema.equals(self._plain):
            parcel = Parcel(rows, {})
        else:
            parcel = unpack(rows, self._target.special)
            self._plain = None if parcel.special else rows.schema
        deleted = None
        if self._changes is not None:
            parcel, deleted = apply_changes(parcel, self._changes, self._router)
        fitting = self._row_fitting.fit(parcel)
        self.counters.discarded += parcel.rows.num_rows - fitting.rows.num_rows
        return fitting, deleted

    @cached_property
    def _row_fitting(self) -> RowFitting:
        """Made for the first rows that are not written as they are."""
        return RowFitting(self._target.rows, self._target.contract)

    def _final_schema(self) -> pa.Schema | None:
        """Return the schema of rows that are written as they are; None if none are."""
        rows = self._target.rows
        checked = self._changes is not None or not all(f.nullable for f in rows)
        return None if checked else rows

    def _carried(self, parcel: Parcel) -> dict[str, pa.Array]:
        """Return the framework's columns that are stored with the rows."""
        carries, special = self._target.carries, parcel.special
        return {name: special[name] for name in special if name in carries}

    def _routed(
        self,
        parcel: Parcel,
        carried: dict[str, pa.Array],
        deleted: pa.Array | None,
    ) -> Sequence[Outgoing]:
        """Route the rows; all are checked before the first is written."""
        if self._author is None or not parcel.rows.num_rows:
            return ()
        key = self._router.key_of(parcel)
        rows, special = parcel.rows, dict(carried)
        if "_partition" in parcel.special:
            special["_partition"] = parcel.special["_partition"]
        if deleted is not None:
            rows = without_values(rows, deleted, self._values_of)
        elif self._encoder is not None:
            rows = self._values_of(rows)
        if self._encoder is not None and "_headers" in rows.schema.names:
            made = rows.column("_headers")
            special["_headers"] = merged_headers(special.get("_headers"), made)
            rows = rows.select(["value"])
        return self._router.route(Parcel(rows, special), key)

    def _values_of(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Encode rows; those of a sink without encoder are values already.

        The headers of the messages are the column ``_headers``, if there are any.
        """
        if self._encoder is None:
            return rows
        values = self._producer.call(self._encoder.encode, rows)
        if len(values) != rows.num_rows:
            msg = (
                f"the encoder returned {len(values)} messages for {rows.num_rows} rows"
            )
            raise ContractBroken(msg, stream=self._producer.config.name)
        messages = pa.RecordBatch.from_arrays([values], names=["value"])
        messages = conform(messages, self._target.stored)
        headers = self._producer.call(self._encoder.encode_headers, rows)
        if headers is None:
            return messages
        if "_headers" not in self._target.carries:
            msg = "the format writes headers, and this stream stores none"
            remedy = "write in a mode of the format without headers, or to another type"
            raise Unsupported(msg, stream=self._producer.config.name, remedy=remedy)
        if headers.type != headers_type() or len(headers) != rows.num_rows:
            msg = f"the encoder returned {len(headers)} headers of type {headers.type} "
            msg += f"for {rows.num_rows} rows"
            raise ContractBroken(msg, stream=self._producer.config.name)
        return messages.append_column("_headers", headers)

    def _write(self, outgoing: Outgoing, size: int) -> None:
        author = self._author
        assert author is not None
        try:
            end = self.end
            # the reader stopped early, which is not an error
            if isinstance(end, ReaderFinished):
                self.counters.unread += outgoing.rows.num_rows
                return
            if end is not None:
                how = end.cause if isinstance(end, Failed) else type(end).__name__
                msg = f"the other side ended the stream: {how}"
                raise ConnectionFailed(msg, stream=self._producer.config.name)
            self._producer.call(author.write, outgoing)
            self._check_open()
            self._counting.add(outgoing, size)
        except StreamError as error:
            self._give_up()
            if self._closing.is_set() and not isinstance(error, ClosedError):
                raise self._closed_error() from error
            raise

    def _abort(self) -> None:
        if self._state == "open":
            self._state = "aborted"
            if self._author is not None:
                self._producer.call(self._author.abort)

    def _give_up(self) -> None:
        """Abort after a failure, and log errors of the abort."""
        try:
            self._abort()
        except StreamError as error:
            log.info(
                "stream %r: aborting failed: %s", self._producer.config.name, error
            )

    def _wake(self) -> None:
        author = self._author
        if author is not None:
            try:
                self._producer.call(author.wake)
            except Unsupported:
                return  # its writes do not block indefinitely

    def _check_open(self) -> None:
        if self._closing.is_set() or self._state != "open":
            raise self._closed_error()

    def _closed_error(self) -> ClosedError:
        state = "closed" if self._closing.is_set() else self._state
        return ClosedError(f"the writer is {state}", stream=self._producer.config.name)
