"""Parses the endpoints of the options ``bind`` and ``connect``.

An entry is ``tcp://host:port``, ``ipc:///path`` or ``inproc://name``. A range
(``tcp://host:first-last``, ``ipc:///path-{0-3}``) has one endpoint for each partition;
several entries give each partition several endpoints.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from streamfactory.live.addresses import expand, parse_host, parse_path
from streamfactory.spi import OptionType
from streamfactory.spi.addresses import is_loopback

_MOST_ENTRIES: Final = 1_000
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
        return self.transport != "tcp" or is_loopback(self.host)

    @property
    def port(self) -> int:
        """The TCP port; 0 for other transports."""
        return int(self.name.rpartition(":")[2]) if self.transport == "tcp" else 0

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
    transport, _, name = text.partition("://")
    transport = transport.lower()
    if transport == "ipc" and name:
        return [Endpoint("ipc", path) for path in parse_path(name, "ipc://")]
    if transport == "inproc" and name:
        return [Endpoint("inproc", one) for one in expand(name)]
    hosts = parse_host(name) if transport == "tcp" else None
    if hosts is None:
        raise ValueError(_FORM)
    return [Endpoint("tcp", f"{h}:{port}", h.strip("[]")) for h, port in hosts]


ENDPOINTS: Final = OptionType("endpoints", parse_endpoints, {"type": "string"})
