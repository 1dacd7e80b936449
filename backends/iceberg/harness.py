"""The conformance kit's access to ``iceberg``: writes with ``pyiceberg``."""

from __future__ import annotations

import os
import shutil
import uuid
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from pyiceberg.catalog.memory import InMemoryCatalog
from pyiceberg.utils.concurrent import ExecutorFactory

from streamfactory.tables.harness import NUMBERS, TableHarness, numbers_table

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_NAMESPACE: Final = "kit"


class IcebergHarness(TableHarness):
    """A table of numbers in a folder; each write is a commit."""

    stream_type = "iceberg"

    @classmethod
    def prepare(cls) -> None:
        # The thread that writes runs as long as the process.
        os.environ.setdefault("PYICEBERG_MAX_WORKERS", "1")
        ExecutorFactory.get_or_create().submit(int).result()

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._catalog = InMemoryCatalog("kit", warehouse=f"file://{folder}")
        self._catalog.create_namespace(_NAMESPACE)
        self._name = ""

    def create(self, partitions: int) -> None:
        self._name = f"{_NAMESPACE}.t{uuid.uuid4().hex}"
        self._table = self._catalog.create_table(self._name, NUMBERS)

    def write(self, partition: int, numbers: Sequence[int]) -> None:
        self._table.append(numbers_table(numbers))

    def recreate(self) -> None:
        location = self._location()
        self._catalog.drop_table(self._name)
        shutil.rmtree(location)
        self._table = self._catalog.create_table(
            self._name, NUMBERS, location=f"file://{location}"
        )

    def close(self) -> None:
        self._catalog.close()

    def _location(self) -> str:
        return urlsplit(self._table.location()).path
