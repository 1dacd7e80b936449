"""Expires snapshots of an Iceberg table, and removes the files that only they need."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, final

from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table.refs import MAIN_BRANCH
from pyiceberg.table.update import (
    AssertRefSnapshotId,
    RemoveSnapshotsUpdate,
    UpdateTableMetadata,
)

from streamfactory.backends.iceberg.table import is_compaction, main_line, sequence
from streamfactory.spi import DataLossError
from streamfactory.tables.places import path_below

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from pyiceberg.table import Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot
    from pyiceberg.table.update import UpdatesAndRequirements

    from streamfactory.backends.iceberg.metadata import IcebergMetadata


def to_expire(metadata: TableMetadata, ordinal: int) -> list[Snapshot]:
    """The snapshots of the main branch before a commit.

    Without those that branches and tags name.
    """
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    return [
        one
        for one in main_line(metadata)
        if sequence(one) < ordinal and one.snapshot_id not in named
    ]


def files_of_expired(
    files: IcebergMetadata, metadata: TableMetadata, expired: Collection[Snapshot]
) -> set[str]:
    """The files that no other snapshot has, below the table.

    A file that another snapshot removed is one of its files, as streams read its rows
    as deleted; unless it was merged into others.

    Args:
        files: Reads the metadata.
        metadata: Of the table, with all its snapshots.
        expired: Some of them.

    Raises:
        DataLossError: data_loss; metadata of another snapshot was removed.
    """
    numbers = {one.snapshot_id for one in expired}
    left = [one for one in metadata.snapshots if one.snapshot_id not in numbers]
    changing = {one.snapshot_id for one in left if not is_compaction(one)}
    read: set[str] = set()
    kept = {
        path for one in left for path in _files(files, metadata, one, changing, read)
    }
    found: set[str] = set()
    for one in expired:
        with suppress(DataLossError):  # its files were removed before
            found.update(_files(files, metadata, one, None, read))
    return {path_below(metadata.location, path) for path in found - kept}


def _files(
    files: IcebergMetadata,
    metadata: TableMetadata,
    snapshot: Snapshot,
    changing: Collection[int] | None,
    read: set[str],
) -> Iterable[str]:
    """The files of a snapshot, and those that one of some snapshots removed; or all.

    Without those of manifests that were read: snapshots share most of theirs.
    """
    yield snapshot.manifest_list
    for manifest in files.manifests(snapshot, metadata.location):
        yield manifest.manifest_path
        if manifest.manifest_path in read:
            continue
        read.add(manifest.manifest_path)
        for entry in files.entries(manifest, metadata.location):
            is_removed = entry.status is ManifestEntryStatus.DELETED
            if not is_removed or changing is None or entry.snapshot_id in changing:
                yield entry.data_file.file_path


@final
class Expire(UpdateTableMetadata["Expire"]):
    """Removes snapshots, unless the main branch was changed since.

    Args:
        transaction: Of the table as it was seen.
        expired: The snapshots.
    """

    def __init__(self, transaction: Transaction, expired: Iterable[Snapshot]) -> None:
        super().__init__(transaction)
        self._numbers = [one.snapshot_id for one in expired]

    def _commit(self) -> UpdatesAndRequirements:
        current = self._transaction.table_metadata.current_snapshot_id
        same = {"ref": MAIN_BRANCH, "snapshot-id": current}
        update = RemoveSnapshotsUpdate.model_validate({"snapshot-ids": self._numbers})
        return (update,), (AssertRefSnapshotId.model_validate(same),)
