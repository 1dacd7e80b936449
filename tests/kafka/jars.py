"""Java programs that the tests run, fetched once into a cache outside of the checkout.

They come through the Ivy inside PySpark, so that Java and PySpark are all it takes.
`ivy.xml` names them, `jars.sha256` says what they have to be.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
PATTERN = "[artifact]-[revision](-[classifier]).[ext]"


class Unavailable(Exception):
    """Why the jars, or a broker, cannot be had here."""


def jars(kind: str) -> list[Path]:
    """The jars of a kind.

    ``broker``, ``oracle``, which is Spark's own Kafka source, or ``s3a``, by which
    Hadoop reaches object stores.

    Raises:
        Unavailable: They are not in the cache and cannot be fetched, or are others.
    """
    wanted = _wanted(kind)
    folder = cached(kind)
    with locked(cached(f"{kind}.lock")):
        if not _sound(folder, wanted):
            _fetch(kind, folder, wanted)
    return [folder / name for name in wanted]


def java() -> str:
    """The Java program."""
    home = os.environ.get("JAVA_HOME")
    found = f"{home}/bin/java" if home else shutil.which("java")
    if found is None:
        msg = "Kafka needs Java 17, and there is none"
        raise Unavailable(msg)
    return found


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """One process at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def cached(name: str) -> Path:
    """Where something lies that is fetched, or made, once."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "streamfactory-kafka" / name


def _wanted(kind: str) -> dict[str, str]:
    lines = (HERE / "jars.sha256").read_text().splitlines()
    sums = {name: digest for digest, name in (line.split() for line in lines)}
    return {
        name.partition("/")[2]: digest
        for name, digest in sums.items()
        if name.startswith(f"{kind}/")
    }


def _sound(folder: Path, wanted: dict[str, str]) -> bool:
    return all(_digest(folder / name) == digest for name, digest in wanted.items())


def _digest(path: Path) -> str | None:
    if not path.is_file():
        return None
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _fetch(kind: str, folder: Path, wanted: dict[str, str]) -> None:
    spark = find_spec("pyspark")
    if spark is None or not spark.submodule_search_locations:
        msg = "Kafka's jars come through PySpark, which is not installed"
        raise Unavailable(msg)
    (ivy,) = Path(spark.submodule_search_locations[0], "jars").glob("ivy-*.jar")
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        found = Path(temporary, kind)
        command = [java(), "-cp", str(ivy), "org.apache.ivy.Main"]
        command += ["-cache", f"{temporary}/cache", "-ivy", str(HERE / "ivy.xml")]
        command += ["-confs", kind, "-types", "jar", "bundle"]
        command += ["-retrieve", f"{found}/{PATTERN}"]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, timeout=300, check=False
            )
        except subprocess.TimeoutExpired as error:
            msg = "Kafka's jars did not come within 300 s"
            raise Unavailable(msg) from error
        if done.returncode or not _sound(found, wanted):
            last = "\n".join((done.stdout + done.stderr).splitlines()[-15:])
            msg = f"Kafka's jars cannot be fetched, or are not those wanted:\n{last}"
            raise Unavailable(msg)
        shutil.rmtree(folder, ignore_errors=True)
        found.rename(folder)
