"""Users that a proxy in front of the pages says: trusted by a secret and an address."""

from __future__ import annotations

import hmac
import ipaddress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from streamfactory.spi.users import digest_of, is_user_name
from streamfactory.ui.people import User

if TYPE_CHECKING:
    from werkzeug.datastructures import Headers

    Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class NotTrusted(Exception):
    """A request says who its user is, and does not come from the proxy."""


@final
@dataclass(frozen=True, slots=True)
class Proxy:
    """Reads the headers of a proxy.

    The proxy has to remove these headers from what its clients send. Both the secret
    and the address are required: the secret alone may be in a log, and other programs
    have the address, too.
    """

    secret: str = field(repr=False)
    addresses: tuple[Network, ...]
    user_header: str
    groups_header: str
    secret_header: str

    def user_of(self, headers: Headers, address: str) -> User | None:
        """The user of a request; None if it says none.

        Args:
            headers: Of the request.
            address: Of the client.

        Raises:
            NotTrusted: The secret or the address is another, or a name is malformed.
        """
        if self.user_header not in headers and self.secret_header not in headers:
            return None
        given = digest_of(headers.get(self.secret_header, ""))
        if not hmac.compare_digest(given, digest_of(self.secret)):
            msg = "the secret of the proxy is missing or wrong"
            raise NotTrusted(msg)
        if not self._is_its(address):
            msg = f"{address} is no address of the proxy"
            raise NotTrusted(msg)
        name = headers.get(self.user_header, "").strip()
        groups = [
            one.strip()
            for one in headers.get(self.groups_header, "").split(",")
            if one.strip()
        ]
        for one in (name, *groups):
            if not is_user_name(one):
                msg = f"{one[:100]!r} is no name of a user or of a group"
                raise NotTrusted(msg)
        return User(name, frozenset(groups))

    def _is_its(self, address: str) -> bool:
        try:
            found = ipaddress.ip_address(address)
        except ValueError:
            return False
        mapped = getattr(found, "ipv4_mapped", None) or found
        return any(mapped in network for network in self.addresses)


def parse_networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """The addresses and networks of a list.

    Raises:
        ValueError: One of them is none.
    """
    return tuple(ipaddress.ip_network(one) for one in texts)
