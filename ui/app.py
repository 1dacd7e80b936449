"""The application: its pages, and the rules that hold for every request."""

from __future__ import annotations

import hmac
import logging
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from flask import Flask, Response, abort, g, redirect, render_template, request, url_for
from markupsafe import Markup, escape
from werkzeug.exceptions import HTTPException

from streamfactory.spi import (
    ErrorClass,
    IncarnationChanged,
    MisuseError,
    OffsetOutOfRange,
    StreamError,
    TopicNotFound,
    UnknownStream,
)
from streamfactory.ui.actions import actions
from streamfactory.ui.administration import administration
from streamfactory.ui.api import api
from streamfactory.ui.browse import browse
from streamfactory.ui.editing.files import Changed
from streamfactory.ui.editor import editor
from streamfactory.ui.mapping import mapping
from streamfactory.ui.pages import pages
from streamfactory.ui.parameters import Parameter, checked, takes_parameters
from streamfactory.ui.problems import Failed, http_problem, is_for_programs, problem
from streamfactory.ui.running import running
from streamfactory.ui.site import EXTENSION, Site, site
from streamfactory.wiring.config.catalogue import active_profile
from streamfactory.wiring.core.defects import InternalError
from streamfactory.wiring.core.shown import plain_error, printable

if TYPE_CHECKING:
    from werkzeug.wrappers import Response as AnyResponse

MOST_BYTES: Final = 96 * 1024
"""Of the body of a request: three times a file that is edited, as forms encode it."""
_OPEN: Final = ("log_in", "static")
"""Endpoints that need no session where reading requires one."""
_HEADERS: Final = {
    "Content-Security-Policy": "default-src 'none'; style-src 'self'; img-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "interest-cohort=()",
    # With no-referrer, browsers send forms of these pages with `Origin: null`.
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}

_SCRIPTS: Final = "; script-src 'self'; connect-src 'self'"
"""Of the live view, the only page with a script: a file of this server."""

_log = logging.getLogger("streamfactory.ui")


def create_app(found: Site) -> Flask:
    """The WSGI application of a site."""
    app = Flask("streamfactory.ui", static_folder="static")
    app.config["MAX_CONTENT_LENGTH"] = MOST_BYTES
    app.config["MAX_FORM_PARTS"] = 50
    app.url_map.merge_slashes = False
    app.extensions[EXTENSION] = found
    app.jinja_env.finalize = _printable
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.jinja_env.filters["number"] = _number
    app.jinja_env.filters["ago"] = _ago
    app.jinja_env.filters["bytes"] = _bytes
    app.jinja_env.filters["lines"] = _lines
    app.jinja_env.filters["as_is"] = _as_is
    app.before_request(_check_request)
    app.after_request(_secure)
    app.context_processor(_context)
    app.register_error_handler(HTTPException, _http_error)
    app.register_error_handler(StreamError, _stream_error)
    app.register_error_handler(Failed, _failed)
    app.register_error_handler(Exception, _defect)
    app.add_url_rule("/log-in", "log_in", _log_in, methods=["GET", "POST"])
    app.add_url_rule("/log-out", "log_out", _log_out, methods=["POST"])
    app.register_blueprint(pages)
    app.register_blueprint(browse)
    app.register_blueprint(administration)
    app.register_blueprint(mapping)
    app.register_blueprint(actions)
    app.register_blueprint(running)
    app.register_blueprint(editor)
    app.register_blueprint(api)
    for endpoint, view in app.view_functions.items():
        if endpoint != "static":
            app.view_functions[endpoint] = checked(view)
    return app


# --- each request ---------------------------------------------------------------


def _cookie() -> str:
    # Cookies of a host are shared by its ports.
    return f"streamfactory-{site().access.port}"


def _check_request() -> AnyResponse | None:
    access = site().access
    if not access.knows_host(request.headers.get("Host", "")):
        abort(421, "The Host header names another server.")
    g.session = access.session(request.cookies.get(_cookie()))
    if request.method == "POST":
        _check_origin()
        if request.endpoint != "log_in":
            _check_form()
    if is_for_programs():
        _check_token()
    elif access.must_log_in and g.session is None and request.endpoint not in _OPEN:
        if request.method == "GET":
            return redirect(url_for("log_in"))
        abort(401, "Log in first.")
    return None


