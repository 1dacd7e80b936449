"""Files as another user of a shared folder can write them."""

from __future__ import annotations

import json
import zlib
from typing import TYPE_CHECKING, Any

from tests.proving.numbers import append, everything

from streamfactory.spi import StreamError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from streamfactory.arrowlog.disk import DiskLog, DiskLogStore

WRONG_NAMES = [
    "",
    ".",
    "..",
    "/etc/passwd",
    "../../../victim.txt",
    "data/../../../victim.txt",
    "data/" + "a" * 31 + ".arrow",
    "data/" + "A" * 32 + ".arrow",
    "data/" + "a" * 32 + ".arrow\n",
    "data/" + "a" * 32 + ".arrow/../../../../victim.txt",
    "data/" + "a" * 32 + ".arrow\0",
    "log/" + "0" * 20 + ".json",
    7,
    None,
    ["data/" + "a" * 32 + ".arrow"],
]
"""Of a segment; or of anything else."""


def sealed(plain: Any) -> bytes:
    """A whole file of JSON, as anybody can make it."""
    body = json.dumps(plain, separators=(",", ":")).encode()
    return b"%b\n%08x\n" % (body, zlib.crc32(body))


def unsealed(path: Path) -> Any:
    return json.loads(path.read_bytes().partition(b"\n")[0])


def change(path: Path, edit: Callable[[Any], object]) -> None:
    """Edit the JSON of a file, and make its checksum match."""
    plain = unsealed(path)
    edit(plain)
    path.write_bytes(sealed(plain))


def inner(root: Path, log: DiskLog) -> Path:
    return root / f"{log.name}.topic" / log.incarnation


def record(root: Path, log: DiskLog, version: int) -> Path:
    return inner(root, log) / f"log/{version:020d}.json"


def snapshots(root: Path, log: DiskLog) -> list[Path]:
    return sorted(inner(root, log).glob("log/*.snapshot"))


def use(store: DiskLogStore, name: str = "t") -> list[StreamError]:
    """Everything that is done with a topic; the errors that it ends in."""
    errors: list[StreamError] = []
    for number, deed in enumerate(_DEEDS):
        try:
            deed(store, name, number)
        except StreamError as error:
            errors.append(error)
    return errors


def _read(store: DiskLogStore, name: str, _: int) -> None:
    log = store.open(name)
    everything(log)
    log.offsets_at(1, range(len(log.bounds())))
    log.last("w")
    log.facts()


def _write(store: DiskLogStore, name: str, number: int) -> None:
    append(store.open(name), {0: [100]}, "hostile", number)


def _keep(store: DiskLogStore, name: str, _: int) -> None:
    log = store.open(name)
    log.truncate({0: 1})
    log.compact()


def _verify(store: DiskLogStore, name: str, _: int) -> None:
    store.open(name).verify()


def _delete(store: DiskLogStore, name: str, _: int) -> None:
    store.names()
    store.delete(name)


_DEEDS = [_read, _write, _keep, _verify, _read, _delete]
