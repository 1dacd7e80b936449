"""Who sends a request: a session, a proxy, or the token of a program say it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from flask import abort, g, request

from streamfactory.ui.cookies import session_cookie
from streamfactory.ui.openid.rules import SignInRefused
from streamfactory.ui.problems import is_change, is_for_programs
from streamfactory.ui.proxies import NotTrusted
from streamfactory.ui.site import site
from streamfactory.wiring.core.shown import printable

if TYPE_CHECKING:
    from streamfactory.ui.people import User

_log = logging.getLogger("streamfactory.ui")


def identify() -> None:
    """Find the user of a request, and the session: both None if it has none."""
    access = site().access
    g.user = g.session = None
    proxied = _proxied()
    sends_token = proxied is None and "Authorization" in request.headers
    if is_for_programs() and (sends_token or is_change()):
        g.user = _bearer()  # for changes always: browsers send cookies by themselves
        return
    g.session = access.session(request.cookies.get(session_cookie()), proxied)
    if proxied is not None:
        if g.session is None and not is_for_programs():
            g.cookie = access.begin(proxied)
            g.session = access.session(g.cookie, proxied)
        g.user = proxied
    elif g.session is not None:
        g.user = g.session.user
    else:
        g.user = access.anybody


def _proxied() -> User | None:
    """Who the proxy says the user is."""
    proxy = site().access.proxy
    if proxy is None:
        return None
    try:
        return proxy.user_of(request.headers, str(request.remote_addr))
    except NotTrusted as error:
        _log.warning(
            "a request that says who it is from %s was refused: %s",
            request.remote_addr,
            printable(str(error)),
        )
        abort(403, "The request says who its user is, and the pages do not trust it.")


def _bearer() -> User:
    """Let a program in that sends a token."""
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if not kind:
        abort(401, "Send a token: Authorization: Bearer TOKEN.")
    client = str(request.remote_addr)
    found = None
    try:
        if kind.lower() == "bearer":
            found = site().access.user_of(token.strip(), client)
    except SignInRefused as refused:
        text = printable(str(refused))
        _log.warning("a request from %s was refused: %s", client, text)
        abort(401, f"The request is refused: {text}.")
    if found is None:
        _log.warning("a request with a wrong token from %s", client)
        abort(401, "The token is wrong.")
    return found
