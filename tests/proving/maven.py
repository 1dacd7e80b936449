"""Java peers of the tests: published jars, by Maven, in the user's cache."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.proving.skipping import skip_or_fail


def java_peer(source: Path, classes: Path) -> list[str]:
    """The command that runs a Java program.

    Args:
        source: The program; ``pom.xml`` beside it names the jars that it needs.
        classes: Folder for what is compiled.
    """
    compiler, runner = shutil.which("javac"), shutil.which("java")
    if compiler is None or runner is None:
        skip_or_fail("Java (javac and java) is not installed")
    assert compiler is not None
    assert runner is not None
    path = f"{_jars(source.with_name('pom.xml'))}/*"
    subprocess.run(
        [compiler, "-encoding", "UTF-8", "-cp", path, "-d", str(classes), str(source)],
        check=True,
        timeout=300,
    )
    opens = "--add-opens=java.base/java.nio=ALL-UNNAMED"
    utf8 = ["-Dfile.encoding=UTF-8", "-Dsun.stdout.encoding=UTF-8"]
    return [runner, opens, *utf8, "-cp", f"{path}:{classes}", source.stem]


def _jars(pom: Path) -> Path:
    """The folder of the jars that a project file names; fetched once."""
    found = _cache() / hashlib.sha256(pom.read_bytes()).hexdigest()[:16]
    if found.is_dir():
        return found
    maven = shutil.which("mvn")
    if maven is None:
        skip_or_fail("Maven (mvn) is not installed, and the jars are not there yet")
    assert maven is not None
    found.parent.mkdir(parents=True, exist_ok=True)
    # Another process may be at it as well: whoever comes first is right.
    with tempfile.TemporaryDirectory(dir=found.parent) as folder:
        command = [maven, "-q", "-B", "-f", str(pom), "dependency:copy-dependencies"]
        command += [f"-DoutputDirectory={folder}/jars"]
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode:
            skip_or_fail(f"Maven cannot fetch the jars of {pom}: {done.stdout[-500:]}")
        with contextlib.suppress(OSError):
            Path(folder, "jars").rename(found)
    return found


def _cache() -> Path:
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root, "streamfactory", "arrow-java")
