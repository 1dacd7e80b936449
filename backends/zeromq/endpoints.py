"""Parses the endpoints of the options ``bind`` and ``connect``.

An entry is ``tcp://host:port``, ``ipc:///path`` or ``inproc://name``. A range
(``tcp://host:first-last``, ``ipc:///path-{0-3}``) has one endpoint for each partition;
several entries give each partition several endpoints.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

from streamfactory.spi import OptionType

_MOST_PARTITIONS: Final = 1_000
_MOST_ENTRIES: Final = 1_000
_LONGEST_PATH: Final = 100
"""Bytes: every system accepts them in the address of a Unix socket."""
_TCP: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\],;@]+):"
    r"(?P<first>[0-9]{1,5})(?:-(?P<last>[0-9]{1,5}))?"
)
_BRACES: Final = re.compile(r"\{([0-9]{1,9})-([0-9]{1,9})\}")
_FORM: Final = (
    "is not an endpoint: write tcp://host:port, tcp://host:first-last, ipc:///path or "
    "inproc://name"
)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One address of ZeroMQ."""

    transport: str
    """``tcp``, ``ipc`` or ``inproc``."""
    name: str
    """What follows ``://``."""
    host: str = ""
    """For tcp: a name, an IP address without brackets, or ``*``."""

    @property
    def is_local(self) -> bool:
        """Whether only processes of this machine can reach it."""
        if self.transport != "tcp" or self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False

    @property
    def is_ipv6(self) -> bool:
        """Whether the host is an IPv6 number."""
        return ":" in self.host

    def __str__(self) -> str:
        return f"{self.transport}://{self.name}"


def parse_endpoints(text: str) -> tuple[tuple[Endpoint, ...], ...]:
    """The endpoints of each partition: partition i has the i-th of every entry.

    Raises:
        ValueError: With a text that follows the value in a sentence.
    """
    entries = [_parse_entry(entry.strip()) for entry in text.split(",")]
    if len(entries) > _MOST_ENTRIES:
        msg = f"has more than {_MOST_ENTRIES} entries"
        raise ValueError(msg)
    if len({len(entry) for entry in entries}) > 1:
        counts = ", ".join(str(len(entry)) for entry in entries)
        msg = f"has entries with different numbers of partitions: {counts}"
        raise ValueError(msg)
    partitions = tuple(zip(*entries, strict=True))
    every = [endpoint for partition in partitions for endpoint in partition]
    if len(set(every)) < len(every):
        msg = "contains an endpoint twice"
        raise ValueError(msg)
    return partitions


def _parse_entry(text: str) -> list[Endpoint]:
    transport, colon, name = text.partition("://")
    transport = transport.lower()
    if not colon or not name or transport not in ("tcp", "ipc", "inproc"):
        raise ValueError(_FORM)
    if transport == "tcp":
        return _tcp(name)
    if transport == "ipc" and (not name.startswith("/") or "\0" in name):
        msg = "has no absolute path after ipc://"
        raise ValueError(msg)
    names = _expand(name)
    if transport == "ipc" and max(len(n.encode()) for n in names) > _LONGEST_PATH:
        msg = f"has a path of more than {_LONGEST_PATH} bytes"
        raise ValueError(msg)
    return [Endpoint(transport, one) for one in names]


def _tcp(name: str) -> list[Endpoint]:
    match = _TCP.fullmatch(name)
    if match is None:
        raise ValueError(_FORM)
    ports = _numbers(match["first"], match["last"])
    if not 1 <= ports[0] <= ports[-1] <= 65_535:
        msg = "has a port outside of 1 to 65535"
        raise ValueError(msg)
    host = match["host"]
    return [Endpoint("tcp", f"{host}:{port}", host.strip("[]")) for port in ports]


def _expand(name: str) -> list[str]:
    braces = _BRACES.search(name)
    if braces is None:
        return [name]
    before, behind = name[: braces.start()], name[braces.end() :]
    return [f"{before}{n}{behind}" for n in _numbers(braces[1], braces[2])]


def _numbers(first: str, last: str | None) -> range:
    numbers = range(int(first), int(last or first) + 1)
    if not numbers:
        msg = "is a range that ends before its start"
        raise ValueError(msg)
    if len(numbers) > _MOST_PARTITIONS:
        msg = f"is a range of more than {_MOST_PARTITIONS} partitions"
        raise ValueError(msg)
    return numbers


ENDPOINTS: Final = OptionType("endpoints", parse_endpoints, {"type": "string"})
