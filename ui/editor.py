"""The editor of streams and pipelines: forms, texts, and changes of their files.

Only for clients that gave the token, where the setting ``edit`` allows it. Each change
is shown first, made when it is confirmed, and logged.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from flask import Blueprint, g, redirect, render_template, request, url_for
from flask import Response as Flat

from streamfactory.spi import MisuseError, StreamError
from streamfactory.spi.hooks import BACKENDS
from streamfactory.transfer.discovering import topics_of, types_with_places
from streamfactory.ui.asked import note
from streamfactory.ui.catalogue import catalogue
from streamfactory.ui.changes import in_time, shown_before, take
from streamfactory.ui.editing.checking import (
    difference,
    refuse_commands,
    try_out,
)
from streamfactory.ui.editing.drafts import KINDS, Remark, draft_of, folder_of
from streamfactory.ui.editing.files import (
    SUFFIX,
    Folder,
    check_size,
    plain_lines,
)
from streamfactory.ui.editing.forms import filled, groups_of, others_of
from streamfactory.ui.editing.importing import import_text
from streamfactory.ui.editing.needed import (
    EDITED,
    HOP,
    SHOWN,
    SOME,
    UNDONE,
    kind_of,
    refuse_without_edit,
    visible_files,
    visible_undo,
)
from streamfactory.ui.editing.parts import PREFIX as PART
from streamfactory.ui.editing.parts import parts_of, with_parts
from streamfactory.ui.editing.picture import picture_of
from streamfactory.ui.editing.planning import (
    affected,
    make_edit,
    plan_deletion,
    plan_edit,
    title_of,
)
from streamfactory.ui.editing.texts import new_text, with_values
from streamfactory.ui.parameters import Parameter, takes_parameters
from streamfactory.ui.people import STREAMS, Right
from streamfactory.ui.rights import needs, visible
from streamfactory.ui.shown import Changed, ShownEdit
from streamfactory.ui.site import site
from streamfactory.wiring.config.imports.hop import write_hop
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from pathlib import Path

    from werkzeug.wrappers import Response

    from streamfactory.ui.editing.drafts import Draft

editor = Blueprint("editor", __name__, url_prefix="/edit")

_NEW: Final = "new"
"""The name of the file of a definition that has none yet, in messages."""
_MOST_TOPICS: Final = 1000
_MOST_PROBLEMS: Final = 100
"""Problems of a text that a page shows."""
_PIPELINE: Final = """\
name = ""
checkpoint = ""

[source]
stream = ""

