"""Log-in by a token, and log-out."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING

from flask import abort, redirect, render_template, request, url_for

from streamfactory.spi import StreamError
from streamfactory.ui.cookies import drop_cookie, session_cookie, set_cookie
from streamfactory.ui.openid.routes import sign_in_page
from streamfactory.ui.parameters import Parameter, takes_parameters
from streamfactory.ui.rights import OPEN, needs
from streamfactory.ui.site import site

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

_log = logging.getLogger("streamfactory.ui")


@takes_parameters(Parameter("token"))
@needs(OPEN)
def log_in() -> str | Response | tuple[str, int]:
    """The form for a token, and the session that begins with one."""
    access = site().access
    if not access.has_token:
        abort(404)
    if request.method == "GET":
        return render_template("log_in.html", failed=False)
    token = request.form.get("token", "").strip()
    secret = access.log_in(token, request.remote_addr or "")
    if secret is None:
        _log.warning("a log-in with a wrong token from %s", request.remote_addr)
        return render_template("log_in.html", failed=True), 403
    response = redirect(url_for("pages.overview"), 303)
    set_cookie(response, session_cookie(), secret)
    return response


@needs(OPEN)
def log_out() -> Response:
    """End the session, and that at the provider where the user signed in."""
    access, secret = site().access, request.cookies.get(session_cookie(), "")
    session = access.session(secret)
    signed = None if session is None else session.signed
    access.log_out(secret)
    response = redirect(url_for("pages.overview"), 303)
    if signed is not None and access.sign_ins is not None:
        address = None
        with suppress(StreamError):  # logged out here, whatever is with the provider
            address = access.sign_ins.provider.log_out_address(signed.token)
        if address is not None:
            # Not a redirect: that of a form to another site is refused by browsers.
            response = sign_in_page(address, "Logged out")
    drop_cookie(response, session_cookie())
    return response
