"""An archive of this package and what it needs, for executors that lack them.

Spark copies the archive to each executor and unpacks it there. Executors need a Python
of the driver's version and platform, and PySpark, which Spark brings.
"""

from __future__ import annotations

import os
import re
import sys
import zipfile
from importlib.metadata import (
    Distribution,
    PackageNotFoundError,
    distribution,
    entry_points,
)
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.spi import PermanentError
from streamfactory.spi.hooks import BACKENDS, DECODERS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from streamfactory.wiring.config.definition import StreamDefinition

_NAME: Final = "streamfactory-packages"
"""The folder that an executor unpacks the archive into."""
_PACKAGE: Final = "streamfactory"
_ALWAYS: Final = ("objects", "opentelemetry")
"""Extras that a stream of any type may need; shipped where they are installed."""
_OF_SPARK: Final = frozenset({"pyspark", "py4j"})
"""Distributions that executors have."""
_REQUIREMENT: Final = re.compile(r"\s*([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?")
_EXTRA: Final = re.compile(r"extra\s*==\s*['\"]([^'\"]+)['\"]")
_TYPES: Final = ("streamtype", "decoder.class.name", "consumer.factory.class.name")
"""What keys that name a plug-in end with."""


class NotShipped(PermanentError):
    """The packages of the driver cannot be sent to executors."""

    code = "not_shipped"


def ship(
    settings: Mapping[str, str], streams: Iterable[StreamDefinition], folder: Path
) -> dict[str, str]:
    """Pack what streams need; the settings of Spark with which executors find it.

    Args:
        settings: Of Spark, as they are without it.
        streams: The streams that executors read and write.
        folder: Gets the archive; it has to stay until Spark has started.

    Raises:
        NotShipped: permanent; a package is installed in a form that is not files.
    """
    archive = pack(folder / f"{_NAME}.zip", plugins_of(streams))
    archives = [settings.get("spark.archives"), f"{archive}#{_NAME}"]
    paths = [f"./{_NAME}", settings.get("spark.executorEnv.PYTHONPATH")]
    return {
        **settings,
        "spark.archives": ",".join(filter(None, archives)),
        "spark.executorEnv.PYTHONPATH": ":".join(filter(None, paths)),
    }


def plugins_of(streams: Iterable[StreamDefinition]) -> set[str]:
    """Names of stream types and decoders in definitions."""
    return {
        prop.text.strip().lower()
        for stream in streams
        for prop in stream.properties
        if prop.key.lower().endswith(_TYPES)
    }


def pack(archive: Path, plugins: Iterable[str]) -> Path:
    """Write the archive: this package, and plug-ins with all that they require.

    Args:
        archive: The file.
        plugins: Names of stream types and decoders.
    """
    needed = _needed(frozenset(plugins))
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as file:
        for name, path in _files(needed):
            file.write(path, name)
    return archive


def _needed(plugins: frozenset[str]) -> list[Distribution]:
    """This distribution, those of plug-ins, and what they require, where installed."""
    wanted: list[tuple[str, tuple[str, ...]]]
    wanted = [(_PACKAGE, _ALWAYS), ("streamfactory-native", ())]
    for group in (BACKENDS, DECODERS):
        for point in entry_points(group=group):
            if point.name in plugins and point.dist is not None:
                wanted.append((point.dist.name, tuple(point.extras)))
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, tuple[str, ...]]] = set()
    while wanted:
        name, extras = asked = wanted.pop()
        if asked in seen or name in _OF_SPARK:
            continue
        seen.add(asked)
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:  # of another platform, or an extra
            continue
        wanted += _requirements(found[name], extras)
    return list(found.values())


def _requirements(
    needed: Distribution, extras: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for text in needed.requires or ():
        extra = _EXTRA.search(text)
        match = _REQUIREMENT.match(text)
        if match is None or (extra is not None and extra[1] not in extras):
            continue
        name = re.sub(r"[-_.]+", "-", match[1]).lower()
        yield name, tuple(filter(None, re.split(r"[\s,]+", match[2] or "")))


def _files(needed: Iterable[Distribution]) -> Iterator[tuple[str, Path]]:
    """Paths in the archive, and files. This package may be installed by a link."""
    package = find_spec(_PACKAGE)
    assert package is not None
    assert package.origin is not None
    root = Path(package.origin).parent
    for path in _walk(root):
        yield f"{_PACKAGE}/{path.relative_to(root).as_posix()}", path
    for one in needed:
        if one.files is None:
            msg = f"the package {one.name} has no list of its files"
            remedy = "install it with pip, or ship an environment as spark.archives"
            raise NotShipped(msg, remedy=remedy)
        for file in one.files:
            path = Path(str(one.locate_file(file)))
            inside = not file.is_absolute() and ".." not in file.parts
            ours = file.parts[0] == _PACKAGE and one.name == _PACKAGE
            if inside and not ours and path.is_file() and path.suffix != ".pyc":
                yield file.as_posix(), path


def _walk(folder: Path) -> Iterator[Path]:
    """Files of a package, through links to folders."""
    for path in sorted(folder.iterdir()):
        if path.is_dir() and path.name != "__pycache__":
            yield from _walk(path)
        elif path.is_file():
            yield path


def use_bare_python() -> None:
    """Have Spark start a Python by a name that is right here and on executors.

    Spark uses one name on both sides. Here it may be a Python without the packages of
    this one: the Java process, which inherits the environment, tells it where they are.
    """
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    python = os.environ.get("PYSPARK_PYTHON") or version
    os.environ["PYSPARK_PYTHON"] = python
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", python)
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
