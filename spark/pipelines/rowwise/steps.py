"""The steps of a pipeline as the conversion of a copy, with sinks beside the first."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, final

import pyarrow as pa
import pyarrow.compute as pc

from streamfactory.conversion.conform import empty_rows
from streamfactory.spark.pipelines.expectations import DEAD_LETTER, failed_id
from streamfactory.spark.pipelines.rowwise.planning import (
    EXPECTATION,
    FULFILLED,
    RowStep,
)
from streamfactory.spi import PermanentError, Position, SchemaMismatch
from streamfactory.transfer.conversion import Conversion, Converted, Route
from streamfactory.wiring.core.plain import plain
from streamfactory.wiring.reading.losses import was_recreated
from streamfactory.wiring.writing.epochs import Epochs

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.spark.pipelines.model import Expectation
    from streamfactory.spark.pipelines.rowwise.planning import Plan
    from streamfactory.spi import MessageBatch, Partition
    from streamfactory.wiring.core.clock import Clock
    from streamfactory.wiring.reading.source import Source
    from streamfactory.wiring.writing.sink import Sink

_SHOWN: Final = 200
"""Characters of a row that an error shows."""
_KEEPING: Final = ("warn",)


class ExpectationFailed(PermanentError):
    """A row does not fulfil an expectation whose failure ends the pipeline."""

    code = "expectation_failed"


@final
class Tree:
    """Evaluates the steps over rows of the source.

    Args:
        plan: The steps.
        wanted: The ids whose rows are asked for: other steps are not evaluated.
    """

    def __init__(self, plan: Plan, wanted: frozenset[str]) -> None:
        self._source = plan.source
        needed = set(wanted)
        steps = list[RowStep]()
        for step in reversed(plan.steps):
            made = {step.id, *(failed_id(one) for one in step.expectations)}
            if made & needed:
                steps.insert(0, step)
                needed.add(step.reads)
        self._steps = steps

    def rows(
        self, place: str, given: pa.RecordBatch, unmet: Counter[str]
    ) -> dict[str, pa.RecordBatch]:
        """The rows of each id.

        Args:
            place: Where the rows are, for errors.
            given: The rows of the source, or some of them.
            unmet: Rows that do not fulfil expectations are added, by name.

        Raises:
            SchemaMismatch: permanent; a value cannot be computed.
            ExpectationFailed: permanent.
        """
        found = {self._source: given}
        for step in self._steps:
            try:
                rows = step.query.apply(found[step.reads])
            except SchemaMismatch as error:
                error.what = f"{place}: step {step.id!r}: {error.what}"
                raise
            found[step.id] = rows
            if step.expectations:
                found |= _checked(step, rows, place, unmet)
        return found


def as_batch(rows: pa.Table) -> pa.RecordBatch:
    """The rows of a table, which has few, as one batch."""
    found = rows.combine_chunks().to_batches()
    return found[0] if found else empty_rows(rows.schema)


def _checked(
    step: RowStep, rows: pa.RecordBatch, place: str, unmet: Counter[str]
) -> dict[str, pa.RecordBatch]:
    """The rows that pass, and those that are written elsewhere."""
    own, found = rows.select(step.schema.names), dict[str, pa.RecordBatch]()
    passing = pa.repeat(pa.scalar(value=True), rows.num_rows)
    for number, one in enumerate(step.expectations):
        fulfilled = rows.column(FULFILLED.format(number))
        failed = pc.invert(fulfilled)
        count = fulfilled.false_count
        unmet[one.name] += count
        if one.on_failure == "fail" and count:
            raise _failure(step, one, own.filter(failed), place)
        if one.on_failure == DEAD_LETTER:
            bad = own.filter(failed)
            name = pa.repeat(pa.scalar(one.name), bad.num_rows)
            found[failed_id(one)] = bad.append_column(EXPECTATION, name)
        if one.on_failure not in _KEEPING:
            passing = pc.and_(passing, fulfilled)
    return {**found, step.id: own.filter(passing)}


def _failure(
    step: RowStep, one: Expectation, failed: pa.RecordBatch, place: str
) -> ExpectationFailed:
    [row] = failed.slice(0, 1).to_pylist()
    shown = json.dumps(plain(row), default=str)[:_SHOWN]
    msg = f"{place}: expectation {one.name!r} of step {step.id!r} failed for "
    remedy = f"correct the rows, or set on.failure = {DEAD_LETTER!r}"
    return ExpectationFailed(f"{msg}the row {shown}", remedy=remedy)


def _place(batch: MessageBatch) -> str:
    rows = f"rows of {batch.partition} from offset {batch.first_offset} "
    return f"{rows}up to {batch.next_offset}"


@final
class _Beside:
    """A sink that is written beside the first, range by range.

    It commits the end of a range before the first one does: rows that it has already
    are those before its own position.
    """

    def __init__(
        self, sink: Sink, rows: str, route: Route, writer_id: str, clock: Clock
    ) -> None:
        self.rows = rows
        """The id whose rows it takes."""
        self._route = route
        self._epochs = Epochs(sink, route.schema, writer_id=writer_id, clock=clock)
        last = self._epochs.last
        self._there = (last and last.source_position) or Position()

    @property
    def due(self) -> bool:
        return self._epochs.begun and self._epochs.due

    def fresh(self, batch: MessageBatch) -> pa.RecordBatch:
        """The rows of the source that it does not have yet."""
        until = self._there.get(batch.partition, 0)
        before = self._there.incarnations.get(batch.partition)
        if not until or was_recreated(before, batch.incarnation):
            return batch.rows
        assert batch.first_offset is not None
        if until <= batch.first_offset:
            return batch.rows
        offsets = batch.offsets
        if offsets is None:
            return batch.rows.slice(until - batch.first_offset)
        return batch.rows.filter(pc.greater_equal(offsets, until))

    def write(self, batch: MessageBatch, rows: pa.RecordBatch) -> None:
        if rows.num_rows:
            self._epochs.write(self._route.of(rows, batch.partition), int(rows.nbytes))

    def commit(self, position: Position) -> None:
        if self._epochs.pending:
            self._epochs.commit(position)

    def close(self) -> None:
        self._epochs.close()


@final
class Steps(Conversion):
    """Writes what the steps make of a source's rows. See `Conversion`.

    Args:
        source: The source.
        plan: The steps.
        sinks: The open sinks by their names, with the id whose rows each takes. The
            first is that of the copy.
        writer_of: Writer ids, by the names of sinks.
        tally: Counts what was read; the caller clears it.
    """

    def __init__(
        self,
        source: Source,
        plan: Plan,
        sinks: Mapping[str, tuple[Sink, str]],
        writer_of: Mapping[str, str],
        tally: Tally,
    ) -> None:
        (_, (first, self._rows)), *others = sinks.items()
        self._tally = tally
        wanted = frozenset(rows for _, rows in sinks.values())
        self._tree = Tree(plan, wanted)
        self._route = _route(source, first, plan.schemas[self._rows])
        self.schema = self._route.schema
        self._beside = list[_Beside]()
        with ExitStack() as unless_made:
            for one, (sink, rows) in others:
                route = _route(source, sink, plan.schemas[rows])
                made = _Beside(sink, rows, route, writer_of[one], source.clock)
                unless_made.callback(made.close)
                self._beside.append(made)
            unless_made.pop_all()

    def begin(self, position: Position | None) -> None:
        """See `Conversion`."""
        del position
        self._tally.clear()

    @property
    def due(self) -> bool:
        """See `Conversion`."""
        return any(one.due for one in self._beside)

    def apply(self, batch: MessageBatch) -> Converted:
        """See `Conversion`.

        Raises:
            SchemaMismatch: permanent; a value cannot be computed.
            ExpectationFailed: permanent.
        """
        self._tally.take(batch)
        place = _place(batch)
        rows = self._tree.rows(place, batch.rows, self._tally.unmet)
        for one in self._beside:
            fresh, mine = one.fresh(batch), rows
            if fresh.num_rows < batch.num_rows:  # it has some of them already
                mine = self._tree.rows(place, fresh, Counter())
            one.write(batch, mine[one.rows])
        return Converted(self._route.of(rows[self._rows], batch.partition))

    def commit(self, position: Position) -> None:
        """See `Conversion`."""
        for one in self._beside:
            one.commit(position)

    def close(self) -> None:
        """Close what is written beside the first sink."""
        for one in self._beside:
            one.close()


@final
class Tally:
    """What was read since the last commit. One thread."""

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Begin again."""
        self.rows = 0
        self.unmet: Counter[str] = Counter()
        self.latest: dict[Partition, int] = {}

    def take(self, batch: MessageBatch) -> None:
        """Count a batch."""
        self.rows += batch.num_rows
        if batch.latest is not None:
            self.latest[batch.partition] = batch.latest


def _route(source: Source, sink: Sink, schema: pa.Schema) -> Route:
    """Where rows go: a partition stays together unless keys, or the rows, say other."""
    count = sink.partition_count()
    keyed = bool(sink.config.get("producer.key.columns")) or "_key" in schema.names
    kept = not keyed or len(source.metadata.partitions()) == count
    if "_partition" in schema.names or not kept:
        return Route(schema, frozenset(), None)
    return Route(schema, frozenset(), count)
