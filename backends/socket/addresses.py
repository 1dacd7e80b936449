"""Addresses of sockets: ``host:port``, ``host:first-last``, ``unix:/path``.

A range of ports, or of numbers in braces in a path, defines partitions 0 to n-1.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from dataclasses import dataclass
from typing import Any, Final

from streamfactory.spi import ConnectionFailed, OptionType

_MOST_PARTITIONS: Final = 1_000
_LONGEST_PATH: Final = 100
"""Bytes that every system accepts, including the terminator."""
_INTERNET: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):(?P<first>[0-9]+)(?:-(?P<last>[0-9]+))?"
)
_BRACES: Final = re.compile(r"\{([0-9]{1,9})-([0-9]{1,9})\}")


@dataclass(frozen=True, slots=True)
class Address:
    """The address of one partition."""

    host: str
    """Host name or IP address; empty for a Unix socket."""
    port: int
    path: str = ""
    """Path of a Unix socket."""

    @property
    def is_unix(self) -> bool:
        """Whether it is a Unix socket."""
        return bool(self.path)

    @property
    def is_local(self) -> bool:
        """Whether traffic to the address stays on this machine."""
        return self.is_unix or self.host == "localhost" or _loops(self.host)

    def resolve(self) -> list[tuple[int, Any]]:
        """Families and addresses for the operating system.

        Raises:
            ConnectionFailed: transient; the name cannot be resolved, or ``localhost``
                resolves to another machine.
        """
        if self.is_unix:
            return [(socket.AF_UNIX, self.path)]
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            msg = f"the host {self.host!r} cannot be resolved: {error}"
            raise ConnectionFailed(msg) from error
        places = [
            (family, place)
            for family, _, _, _, place in found
            if not self.is_local or _loops(str(place[0]))
        ]
        if not places:
            msg = f"the host {self.host!r} does not resolve to this machine"
            raise ConnectionFailed(msg)
        # IPv4 first: many programs listen only there.
        return sorted(places, key=lambda found: found[0] != socket.AF_INET)

    def __str__(self) -> str:
        if self.is_unix:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def _loops(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Parse addresses, one per partition.

    Raises:
        ValueError: With a text that follows the value in a sentence.
    """
    kind, colon, path = text.strip().partition(":")
    if colon and kind.lower() == "unix":
        return _paths(path)
    match = _INTERNET.fullmatch(text.strip())
    if match is None:
        msg = "is not an address: write host:port, host:first-last or unix:/path"
        raise ValueError(msg)
    host = match["host"].strip("[]")
    ports = _numbers(match["first"], match["last"])
    if not 1 <= ports[0] <= ports[-1] <= 65_535:
        msg = "has a port outside of 1 to 65535"
        raise ValueError(msg)
    return tuple(Address(host, port) for port in ports)


def _paths(path: str) -> tuple[Address, ...]:
    braces = _BRACES.search(path)
    if not path.startswith("/") or "\0" in path:
        msg = "has no absolute path after unix:"
        raise ValueError(msg)
    found = [path]
    if braces is not None:
        numbers = _numbers(braces[1], braces[2])
        before, behind = path[: braces.start()], path[braces.end() :]
        found = [f"{before}{number}{behind}" for number in numbers]
    if max(len(name.encode()) for name in found) > _LONGEST_PATH:
        msg = f"has a path of more than {_LONGEST_PATH} bytes"
        raise ValueError(msg)
    return tuple(Address("", 0, name) for name in found)


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


ADDRESSES: Final = OptionType("address", parse_addresses, {"type": "string"})
