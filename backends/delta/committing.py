"""Writes commits to the log of a Delta table, and what it keeps of writers.

The log has two actions ``txn`` for a writer: one with its id and its last epoch, as
other programs write them, and one that names a file below ``_streamfactory`` with its
`Marker`. Checkpoints keep both, however many commits follow. The file is written before
the commit that names it, and the one before it is removed afterwards.
"""

from __future__ import annotations

import json
import logging
import re
import secrets
import time
import uuid
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, final
from urllib.parse import quote

from streamfactory.backends.delta.actions import File, Metadata, metadata_action
from streamfactory.backends.delta.cleaning import files_of_old, log_of_old
from streamfactory.backends.delta.evolving import can_widen, check_times, evolved_text
from streamfactory.backends.delta.log import FOLDER, DeltaLog
from streamfactory.backends.delta.partitions import check_partitions, partition_fields
from streamfactory.backends.delta.replay import live_files, written
from streamfactory.backends.delta.rules import (
    check_memory,
    check_properties,
    check_replaceable,
    check_writable,
)
from streamfactory.backends.delta.state import State, schema_of
from streamfactory.backends.delta.table import DeltaTable
from streamfactory.backends.delta.types import field_of, protocol_of_new, schema_text
from streamfactory.spi import (
    CorruptData,
    NotInstalled,
    OffsetOutOfRange,
    StorageFailed,
    StreamError,
)
from streamfactory.spi.causes import first_line, is_failure
from streamfactory.tables import Commit, Piece, TableFiles, client_options
from streamfactory.tables.errors import failure_kind
from streamfactory.tables.form import Names, form_of, properties_of
from streamfactory.tables.markers import Marker
from streamfactory.tables.writable import Kind, Live, LiveFile, WritableTable
from streamfactory.tables.writing import table_storage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog.disk.storage import Storage
    from streamfactory.backends.delta.actions import Protocol
    from streamfactory.backends.delta.log import Actions
    from streamfactory.spi import StreamConfig
    from streamfactory.tables.datafiles import DataFile, PartitionField
    from streamfactory.tables.evolving import Step
    from streamfactory.tables.form import Form
    from streamfactory.tables.writable import Change, Seen

_MARKERS: Final = "_streamfactory"
_POINTER: Final = "streamfactory:"
"""Before a writer's id: the application whose version names the file of its marker."""
_BITS: Final = 62
_INTERVAL: Final = "delta.checkpointInterval"
_WHOLE: Final = re.compile(r"[0-9]{1,18}")
_DEFAULT: Final = 100
"""Commits between two checkpoints, where the table states none: as in delta-rs."""
_ENGINE: Final = "streamfactory"

_FORM: Final = Names("delta.parquet.compression.codec", "delta.targetFileSize")
_OPERATIONS: Final = {
    Kind.APPEND: ("WRITE", {"mode": "Append", "partitionBy": "[]"}),
    Kind.MERGE: ("MERGE", {}),
    Kind.COMPACT: ("OPTIMIZE", {}),
    Kind.REPLACE: ("WRITE", {"mode": "Overwrite", "partitionBy": "[]"}),
}
"""Names and parameters of operations in the history of the table."""

_logger = logging.getLogger("streamfactory")


@final
@dataclass(frozen=True, slots=True)
class DeltaSeen:
    """A Delta table as of a version. See `Seen`."""

    version: int
    metadata: Metadata
    protocol: Protocol
    writers: Mapping[str, int] = field(default_factory=dict)
    """Versions of applications, by their ids."""

    @property
    def identity(self) -> str:
        return self.metadata.id

    @property
    def schema(self) -> pa.Schema:
        return State(self.version, self.metadata).schema

    @property
    def columns(self) -> str:
        return self.metadata.schema

    @property
    def partitions(self) -> Sequence[PartitionField]:
        return partition_fields(self.metadata.partitioned)

    @property
    def form(self) -> Form:
        return form_of(self.metadata.configuration, _FORM)

    def then(self, actions: Actions) -> DeltaSeen:
        """The table behind the next commit."""
        return replace(
            self,
            version=actions.version,
            metadata=actions.metadata or self.metadata,
            protocol=actions.protocol or self.protocol,
            writers={**self.writers, **actions.writers}
            if actions.writers
            else self.writers,
        )


