"""Writes snapshots of an Iceberg table, with what it keeps of writers.

A property of the table, ``streamfactory.writer.<writer id>``, has the `Marker` of a
writer: properties outlive any number of commits and the expiry of snapshots. It is set
in the commit that adds the snapshot of an epoch. A claim is a snapshot without files,
too: the commit of an earlier instance, which requires the snapshot that it saw, then
fails.
"""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, final

import pyarrow.parquet as pq
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.io.pyarrow import (
    DataFileStatistics,
    MetricModeTypes,
    MetricsMode,
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    UpdateTableMetadata,
)
from pyiceberg.table.update.snapshot import _OverwriteFiles
from pyiceberg.typedef import EMPTY_DICT
from pyiceberg.types import DateType, TimestampType, TimestamptzType

from streamfactory.backends.iceberg.catalogs import TableCatalog
from streamfactory.backends.iceberg.checks import check_version
from streamfactory.backends.iceberg.expiring import Expire, files_of_expired, to_expire
from streamfactory.backends.iceberg.metadata import IcebergMetadata
from streamfactory.backends.iceberg.partitions import (
    partition_fields,
    record_of,
    spec_of,
)
from streamfactory.backends.iceberg.schemas import arrow_schema
from streamfactory.backends.iceberg.sorting import order_of, sort_fields
from streamfactory.backends.iceberg.table import IcebergTable
from streamfactory.backends.iceberg.types import (
    checking_names,
    iceberg_schema,
    iceberg_type,
)
from streamfactory.spi import Unsupported
from streamfactory.tables import Kept, Piece, TableFiles
from streamfactory.tables.committing import tries
from streamfactory.tables.form import Names, form_of, properties_of
from streamfactory.tables.markers import Marker
from streamfactory.tables.places import plain_location
from streamfactory.tables.writable import Kind, Live, LiveFile, WritableTable
from streamfactory.tables.writing import table_storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa
    from pyiceberg.table import Transaction
    from pyiceberg.table.update import UpdatesAndRequirements

    from streamfactory.arrowlog.disk.storage import Storage
    from streamfactory.spi import StreamConfig
    from streamfactory.tables.datafiles import DataFile, PartitionField
    from streamfactory.tables.evolving import Step
    from streamfactory.tables.form import Form
    from streamfactory.tables.writable import Change, Seen

_MARKER: Final = "streamfactory.writer."
"""Before a writer's id: a property of the table."""
_FOLDER: Final = "data"
"""Of data files, below the table's location."""
_FORM: Final = Names(
    TableProperties.PARQUET_COMPRESSION,
    TableProperties.WRITE_TARGET_FILE_SIZE_BYTES,
    TableProperties.PARQUET_COMPRESSION_LEVEL,
    TableProperties.PARQUET_ROW_GROUP_LIMIT,
)
_TIMES: Final = (DateType, TimestampType, TimestamptzType)
_KEPT: Final = 64
"""Footers of data files."""


@final
@dataclass(frozen=True, slots=True)
class IcebergSeen:
    """An Iceberg table as of a commit. See `Seen`."""

    table: Table

    @property
    def identity(self) -> str:
        return str(self.table.metadata.table_uuid)

    @property
    def schema(self) -> pa.Schema:
        return arrow_schema(self.table.schema())

    @property
    def columns(self) -> str:
        return self.table.schema().model_dump_json()

    @property
    def partitions(self) -> Sequence[PartitionField]:
        return partition_fields(self.table.spec(), self.table.schema())

    @property
    def form(self) -> Form:
        sort = sort_fields(self.table.sort_order(), self.table.schema())
        return form_of(self.table.properties, _FORM, sort)


