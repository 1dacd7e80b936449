"""Mapping of offsets to files, for a single file or a folder."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from streamfactory.arrowlog.disk.folders import Folders, Modes
from streamfactory.backends.file.foreign.arrowfile import ArrowFile
from streamfactory.backends.file.foreign.decoder import ArrowDecoder
from streamfactory.backends.file.foreign.medium import (
    LocalMedium,
    Medium,
    Stamp,
    stamp_of,
    translate_errors,
)
from streamfactory.backends.file.foreign_options import PARQUET
from streamfactory.spi import StreamTimeout

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.backends.file.foreign.decoder import Decoder
    from streamfactory.backends.file.foreign.indexed import IndexedFile
    from streamfactory.spi import StreamConfig


@dataclass(frozen=True, slots=True)
class Settings:
    """Options for files of other programs."""

    path: str
    form: str
    order: str
    names: str
    state: str | None
    longest: int
    mapped: bool
    checked: bool
    links: bool
    listing: float | None
    """Seconds between two listings of a prefix; None: as is usual."""

    @classmethod
    def of(cls, config: StreamConfig) -> Settings:
        """The settings of a configuration."""
        listing = config.get("list.interval.millis")
        return cls(
            path=config["path"],
            form=config["format"],
            order=config["order"],
            names=config["names"],
            state=config.get("state.folder"),
            longest=config["message.max.bytes"],
            mapped=config["memory.map"],
            checked=config["check.values"],
            links=config["follow.links"],
            listing=None if listing is None else listing / 1000,
        )


def open_file(medium: Medium, form: str, longest: int) -> IndexedFile:
    """The index of a file, by its format. The medium is closed with it, or on errors.

    Raises:
        StreamError: The file cannot be read, or has another format.
    """
    if form == PARQUET:
        from streamfactory.backends.file.foreign.parquetfile import ParquetFile

        return ParquetFile(medium, form, longest)
    return ArrowFile(medium, form, longest)


def decoder_of(file: IndexedFile, schema: pa.Schema, *, checked: bool) -> Decoder:
    """A decoder of the batches of a file.

    Args:
        file: Closed by its owner.
        schema: Columns of the rows, in plain types.
        checked: Whether values are validated, and not only lengths.
    """
    if isinstance(file, ArrowFile):
        return ArrowDecoder(file, schema, checked=checked)
    from streamfactory.backends.file.foreign.parquetfile import (
        ParquetDecoder,
        ParquetFile,
    )

    assert isinstance(file, ParquetFile)
    return ParquetDecoder(file, schema, checked=checked)


class Layout(ABC):
    """The files of one stream. One thread at a time; opens files lazily."""

    earliest: int = 0
    """First offset that can be read."""
    latest: int = 0
    """Offset of the next row."""
    ended: bool = False
    """Whether the stream is complete."""
    incarnation: str | None = None
    """Incarnation of the offsets; None while there is no row."""
    schema: pa.Schema | None = None
    """Schema in plain types; None while unknown."""

    @abstractmethod
    def refresh(self) -> None:
        """Update the attributes, as far as that is cheap."""

    def discover(  # noqa: B027 - a file has none
        self, *, eager: bool = False, end: int | None = None
    ) -> None:
        """Search for new files, which `refresh` does not do.

        Args:
            eager: Search now. Otherwise the search may be skipped shortly after the
                last one.
            end: Offset up to which the caller reads. Files below it may be listed
                already, by the process that planned the read.
        """

    @abstractmethod
    def find(self, offset: int) -> tuple[IndexedFile, int]:
        """The file that contains an offset, and the offset of its first row.

        The file stays open until the next call.

        Raises:
            LostFile: The file was listed and is missing or changed.
        """

    def drop(self) -> None:  # noqa: B027 - an open local file keeps its content
        """Open the current file again in the next `find`."""

    @abstractmethod
    def close(self) -> None:
        """Close open files. May be called twice."""


class LostFile(Exception):
    """A listed file is missing or has changed."""

    def __init__(
        self, what: str, end: int, expected: str, found: str | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.end = end
        """Offset after its last row."""
        self.expected = expected
        self.found = found
        """Fingerprint of the changed file; None if it is missing."""


class SingleFile(Layout):
    """One file: complete, or a growing stream."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        path = os.path.abspath(settings.path)  # noqa: PTH100 - a link stays
        self._path = path
        # The path is the user's own: it may be a link.
        folder = Path(path).parent
        self._folders = Folders(folder, Modes(), foreign=True, links=True)
        self._file: IndexedFile | None = None
        self._seen: Stamp | None = None

    def refresh(self) -> None:
        path = self._path
        stamp = stamp_of(path, self._folders)
        if self._file is None or stamp != self._seen:
            self._renew(stamp)
            self._seen = stamp
        assert self._file is not None
        if not self._file.whole and self._file.needs_footer:
            self._seen = None
            msg = f"the file {path!r} has no footer: it is incomplete"
            remedy = "wait for its writer; if it has stopped, write the file again"
            raise StreamTimeout(msg, remedy=remedy)

    def find(self, offset: int) -> tuple[IndexedFile, int]:
        assert self._file is not None
        return self._file, 0

    def close(self) -> None:
        self._close_file()
        self._folders.forget()

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _renew(self, stamp: Stamp) -> None:
        file = self._file
        if file is not None and file.grew(stamp):
            file.refresh()
        else:
            self._close_file()
            settings = self._settings
            with translate_errors(self._path):
                medium = LocalMedium(self._path, self._folders)
            file = open_file(medium, settings.form, settings.longest)
            self._file = file
        if file.whole and self._settings.mapped:
            with translate_errors(file.path):
                file.medium.map()
        self.latest = file.rows
        self.ended = file.whole
        self.incarnation = file.incarnation()
        self.schema = file.schema
