"""Changes of topics, and messages that are written by hand.

Each change is shown first, and made when it is confirmed; then it is logged.
"""

from __future__ import annotations

import base64
import hashlib
import json
import tempfile
import threading
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from flask import Blueprint, abort, g, redirect, render_template, request, url_for

from streamfactory.engines.search.outputs import json_lines
from streamfactory.spi import (
    DecodeError,
    FormatRefused,
    MisuseError,
    OffsetOutOfRange,
    SchemaMismatch,
    StreamError,
    TopicNotFound,
)
from streamfactory.spi.ddl import parse_ddl
from streamfactory.transfer.inputs import open_inputs
from streamfactory.transfer.publishing import open_publisher
from streamfactory.ui.asked import stream_name
from streamfactory.ui.changes import Confirmed, change_of, in_time, shown_before, take
from streamfactory.ui.messages import parse_place
from streamfactory.ui.parameters import Parameter, takes_parameters
from streamfactory.ui.people import Right
from streamfactory.ui.rights import Rule, needs, of_stream, the_stream
from streamfactory.ui.shown import Changed, ShownTopic
from streamfactory.ui.site import site
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.core.guard import masked_errors
from streamfactory.wiring.core.shown import masked
from streamfactory.wiring.topics.admin import open_admin
from streamfactory.wiring.topics.trimming import apply_plan, plan_truncation
from streamfactory.wiring.writing.routing import special_fields

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from werkzeug.wrappers import Response

    from streamfactory.ui.rights import Thing
    from streamfactory.wiring.topics.admin import Admin

    Plan = tuple[str, list[str], str, Callable[[], object]]
    """What is done, its details, what it depends on, and what does it."""

administration = Blueprint("administration", __name__, url_prefix="/actions")

KINDS: Final = ("create", "grow", "truncate", "delete", "produce")
_MOST_PARTITIONS: Final = 10_000
_PATIENCE: Final = 5.0
"""Seconds that a row is parsed for."""
_FORGOTTEN: Final = ("partitions", "facts", "lags", "configuration")


def _of_change() -> Iterator[Thing]:
    form = request.form
    if "change" in form:
        yield the_stream(shown_before(form["change"], ShownTopic).stream)
    else:
        yield the_stream(form.get("stream", ""))


_CHANGED: Final = Rule(Right.EDIT, "the stream", _of_change)


@administration.get("/topic")
@takes_parameters(Parameter("stream", required=True))
@needs(of_stream(Right.EDIT))
def topic_page() -> str:
    """The forms that change the topic of a stream, and write a message."""
    if g.session is None:
        abort(401, "Log in first.")
    return render_template("topic.html", stream=stream_name())


@administration.post("/topic")
@takes_parameters(
    Parameter("kind", words=KINDS),
    Parameter("stream"),
    Parameter("text"),
    Parameter("format", words=("json", "text")),
    Parameter("change"),
)
@needs(_CHANGED)
def change_topic() -> str | Response:
    """Plan a change and show it; with ``change``, make it."""
    form = request.form
    confirming = "change" in form
    if confirming:
        asked = take(form["change"], ShownTopic)
    else:
        names = ("kind", "stream", "text", "format")
        asked = ShownTopic(**{name: form.get(name, "") for name in names})
        if asked.kind not in KINDS:
            msg = f"{asked.kind!r} is no change of a topic"
            raise MisuseError(msg, remedy=f"use one of {', '.join(KINDS)}")
    what, details, seen = change_of_topic(asked, confirmed=confirming)
    if confirming:
        name = Catalogue().get(asked.stream).name
        return redirect(url_for("pages.stream", name=name), 303)
    shown = replace(asked, seen=seen)
    g.session.changes.append(shown)
    return render_template(
        "confirm_topic.html", asked=shown, what=what, details=details, key=shown.key
    )


def change_of_topic(
    asked: ShownTopic, *, confirmed: bool
) -> tuple[str, list[str], str]:
    """Plan a change of a topic, or make it where it was confirmed.

    Returns:
        What is done, its details, and what it depends on.

    Raises:
        MisuseError: misuse; it cannot be done.
        Changed: config; the topic is not as it was shown.
        StreamError: As `in_time`.
    """
    made = _confirmed(asked) if confirmed else None
    try:
        return in_time(lambda: _planned(asked, made), made)
    except (SchemaMismatch, OffsetOutOfRange, DecodeError, FormatRefused) as error:
        # What the client gave does not fit: no failure of the server.
        raise MisuseError(error.what, remedy=error.remedy) from error


