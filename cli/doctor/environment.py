"""Findings about Python, Java, PySpark, packages, ports, files and the clock."""

from __future__ import annotations

import os
import platform
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from importlib.metadata import PackageNotFoundError, metadata, requires, version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.cli.doctor.findings import ERROR, OK, WARNING, Finding
from streamfactory.compiled.core import load
from streamfactory.spark import find_java
from streamfactory.spi.masking import MASK, mask_value
from streamfactory.wiring.options.masking import looks_secret

if TYPE_CHECKING:
    from collections.abc import Iterator

_NAME: Final = "streamfactory"
_NATIVE: Final = "streamfactory-native"
_REQUIREMENT: Final = re.compile(
    r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*(?:>=\s*(?P<least>[0-9][0-9.]*))?"
    r"[^;]*(?:;.*?\bextra == ['\"](?P<extra>[^'\"]+)['\"])?"
)
_NOT_LISTED: Final = frozenset({"all", "dev"})
"""Extras that only combine others."""
_JAVA: Final = 17
"""The oldest Java that Spark 4 supports."""
_VARIABLES: Final = ("STREAMFACTORY_", "PYSPARK_", "SPARK_", "JAVA_HOME")
_SETTING: Final = re.compile(r"([\w.-]+)=(\"[^\"]*\"|'[^']*'|[^\s,;]+)")
"""``key=value`` within a variable, as in PYSPARK_SUBMIT_ARGS."""
_PLATFORM: Final = re.compile(r"sys_platform == ['\"]([^'\"]+)['\"]")
_SKEW: Final = 2.0
"""Seconds that the clock of a file system may differ."""
_SPACE: Final = 1 << 30
"""Free bytes in the temporary folder below which Spark may fail."""
_SECONDS: Final = 20.0
"""For another program to print its version."""


def environment_findings() -> Iterator[Finding]:
    """All findings that do not concern streams."""
    yield _python()
    yield from _packages()
    yield _native()
    yield from _spark()
    yield from _variables()
    yield _port()
    yield _hostname()
    yield from _temporary()
    yield _clock()


def _python() -> Finding:
    implementation = platform.python_implementation()
    what = f"{implementation} {platform.python_version()}, {sys.executable}, "
    return Finding("python", "interpreter", OK, what + platform.platform())


def _packages() -> Iterator[Finding]:
    """The package itself, what it requires, and its extras."""
    try:
        shown = f"{version(_NAME)}, {Path(__file__).parents[2]}"
    except PackageNotFoundError:
        what = "the package has no metadata: plug-ins cannot be found"
        remedy = f"pip install {_NAME}"
        yield Finding("python", _NAME, ERROR, what, remedy)
        return
    yield Finding("python", _NAME, OK, shown)
    extras: dict[str, list[tuple[str, str | None]]] = {}
    for text in requires(_NAME) or ():
        match = _REQUIREMENT.match(text)
        if match is not None and match["name"] != _NAME and _applies(text):
            extra = match["extra"] or ""
            extras.setdefault(extra, []).append((match["name"], match["least"]))
    for extra, needed in extras.items():
        if extra not in _NOT_LISTED:
            yield _extra(extra, needed)


def _applies(requirement: str) -> bool:
    """Whether a requirement is for this platform."""
    match = _PLATFORM.search(requirement)
    return match is None or match[1] == sys.platform


def _extra(extra: str, needed: list[tuple[str, str | None]]) -> Finding:
    """An extra; the requirements of the package itself have an empty name."""
    shown, missing, old = [], [], []
    for name, least in needed:
        found = _version(name)
        shown.append(f"{name} {found or 'not installed'}")
        if found is None:
            missing.append(name)
        elif least is not None and _numbers(found) < _numbers(least):
            old.append(f"{name} {found} is older than {least}")
    area, name = ("extra", extra) if extra else ("python", "required")
    remedy = f"pip install '{_NAME}[{extra}]'" if extra else f"pip install {_NAME}"
    if old:
        return Finding(area, name, WARNING, ", ".join(old), f"{remedy} --upgrade")
    if missing and len(missing) < len(needed):
        what = f"{', '.join(shown)}: incomplete"
        return Finding(area, name, WARNING if extra else ERROR, what, remedy)
    return Finding(area, name, OK, ", ".join(shown))


def _native() -> Finding:
    """The compiled part, which is never required."""
    found = _version(_NATIVE)
    if found is None:
        what = "not installed: Python routes rows, parses JSON and uses Kafka's client"
        return Finding("extra", _NATIVE, OK, what)
    reason = load()
    if isinstance(reason, str):
        what = f"{found}: the compiled core is not used: {reason}"
        remedy = f"pip install --upgrade '{_NAME}[native]'"
        return Finding("extra", _NATIVE, WARNING, what, remedy)
    what = f"{found}: rows are routed and JSON is parsed natively; Kafka is, unless a "
    return Finding("extra", _NATIVE, OK, f"{what}warning is logged")


def _version(name: str) -> str | None:
    try:
        return metadata(name)["Version"]
    except PackageNotFoundError:
        return None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", text)[:3])