@final
class WritableIcebergTable(WritableTable):
    """Writes one table. Thread-safe: what was seen is passed along.

    Args:
        config: Names the table and its catalog.
    """

    def __init__(self, config: StreamConfig) -> None:
        self._config = config
        self._catalog = TableCatalog(config)
        self._lock = threading.Lock()
        self._storage: tuple[str, Storage] | None = None
        """With the table's location."""
        self._footers: Kept[pq.FileMetaData] = Kept(_KEPT)

    @property
    def storage(self) -> Storage:
        return self._at(self._storage[0] if self._storage else self._looked())

    def look(self) -> IcebergSeen:
        table = self._catalog.load()
        check_version(table.metadata)
        self._at(table.location())
        return IcebergSeen(table)

    def create(self, schema: pa.Schema) -> None:
        made = iceberg_schema(schema)
        rows = arrow_schema(made)
        spec = spec_of(self._config.get("partition.by") or (), made, rows)
        order = order_of(self._config.get("sort.by") or (), made, rows)
        given = properties_of(self._config)
        form_of(given, _FORM)  # refuses values that are not known
        self._catalog.create(made, spec, order, given)

    def check_type(self, step: Step) -> None:
        parent = "".join(f"{name}." for name in step.path[:-1])
        iceberg_type(step.field, parent)

    def widens(self, seen: Seen) -> bool:
        return True

    def evolve(self, seen: Seen, steps: Sequence[Step]) -> bool:
        assert isinstance(seen, IcebergSeen)
        transaction = _unretried(seen.table).transaction()
        with checking_names(), transaction.update_schema() as update:
            for step in steps:
                change = update.add_column if step.is_added else update.update_column
                change(step.path, iceberg_type(step.field, ""))
        return _committed(transaction)

    def parse(self, columns: str) -> pa.Schema:
        return arrow_schema(Schema.model_validate_json(columns))

    def marker(self, seen: Seen, writer_id: str) -> Marker | None:
        assert isinstance(seen, IcebergSeen)
        text = seen.table.properties.get(_MARKER + writer_id)
        return None if text is None else Marker.from_json(text)

    def live(self, seen: Seen, *, keeps_rows: bool = False) -> Live:
        assert isinstance(seen, IcebergSeen)
        snapshot = seen.table.current_snapshot()
        files, metadata = self._metadata(seen)
        table = IcebergTable(self._config, files, metadata)
        table.identity()
        if snapshot is None:
            return Live(table, (), files)
        found = table.files(seen.table.metadata, snapshot)
        return Live(table, [_live(piece, file) for piece, file in found], files)

    def within(
        self, seen: Seen, live: Iterable[LiveFile], files: Iterable[DataFile]
    ) -> list[LiveFile]:
        assert isinstance(seen, IcebergSeen)
        spec, schema = seen.table.spec(), seen.table.schema()
        live = list(live)
        if any(_file(one).spec_id != spec.spec_id for one in live):
            what = "files of the table are divided by an earlier partition spec: rows "
            what += "of one partition are not replaced"
            raise Unsupported(what, remedy="rewrite the data files of the table")
        wanted = {repr(record_of(one.values, spec, schema)) for one in files}
        return [one for one in live if repr(_file(one).partition) in wanted]

    def commit(self, seen: Seen, change: Change) -> bool:
        assert isinstance(seen, IcebergSeen)
        transaction = _unretried(seen.table).transaction()
        _Unchanged(transaction).commit()
        summary: dict[str, str] = {}
        if change.writer_id is not None and change.marker is not None:
            name = _MARKER + change.writer_id
            transaction.set_properties({name: change.marker.to_json()})
            summary = _summary(change.writer_id, change.marker)
        update = transaction.update_snapshot(snapshot_properties=summary)
        made: Any = update.overwrite() if change.removed else update.merge_append()
        if change.kind is Kind.COMPACT:
            made = _Compacted(Operation.OVERWRITE, transaction, seen.table.io)
        with made as snapshot:
            for one in change.added:
                snapshot.append_data_file(self._described(one, seen.table))
            for other in change.removed:
                snapshot.delete_data_file(other.entry)
        return _committed(transaction)

    def expire(self, ordinal: int) -> None:
        """Expire the snapshots of the main branch before a commit.

        Files that no other snapshot needs are removed behind the commit; where that
        fails, they are left.

        Args:
            ordinal: Of the first commit whose changes can still be read.
        """
        for _ in tries("the expiry of snapshots"):
            seen = self.look()
            metadata = seen.table.metadata
            expired = to_expire(metadata, ordinal)
            if not expired:
                return
            found = files_of_expired(self._metadata(seen)[1], metadata, expired)
            transaction = _unretried(seen.table).transaction()
            Expire(transaction, expired).commit()
            if _committed(transaction):
                place = plain_location(seen.table.location())
                with closing(table_storage(self._config, place)) as storage:
                    storage.remove(sorted(found))
                return

    def close(self) -> None:
        self._catalog.close()
        with self._lock:
            opened, self._storage = self._storage, None
        if opened is not None:
            opened[1].close()

    def _metadata(self, seen: IcebergSeen) -> tuple[TableFiles, IcebergMetadata]:
        files = TableFiles.of(self._config, plain_location(seen.table.location()))
        most = self._config["log.max.bytes"]
        return files, IcebergMetadata(files, most, self._catalog)

    def _described(self, file: DataFile, table: Table) -> IcebergFile:
        """A data file as a manifest has it, with the statistics of its columns."""
        schema = table.schema()
        found = _statistics(self._footer(file.path), schema, table.properties)
        return IcebergFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{table.location().rstrip('/')}/{_FOLDER}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=record_of(file.values, table.spec(), schema),
            file_size_in_bytes=file.size,
            spec_id=table.metadata.default_spec_id,
            **found.to_serialized_dict(),
        )

    def _footer(self, path: str) -> pq.FileMetaData:
        """Read once, however often a commit is tried."""
        kept = self._footers.get(path)
        if kept is None:
            with self.storage.open(path).file as file:
                kept = self._footers.add(path, pq.read_metadata(file))
        return kept

    def _looked(self) -> str:
        location: str = self.look().table.location()
        return location

    def _at(self, location: str) -> Storage:
        with self._lock:
            if self._storage is None or self._storage[0] != location:
                place = f"{plain_location(location)}/{_FOLDER}"
                self._storage = location, table_storage(self._config, place)
            return self._storage[1]


