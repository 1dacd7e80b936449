"""Whether a server refuses the certificate of its client, which gRPC does not say.

With TLS 1.3 the client's handshake ends before the server has checked its certificate,
and gRPC reports the end of the connection only. With TLS 1.2 the check is part of the
handshake.
"""

from __future__ import annotations

import re
import socket
import ssl
import time
from typing import Final
from urllib.parse import urlsplit

_SECONDS: Final = 1.0
_PAUSE: Final = 0.2
"""Between two handshakes: a server that ends accepts no second one."""
_CLOSED_AFTER: Final = re.compile(
    "Socket closed|recvmsg:|Delayed close|Unwrap failed|Ssl handshake failed"
)
"""How gRPC 1.7x describes a connection that was closed once the client had ended its
handshake, or an alert of the server."""
_ALERTS: Final = re.compile("CERTIFICATE|UNKNOWN_CA|ACCESS_DENIED|HANDSHAKE_FAILURE")
"""Alerts of servers that refuse a certificate. Arrow's sends none."""


def refuses_certificate(
    location: str, cause: str, certificate: tuple[str, str] | None
) -> bool:
    """Whether a connection failed because of the client's certificate, or without one.

    Connects, at most twice, for a second each.

    Args:
        location: ``grpc+tls://host:port``.
        cause: Why gRPC made no connection.
        certificate: The files of the client's certificate and of its key.
    """
    if _CLOSED_AFTER.match(cause) is None:
        return False
    # Nothing is sent but what gRPC sent before, after it had checked the server.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    if certificate is not None:
        try:
            context.load_cert_chain(*certificate, password="")
        except OSError:  # replaced since gRPC read them, or a key that OpenSSL refuses
            return False
    if not _is_refused(location, context):
        return False
    time.sleep(_PAUSE)
    return _is_refused(location, context)


def _is_refused(location: str, context: ssl.SSLContext) -> bool:
    address = urlsplit(location)
    try:
        with (
            socket.create_connection((address.hostname, address.port), _SECONDS) as one,
            context.wrap_socket(
                one, server_hostname=address.hostname, do_handshake_on_connect=False
            ) as secured,
        ):
            try:
                secured.do_handshake()
            except ssl.SSLEOFError:
                # A server that has not answered closes whatever the certificate is.
                return secured.cipher() is not None
    except ssl.SSLError as error:
        return _ALERTS.search(error.reason or "") is not None
    except OSError:
        return False
    return False