@final
class WritableDeltaTable(WritableTable):
    """Writes one table. Thread-safe: what was seen is passed along.

    Args:
        config: Names the table.
    """

    def __init__(self, config: StreamConfig) -> None:
        self._storage = table_storage(config, config["path"])
        self._config = config
        self._log = DeltaLog(TableFiles.of(config), config["log.max.bytes"])
        self._last: tuple[int, DeltaSeen] | None = None
        """Generation of the log, and the last look."""

    @property
    def storage(self) -> Storage:
        return self._storage

    def look(self) -> DeltaSeen:
        newest = self._log.newest()
        generation, last = self._log.generation, self._last
        seen = None if last is None or last[0] != generation else last[1]
        if seen is not None and seen.version <= newest:
            seen = self._followed(seen, newest)
        else:
            seen = self._replayed(newest)
        check_writable(seen.metadata, seen.protocol)
        self._last = generation, seen
        return seen

    def _followed(self, seen: DeltaSeen, newest: int) -> DeltaSeen:
        try:
            for version in range(seen.version + 1, newest + 1):
                seen = seen.then(self._log.read(version))
        except OffsetOutOfRange:  # the log was cleaned: a checkpoint has the state
            return self._replayed(newest)
        return seen

    def _replayed(self, newest: int) -> DeltaSeen:
        metadata, protocol, writers = written(self._log, newest)
        return DeltaSeen(newest, metadata, protocol, writers)

    def create(self, schema: pa.Schema) -> None:
        text = schema_text(schema)
        names = self._config.get("partition.by") or ()
        check_partitions(schema, names)
        given = properties_of(self._config)
        check_properties(given)
        metadata = Metadata(
            str(uuid.uuid4()), text, tuple(names), given, created_ms=_now()
        )
        form_of(given, _FORM)  # refuses values that are not known
        info = _info("CREATE TABLE", {}, {})
        protocol = {"protocol": protocol_of_new(text)}
        actions = [info, protocol, metadata_action(metadata)]
        self.storage.publish(_path(0), _lines(actions))

    def check_type(self, step: Step) -> None:
        parent = "".join(f"{name}." for name in step.path[:-1])
        field_of(step.field, parent)

    def widens(self, seen: Seen) -> bool:
        assert isinstance(seen, DeltaSeen)
        return can_widen(seen.metadata, seen.protocol)

    def evolve(self, seen: Seen, steps: Sequence[Step]) -> bool:
        assert isinstance(seen, DeltaSeen)
        for step in steps:
            check_times(step, seen.protocol)
        metadata = seen.metadata
        text = evolved_text(metadata.schema, steps)
        action = metadata_action(replace(metadata, schema=text))
        commit = _lines([_info("UPDATE SCHEMA", {}, {}), action])
        return self.storage.publish(_path(seen.version + 1), commit)

    def parse(self, columns: str) -> pa.Schema:
        return schema_of(columns)

    def marker(self, seen: Seen, writer_id: str) -> Marker | None:
        assert isinstance(seen, DeltaSeen)
        check_memory(seen.metadata)
        number = seen.writers.get(_POINTER + writer_id)
        if number is None:
            return None
        try:
            return Marker.from_json(self.storage.read(_marker(number)))
        except FileNotFoundError as error:
            # A later commit of the writer removes it.
            later = self.look()
            if later.writers.get(_POINTER + writer_id) != number:
                return self.marker(later, writer_id)
            what = f"{_marker(number)!r} of the table does not exist: it has the last "
            what += f"epoch of writer {writer_id!r}"
            raise CorruptData(what, remedy="restore it from a backup") from error

    def live(self, seen: Seen, *, keeps_rows: bool = False) -> Live:
        assert isinstance(seen, DeltaSeen)
        if not keeps_rows:
            check_replaceable(seen.metadata)
        files = TableFiles.of(self._config)
        table = DeltaTable(self._config, files, self._log)
        table.identity()
        commit = Commit(seen.version, str(seen.version), None)
        found = table.pieces(live_files(self._log, seen.version), commit)
        return Live(table, [_live(piece, file) for piece, file in found], files)

    def within(
        self, seen: Seen, live: Iterable[LiveFile], files: Iterable[DataFile]
    ) -> list[LiveFile]:
        assert isinstance(seen, DeltaSeen)
        state = State(seen.version, seen.metadata)

        def of(values: Mapping[str, str | None]) -> str:
            # By their values: programs write the same one as different texts.
            found = state.constants(seen.version, values)
            return repr([one.as_py() for one in found.values()])

        wanted = {of(one.values) for one in files}
        return [one for one in live if of(_file(one).values) in wanted]

    def commit(self, seen: Seen, change: Change) -> bool:
        assert isinstance(seen, DeltaSeen)
        now, number = _now(), secrets.randbits(_BITS)
        info: dict[str, Any] = {}
        actions = [_removed(one, now) for one in change.removed]
        actions += [_added(one, now) for one in change.added]
        if change.kind is Kind.COMPACT:
            for action in actions:
                next(iter(action.values()))["dataChange"] = False
        writer_id, marker = change.writer_id, change.marker
        if writer_id is not None and marker is not None:
            info = {"writer": writer_id, "epoch": marker.epoch}
            info["position"] = marker.position
            named = {_POINTER + writer_id: number}
            # Or an epoch would stand where another writer's pointer is.
            if marker.epoch is not None and not writer_id.startswith(_POINTER):
                named[writer_id] = marker.epoch
            actions += [_txn(name, value, now) for name, value in named.items()]
            self.storage.publish(_marker(number), marker.to_json().encode())
        operation, parameters = _OPERATIONS[change.kind]
        commit = _lines([_info(operation, parameters, info), *actions])
        if not self.storage.publish(_path(seen.version + 1), commit):
            self.storage.remove([_marker(number)])
            return False
        self._tidy(seen, writer_id)
        return True

    def clean(self, ordinal: int) -> None:
        """Remove versions before one, with the files that only they need.

        Where it is interrupted, it continues when it is repeated.

        Args:
            ordinal: The first version whose snapshot and changes can still be read; the
                newest one if it is later.

        Raises:
            NotInstalled: plugin; ``deltalake``, which writes checkpoints, is missing.
            StorageFailed: permanent; no checkpoint of the version can be written.
        """
        ordinal = min(ordinal, self.look().version)
        old = log_of_old(self._log, ordinal)
        if not old or self._log.oldest().ordinal > ordinal:
            return
        if ordinal not in self._log.listed().checkpoints:
            self._checkpoint(ordinal)
        # Data first: by the log it is found again.
        self.storage.remove(sorted(files_of_old(self._log, ordinal)))
        self.storage.remove(old)

    def close(self) -> None:
        self.storage.close()

    def _tidy(self, seen: DeltaSeen, writer_id: str | None) -> None:
        """After a commit, which is there whatever becomes of this.

        Without checkpoints the log takes longer and longer to read. One that could not
        be written is due soon again.
        """
        before = seen.writers.get(f"{_POINTER}{writer_id}")
        try:
            if before is not None:
                self.storage.remove([_marker(before)])
            if (seen.version + 1) % _interval(seen.metadata) == 0:
                self._checkpoint()
        except StreamError as error:
            _logger.warning("%s: %s", self._config["path"], error)

    def _checkpoint(self, version: int | None = None) -> None:
        """Write a checkpoint of a version; None means the newest."""
        path, options = self._config["path"], client_options(self._config)
        what = f"no checkpoint of the table at {path!r} can be written"
        try:
            import deltalake
        except ImportError as error:
            remedy = "run: pip install 'streamfactory[delta]'"
            raise NotInstalled(what, remedy=remedy) from error
        try:
            table = deltalake.DeltaTable(path, version, storage_options=options)
            table.create_checkpoint()
        except BaseException as error:  # its classes are many, and say little
            if not is_failure(
                error
            ):  # a child panics where its parent used the library
                raise
            what = f"{what}: {first_line(error)}"
            raise (failure_kind(error) or StorageFailed)(what) from error


