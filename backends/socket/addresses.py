"""Addresses of sockets: ``host:port``, ``host:first-last``, ``unix:/path``.

A range of ports, or of numbers in braces in a path, defines partitions 0 to n-1.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from typing import Any, Final

from streamfactory.live.addresses import parse_host, parse_path
from streamfactory.spi import ConnectionFailed, OptionType
from streamfactory.spi.addresses import is_loopback


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
        return self.is_unix or is_loopback(self.host)

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
            if not self.is_local or is_loopback(str(place[0]))
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


def parse_addresses(text: str) -> tuple[Address, ...]:
    """Parse addresses, one per partition.

    Raises:
        ValueError: With a text that follows the value in a sentence.
    """
    kind, colon, path = text.strip().partition(":")
    if colon and kind.lower() == "unix":
        return tuple(Address("", 0, found) for found in parse_path(path, "unix:"))
    found = parse_host(text.strip())
    if found is None:
        msg = "is not an address: write host:port, host:first-last or unix:/path"
        raise ValueError(msg)
    return tuple(Address(host.strip("[]"), port) for host, port in found)


ADDRESSES: Final = OptionType("address", parse_addresses, {"type": "string"})
