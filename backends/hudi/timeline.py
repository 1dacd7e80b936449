"""The commits of a Hudi table, as the files of its timeline state them."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple, final

from streamfactory.backends.hudi.archive import ARCHIVE, Archive
from streamfactory.backends.hudi.instants import (
    ACTIONS,
    FOLDER,
    TIME,
    Instant,
    parse_metadata,
    parse_time,
)
from streamfactory.spi import FormatRefused
from streamfactory.tables import Kept, missing_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from streamfactory.tables import TableFiles

PROPERTIES: Final = f"{FOLDER}/hoodie.properties"
_ACTIONS: Final = f"({'|'.join(ACTIONS)})"
_COMPLETED: Final = {
    1: re.compile(rf"{TIME}()\.{_ACTIONS}"),
    2: re.compile(rf"{TIME}_{TIME}\.{_ACTIONS}"),
}
_PENDING: Final = re.compile(rf"{TIME}\.{_ACTIONS}\.requested")
_SAVEPOINT: Final = re.compile(rf"{TIME}(_{TIME})?\.savepoint")
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")
_PROPERTIES_MOST: Final = 1 << 20
_KEPT: Final = 64
_LAYOUTS: Final = {"6": "1", "8": "2"}
"""Layout of the timeline by ``hoodie.table.version``, of the supported versions."""


class Listing(NamedTuple):
    """The active part of the timeline at one look."""

    instants: list[Instant]
    """Completed, in the order in which they were completed."""
    savepoints: bool
    """Whether there are savepoints: commits behind them may be archived before them."""


@final
class Timeline:
    """Lists the completed instants and reads their metadata. Thread-safe.

    Args:
        files: Of the table.
        most: Bytes that the metadata of one instant may have, also inflated.
    """

    def __init__(self, files: TableFiles, most: int) -> None:
        self._files = files
        self._most = most
        self._archive = Archive(files, most)
        self._kept: Kept[Mapping[str, Any]] = Kept(_KEPT)
        # Most looks find what the one before has found.
        self._read: tuple[bytes, Mapping[str, str]] | None = None
        self._listed: tuple[object, Listing] | None = None

    def properties(self) -> Mapping[str, str]:
        """The properties of the table, read now; the same while they are unchanged.

        Raises:
            TopicNotFound: permanent; there is no table.
            FormatRefused: permanent; a table of another kind than can be read.
        """
        try:
            content = self._files.read(PROPERTIES, _PROPERTIES_MOST)
        except FileNotFoundError as error:
            raise missing_table(self._files, "hudi", PROPERTIES) from error
        read = self._read
        if read is None or content != read[0]:
            read = (content, _parsed(content))
            _check_properties(read[1], self._files.location)
            self._read = read
        return read[1]

    def listing(self, properties: Mapping[str, str]) -> Listing:
        """The active part, looked up now; the same while it is unchanged.

        Before table version 8 the timeline does not state in which order instants were
        completed. There the order is that of the requests, up to the first one that is
        still pending.
        """
        layout = int(properties.get("hoodie.timeline.layout.version", "1"))
        folder = FOLDER
        if layout != 1:
            folder += "/" + properties.get("hoodie.timeline.path", "timeline")
        names = self._files.entries(folder)[0]
        listed = self._listed
        if listed is None or listed[0] != (folder, names):
            # A folder is listed in no order: the first look may have an instant, and
            # lack one that was completed before it. The second one has both.
            again = self._files.entries(folder)[0]
            whole = _listing(layout, folder, again)
            seen = _listing(layout, folder, names).instants
            whole = whole._replace(
                instants=[i for i in whole.instants if seen and i.at <= seen[-1].at]
            )
            listed = (folder, names if again == names else None), whole
            self._listed = listed
        return listed[1]

    def archived(self, properties: Mapping[str, str]) -> list[Instant]:
        """The completed instants of the archived part, looked up now.

        The same list while there are no others.

        Raises:
            CorruptData: data_loss; the archive is damaged.
        """
        return self._archive.instants(properties)

    def metadata(self, instant: Instant) -> Mapping[str, Any]:
        """What an instant states about itself.

        Raises:
            FileNotFoundError: It was rolled back, or archived since it was listed.
            FormatRefused: permanent; the file is damaged.
            CorruptData: data_loss; the archive is damaged.
        """
        kept = self._kept.get(instant.name)
        if kept is not None:
            return kept
        if instant.archived is not None:
            found = self._archive.metadata(instant)
        else:
            content = self._files.read(instant.name, self._most)
            found = parse_metadata(instant.time, content, self._most)
        return self._kept.add(instant.name, found)


def _parsed(content: bytes) -> Mapping[str, str]:
    lines = content.decode("utf-8", "replace").splitlines()
    pairs = [line.partition("=") for line in lines if not line.startswith("#")]
    return {key.strip(): value.strip() for key, _, value in pairs}


def _listing(layout: int, folder: str, names: list[str]) -> Listing:
    found = []
    for name in names:
        matched = _COMPLETED[layout].fullmatch(name)
        if matched:
            time, completed, action = matched.groups()
            path = f"{folder}/{name}"
            found.append(Instant(time, completed or time, action, path))
    found.sort(key=lambda instant: (instant.at, instant.time))
    if layout == 1:
        done = {instant.time for instant in found}
        begun = {m[1] for name in names if (m := _PENDING.fullmatch(name))}
        first = min(begun - done, default=None, key=parse_time)
        if first is not None:
            found = [one for one in found if one.at < parse_time(first)]
    return Listing(found, any(_SAVEPOINT.fullmatch(name) for name in names))


def _check_properties(properties: Mapping[str, str], location: str) -> None:
    remedies = {
        "hoodie.populate.meta.fields": ("true", "its rows do not name their commit"),
        "hoodie.table.base.file.format": ("PARQUET", "only Parquet can be read"),
        "hoodie.datasource.write.drop.partition.columns": (
            "false",
            "its files lack the partition columns",
        ),
    }
    for key, (wanted, why) in remedies.items():
        if properties.get(key, wanted).upper() != wanted.upper():
            what = f"the table at {location!r} has {key}={properties[key]}: {why}"
            raise FormatRefused(what)
    if properties.get("hoodie.table.type") not in ("COPY_ON_WRITE", "MERGE_ON_READ"):
        what = f"{PROPERTIES} of the table at {location!r} states no table type"
        raise FormatRefused(what)
    version = properties.get("hoodie.table.version", "")
    if version not in _LAYOUTS:
        stated = f"={version[:20]}" if version else ", which its properties omit"
        what = f"the table at {location!r} has hoodie.table.version{stated}"
        remedy = "versions 6 and 8 are supported: upgrade or downgrade the table with "
        raise FormatRefused(what, remedy=remedy + "hudi-cli or a writer of Hudi")
    layout = properties.get("hoodie.timeline.layout.version", "1")
    if layout != _LAYOUTS[version]:
        what = f"the table at {location!r} has hoodie.table.version={version} and "
        what += f"hoodie.timeline.layout.version={layout[:20]}"
        remedy = f"version {version} has timeline layout {_LAYOUTS[version]}: restore "
        raise FormatRefused(what, remedy=f"{remedy}{PROPERTIES} from a copy")
    for key in ("hoodie.timeline.path", "hoodie.timeline.history.path", ARCHIVE):
        if not _NAME.fullmatch(properties.get(key, "x")):
            what = f"{PROPERTIES} of the table at {location!r} has a {key} that "
            what += "is not the name of a folder"
            raise FormatRefused(what)