def _interval(metadata: Metadata) -> int:
    text = metadata.configuration.get(_INTERVAL, "")
    return max(1, int(text)) if _WHOLE.fullmatch(text) else _DEFAULT


def _now() -> int:
    return time.time_ns() // 1_000_000


def _path(version: int) -> str:
    return f"{FOLDER}/{version:020}.json"


def _marker(number: int) -> str:
    return f"{_MARKERS}/{number:016x}.json"


def _lines(actions: Sequence[Mapping[str, Any]]) -> bytes:
    lines = [json.dumps(one, separators=(",", ":")) for one in actions]
    return "".join(f"{line}\n" for line in lines).encode()


def _info(
    operation: str, parameters: Mapping[str, str], more: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "commitInfo": {
            "timestamp": _now(),
            "operation": operation,
            "operationParameters": parameters,
            "isBlindAppend": parameters.get("mode") == "Append",
            "engineInfo": _ENGINE,
            # Makes the bytes of each commit its own: a lost reply is recognised by it.
            "txnId": str(uuid.uuid4()),
            **({_ENGINE: more} if more else {}),
        }
    }


def _added(file: DataFile, now: int) -> dict[str, Any]:
    return {
        "add": {
            "path": quote(file.path, safe="/="),
            "partitionValues": dict(file.values),
            "size": file.size,
            "modificationTime": now,
            "dataChange": True,
            "stats": json.dumps({"numRecords": file.rows}),
        }
    }


def _live(piece: Piece, file: File) -> LiveFile:
    partition = tuple(sorted(file.values.items()))
    return LiveFile(piece, file, file.key, partition, file.vector is not None)


def _file(one: LiveFile) -> File:
    assert isinstance(one.entry, File)
    return one.entry


def _removed(one: LiveFile, now: int) -> dict[str, Any]:
    file = _file(one)
    body: dict[str, Any] = {
        "path": file.path,
        "deletionTimestamp": now,
        "dataChange": True,
        "extendedFileMetadata": True,
        "partitionValues": dict(file.values),
    }
    if file.size is not None:
        body["size"] = file.size
    vector = file.vector
    if vector is not None:
        body["deletionVector"] = {
            "storageType": vector.kind,
            "pathOrInlineDv": vector.text,
            **({"offset": vector.offset} if vector.kind != "i" else {}),
            "sizeInBytes": vector.size,
            "cardinality": vector.rows,
        }
    return {"remove": body}


def _txn(name: str, version: int, now: int) -> dict[str, Any]:
    return {"txn": {"appId": name, "version": version, "lastUpdated": now}}
