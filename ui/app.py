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
    TransientError,
    UnknownStream,
)
from streamfactory.transfer.auditing import REFUSED
from streamfactory.ui.actions import actions
from streamfactory.ui.administration import administration
from streamfactory.ui.api import api
from streamfactory.ui.audits import audits
from streamfactory.ui.browse import browse
from streamfactory.ui.changes import change_of, in_time
from streamfactory.ui.cookies import session_cookie, set_cookie
from streamfactory.ui.discovery import discovery
from streamfactory.ui.editor import editor
from streamfactory.ui.mapping import mapping
from streamfactory.ui.masking import has_masks
from streamfactory.ui.openid.routes import sign_in
from streamfactory.ui.pages import pages
from streamfactory.ui.parameters import checked
from streamfactory.ui.people import EVERYTHING, PIPELINES, STREAMS, Right
from streamfactory.ui.previews import previews
from streamfactory.ui.problems import (
    Failed,
    http_problem,
    is_change,
    is_for_programs,
    problem,
    refuse_other_sites,
)
from streamfactory.ui.programs.answers import is_dry
from streamfactory.ui.programs.bodies import with_body
from streamfactory.ui.programs.routes import CHANGES
from streamfactory.ui.rights import (
    RightMissing,
    may,
    permitted,
)
from streamfactory.ui.running import running
from streamfactory.ui.senders import identify
from streamfactory.ui.sessions import log_in, log_out
from streamfactory.ui.shown import Changed
from streamfactory.ui.site import EXTENSION, Site, site
from streamfactory.wiring.config.catalogue import Catalogue, active_profile
from streamfactory.wiring.config.profiles import profile_names
from streamfactory.wiring.core.defects import InternalError
from streamfactory.wiring.core.shown import plain_error, printable

if TYPE_CHECKING:
    from werkzeug.wrappers import Response as AnyResponse


MOST_BYTES: Final = 168 * 1024
"""Of the body of a request: a form of parts has a file that is edited twice, as text
and in its fields, which forms encode in three times as many bytes; and 24 KiB."""
_REFUSED: Final = (409, 412)
"""Of answers to programs whose change is not made, though it could be asked for."""
_OPEN: Final = (
    "log_in",
    "static",
    "sign_in.begin",
    "sign_in.callback",
    "sign_in.ended",
)
"""Endpoints that need no user where reading requires one."""
_UNSIGNED: Final = ("log_in", "sign_in.ended")
"""Endpoints whose forms have no secret of a session: they carry a token."""
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
    app.add_url_rule("/log-in", "log_in", log_in, methods=["GET", "POST"])
    app.add_url_rule("/log-out", "log_out", log_out, methods=["POST"])
    app.register_blueprint(pages)
    app.register_blueprint(audits)
    app.register_blueprint(browse)
    app.register_blueprint(administration)
    app.register_blueprint(mapping)
    app.register_blueprint(actions)
    app.register_blueprint(running)
    app.register_blueprint(sign_in)
    app.register_blueprint(editor)
    app.register_blueprint(discovery)
    app.register_blueprint(previews)
    app.register_blueprint(api)
    for one in CHANGES:
        app.register_blueprint(one)
    for endpoint, view in app.view_functions.items():
        if endpoint != "static":
            app.view_functions[endpoint] = checked(with_body(permitted(view)))
    return app


# --- each request ---------------------------------------------------------------


def _check_request() -> AnyResponse | None:
    access = site().access
    if not access.knows_host(request.headers.get("Host", "")):
        abort(421, "The Host header names another server.")
    identify()
    if is_for_programs():
        refuse_other_sites()
    elif request.method == "POST":
        _check_origin()
        if request.endpoint not in _UNSIGNED:
            _check_form()
    if g.user is None and request.endpoint not in _OPEN:
        if is_for_programs():
            abort(401, "Send a token: Authorization: Bearer TOKEN.")
        if request.method == "GET":
            return redirect(url_for("log_in"))
        abort(401, "Log in first.")
    return None


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
    if "cookie" in g:
        set_cookie(response, session_cookie(), g.cookie)
    return response


