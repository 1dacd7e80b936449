"""Where a socket is: ``host:port``, ``host:first-last``, ``unix:/path``.

A range of ports, or of numbers in braces in a path, gives partitions 0 to n-1.
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
"""Bytes: what every system takes, with room for its own end mark."""
_INTERNET: Final = re.compile(
    r"(?P<host>\[[0-9A-Fa-f:.%]+\]|[^\s:/\[\]]+):(?P<first>[0-9]+)(?:-(?P<last>[0-9]+))?"
)
_BRACES: Final = re.compile(r"\{([0-9]{1,9})-([0-9]{1,9})\}")


@dataclass(frozen=True, slots=True)
class Address:
    """One end point."""

    host: str
    """Name or number; empty for a Unix socket."""
    port: int
    path: str = ""
    """Of a Unix socket."""

    @property
    def is_unix(self) -> bool:
        """Whether it is a Unix socket."""
        return bool(self.path)

    @property
    def is_local(self) -> bool:
        """Whether nothing leaves this machine on its way there."""
        return self.is_unix or self.host == "localhost" or _loops(self.host)

    def resolve(self) -> list[tuple[int, Any]]:
        """Families and addresses as the operating system wants them.

        Raises:
            ConnectionFailed: transient; the name is not known, or ``localhost`` is
                another machine here.
        """
        if self.is_unix:
            return [(socket.AF_UNIX, self.path)]
        try:
            found = socket.getaddrinfo(self.host, self.port, type=socket.SOCK_STREAM)
        except OSError as error:
            msg = f"the host {self.host!r} is not known: {error}"
            raise ConnectionFailed(msg) from error
        places = [
            (family, place)
            for family, _, _, _, place in found
            if not self.is_local or _loops(str(place[0]))
        ]
        if not places:
            msg = f"the host {self.host!r} is not this machine"
            raise ConnectionFailed(msg)
        # Where a name has both, programs mostly listen at the older kind alone.
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
    """The addresses that ``text`` names, one for each partition.

    Raises:
        ValueError: What is wrong, in words that follow the value in a sentence.
    """
    kind, colon, path = text.strip().partition(":")
    if colon and kind.lower() == "unix":
        return _paths(path)
    match = _INTERNET.fullmatch(text.strip())
    if match is None:
        msg = "is no address: write host:port, host:first-last or unix:/path"
        raise ValueError(msg)
    host = match["host"].strip("[]")
    ports = _numbers(match["first"], match["last"])
    if not 1 <= ports[0] <= ports[-1] <= 65_535:
        msg = "has a port that is not 1 to 65535"
        raise ValueError(msg)
    return tuple(Address(host, port) for port in ports)


def _paths(path: str) -> tuple[Address, ...]:
    braces = _BRACES.search(path)
    if not path.startswith("/") or "\0" in path:
        msg = "is no absolute path behind unix:"
        raise ValueError(msg)
    found = [path]
    if braces is not None:
        numbers = _numbers(braces[1], braces[2])
        before, behind = path[: braces.start()], path[braces.end() :]
        found = [f"{before}{number}{behind}" for number in numbers]
    if max(len(name.encode()) for name in found) > _LONGEST_PATH:
        msg = f"is a path of more than {_LONGEST_PATH} bytes"
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
