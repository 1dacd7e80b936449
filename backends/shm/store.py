"""The topics of one folder in shared memory."""

from __future__ import annotations

import fcntl
import os
import shutil
import uuid
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog.checks import MOST_PARTITIONS, NO_TOPIC_REMEDY
from streamfactory.arrowlog.disk import forks
from streamfactory.arrowlog.disk.names import topic_folder, topic_of
from streamfactory.arrowlog.handles import StoreHandle
from streamfactory.arrowlog.log import LogStore
from streamfactory.backends.shm.control import Control, create_control
from streamfactory.backends.shm.layout import (
    BLOCKS,
    CONTROL,
    LEASES,
    MOST_SCHEMA,
    PAGE,
    STAGING,
    Damaged,
)
from streamfactory.backends.shm.left import LEFT, alone, left_folders, remove_left
from streamfactory.backends.shm.log import ShmLog
from streamfactory.backends.shm.settings import Settings, root_of
from streamfactory.spi import (
    BatchValidator,
    MisuseError,
    NotAuthorized,
    SchemaMismatch,
    StorageFailed,
    StreamError,
    TopicNotFound,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pyarrow as pa

    from streamfactory.spi import StreamConfig

_OTHERS: Final = 0o077


@final
class ShmLogStore(LogStore):
    """Topics below one folder.

    Args:
        root: The folder; created when a topic is.
        settings: Of this process.
    """

    def __init__(self, root: Path, settings: Settings) -> None:
        self.root = root
        self._settings = settings
        self._lock = forks.Lock()
        self._logs: dict[str, ShmLog] = {}

    def create(self, name: str, schema: pa.Schema, partitions: int = 1) -> ShmLog:
        if not 1 <= partitions <= MOST_PARTITIONS:
            msg = (
                f"a topic can have 1 to {MOST_PARTITIONS} partitions, not {partitions}"
            )
            raise MisuseError(msg)
        schema = schema.remove_metadata()
        BatchValidator(schema)
        if schema.serialize().size > MOST_SCHEMA:
            msg = f"the schema has more than {MOST_SCHEMA} bytes"
            raise SchemaMismatch(msg)
        folder = self.root / topic_folder(name)
        with self._whole():
            self._ready()
            with self._working() as made:
                self._fill(made, name, schema, partitions)
                with alone(self.root):
                    self._remove_deleted(folder)
                    if folder.exists():
                        msg = f"topic {name!r} exists already"
                        raise MisuseError(msg, remedy="open it, or delete it first")
                    made.rename(folder)
        return self.open(name)

    def _fill(
        self, folder: Path, name: str, schema: pa.Schema, partitions: int
    ) -> None:
        """Make the files of a topic, before others can find it."""
        settings = self._settings
        (folder / STAGING).mkdir(0o700)
        (folder / LEASES).mkdir(0o700)
        capacity = -(-settings.capacity // PAGE) * PAGE
        flags = BLOCKS if settings.blocks else 0
        create_control(folder, schema, uuid.uuid4().bytes, capacity, flags)
        log = ShmLog(name, folder, settings)
        try:
            log.grow(partitions)
        finally:
            log.close()

    def open(self, name: str) -> ShmLog:
        with self._lock:
            found = self._logs.get(name)
            if found is not None and not found.is_gone:
                return found
            if found is not None:
                del self._logs[name]
                found.close()
            with self._whole():
                self._check_owner()
                try:
                    folder = self.root / topic_folder(name)
                    made = ShmLog(name, folder, self._settings)
                except FileNotFoundError:
                    raise self._missing(name) from None
            if made.is_gone:
                made.close()
                raise self._missing(name)
            self._logs[name] = made
            return made

    def delete(self, name: str) -> None:
        log = self.open(name)
        with self._whole():
            log.mark_deleted()
            with alone(self.root):
                self._remove_deleted(log.folder)
        with self._lock:
            if self._logs.get(name) is log:
                del self._logs[name]
        log.close()

    def names(self) -> Sequence[str]:
        with self._whole():
            if not self._check_owner():
                return []
            found = []
            for folder in self.root.iterdir():
                topic = topic_of(folder.name)
                if topic is not None and not _is_deleted(folder):
                    found.append(topic)
            return sorted(found)

    def left_over(self) -> Sequence[Path]:
        """Folders of processes that were killed while they made or removed a topic."""
        with self._whole():
            if not self._check_owner():
                return []
            return left_folders(self.root)

    def close(self) -> None:
        """Close all topics. Batches that are held stay valid."""
        with self._lock:
            logs, self._logs = self._logs, {}
        for log in logs.values():
            log.close()

    # --- folders ----------------------------------------------------------------------

    def _missing(self, name: str) -> TopicNotFound:
        known = ", ".join(self.names()) or "none"
        msg = f"topic {name!r} does not exist in {self.root}; existing topics: {known}"
        return TopicNotFound(msg, remedy=NO_TOPIC_REMEDY)

    def _ready(self) -> None:
        """Create the folder, and remove what killed processes left."""
        with suppress(FileExistsError):
            self.root.mkdir(0o700, parents=True)
        self._check_owner()
        remove_left(self.root)

    def _check_owner(self) -> bool:
        """Refuse a folder that others can write to. Whether it exists.

        Raises:
            NotAuthorized: permanent.
        """
        try:
            found = self.root.stat()
        except FileNotFoundError:
            return False
        if found.st_uid != os.geteuid() or found.st_mode & _OTHERS:
            msg = f"{self.root} belongs to another user, or others can use it"
            remedy = "remove it, or set path to a folder of yours with mode 700"
            raise NotAuthorized(msg, remedy=remedy)
        return True

    @contextmanager
    def _working(self) -> Iterator[Path]:
        """A folder that is locked while it is worked on, and removed after it."""
        path = self.root / f"{LEFT}{uuid.uuid4().hex}"
        with alone(self.root):  # or it would be found before it is locked
            path.mkdir(0o700)
            file = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield path
        finally:
            os.close(file)
            shutil.rmtree(path, ignore_errors=True)

    def _remove_deleted(self, folder: Path) -> None:
        """Remove the folder of a topic if the topic was marked as deleted.

        The caller is alone: or it would remove the topic that another one has made.
        """
        if _is_deleted(folder):
            left = self.root / f"{LEFT}{uuid.uuid4().hex}"
            folder.rename(left)
            shutil.rmtree(left, ignore_errors=True)

    @contextmanager
    def _whole(self) -> Iterator[None]:
        try:
            yield
        except StreamError:
            raise
        except OSError as error:
            msg = f"topics in {self.root}: {error.strerror or error}"
            remedy = "see that the folder is in a file system in memory, with room"
            raise StorageFailed(msg, remedy=remedy) from error


def _is_deleted(folder: Path) -> bool:
    if not (folder / CONTROL).exists():
        return False
    try:
        control = Control(folder)
    except (Damaged, FileNotFoundError):
        return False
    try:
        return control.is_gone
    finally:
        control.close()


# --- sharing ----------------------------------------------------------------------


def shm_handle(config: StreamConfig) -> StoreHandle[ShmLogStore]:
    """The handle of one user of a store, opened on first use.

    Args:
        config: Location and settings.
    """
    place = root_of(config), Settings.of(config)

    def make() -> tuple[ShmLogStore, Callable[[], object]]:
        store = ShmLogStore(*place)
        return store, store.close

    return StoreHandle((ShmLogStore, *place), make)
