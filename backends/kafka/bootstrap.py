"""Tests whether anything listens at the bootstrap addresses.

librdkafka repeats refused connections until a request times out, since a broker may be
about to start. Whether to wait for one is decided by whoever made the call.
"""

from __future__ import annotations

import re
import socket
import threading
from typing import Final

_ADDRESS: Final = re.compile(
    r"(?:\w+://)?(?:\[(?P<six>[^\]]+)\]|(?P<host>[^:]+))(?::(?P<port>\d+))?"
)
_PORT: Final = 9092
_TIMEOUT: Final = 0.5
"""Seconds after which an address counts as one that does not refuse connections."""


_LIMIT: Final = 2.0
"""Seconds for all addresses: the look-up of a name has no timeout of its own."""


def refusals(addresses: str) -> str | None:
    """Why no address of a list can be reached; None if that is not certain of one."""
    reasons: list[str] = []
    listed = addresses.split(",")

    def test_all() -> None:
        for address in listed:
            reason = _refusal(address.strip())
            if reason is None:
                return
            reasons.append(reason)

    thread = threading.Thread(target=test_all, name="bootstrap", daemon=True)
    thread.start()
    thread.join(_LIMIT)
    return ", ".join(reasons) if len(reasons) == len(listed) else None


def _refusal(address: str) -> str | None:
    match = _ADDRESS.fullmatch(address)
    if match is None:
        return None
    place = match["six"] or match["host"], int(match["port"] or _PORT)
    try:
        with socket.create_connection(place, _TIMEOUT, all_errors=True):
            return None
    except ExceptionGroup as group:
        errors = group.exceptions
        refused = all(isinstance(error, ConnectionRefusedError) for error in errors)
        return f"{address} refuses connections" if refused else None
    except socket.gaierror as error:
        unknown = error.errno == socket.EAI_NONAME
        return f"{address}: the name is unknown" if unknown else None
    except (OSError, OverflowError, UnicodeError):
        return None
