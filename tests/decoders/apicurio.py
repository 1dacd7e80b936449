"""Apicurio Registry, a real server, by Maven and in the user's cache."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Final

from tests.kafka.jars import Unavailable, cached, java, locked
from tests.proving.ports import free_port
from tests.proving.shared import LEFT_TO_THE_WATCHER, Run, started_once, watched

VERSION: Final = "3.0.9"
"""The last one that runs on Java 17, as the broker of the tests does."""
ARTIFACT: Final = f"io.apicurio:apicurio-registry-app:{VERSION}:tar.gz:all"
ARCHIVE: Final = f"apicurio-registry-app-{VERSION}-all.tar.gz"
DIGEST: Final = "2b28181501a20cbf6efcd77f9b7153908fc01f3d3a7c32024c0bd9e1b04c8a43"
API: Final = "/apis/ccompat/v7"
"""Path of the interface that Confluent's client uses."""
_STARTED: Final = 120.0
"""Seconds in which it has to answer."""


def installed() -> Path:
    """The folder of the server; fetched once.

    Raises:
        Unavailable: It cannot be fetched, or is another.
    """
    folder = cached(f"apicurio-{VERSION}")
    with locked(cached("apicurio.lock")):
        if not folder.is_dir():
            _install(folder)
    return folder


def _install(folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        msg = "Maven (mvn) is not installed, and Apicurio is not there yet"
        raise Unavailable(msg)
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}"]
        done = subprocess.run(
            [*command, f"-DoutputDirectory={made}"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        archive = Path(made, ARCHIVE)
        if done.returncode or not archive.exists():
            msg = f"Maven cannot fetch Apicurio: {done.stdout[-500:]}"
            raise Unavailable(msg)
        with archive.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != DIGEST:
                msg = f"{ARCHIVE} is not the archive that was expected"
                raise Unavailable(msg)
        with tarfile.open(archive) as packed:
            packed.extractall(Path(made, "server"), filter="data")
        Path(made, "server").rename(folder)


def shared_registry(run: Run) -> str:
    """The URL of the run's server; the first process that needs it starts it."""
    found = started_once(run, "apicurio", lambda: _start(run))
    return str(found["url"])


def _start(run: Run) -> dict[str, Any]:
    data, port = run.folder / "apicurio", free_port()
    data.mkdir()
    command = [
        *(java(), "-Xmx384m", "-XX:TieredStopAtLevel=1"),
        *("-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}"),
        *("-jar", str(installed() / f"apicurio-registry-app-{VERSION}-runner.jar")),
    ]
    log = data / "server.log"
    process = watched(command, run.process, data, log)
    LEFT_TO_THE_WATCHER.append(process)
    url = f"http://127.0.0.1:{port}{API}"
    deadline = time.monotonic() + _STARTED
    while not _answers(f"{url}/subjects"):
        if process.poll() is not None or time.monotonic() > deadline:
            process.terminate()
            msg = f"Apicurio does not answer: {log.read_text()[-500:]}"
            raise AssertionError(msg)
        time.sleep(0.2)
    return {"url": url}


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
