"""What a path holds, as one row of offsets: a single file, or a folder of files."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamfactory.backends.file.foreign.arrowfile import RANDOM, ArrowFile
from streamfactory.backends.file.foreign.medium import Stamp, stamp_of, translate_errors
from streamfactory.spi import StreamTimeout

if TYPE_CHECKING:
    import pyarrow as pa

    from streamfactory.spi import StreamConfig


@dataclass(frozen=True, slots=True)
class Settings:
    """What the configuration says of the files."""

    path: str
    form: str
    order: str
    names: str
    state: str | None
    longest: int
    mapped: bool
    checked: bool

    @classmethod
    def of(cls, config: StreamConfig) -> Settings:
        """As the options say."""
        return cls(
            path=config["path"],
            form=config["format"],
            order=config["order"],
            names=config["names"],
            state=config.get("state.folder"),
            longest=config["message.max.bytes"],
            mapped=config["memory.map"],
            checked=config["check.values"],
        )


class Layout(ABC):
    """The files of one stream. One thread at a time; opens nothing when it is made."""

    earliest: int = 0
    """First row still held."""
    latest: int = 0
    """How many rows there were, ever."""
    ended: bool = False
    """Whether no row will ever be added."""
    incarnation: str | None = None
    """What the offsets count; None while there is nothing to count."""
    schema: pa.Schema | None = None
    """In plain types; None while there is none."""

    @abstractmethod
    def refresh(self) -> None:
        """Bring the above up to date, as far as that costs next to nothing."""

    def discover(self, *, eager: bool = False) -> None:  # noqa: B027 - a file has none
        """Look for what came since, where `refresh` does not.

        Args:
            eager: Now, whatever it costs; otherwise what was looked at just now may
                be left for later.
        """

    @abstractmethod
    def find(self, offset: int) -> tuple[ArrowFile, int]:
        """The file that has a row, and the offset of its first row.

        It stays open until the next call.

        Raises:
            Lost: The row was counted, and its file is gone.
        """

    @abstractmethod
    def close(self) -> None:
        """Close what is open; twice is fine."""


class Lost(Exception):
    """A file whose rows were counted is not there any more as it was counted."""

    def __init__(
        self, what: str, end: int, expected: str, found: str | None = None
    ) -> None:
        super().__init__(what)
        self.what = what
        self.end = end
        """Offset behind its last row."""
        self.expected = expected
        self.found = found
        """What stands in its place; None where nothing does."""


class SingleFile(Layout):
    """One file: whole, or a stream that grows."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._file: ArrowFile | None = None
        self._seen: Stamp | None = None

    def refresh(self) -> None:
        path = self._settings.path
        stamp = stamp_of(path)
        if self._file is None or stamp != self._seen:
            self._renew(stamp)
            self._seen = stamp
        assert self._file is not None
        if not self._file.whole and self._file.form == RANDOM:
            self._seen = None
            msg = f"the file {path!r} has no footer: it is not written to its end"
            remedy = "wait for its writer; if that broke off, write the file again"
            raise StreamTimeout(msg, remedy=remedy)

    def find(self, offset: int) -> tuple[ArrowFile, int]:
        assert self._file is not None
        return self._file, 0

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def _renew(self, stamp: Stamp) -> None:
        file = self._file
        if file is not None and file.grew(stamp):
            file.refresh()
        else:
            self.close()
            settings = self._settings
            file = ArrowFile(settings.path, settings.form, settings.longest)
            self._file = file
        if file.whole and self._settings.mapped:
            with translate_errors(file.path):
                file.medium.map()
        self.latest = file.rows
        self.ended = file.whole
        self.incarnation = file.incarnation()
        self.schema = file.schema
