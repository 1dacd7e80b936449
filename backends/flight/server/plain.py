"""Support of plain Flight clients: list, describe and put.

A put to the path of a topic is one writer with one epoch: its rows become visible
together, when the call ends successfully.
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from typing import TYPE_CHECKING, final

import pyarrow as pa
import pyarrow.flight as fl

from streamfactory.backends.flight.protocol.codec import encode
from streamfactory.backends.flight.protocol.messages import (
    Appended,
    Received,
    Ticket,
)
from streamfactory.backends.flight.server.dictionaries import without_dictionaries
from streamfactory.conversion.conform import Conformer
from streamfactory.spi import (
    FormatRefused,
    MisuseError,
    SchemaMismatch,
    TopicNotFound,
)

if TYPE_CHECKING:
    from streamfactory.arrowlog import Log, LogStore
    from streamfactory.backends.flight.server.batches import Incoming
    from streamfactory.backends.flight.server.uploads import Upload, Uploads
    from streamfactory.spi import SoundRows

_PATHS = (1, 2)


def path_of(descriptor: fl.FlightDescriptor) -> tuple[str, int | None]:
    """Topic and partition that a descriptor names by its path.

    Raises:
        FormatRefused: permanent; the path is neither ``[topic]`` nor
            ``[topic, partition]``.
    """
    try:
        path = [bytes(part).decode() for part in descriptor.path or []]
        if len(path) in _PATHS:
            return path[0], int(path[1]) if len(path) > 1 else None
    except ValueError:  # no UTF-8, no number
        pass
    msg = "expected a descriptor with the path [topic] or [topic, partition]"
    remedy = "write the partition as a decimal number in UTF-8"
    raise FormatRefused(msg, remedy=remedy)


def flight_info(log: Log, location: str) -> fl.FlightInfo:
    """One endpoint for each partition, from its earliest to its latest offset now."""
    endpoints, rows = [], 0
    for partition in log.bounds():
        ticket = Ticket(
            log.name,
            partition.id,
            partition.earliest,
            partition.latest,
            incarnation=log.incarnation,
        )
        bounds = encode(partition)
        endpoints.append(
            fl.FlightEndpoint(encode(ticket), [location], app_metadata=bounds)
        )
        rows += partition.latest - partition.earliest
    descriptor = fl.FlightDescriptor.for_path(log.name)
    schema = without_dictionaries(log.schema)  # as `DoGet` sends the rows
    return fl.FlightInfo(
        schema, descriptor, endpoints, rows, -1, app_metadata=log.incarnation
    )


def receive_plain(
    store: LogStore,
    uploads: Uploads,
    topic: str,
    partition: int | None,
    incoming: Incoming,
    writer: fl.FlightMetadataWriter,
) -> None:
    """Append the rows of a plain put in one step, when it ends.

    Without a partition all rows go to one partition, so that they stay in order. The
    partition differs from put to put.
    """
    batches = incoming.sound()
    log = _open_or_create(store, topic, incoming.reader.schema)
    fitting = _Fitting(log)
    attempt, rows, size = uuid.uuid4(), 0, 0
    if partition is None:
        partitions = log.bounds()
        partition = partitions[attempt.int % len(partitions)].id
    stage = uploads.stage(log, attempt.hex, incoming.client)
    try:
        for batch, _ in batches:
            if batch is not None:
                _append(stage, partition, batch, fitting, rows)
                rows, size = rows + batch.num_rows, size + batch.nbytes
        writer.write(encode(Received(rows, size)))  # fails if the client does not read
        sealed = stage.seal(carried=True)
    except BaseException:
        stage.discard()
        raise
    spans = uploads.append(log, sealed, rows)
    with suppress(
        pa.ArrowException, OSError
    ):  # committed, even if the client does not read
        writer.write(encode(Appended(spans)))


def _open_or_create(store: LogStore, topic: str, schema: pa.Schema) -> Log:
    try:
        return store.open(topic)
    except TopicNotFound:
        pass
    try:
        return store.create(topic, schema.remove_metadata(), 1)
    except MisuseError:  # another writer created it first
        return store.open(topic)


def _append(
    stage: Upload, partition: int, rows: SoundRows, fitting: _Fitting, before: int
) -> None:
    """Stage rows; those of another schema are validated again after their casts."""
    if rows.batch.schema.equals(fitting.schema):
        stage.append_sound(partition, rows)
    else:
        stage.append(partition, fitting.apply(rows.batch, before))


@final
class _Fitting:
    """Converts the rows of a put to those of a log: columns by name."""

    def __init__(self, log: Log) -> None:
        self.schema = log.schema
        self._topic = log.name
        self._conformer = Conformer(log.schema)

    def apply(self, rows: pa.RecordBatch, before: int) -> pa.RecordBatch:
        """Convert a batch.

        Args:
            rows: The batch.
            before: The number of rows before it in the put.

        Raises:
            SchemaMismatch: permanent; names the topic, and the columns.
        """
        try:
            self._check_names(rows.schema.names)
            return self._conformer.conform(rows)
        except SchemaMismatch as error:
            error.what = f"topic {self._topic!r}: {error.what}"
            if error.row is not None:
                error.row += before
            raise

    def _check_names(self, names: list[str]) -> None:
        # Unlike other writers, such a client does not see which columns are nullable.
        wanted = self.schema.names
        missing = [name for name in wanted if name not in names]
        surplus = [name for name in names if name not in wanted]
        if missing or surplus:
            found = [f"lacks columns {missing}"] if missing else []
            found += [f"has unknown columns {surplus}"] if surplus else []
            msg = f"the put {' and '.join(found)}"
            raise SchemaMismatch(msg)