def _statistics(
    footer: pq.FileMetaData, schema: Schema, properties: dict[str, str]
) -> DataFileStatistics:
    """Statistics of a file: of days and times outside of Python's years only counts."""
    plan = compute_statistics_plan(schema, properties)
    names = parquet_path_to_id_mapping(schema)
    try:
        return data_file_statistics_from_parquet_metadata(footer, plan, names)
    except OverflowError:
        counts = MetricsMode(MetricModeTypes.COUNTS)
        plan = {
            number: replace(one, mode=counts)
            if isinstance(one.iceberg_type, _TIMES)
            else one
            for number, one in plan.items()
        }
        return data_file_statistics_from_parquet_metadata(footer, plan, names)


def _committed(transaction: Transaction) -> bool:
    """Commit; False if another commit came first."""
    try:
        transaction.commit_transaction()
    except CommitFailedException:
        return False
    return True


@final
class _Compacted(_OverwriteFiles):
    """Replaces files by others with the same rows.

    The library computes summaries of other operations only.
    """

    def _summary(self, snapshot_properties: dict[str, str] = EMPTY_DICT) -> Summary:
        found = super()._summary(snapshot_properties)
        return Summary(Operation.REPLACE, **found.additional_properties)


def _live(piece: Piece, file: IcebergFile) -> LiveFile:
    detail: Any = piece.detail
    deletes = tuple(detail["deletes"])
    partition = (file.spec_id, repr(file.partition))
    return LiveFile(piece, file, (file.file_path, deletes), partition, bool(deletes))


def _file(one: LiveFile) -> IcebergFile:
    assert isinstance(one.entry, IcebergFile)
    return one.entry


@final
class _Unchanged(UpdateTableMetadata["_Unchanged"]):
    """Requires that columns and partitions are those that were seen."""

    def _commit(self) -> UpdatesAndRequirements:
        metadata = self._transaction.table_metadata
        return (), (
            AssertCurrentSchemaId.model_validate(
                {"current-schema-id": metadata.current_schema_id}
            ),
            AssertDefaultSpecId.model_validate(
                {"default-spec-id": metadata.default_spec_id}
            ),
        )


def _unretried(table: Table) -> Table:
    """The same table, whose commits the library does not try again.

    Between two tries another instance may have claimed the writer.
    """
    once = {**table.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    return Table(
        table.name(),
        table.metadata.model_copy(update={"properties": once}),
        table.metadata_location,
        table.io,
        table.catalog,
    )


def _summary(writer_id: str, marker: Marker) -> dict[str, str]:
    """What the summary of a snapshot has, for users: it goes with the snapshot."""
    found = {"writer": writer_id, "epoch": marker.epoch, "position": marker.position}
    return {
        f"streamfactory.{key}": str(value)
        for key, value in found.items()
        if value is not None
    }