[[sinks]]
stream = ""
"""


@dataclass(frozen=True, slots=True)
class Editing:
    """What a page of the editor is about."""

    kind: str
    file: str
    """Empty for a new definition."""
    text: str
    digest: str = ""
    """Of the file when its text was read."""

    @property
    def folder(self) -> Folder:
        """Where the file is."""
        return folder_of(self.kind)

    @property
    def path(self) -> Path:
        """Of the file; of one that is never written, for a new definition."""
        return self.folder.path / (self.file or f"{_NEW}{SUFFIX}")


_FILE: Final = tuple(map(Parameter, ("kind", "file", "digest", "text")))
_BUTTONS: Final = (Parameter("check"), Parameter("show"))
_FIELDS: Final = (
    Parameter("name"),
    Parameter("description"),
    Parameter("set ", many=True),
)


editor.before_request(refuse_without_edit)


@editor.get("/")
@needs(SOME)
def index() -> str:
    """The files that can be changed, and forms for new ones."""
    plugins = default_manager()
    infos = plugins.list(BACKENDS)
    editable = visible(STREAMS, catalogue().names(), Right.EDIT)
    return render_template(
        "edit_index.html",
        folders=[(kind, folder_of(kind), visible_files(kind)) for kind in KINDS],
        types=sorted({info.name for info in infos}),
        placed=types_with_places(),
        streams=visible(STREAMS, editable, Right.VALUES),
        undo=visible_undo(),
    )


@editor.get("/new")
@takes_parameters(*map(Parameter, ("kind", "name", "type")))
@needs(SOME, EDITED)
def new() -> str | tuple[str, int]:
    """A new definition, which is not saved yet."""
    kind, name = kind_of(request.args), request.args.get("name", "").strip()
    folder_of(kind).file_name(name)
    if kind == "pipeline":
        path = folder_of(kind).path / _NEW
        text = with_values(path, _PIPELINE, {"name": name}, {}, {})
        return _page(Editing(kind, "", text))
    wanted = request.args.get("type", "")
    if wanted not in default_manager().names(BACKENDS):
        msg = f"no stream type {wanted[:80]!r} is installed"
        raise MisuseError(msg, remedy="choose one of the list")
    return _page(Editing(kind, "", new_text(name, wanted)))


@editor.get("/file")
@takes_parameters(*map(Parameter, ("kind", "file")), Parameter("copy", words=("1",)))
@needs(SOME, EDITED)
def file() -> str | tuple[str, int]:
    """The form and the text of a file, or of a copy of it."""
    kind, name = kind_of(request.args), request.args.get("file", "")
    content = folder_of(kind).read(name)
    found = Editing(kind, name, content.text, content.digest)
    if "copy" not in request.args:
        return _page(found)
    draft = draft_of(kind, found.path, found.text)
    members = {"name": f"{draft.name or name.removesuffix(SUFFIX)}-copy"}
    text = with_values(found.path, found.text, members, {}, {})
    return _page(Editing(kind, "", text))


@editor.post("/form")
@takes_parameters(*_FILE, *_BUTTONS, *_FIELDS)
@needs(SOME, EDITED)
def form() -> str | tuple[str, int] | Response:
    """Take the fields of a form over into the text."""
    asked = _editing()
    draft = draft_of(asked.kind, asked.path, asked.text)
    text, refused = filled(draft, asked.path, request.form)
    return _answer(replace(asked, text=text), refused)


@editor.post("/text")
@takes_parameters(*_FILE, *_BUTTONS)
@needs(SOME, EDITED)
def text() -> str | tuple[str, int] | Response:
    """Take a text."""
    return _answer(_editing(), [])


@editor.post("/parts")
@takes_parameters(
    Parameter("kind", words=("pipeline",), required=True),
    *_FILE[1:],
    *_BUTTONS,
    Parameter("do"),
    Parameter(PART, many=True),
)
@needs(SOME, EDITED)
def parts() -> str | tuple[str, int] | Response:
    """Take the fields of a pipeline's parts, and move, add or remove one."""
    asked = _editing()
    action = request.form.get("do", "")
    text = with_parts(asked.path, asked.text, request.form, action)
    return _answer(replace(asked, text=text), [])


@editor.post("/topics")
@takes_parameters(*_FILE, *_BUTTONS, *_FIELDS)
@needs(SOME, EDITED)
def topics() -> str:
    """The topics that a definition reaches, to begin a stream of one of them."""
    asked = _editing()
    if asked.file:
        asked.folder.read(asked.file)  # it has to be one
    draft = draft_of(asked.kind, asked.path, asked.text)
    definition = draft.definition
    if definition is None:
        msg = "the definition cannot be read"
        raise MisuseError(msg, remedy="check it first")
    found = in_time(lambda: topics_of(definition, draft.type), None)
    fields = [one for group in groups_of(draft) for one in group.fields]
    field = next(one.name for one in fields if one.option.key == "topic.name")
    return render_template(
        "edit_topics.html",
        asked=asked,
        draft=draft,
        field=field,
        topics=found[:_MOST_TOPICS],
    )


@editor.post("/delete")
@takes_parameters(*_FILE, *_BUTTONS)
@needs(SOME, EDITED)
def delete() -> Response:
    """Plan the deletion of a file."""
    asked = _editing()
    change = plan_deletion(asked.kind, asked.file)
    return _show(change)


@editor.post("/undo")
@takes_parameters(*_BUTTONS)
@needs(SOME, UNDONE)
def undo() -> Response:
    """Plan what undoes the last change."""
    last = site().edits.undo
    if last is None:
        msg = "nothing was changed since the server started"
        raise MisuseError(msg, remedy="change the file")
    return _show(last)


@editor.post("/import")
@takes_parameters(Parameter("text"))
@needs(SOME)
def import_page() -> str:
    """The streams of a pasted text of another system, with what was left out."""
    text = plain_lines(request.form.get("text", ""))
    check_size(text)
    return render_template("edit_import.html", found=import_text(text)[:_MOST_TOPICS])


@editor.get("/hop")
@takes_parameters(Parameter("file", required=True), Parameter("download", words=("1",)))
@needs(HOP)
def hop() -> str | Flat:
    """A stream as metadata of Hop, with what was left out, or as a download."""
    name = request.args["file"]
    content = folder_of("stream").read(name)
    path = folder_of("stream").path / name
    definition = draft_of("stream", path, content.text).definition
    if definition is None:
        msg = "the definition cannot be read"
        raise MisuseError(msg, remedy="mend the file first")
    element, left_out = write_hop(definition)
    text = json.dumps(element, indent=2, ensure_ascii=False)
    if "download" not in request.args:
        return render_template("edit_hop.html", file=name, text=text, left_out=left_out)
    response = Flat(text + "\n", mimetype="application/json")
    place = quote(f"{name.removesuffix(SUFFIX)}.json", safe="")
    response.headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{place}"
    return response