def _spark() -> Iterator[Finding]:
    """PySpark, Java, and the interpreters of the driver and the workers."""
    pyspark = _version("pyspark")
    if pyspark is None:
        what = "PySpark is not installed: pipelines and the Spark source cannot run"
        yield Finding("spark", "pyspark", OK, what)
        return
    yield Finding("spark", "pyspark", OK, pyspark)
    yield from _java()
    home = os.environ.get("SPARK_HOME")
    if home is not None and not Path(home, "bin").is_dir():
        what = f"SPARK_HOME is {home}, which has no Spark"
        yield Finding("spark", "SPARK_HOME", ERROR, what, "unset SPARK_HOME")
    for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        if os.environ.get(name):
            yield _interpreter(name, os.environ[name])


def _java() -> Iterator[Finding]:
    """The Java that Spark starts; an invalid JAVA_HOME hides none on the path."""
    java = find_java()
    if java is None and "JAVA_HOME" in os.environ:
        what = f"JAVA_HOME is {os.environ['JAVA_HOME']}, which has no Java"
        yield Finding("spark", "JAVA_HOME", WARNING, what, "unset it, or correct it")
        java = shutil.which("java")
    yield _version_of(java)


def _version_of(java: str | None) -> Finding:
    remedy = f"install Java {_JAVA} or later, and set JAVA_HOME"
    if java is None:
        return Finding("spark", "java", ERROR, "no Java was found", remedy)
    text = _output([java, "-version"])
    # Java prints the options that it takes from its environment before its version.
    match = re.search(r'^.*version "(?:1\.)?(\d+).*$', text or "", re.MULTILINE)
    if match is None:
        what = f"{java} does not run"
        return Finding("spark", "java", ERROR, what, remedy)
    what = f"{match[0].strip()}, {java}"
    if int(match[1]) < _JAVA:
        return Finding("spark", "java", ERROR, what, remedy)
    return Finding("spark", "java", OK, what)


def _interpreter(name: str, program: str) -> Finding:
    """Spark's workers need the Python version of the driver, to the minor."""
    mine = f"{sys.version_info.major}.{sys.version_info.minor}"
    remedy = f"set {name}={sys.executable}, or unset it"
    code = "import sys; print('%d.%d' % sys.version_info[:2])"
    found = _output([program, "-c", code])
    if found is None:
        what = f"{program} does not run"
        return Finding("spark", name, ERROR, what, remedy)
    what = f"{program}, Python {found.strip()}"
    if found.strip() != mine:
        return Finding("spark", name, ERROR, f"{what}, but this is {mine}", remedy)
    return Finding("spark", name, OK, what)


def _output(command: list[str]) -> str | None:
    """What a program prints; None if it does not run or fails."""
    try:
        done = subprocess.run(  # noqa: S603 - programs that Spark would start as well
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def _variables() -> Iterator[Finding]:
    """Environment variables that change the behaviour, without secrets."""
    for name, value in sorted(os.environ.items()):
        if name.startswith(_VARIABLES):
            shown = MASK if looks_secret(name) else _masked(value)
            yield Finding("environment", name, OK, shown)


def _masked(text: str) -> str:
    """The value of a variable without secrets, those of settings in it included."""
    return _SETTING.sub(
        lambda m: f"{m[1]}={MASK}" if looks_secret(m[1]) else m[0], mask_value(text)
    )


def _port() -> Finding:
    """Spark's driver, servers and receivers listen on the loopback interface."""
    remedy = "allow this user to listen on 127.0.0.1"
    try:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen()
            with socket.create_connection(listening.getsockname(), timeout=5):
                return Finding("network", "ports", OK, "local ports can be used")
    except OSError as error:
        what = f"no local port can be used: {error}"
        return Finding("network", "ports", ERROR, what, remedy)


def _hostname() -> Finding:
    name = socket.gethostname()
    try:
        address = socket.gethostbyname(name)
    except OSError as error:
        what = f"the name of this machine, {name}, has no address: {error}"
        remedy = f"add {name} to /etc/hosts, or set SPARK_LOCAL_IP"
        return Finding("network", "hostname", WARNING, what, remedy)
    return Finding("network", "hostname", OK, f"{name}, {address}")


def _temporary() -> Iterator[Finding]:
    folder = tempfile.gettempdir()
    remedy = "set TMPDIR to a folder that is writable and has space"
    try:
        with tempfile.NamedTemporaryFile() as file:
            file.write(b"1")
            file.flush()
        free = shutil.disk_usage(folder).free
    except OSError as error:
        what = f"{folder} is not writable: {error.strerror}"
        yield Finding("files", "temporary", ERROR, what, remedy)
        return
    what = f"{folder}, {free / (1 << 30):.1f} GiB free"
    low = free < _SPACE
    yield Finding(
        "files", "temporary", WARNING if low else OK, what, remedy if low else None
    )


def _clock() -> Finding:
    """Compare with the file system's clock: another machine's, on a network."""
    what = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    remedy = "synchronise the clock of this machine (NTP)"
    try:
        with tempfile.NamedTemporaryFile() as file:
            skew = Path(file.name).stat().st_mtime - time.time()
    except OSError:
        skew = 0.0  # reported by the check of the folder
    if abs(skew) > _SKEW:
        what += f"; the file system's clock differs by {skew:.1f} s"
        return Finding("clock", "utc", WARNING, what, remedy)
    return Finding("clock", "utc", OK, what)
