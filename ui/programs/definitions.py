"""Definitions of streams and pipelines: their text is read, replaced and deleted.

The same rules as in the editor: the folder of the catalogue only, no literal secrets,
no commands of pipelines, the difference and the users before a change is made.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from flask import Blueprint, Response, abort, g, request, url_for

from streamfactory.spi import MisuseError, StreamError, UnknownStream, Unsupported
from streamfactory.transfer.discovering import topics_of
from streamfactory.ui import pipelines as facts
from streamfactory.ui.catalogue import catalogue
from streamfactory.ui.editing.checking import (
    difference,
    refuse_commands,
    try_out,
)
from streamfactory.ui.editing.drafts import draft_of, folder_of
from streamfactory.ui.editing.files import MOST_BYTES, SUFFIX, plain_lines
from streamfactory.ui.editing.needed import rules_of_change
from streamfactory.ui.editing.planning import (
    affected,
    make_edit,
    plan_deletion,
    plan_edit,
    title_of,
)
from streamfactory.ui.openapi import answers, takes_condition
from streamfactory.ui.parameters import takes_parameters
from streamfactory.ui.people import PIPELINES, STREAMS, Right
from streamfactory.ui.programs.answers import (
    DRY_RUN,
    PREFIX,
    ask,
    expect,
    expect_nothing,
    is_dry,
    json_answer,
    tag_of,
    turn,
)
from streamfactory.ui.programs.bodies import TOML, body, takes_definition
from streamfactory.ui.rights import Rule, Thing, needs, of_stream
from streamfactory.ui.shown import ShownEdit
from streamfactory.ui.site import site
from streamfactory.ui.streams import configuration
from streamfactory.wiring.config.imports.hop import write_hop

if TYPE_CHECKING:
    from collections.abc import Iterator

    from streamfactory.ui.editing.drafts import Draft
    from streamfactory.ui.editing.files import Content

definitions = Blueprint("definitions", __name__, url_prefix=PREFIX)

MOST_TOPICS: Final = 1000
_KINDS: Final = {STREAMS: "stream", PIPELINES: "pipeline"}


class DefinitionInvalid(MisuseError):
    """A definition that is sent has errors: all of them are in ``problems``."""

    _shown = ("problems",)

    def __init__(self, draft: Draft) -> None:
        errors = [one for one in draft.problems if one.level == "error"]
        counted = "an error" if len(errors) == 1 else f"{len(errors)} errors"
        what = f"the definition has {counted}, so it is not saved"
        super().__init__(what, remedy="correct them: `problems` has their lines")
        self.problems = _remarks(draft)


@definitions.before_request
def _check_allowed() -> None:
    if not site().edits.allowed:
        abort(403, "Files are not changed here: the setting edit is not true.")


def _named() -> Iterator[Thing]:
    """The definition: by the path first, by its file, and by the text that is sent."""
    arguments = request.view_args or {}
    kind, name = arguments["kind"], arguments["name"]
    yield Thing(kind, name)
    path, names = _path(kind, name), set[str]()
    if file_of(kind, name):
        names.add(path.name.removesuffix(SUFFIX))
        try:
            text = folder_of(_KINDS[kind]).read(path.name).text
            names.add(draft_of(_KINDS[kind], path, text).name)
        except StreamError:
            pass  # the answer says why it cannot be read
    if request.method == "PUT":  # a problem of the text may be about another's name
        names.add(draft_of(_KINDS[kind], path, plain_lines(body())).name)
    yield from (Thing(kind, one) for one in sorted(names - {"", name}))


_READ: Final = Rule(Right.EDIT, "the definition", _named)
_OF_STREAM: Final = of_stream(Right.EDIT)
_CHANGED: Final = rules_of_change(lambda: _asked()[0])


@takes_parameters()
@answers("Text", only=TOML)
@needs(_READ)
def read_definition(kind: str, name: str) -> Response:
    """Return the text of a definition. Its ETag is that of the file."""
    content = _content(kind, _existing(kind, name))
    # Refused if it has literal secrets.
    draft_of(_KINDS[kind], _path(kind, name), content.text)
    response = Response(content.text, mimetype=TOML)
    response.set_etag(content.digest)
    response.make_conditional(request)
    return response


@takes_parameters(DRY_RUN)
@takes_definition
@takes_condition(creates=True)
@answers("Edit", status=(200, 201))
@needs(_READ, *_CHANGED)
def write_definition(kind: str, name: str) -> Response:  # noqa: ARG001 - of its path
    """Replace the text of a definition, or create one.

    If-Match has the ETag of the text that is replaced; If-None-Match: * creates a
    definition, whose name the text has, too. With dry_run nothing is saved: the answer
    has the difference, who refers to the definition, and what a check of the stream
    finds.
    """
    change, draft = _asked()
    if is_dry():
        return _shown(change, draft)
    if not change.old:
        expect_nothing(exists=False)
        if change.name != name:
            msg = f"the text defines {change.name!r}, and the path names {name!r}"
            raise MisuseError(msg, remedy="give both the same name")
    elif "If-None-Match" in request.headers:
        expect_nothing(exists=True)
    else:
        expect(change.digest)
    if change.before == change.after:
        return _answer(change, draft, made=False, digest=change.digest)
    with turn():
        digest = make_edit(change)
    status = 200 if change.old else 201
    return _answer(change, draft, made=True, digest=digest, status=status)


@takes_parameters(DRY_RUN)
@takes_condition()
@answers("Edit")
@needs(_READ, *_CHANGED)
def delete_definition(kind: str, name: str) -> Response:
    """Delete the file of a definition; the topic of a stream is not changed.

    With dry_run nothing is deleted: the answer has who refers to the definition.
    """
    del kind, name
    change, draft = _asked()
    if is_dry():
        return _shown(change, draft)
    expect(change.digest)
    with turn():
        make_edit(change)
    return _answer(change, draft, made=True)


def _last() -> ShownEdit:
    """What undoes the last change: looked up once, for its rights and for it."""
    if "edit" not in g:
        g.edit = site().edits.undo
    found: ShownEdit | None = g.edit
    if found is None:
        abort(404, "Nothing was changed since the server started.")
    return found


@definitions.post("/undo")
@takes_parameters(DRY_RUN)
@takes_condition()
@answers("Edit")
@needs(*rules_of_change(_last))
def undo() -> Response:
    """Undo the last change of a definition by this server, in the pages or here.

    If-Match has the ETag of the same request with dry_run.
    """
    change, digest = _last(), ""
    folder = folder_of(change.kind)
    path = folder.path / (change.new or change.old)
    draft = draft_of(change.kind, path, change.after or change.before)
    tag = change.digest or tag_of(change.after)
    if is_dry():
        return _answer(change, draft, made=False, digest=tag)
    expect(tag)
    with turn():
        digest = make_edit(change)
    return _answer(change, draft, made=True, digest=digest)


@definitions.get("/streams/<name>/topics")
@takes_parameters()
@answers("Topics")
@needs(_OF_STREAM)
def reached_topics(name: str) -> Response:
    """Return the topics that the server or folder of a stream has."""
    definition = catalogue().get(name)
    kind = str(configuration(definition.name)["type"] or "")
    find = partial(topics_of, definition, kind)
    found = ask(("topics", definition.name), find)
    return json_answer({"items": found[:MOST_TOPICS], "count": len(found)})


@definitions.get("/streams/<name>/hop")
@takes_parameters()
@answers("Hop")
@needs(_OF_STREAM)
def hop_metadata(name: str) -> Response:
    """Return a stream as metadata of Apache Hop, with what was left out."""
    file = _existing(STREAMS, name)
    text = folder_of("stream").read(file).text
    # Refused if it has literal secrets.
    definition = draft_of("stream", folder_of("stream").path / file, text).definition
    if definition is None:
        msg = "the definition cannot be read"
        raise MisuseError(msg, remedy="mend the file first")
    element, left_out = write_hop(definition)
    return json_answer({"element": element, "left_out": [str(one) for one in left_out]})


for _kind in _KINDS:
    for _method, _view in (
        ("GET", read_definition),
        ("PUT", write_definition),
        ("DELETE", delete_definition),
    ):
        definitions.add_url_rule(
            f"/{_kind}/<name>/definition",
            f"{_view.__name__.replace('definition', _KINDS[_kind])}_definition",
            _view,
            methods=[_method],
            defaults={"kind": _kind},
        )


# --- parts ----------------------------------------------------------------------


def file_of(kind: str, name: str) -> str:
    """The file of a definition, in the folder that is changed here; empty without one.

    Raises:
        Unsupported: misuse; it is defined elsewhere.
        ConfigError: config; several files define it.
    """
    folder = folder_of(_KINDS[kind])
    try:
        path = _defined(kind, name)
    except UnknownStream:
        # What cannot be read has the name of its file.
        file = f"{name}{SUFFIX}"
        return file if file in folder.names() else ""
    if path.parent == folder.path and path.name in folder.names():
        return path.name
    msg = f"{name!r} is not defined in a TOML file of {str(folder.path)!r}"
    raise Unsupported(msg, remedy="change it where it is defined")


def _defined(kind: str, name: str) -> Path:
    if kind == STREAMS:
        return Path(catalogue().get(name).origin)
    return facts.find(name, facts.pipelines(site().files))


def _existing(kind: str, name: str) -> str:
    file = file_of(kind, name)
    if not file:
        msg = f"there is no {_KINDS[kind]} {name!r}"
        raise UnknownStream(msg, remedy=f"{PREFIX}/{kind} lists all of them")
    return file


def _content(kind: str, file: str) -> Content:
    return folder_of(_KINDS[kind]).read(file)


def _path(kind: str, name: str) -> Path:
    return folder_of(_KINDS[kind]).path / (file_of(kind, name) or f"{name}{SUFFIX}")


def _asked() -> tuple[ShownEdit, Draft]:
    """The change that the request asks for: planned once, for its rights and for it."""
    if "edit" not in g:
        arguments = request.view_args or {}
        g.edit = _planned(arguments["kind"], arguments["name"])
    found: tuple[ShownEdit, Draft] = g.edit
    return found


def _planned(kind: str, name: str) -> tuple[ShownEdit, Draft]:
    one, folder = _KINDS[kind], folder_of(_KINDS[kind])
    if request.method == "DELETE":
        change = plan_deletion(one, _existing(kind, name))
        return change, draft_of(one, folder.path / change.old, change.before)
    text = plain_lines(body())
    if len(text.encode()) > MOST_BYTES:
        abort(413, f"A definition has {MOST_BYTES // 1024} KiB at most.")
    file, before, digest = file_of(kind, name), "", ""
    if file:
        content = folder.read(file)
        before, digest = content.text, content.digest
    draft = draft_of(one, _path(kind, name), text)
    if kind == PIPELINES:
        refuse_commands(_path(kind, name), before, text)
    if not draft.valid:
        raise DefinitionInvalid(draft)
    if file and before == text:  # of a request that is sent again, too
        return ShownEdit(one, name, name, file, file, before, text, digest), draft
    return plan_edit(draft, file, before, digest), draft


def _shown(change: ShownEdit, draft: Draft) -> Response:
    """What would be changed, with a check of a stream as it would be."""
    found = None
    if change.new and draft.definition is not None:
        key = "try out", change.digest, change.after
        found = ask(key, partial(try_out, draft.definition), large=True)
    return _answer(change, draft, made=False, digest=change.digest, found=found)


def _answer(
    change: ShownEdit,
    draft: Draft,
    *,
    made: bool,
    digest: str = "",
    found: dict[str, Any] | None = None,
    status: int = 200,
) -> Response:
    lines = difference(change.before, change.after)
    kind = STREAMS if change.kind == "stream" else PIPELINES
    endpoint = f"definitions.read_{change.kind}_definition"
    document = {
        "name": change.name,
        "file": change.new or None,
        "what": title_of(change),
        "made": made,
        "difference": [{"kind": one, "text": text} for one, text in lines],
        "users": affected(change),
        "problems": _remarks(draft) if change.new else [],
        "check": found,
        "href": url_for(endpoint, name=change.name, kind=kind) if change.new else None,
    }
    response = json_answer(document, status=status, tag=digest)
    if status == 201:
        response.headers["Location"] = document["href"]
    return response


def _remarks(draft: Draft) -> list[dict[str, Any]]:
    return [
        {"level": one.level, "key": one.key, "text": one.text, "line": one.line}
        for one in draft.problems
    ]