def _check_token() -> None:
    """Let a program in that sends the token, or a page of a session."""
    access = site().access
    kind, _, token = request.headers.get("Authorization", "").partition(" ")
    if not kind:
        if access.must_log_in and g.session is None:
            abort(401, "Send the token: Authorization: Bearer TOKEN.")
    elif kind.lower() != "bearer" or not access.knows_token(
        token.strip(), request.remote_addr or ""
    ):
        _log.warning("a request with a wrong token from %s", request.remote_addr)
        abort(401, "The token is wrong.")


def _check_origin() -> None:
    """Refuse forms of other sites; browsers name the site of a form."""
    origin = request.headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc != request.headers.get("Host"):
        abort(403, "The form was sent by another site.")
    if request.headers.get("Sec-Fetch-Site", "same-origin") != "same-origin":
        abort(403, "The form was sent by another site.")


def _check_form() -> None:
    if g.session is None:
        abort(401, "Log in first.")
    given = request.form.get("csrf", "").encode("utf-8", "replace")
    if not hmac.compare_digest(given, g.session.csrf.encode()):
        abort(403, "The form has expired. Reload the page, and send it again.")


def _secure(response: Response) -> Response:
    for name, value in _HEADERS.items():
        response.headers[name] = value
    if g.get("scripts"):
        response.headers["Content-Security-Policy"] += _SCRIPTS
    if request.endpoint == "static":
        response.headers["Cache-Control"] = "max-age=3600"
    return response


def _context() -> dict[str, Any]:
    session = g.get("session")
    return {
        "can_log_in": site().access.has_token,
        "csrf": None if session is None else session.csrf,
        "can_edit": session is not None and site().edits.allowed,
        "profile": active_profile(),
    }


# --- sessions -------------------------------------------------------------------


@takes_parameters(Parameter("token"))
def _log_in() -> str | AnyResponse | tuple[str, int]:
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
    response.set_cookie(
        _cookie(),
        secret,
        httponly=True,
        samesite="Strict",
        secure=request.is_secure,
    )
    return response


def _log_out() -> AnyResponse:
    site().access.log_out(request.cookies.get(_cookie(), ""))
    response = redirect(url_for("pages.overview"), 303)
    response.delete_cookie(_cookie())
    return response


# --- errors ---------------------------------------------------------------------


def _http_error(error: HTTPException) -> AnyResponse | tuple[str, int]:
    if error.code is None or error.code < 400:
        return error.get_response()  # a redirect
    if is_for_programs():
        return http_problem(error.code, error.name, error.description)
    text = {"what": error.description, "error": error.name, "remedy": None}
    # The parent page may need what could not be checked: it has no context here.
    return render_template("error.html", error=text, status=error.code), error.code


def _stream_error(error: StreamError) -> AnyResponse | tuple[str, int]:
    if is_for_programs():
        return problem(plain_error(error))
    status = 400
    if isinstance(error, UnknownStream | TopicNotFound):
        status = 404
    elif isinstance(error, IncarnationChanged | OffsetOutOfRange | Changed):
        status = 409  # what was asked for is not what the stream has now
    elif error.error_class is ErrorClass.TRANSIENT:
        status = 503
    elif not isinstance(error, MisuseError | ValueError):
        status = 500
    found = plain_error(error)
    return render_template("error.html", error=found, status=status), status


def _failed(error: Failed) -> AnyResponse:
    return problem(error.error)


def _defect(error: Exception) -> AnyResponse | tuple[str, int]:
    _log.error("%s failed", request.path, exc_info=error)
    return _stream_error(InternalError(type(error).__name__))


# --- values ---------------------------------------------------------------------


def _printable(value: Any) -> Any:
    """One line of text: control characters and direction marks are escaped."""
    if isinstance(value, str) and not isinstance(value, Markup):
        return printable(value)
    return value


def _lines(text: str) -> Markup:
    """A text of several lines, each of them printable."""
    return Markup("\n").join(escape(printable(line)) for line in text.splitlines())


def _as_is(text: str) -> Markup:
    """A text for a field that sends it back: it is escaped, and otherwise unchanged."""
    return escape(text)


def _number(value: float | None, unknown: str = "unknown") -> str:
    if value is None:
        return unknown
    if type(value) is int:
        return f"{value:,}"
    return f"{value:,.1f}" if abs(value) < 1000 else f"{value:,.0f}"


def _bytes(value: int | None) -> str:
    """A size for people."""
    if value is None:
        return ""
    for unit, size in (("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if value >= 1 << size:
            return f"{value / (1 << size):,.1f} {unit}"
    return f"{value:,} bytes"


def _ago(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"
