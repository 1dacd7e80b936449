"""Sign-in by OpenID Connect: to the provider, back from it, and out again."""

from __future__ import annotations

import hmac
import logging
from typing import TYPE_CHECKING, Final

from flask import Blueprint, abort, make_response, redirect, render_template, request

from streamfactory.ui.cookies import drop_cookie, session_cookie, set_cookie
from streamfactory.ui.openid.rules import SignInRefused
from streamfactory.ui.parameters import Parameter, takes_parameters
from streamfactory.ui.rights import OPEN, needs
from streamfactory.ui.site import site
from streamfactory.wiring.core.shown import printable

if TYPE_CHECKING:
    from werkzeug.wrappers import Response

    from streamfactory.ui.openid.attempts import SignIns

sign_in = Blueprint("sign_in", __name__, url_prefix="/sign-in")

_MOST: Final = 4096
"""Characters of what a provider returns."""
_log = logging.getLogger("streamfactory.ui")


@sign_in.get("")
@takes_parameters()
@needs(OPEN)
def begin() -> Response:
    """Send a browser to the provider."""
    sign_ins = _sign_ins()
    secret, attempt = sign_ins.begin()
    response = redirect(
        sign_ins.provider.sign_in_address(
            attempt.state, attempt.nonce, attempt.verifier
        ),
        303,
    )
    # Lax: the provider, another site, sends the browser back. The session is Strict.
    set_cookie(response, _cookie(), secret, age=sign_ins.age, lax=True)
    return response


@sign_in.get("/callback")
@takes_parameters(Parameter("", many=True))  # providers add some of their own
@needs(OPEN)
def callback() -> tuple[str, int] | Response:
    """Begin a session of the user who comes back from the provider."""
    sign_ins, client = _sign_ins(), str(request.remote_addr)
    attempt = sign_ins.take(request.cookies.get(_cookie(), ""))
    state, code, issuer, error = (
        _one(key) for key in ("state", "code", "iss", "error")
    )
    try:
        if attempt is None or not hmac.compare_digest(
            state.encode("utf-8", "replace"), attempt.state.encode()
        ):
            msg = "it was not begun in this browser, or too long ago"
            raise SignInRefused(msg)
        if error or not code:
            msg = f"the provider answered {error[:100]!r}"
            raise SignInRefused(msg)
        found = sign_ins.provider.redeem(code, attempt.verifier, attempt.nonce, issuer)
    except SignInRefused as refused:
        text = printable(str(refused))
        _log.warning("a sign-in from %s was refused: %s", client, text)
        abort(403, f"The sign-in is refused: {text}. Sign in again.")
    access = site().access
    access.log_out(request.cookies.get(session_cookie(), ""))
    secret = access.begin_signed(found)
    _log.info("%s signed in from %s", found.user.name, client)
    # Not a redirect: its request would be one that another site began, which has no
    # cookie that is Strict.
    response = sign_in_page("/", "Signed in")
    set_cookie(response, session_cookie(), secret, age=access.session_seconds)
    drop_cookie(response, _cookie())
    return response


@sign_in.post("/ended")
@takes_parameters(
    Parameter("logout_token", "The logout token.", required=True),
    Parameter("", many=True),  # others are ignored, as the standard has it
)
@needs(OPEN)
def ended() -> Response:
    """End the sessions of a user who logged out at the provider, which calls this."""
    client = str(request.remote_addr)
    try:
        found = _sign_ins().provider.logged_out(request.form["logout_token"])
    except SignInRefused as refused:
        text = printable(str(refused))
        _log.warning("a log-out from %s was refused: %s", client, text)
        answer = {"error": "invalid_request", "error_description": text}
        return make_response(answer, 400)
    count = site().access.end_signed(found)
    _log.info("the provider ended %d sessions", count)
    return make_response("", 200)


def sign_in_page(address: str, title: str) -> Response:
    """A page that redirects."""
    return make_response(render_template("onward.html", address=address, title=title))


# --- parts ----------------------------------------------------------------------


def _sign_ins() -> SignIns:
    found = site().access.sign_ins
    if found is None:
        abort(404)
    return found


def _cookie() -> str:
    return f"{session_cookie()}-sign-in"


def _one(key: str) -> str:
    """What the provider returned once; empty if it did not, or several times."""
    found = request.args.getlist(key)
    return found[0] if len(found) == 1 and len(found[0]) <= _MOST else ""