def state_of_topic(name: str) -> tuple[dict[str, Any], str]:
    """What a type shows of a topic, and what changes of it depend on.

    Raises:
        StreamError: The topic cannot be reached, or cannot be administered.
    """
    definition = Catalogue().get(name)
    masks: list[Callable[[str], str]] = []
    with masked_errors(masks), open_admin(definition) as admin:
        masks.append(admin.config.mask)
        document = {
            "topic": admin.topic,
            "partitions": len(admin.partitions()),
            "facts": dict(admin.facts()),
        }
        return masked(document, admin.config.mask), _seen(admin)


# --- parts ----------------------------------------------------------------------


def _confirmed(asked: ShownTopic) -> Confirmed:
    lookups = site().lookups
    return Confirmed(
        f"topic of {asked.stream}",
        change_of(
            Right.EDIT,
            "topic",
            asked.stream,
            asked.seen,
            _digest_text(asked.text) if asked.kind == "produce" else asked.text,
        ),
        shown=asked.seen,
        fields={"stream": asked.stream},
        ended=lambda: lookups.forget((key, asked.stream) for key in _FORGOTTEN),
    )


def _digest_text(text: str) -> str:
    """What the record has of a message: no value of a row."""
    content = text.encode("utf-8", "surrogatepass")
    return f"{len(content)} bytes, sha256 {hashlib.sha256(content).hexdigest()}"


def _planned(
    asked: ShownTopic, confirmed: Confirmed | None
) -> tuple[str, list[str], str]:
    """What a change does; it is made if that is confirmed."""
    definition = Catalogue().get(asked.stream)
    masks: list[Callable[[str], str]] = []
    with masked_errors(masks), open_admin(definition) as admin:
        masks.append(admin.config.mask)
        plan = _PLANS[asked.kind](admin, asked)
        what, details, seen, make = plan
        if confirmed is not None:
            if seen != asked.seen:
                msg = "the topic has changed since it was shown"
                raise Changed(msg, remedy="go back, and look again")
            confirmed.perform(admin.config.mask(what), make)
        safe = masked([what, [f"Topic: {admin.topic}", *details]], admin.config.mask)
        return safe[0], safe[1], seen


def _create(admin: Admin, asked: ShownTopic) -> Plan:
    columns, _, count = asked.text.partition("|")
    partitions = _number(count) if count.strip() else None
    schema = None
    if columns.strip():
        try:
            schema = parse_ddl(columns)
        except StreamError:
            raise
        except ValueError as error:
            msg = f"the columns are invalid: {error}"
            remedy = "write them as 'id bigint, name string'"
            raise MisuseError(msg, remedy=remedy) from None
    elif not admin.holds_messages:
        schema = admin.declared
    try:
        there = _seen(admin)
    except TopicNotFound:
        there = ""
    if there:
        msg = f"the topic {admin.topic!r} exists"
        raise MisuseError(msg, stream=asked.stream, remedy="grow it, or delete it")
    details = ["Undecoded messages" if schema is None else f"Columns: {schema}"]
    details += [f"Partitions: {partitions or 'as configured'}"]
    what = "created"
    return what, details, there, lambda: admin.create(schema, partitions)


def _grow(admin: Admin, asked: ShownTopic) -> Plan:
    wanted, now = _number(asked.text), len(admin.partitions())
    if wanted <= now:
        msg = f"the topic has {now} partitions: it can only grow"
        raise MisuseError(msg, stream=asked.stream, remedy="give a larger number")
    what = f"grown from {now} to {wanted} partitions"
    details = ["Rows are not moved; later rows of a key may go to another partition."]
    return what, details, _seen(admin), lambda: admin.grow(wanted)


def _truncate(admin: Admin, asked: ShownTopic) -> Plan:
    if not asked.text.strip():
        msg = "no place is given"
        raise MisuseError(msg, remedy="give an offset, a time, a period, or latest")
    plan = plan_truncation(admin, parse_place(asked.text))
    before = {str(cut.partition): cut.before for cut in plan.cuts}
    details = [
        f"{cut.partition}: {cut.rows:,} offsets, from {cut.earliest} to {cut.before}"
        for cut in plan.cuts
        if cut.rows
    ]
    what = f"truncated by {plan.rows} offsets"
    seen = json.dumps([_seen(admin), before])
    return what, details, seen, lambda: apply_plan(admin, plan)