def _context() -> dict[str, Any]:
    session, user = g.get("session"), g.get("user")
    can_change = session is not None and user is not None
    rights = site().access.rights

    def can(right: str, kind: str, name: str) -> bool:
        """Whether a page offers a change: there is a session, and the right."""
        return can_change and may(Right(right), kind, name)

    def can_some(right: str) -> bool:
        return can_change and rights.may_some(user, Right(right))

    return {
        "can": can,
        "has_users": rights.file is not None,
        "sees_process": user is None
        or all(may(Right.READ, kind, EVERYTHING) for kind in (STREAMS, PIPELINES)),
        "sees_rows": lambda name: may(Right.VALUES, STREAMS, name) or has_masks(name),
        "may": lambda right, kind, name: may(Right(right), kind, name),
        "can_some": can_some,
        "can_log_in": site().access.has_token,
        "can_sign_in": site().access.sign_ins is not None,
        "csrf": None if session is None else session.csrf,
        "can_edit": can_some("edit") and site().edits.allowed,
        "audited": _may_see_record(),
        "user": None if user is None or user.name.startswith("(") else user.name,
        "profile": active_profile(),
        "profiles": profile_names(Catalogue().folder),
    }


def _may_see_record() -> bool:
    trail, user = site().trail, g.get("user")
    return (
        trail is not None
        and user is not None
        and may(Right.VALUES, STREAMS, trail.name)
    )


# --- errors ---------------------------------------------------------------------


def _http_error(error: HTTPException) -> AnyResponse | tuple[str, int]:
    if error.code is None or error.code < 400:
        return error.get_response()  # a redirect
    _record_refusal(error.description or error.name, error.code)
    if is_for_programs():
        right = error.right.value if isinstance(error, RightMissing) else None
        return http_problem(error.code, error.name, error.description, right)
    text = {"what": error.description, "error": error.name, "remedy": None}
    # The parent page may need what could not be checked: it has no context here.
    return render_template("error.html", error=text, status=error.code), error.code


def _record_refusal(reason: str, status: int) -> None:
    """Record a change that a user asked for and that is not made.

    Args:
        reason: Why.
        status: Of the answer.
    """
    trail, user = site().trail, g.get("user")
    if trail is None or user is None or not _is_refused_change(status):
        return
    if "confirmed" in g and g.confirmed.begun:
        return  # the record has its outcome
    right, thing = g.get("needed") or (Right.READ, None)
    kind, name = thing or ("", "")
    change = change_of(right, kind.removesuffix("s"), name)
    what = request.path
    try:
        in_time(lambda: trail.write(change, REFUSED, what, reason), None)
    except TransientError as error:
        _log.error("a refused change is not recorded: %s", error.what)


def _is_refused_change(status: int) -> bool:
    """Whether a request that failed was to change something, and not only to show it.

    Of a user who may not, all requests are recorded.
    """
    if is_for_programs():
        confirmed = not is_dry() and status in _REFUSED
        return is_change() and (status == 403 or confirmed)
    if request.method != "POST" or g.get("session") is None:
        return False
    return status == 403 or "change" in request.form


def _stream_error(error: StreamError) -> AnyResponse | tuple[str, int]:
    if is_for_programs():
        answer = problem(plain_error(error))
        _record_refusal(error.what, answer.status_code)
        return answer
    status = 400
    if isinstance(error, UnknownStream | TopicNotFound):
        status = 404
    elif isinstance(error, IncarnationChanged | OffsetOutOfRange | Changed):
        status = 409  # what was asked for is not what the stream has now
    elif error.error_class is ErrorClass.TRANSIENT:
        status = 503
    elif not isinstance(error, MisuseError | ValueError):
        status = 500
    _record_refusal(error.what, status)
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
