"""Addresses that servers listen on: ``host:port``."""

from __future__ import annotations

import ipaddress


def parse_address(text: str) -> tuple[str, int]:
    """Host and port of ``host:port``; an IPv6 host without its brackets.

    Raises:
        ValueError: It is not ``host:port``.
    """
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or int(port) > 65535:
        msg = f"{text!r} is not host:port"
        raise ValueError(msg)
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host, given by name or address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_unspecified(host: str) -> bool:
    """Whether a host stands for all addresses of this machine: ``0.0.0.0``, ``::``."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False