def _delete(admin: Admin, asked: ShownTopic) -> Plan:
    infos = admin.partitions()
    if asked.text.strip() != admin.topic:
        msg = f"the name of the topic is not {asked.text.strip()!r}"
        remedy = f"to delete it, write its name: {admin.topic}"
        raise MisuseError(msg, stream=asked.stream, remedy=remedy)
    seen = {info.partition: info.incarnation for info in infos}

    def delete() -> None:
        admin.refuse_recreated(seen)
        admin.delete()

    what = f"deleted with {len(infos)} partitions"
    details = ["All its rows are deleted. Readers and writers of it fail from then on."]
    return what, details, _seen(admin), delete


def _produce(admin: Admin, asked: ShownTopic) -> Plan:
    line, given = _row(asked)
    schema = _schema_of(admin, given)
    with _written(line) as path:
        shown = line if schema is None else _parsed(path, schema)

    def produce() -> None:
        definition = Catalogue().get(asked.stream)
        with (
            _written(line) as path,
            open_publisher(
                definition, [path], schema=schema, create=False
            ) as publisher,
        ):
            publisher.run(threading.Event())

    what = "written to by hand: one message"
    return what, [shown], _seen(admin), produce


def _schema_of(admin: Admin, given: Mapping[str, Any]) -> pa.Schema | None:
    """The columns of a row, with the metadata columns that it has; None if unknown."""
    if admin.holds_messages:
        return None
    own = [one for one in admin.schema() if one.name in given]
    special = special_fields(given, admin.schema())
    return pa.schema([*own, *special])


def _parsed(path: Path, schema: pa.Schema) -> str:
    """A row as it will be written.

    Raises:
        StreamError: It does not fit.
    """
    with ExitStack() as stack:
        (one,) = open_inputs([str(path)])
        stack.callback(one.close)
        one.columns(_PATIENCE)
        one.expect(schema)
        rows = one.read(_PATIENCE, 1 << 20)
        if rows is None or rows.num_rows != 1:
            msg = "the message is not one row"
            raise MisuseError(msg, remedy="write one JSON object")
        return next(json_lines(rows))


_PLANS: Final[dict[str, Callable[[Admin, ShownTopic], Plan]]] = {
    "create": _create,
    "grow": _grow,
    "truncate": _truncate,
    "delete": _delete,
    "produce": _produce,
}


def _seen(admin: Admin) -> str:
    """What must not change between the plan and its confirmation."""
    return json.dumps(
        [[str(one.partition), one.incarnation] for one in admin.partitions()]
    )


def _number(text: str) -> int:
    text = text.strip()
    if text.isascii() and text.isdecimal() and len(text) < 10:
        found = int(text)
        if 1 <= found <= _MOST_PARTITIONS:
            return found
    msg = f"{text[:20]!r} is no number of partitions"
    raise MisuseError(msg, remedy=f"give a number from 1 to {_MOST_PARTITIONS}")


def _row(asked: ShownTopic) -> tuple[str, dict[str, Any]]:
    """The row of a message as one line of JSON, and its values by column.

    Raises:
        MisuseError: misuse; it is no object.
    """
    if asked.format == "text":
        value = base64.b64encode(asked.text.encode("utf-8", "surrogatepass"))
        found: Any = {"value": value.decode("ascii")}
        return json.dumps(found), found
    try:
        found = json.loads(asked.text)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        msg = "the row is no JSON object"
        raise MisuseError(msg, remedy='write {"column": value, ...}')
    # As it was written: numbers keep their digits. Line breaks are outside of texts.
    return " ".join(asked.text.splitlines()), found


@contextmanager
def _written(line: str) -> Iterator[Path]:
    """A file of one row, for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="streamfactory-") as folder:
        path = Path(folder, "row.jsonl")
        path.write_text(f"{line}\n", encoding="utf-8", errors="backslashreplace")
        try:
            yield path
        except StreamError as error:
            error.what = error.what.replace(str(path), "the message")
            raise
