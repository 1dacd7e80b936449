"""Check that the server can listen on its address, before gRPC starts."""

from __future__ import annotations

import errno
import socket

from streamfactory.spi import ConfigError
from streamfactory.spi.addresses import is_unspecified, parse_address


def check_address(address: str) -> None:
    """Bind the address and release it again: gRPC reports no cause when it cannot.

    Args:
        address: ``host:port``; port 0 stands for a free one.

    Raises:
        ConfigError: config; the address is in use, or is none of this machine.
    """
    host, port = parse_address(address)
    try:
        _bind(host, port)
    except OSError as error:
        raise unusable(address, error.strerror or str(error)) from error


def unusable(address: str, cause: str) -> ConfigError:
    """The error of a server that cannot listen."""
    msg = f"flight address: cannot listen on {address}: {cause}"
    return ConfigError(msg, remedy="choose another address")


def _bind(host: str, port: int) -> None:
    refused, bound = None, False
    for family, kind, protocol, _, place in socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM
    ):
        try:
            with socket.socket(family, kind, protocol) as probe:
                # As gRPC does: ports of a killed server are free at once.
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                probe.bind(place)
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise
            refused = error
        else:
            bound = True
    # gRPC needs one address of a name. It replaces `::` where there is no IPv6.
    if refused is not None and not bound and not is_unspecified(host):
        raise refused
