"""Parses hosts with ports, and paths of Unix sockets; a range defines partitions.

``host:first-last`` has one address for each port, and ``/path-{0-3}`` one path for each
number.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import stat
from pathlib import Path
from typing import Final

_MOST_PARTITIONS: Final = 1_000
_LONGEST_PATH: Final = 100
"""Bytes that every system accepts, including the terminator."""
_HOST: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\],;@]+):(?P<first>[0-9]+)(?:-(?P<last>[0-9]+))?"
)
_BRACES: Final = re.compile(r"\{([0-9]+)-([0-9]+)\}")


def parse_host(text: str) -> list[tuple[str, int]] | None:
    """Host, in brackets if they are there, and port of each partition.

    Returns:
        None for another form.

    Raises:
        ValueError: With a text that follows the value in a sentence.
    """
    match = _HOST.fullmatch(text)
    if match is None:
        return None
    ports = _numbers(match["first"], match["last"])
    if not 1 <= ports[0] <= ports[-1] <= 65_535:
        msg = "has a port outside of 1 to 65535"
        raise ValueError(msg)
    return [(match["host"], port) for port in ports]


def parse_path(text: str, scheme: str) -> list[str]:
    """The path of a Unix socket for each partition.

    Args:
        text: The path, with or without a range.
        scheme: What precedes the path, for the error.

    Raises:
        ValueError: As `parse_host`.
    """
    if not text.startswith("/") or "\0" in text:
        msg = f"has no absolute path after {scheme}"
        raise ValueError(msg)
    paths = expand(text)
    if max(len(path.encode()) for path in paths) > _LONGEST_PATH:
        msg = f"has a path of more than {_LONGEST_PATH} bytes"
        raise ValueError(msg)
    return paths


def expand(text: str) -> list[str]:
    """The names that a range in braces stands for; the text alone without one.

    Raises:
        ValueError: As `parse_host`.
    """
    braces = _BRACES.search(text)
    if braces is None:
        return [text]
    before, behind = text[: braces.start()], text[braces.end() :]
    return [f"{before}{number}{behind}" for number in _numbers(braces[1], braces[2])]


def _numbers(first: str, last: str | None) -> range:
    if max(len(first), len(last or "")) > 9:
        msg = "has a number that is too long"
        raise ValueError(msg)
    numbers = range(int(first), int(last or first) + 1)
    if not numbers:
        msg = "is a range that ends before its start"
        raise ValueError(msg)
    if len(numbers) > _MOST_PARTITIONS:
        msg = f"is a range of more than {_MOST_PARTITIONS} partitions"
        raise ValueError(msg)
    return numbers


def check_free(path: str) -> None:
    """Check that nothing is at a path, or a Unix socket that no process listens at.

    Raises:
        OSError: The path is in use.
    """
    try:
        mode = Path(path).lstat().st_mode
    except FileNotFoundError:
        return
    if stat.S_ISSOCK(mode):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.setblocking(False)
            if probe.connect_ex(path) == errno.ECONNREFUSED:
                return
    raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))