@editor.get("/change")
@takes_parameters(Parameter("change", required=True))
@needs(*SHOWN)
def change_page() -> str:
    """A change before it is made: the difference, who is affected, and a check."""
    change = shown_before(request.args.get("change", ""), ShownEdit)
    answer, problems = None, list[Remark]()
    folder = folder_of(change.kind)
    if change.new:
        draft = draft_of(change.kind, folder.path / change.new, change.after)
        problems = draft.problems
        if draft.definition is not None and draft.valid:
            answer = site().lookups.ask(
                ("try out", change.key), partial(try_out, draft.definition), large=True
            )
            note([answer])
    return render_template(
        "edit_change.html",
        change=change,
        title=title_of(change),
        folder=folder,
        lines=difference(change.before, change.after),
        users=affected(change),
        problems=problems[:_MOST_PROBLEMS],
        count=len(problems),
        answer=answer,
    )


@editor.post("/change")
@takes_parameters(Parameter("change", required=True))
@needs(*SHOWN)
def change() -> tuple[str, int] | Response:
    """Make a change that was shown."""
    asked = take(request.form.get("change", ""), ShownEdit)
    try:
        make_edit(asked)
    except Changed as error:
        if not asked.old:
            raise
        mine = Editing(asked.kind, asked.old, asked.after, asked.digest)
        return _conflict(mine, error)
    if not asked.new:
        return redirect(url_for("editor.index"), 303)
    if asked.kind == "stream":
        return redirect(url_for("pages.stream", name=asked.name), 303)
    return redirect(url_for("pages.pipeline", name=asked.name), 303)


# --- parts ----------------------------------------------------------------------


def _editing() -> Editing:
    """What the form of a request is about."""
    values = request.form
    text = plain_lines(values.get("text", ""))
    check_size(text)
    return Editing(
        kind_of(values), values.get("file", ""), text, values.get("digest", "")
    )


def _answer(asked: Editing, refused: list[str]) -> str | tuple[str, int] | Response:
    """The page again with what was found, or the change where that is asked for."""
    draft = draft_of(asked.kind, asked.path, asked.text)
    before = ""
    if asked.file:
        try:
            content = asked.folder.expect(asked.file, asked.digest)
        except Changed as error:
            return _conflict(asked, error)
        before = content.text
    if asked.kind == "pipeline":
        refuse_commands(asked.path, before, asked.text)
    if "show" not in request.form:
        return _page(asked, draft, refused)
    if refused or not draft.valid:
        return _page(asked, draft, refused)[0], 400
    return _show(plan_edit(draft, asked.file, before, asked.digest))


def _show(change: ShownEdit) -> Response:
    g.session.changes.append(change)
    return redirect(url_for("editor.change_page", change=change.key), 303)


def _page(
    asked: Editing, draft: Draft | None = None, refused: list[str] | None = None
) -> tuple[str, int]:
    found = draft or draft_of(asked.kind, asked.path, asked.text)
    groups = groups_of(found)
    shown = found.problems[:_MOST_PROBLEMS]
    by_line: dict[int | None, list[Remark]] = {}
    for one in shown:
        by_line.setdefault(one.line, []).append(one)
    return render_template(
        "edit_file.html",
        asked=asked,
        draft=found,
        refused=refused or [],
        groups=groups,
        others=others_of(found, groups),
        read_only=asked.folder.read_only(),
        problems=shown,
        count=len(found.problems),
        by_line=by_line,
        lists=None if asked.kind != "pipeline" else parts_of(asked.path, asked.text),
        picture=(
            None if asked.kind != "pipeline" else picture_of(asked.path, asked.text)
        ),
        streams=visible(STREAMS, catalogue().names()),
        numbered=list(enumerate(asked.text.split("\n"), start=1)),
    ), 200


def _conflict(asked: Editing, error: StreamError) -> tuple[str, int]:
    """Both texts: that of the client, and that of the file now."""
    theirs = None
    if asked.file in asked.folder.names():
        theirs = asked.folder.read(asked.file)
        draft_of(asked.kind, asked.path, theirs.text)  # it may have a secret now
    return render_template(
        "edit_conflict.html",
        asked=asked,
        error=error,
        theirs=theirs,
        lines=[] if theirs is None else difference(theirs.text, asked.text),
    ), 409
