"""The options of ``flight``."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from streamfactory.arrowlog import LOG_OPTIONS
from streamfactory.spi import BOOLEAN, PATH, PERIOD, Option, OptionType, choice

SCHEMES: Final = ("grpc", "grpc+tcp", "grpc+tls")
TLS: Final = "grpc+tls"
LOG, PLAIN = "log", "plain"
"""Of ``protocol``."""


def _locations(text: str) -> tuple[str, ...]:
    found = tuple(part.strip() for part in text.split(",") if part.strip())
    for location in found:
        parts = urlsplit(location)
        if parts.scheme not in SCHEMES or not parts.hostname or parts.port is None:
            msg = f"is not {' or '.join(f'{s}://host:port' for s in SCHEMES)}"
            raise ValueError(msg)
        if "@" in parts.netloc or parts.path or parts.query:
            msg = "has more than a host and a port: give a token with the option token"
            raise ValueError(msg)
    if not found:
        msg = "names no server"
        raise ValueError(msg)
    return found


LOCATIONS: Final = OptionType("locations", _locations, {"type": "string"})
"""``a,b``; the value is a tuple of strings."""

OPTIONS: Final = (
    Option(
        "location",
        "Address of the server: grpc://host:port, or grpc+tls://host:port. Of several, "
        "separated by commas, the next one is tried when one cannot be reached.",
        LOCATIONS,
        required=True,
        example="grpc://127.0.0.1:8815",
    ),
    Option(
        "token",
        "Bearer token of this client.",
        secret=True,
        example="${env:FLIGHT_TOKEN}",
    ),
    Option(
        "tls.ca",
        "With grpc+tls: PEM file with the CA certificates that the server is verified "
        "against; by default those of the system.",
        PATH,
    ),
    Option("tls.certificate", "PEM file with the client certificate.", PATH),
    Option("tls.key", "PEM file with the key of the client certificate.", PATH),
    Option(
        "upload.timeout.millis",
        "Timeout for uploading the rows of one task's attempt.",
        PERIOD,
        default="1h",
        minimum=1000,
        applies=frozenset({"write", "spark"}),
    ),
    Option(
        "protocol",
        "log: a streamfactory server. plain: any other Flight server, read-only: its "
        "endpoints are partitions.",
        choice(LOG, PLAIN),
        default=LOG,
    ),
    Option(
        "plain.command",
        "With protocol=plain, the command that describes the stream to the server; "
        "without it, the topic's name is the path.",
        applies=frozenset({"read", "spark"}),
    ),
    Option(
        "plain.deterministic",
        "With protocol=plain: the server answers each DoGet with the same rows in the "
        "same order, so that they can be read again.",
        BOOLEAN,
        default="false",
        applies=frozenset({"read", "spark"}),
    ),
    *LOG_OPTIONS,
)
