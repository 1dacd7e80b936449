"""What a catalog lets pyiceberg do: read bounded regular files, and import no code.

pyiceberg imports the classes that properties of a table name, and reads metadata of any
length from any location. Both may come from others: a warehouse is a folder.
"""

from __future__ import annotations

import io
import json
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final, TypeVar, final

from pyiceberg.io import PY_IO_IMPL, InputFile, InputStream
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import TableProperties
from pyiceberg.typedef import EMPTY_DICT

from streamfactory.backends.iceberg.checks import (
    checked_avro,
    refuse_compressed,
)
from streamfactory.spi import FormatRefused
from streamfactory.tables.places import (
    TableFiles,
    check_size,
    path_below,
    plain_location,
)
from streamfactory.tables.storage import LocalFolder

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO

CODE: Final = (PY_IO_IMPL, TableProperties.WRITE_PY_LOCATION_PROVIDER_IMPL)
"""Properties of tables that name a class, which pyiceberg imports."""
C = TypeVar("C", bound="Catalog")
_METADATA: Final = ".metadata.json"
_MOST: Final = "streamfactory.most.bytes"
_ROOT: Final = "streamfactory.root"


def confining(most: int, root: str | None) -> dict[str, str]:
    """Properties of a catalog whose files are read as this module says.

    Args:
        most: Bytes that a file of the metadata may have, also inflated.
        root: The local folder outside of which nothing is read; None for no limit.
    """
    ours = {PY_IO_IMPL: f"{__name__}.ConfinedIO", _MOST: str(most)}
    return ours if root is None else {**ours, _ROOT: root}


def confine(catalog: C, ours: Mapping[str, str]) -> C:
    """Return the catalog; tables and servers change nothing of `confining` any more.

    Args:
        catalog: Made with ``ours`` among its properties.
        ours: What `confining` answered.
    """
    load: Any = catalog._load_file_io

    def load_file_io(
        properties: Mapping[str, str] = EMPTY_DICT, location: str | None = None
    ) -> FileIO:
        refuse_code(properties)
        found: FileIO = load({**properties, **ours}, location)
        return found

    catalog._load_file_io = load_file_io  # type: ignore[method-assign]
    return catalog


def refuse_code(properties: Mapping[str, Any]) -> None:
    """Refuse a table that names code to be imported.

    Raises:
        FormatRefused: permanent.
    """
    for key in CODE:
        if key in properties:
            what = f"the table's property {key} names code, which is not imported"
            raise FormatRefused(what, remedy="remove the property from the table")


@final
class ConfinedIO(PyArrowFileIO):
    """Files by location; those of metadata are read whole, within limits."""

    def new_input(self, location: str) -> _Input:  # type: ignore[override]
        return _Input(self, location)

    def plain_input(self, location: str) -> InputFile:
        """The same without limits."""
        return super().new_input(location)


@final
class _Input(InputFile):
    def __init__(self, files: ConfinedIO, location: str) -> None:
        super().__init__(location)
        self._files = files

    def __len__(self) -> int:
        return len(self._whole())

    def exists(self) -> bool:
        return self._files.plain_input(self.location).exists()

    def open(self, seekable: bool = True) -> InputStream:
        """The file, which is whole and was checked.

        Raises:
            FormatRefused: permanent; it is no regular file, too long, compressed,
                outside of the folder, or names code.
            ValueError: It is damaged.
        """
        whole = self._whole()
        if _METADATA in self.location:
            refuse_compressed(self.location)
            properties = json.loads(whole).get("properties")
            refuse_code(properties if isinstance(properties, dict) else {})
            return io.BytesIO(whole)
        return checked_avro(self.location, whole, self._most)

    @property
    def _most(self) -> int:
        return int(self._files.properties[_MOST])

    def _whole(self) -> bytes:
        path = plain_location(self.location)
        root = self._files.properties.get(_ROOT)
        if root is not None:
            files = TableFiles(LocalFolder(root, links=False), root)
            return files.read(path_below(root, self.location), self._most)
        if "://" not in path:
            folder, name = str(PurePath(path).parent), PurePath(path).name
            files = TableFiles(LocalFolder(folder, links=False), folder)
            return files.read(name, self._most)
        found = self._files.plain_input(self.location)
        check_size(self.location, len(found), self._most)
        with found.open() as stream:
            return stream.read(self._most + 1)
