"""The cookies of the pages: their names, and how browsers treat them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flask import request

from streamfactory.ui.site import site

if TYPE_CHECKING:
    from werkzeug.wrappers import Response


def session_cookie() -> str:
    """The name of the cookie of a session; ports of a host share their cookies."""
    return f"streamfactory-{site().access.port}"


def set_cookie(
    response: Response,
    name: str,
    secret: str,
    *,
    age: int | None = None,
    lax: bool = False,
) -> None:
    """Set a cookie that scripts cannot read, and that is sent by TLS if this is.

    Args:
        response: The answer.
        name: Of the cookie.
        secret: Its value.
        age: Seconds; None: until the browser ends.
        lax: Whether links of other sites send it, too.
    """
    response.set_cookie(
        name,
        secret,
        max_age=age,
        httponly=True,
        samesite="Lax" if lax else "Strict",
        secure=_is_secure(),
    )


def drop_cookie(response: Response, name: str) -> None:
    """Have a browser forget a cookie."""
    response.delete_cookie(name, httponly=True, samesite="Strict", secure=_is_secure())


def _is_secure() -> bool:
    """Whether browsers call the pages by TLS: that of this server, or of a proxy."""
    sign_ins = site().access.sign_ins
    host = "" if sign_ins is None else sign_ins.secure_host
    return request.is_secure or request.host == host
