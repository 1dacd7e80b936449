"""The rights that the editor needs: for definitions as they are and would be."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from flask import abort, g, request

from streamfactory.spi import MisuseError, StreamError
from streamfactory.ui.changes import shown_before
from streamfactory.ui.editing.checking import streams_of
from streamfactory.ui.editing.drafts import KINDS, draft_of, folder_of
from streamfactory.ui.editing.files import SUFFIX, plain_lines
from streamfactory.ui.people import EVERYTHING, PIPELINES, STREAMS, Right
from streamfactory.ui.rights import Rule, Thing, may, of_some, the_stream
from streamfactory.ui.shown import ShownEdit, ShownPlace, ShownPreview
from streamfactory.ui.site import site

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def refuse_without_edit() -> None:
    """Refuse a request of a client without a session, or where editing is off."""
    if g.session is None:
        abort(401, "Log in first.")
    if not site().edits.allowed:
        abort(403, "Files are not changed here: the setting edit is not true.")


def kind_of(values: Any) -> str:
    """The kind of the definition that a request is about."""
    kind = str(values.get("kind", ""))
    if kind not in KINDS:
        msg = f"{kind[:80]!r} is no kind of definition"
        raise MisuseError(msg, remedy=f"use one of {', '.join(KINDS)}")
    return kind


def visible_files(kind: str) -> list[str]:
    """The files of a kind that the user may edit."""
    of, folder = STREAMS if kind == "stream" else PIPELINES, folder_of(kind)
    if may(Right.EDIT, of, EVERYTHING):
        return folder.names()
    found = []
    for file in folder.names():
        names = _of_file(kind, file)
        if all(may(Right.EDIT, of, name) for name in names):
            found.append(file)
    return found


def visible_undo() -> ShownEdit | None:
    """What would undo the last change, if the user may."""
    last = site().edits.undo
    if last is None or not all(may(Right.EDIT, *one) for one in _of_change(last)):
        return None
    return last


def _of_text() -> Iterator[Thing]:
    """The definition of the request: as its file has it, and as its text has it."""
    values = request.form if request.method == "POST" else request.args
    kind, file = kind_of(values), values.get("file", "")
    names = (
        {values.get("name", "").strip()} if request.endpoint == "editor.new" else set()
    )
    if file:
        names |= _of_file(kind, file)
    if "text" in values:
        names |= _names(kind, file, plain_lines(values["text"]))
    return _things(kind, names)


def _of_hop() -> Iterator[Thing]:
    return _things("stream", _of_file("stream", request.args["file"]))


def _of_undo() -> Iterator[Thing]:
    last = site().edits.undo
    return iter(()) if last is None else _of_change(last)


def _of_change(change: ShownEdit) -> Iterator[Thing]:
    files = {one.removesuffix(SUFFIX) for one in (change.old, change.new)}
    return _things(change.kind, {change.name, change.former, *files} - {""})


def _read_by(change: ShownEdit) -> Iterator[Thing]:
    """The streams whose rows a change lets its author see.

    A definition decides what is shown as the rows of its stream, and which of their
    columns are masked; a pipeline writes the rows of its sources elsewhere.
    """
    if change.kind == "stream":
        return _of_change(change)
    path = folder_of("pipeline").path / (change.new or change.old)
    read, _ = streams_of(path, change.after)
    return map(the_stream, read)


def _written_by(change: ShownEdit) -> Iterator[Thing]:
    if change.kind == "stream":
        return iter(())
    path = folder_of("pipeline").path / (change.new or change.old)
    _, written = streams_of(path, change.after)
    return map(the_stream, written)


def rules_of_change(find: Callable[[], ShownEdit]) -> tuple[Rule, ...]:
    """The rights that a change needs, which the request asks for.

    Args:
        find: Finds the change of the request.
    """
    of_rows = "the stream, or those that the pipeline reads"
    of_sinks = "the streams that the pipeline writes"
    return (
        Rule(Right.EDIT, _DEFINITION, lambda: _of_change(find())),
        Rule(Right.VALUES, of_rows, lambda: _read_by(find())),
        Rule(Right.OPERATE, of_sinks, lambda: _written_by(find())),
    )


def _of_place() -> Iterator[Thing]:
    """The stream that is begun at a place, and the one whose connection it uses."""
    values = request.form if request.method == "POST" else request.args
    if request.method == "POST":
        name, like = values.get("name", "").strip(), values.get("like", "")
    else:
        shown = shown_before(values.get("change", ""), ShownPlace)
        name, like = shown.name, shown.like
    if like:
        yield the_stream(like)
    yield from _things("stream", {name} - {""})


def _previewed() -> tuple[str, str]:
    """The file and the text of the pipeline that a request previews."""
    if request.method == "POST":
        values = request.form
        return values.get("file", ""), plain_lines(values.get("text", ""))
    shown = shown_before(request.args.get("change", ""), ShownPreview)
    return shown.file, shown.text


def _read_by_preview() -> Iterator[Thing]:
    file, text = _previewed()
    read, _ = streams_of(folder_of("pipeline").path / (file or f"new{SUFFIX}"), text)
    return map(the_stream, read)


def _of_preview() -> Iterator[Thing]:
    """The pipeline that is previewed: as its file has it, and as its text has it."""
    file, text = _previewed()
    saved = _of_file("pipeline", file) if file else set()
    return _things("pipeline", saved | _names("pipeline", file, text))


def _shown() -> ShownEdit:
    values = request.form if request.method == "POST" else request.args
    return shown_before(values.get("change", ""), ShownEdit)


def _of_file(kind: str, file: str) -> set[str]:
    """The names of a definition that is there; the page says if it cannot be read."""
    try:
        text = folder_of(kind).read(file).text
    except StreamError:
        return {file.removesuffix(SUFFIX)}
    return _names(kind, file, text)


def _names(kind: str, file: str, text: str) -> set[str]:
    """The names of a definition: its own, and that of its file."""
    path = folder_of(kind).path / (file or f"new{SUFFIX}")
    try:
        name = draft_of(kind, path, text).name
    except StreamError:  # a literal secret, of which the page says more
        name = ""
    return {name, file.removesuffix(SUFFIX)} - {""}


def _things(kind: str, names: set[str]) -> Iterator[Thing]:
    """What is edited; a new text without a name cannot be saved."""
    of = STREAMS if kind == "stream" else PIPELINES
    return (Thing(of, name) for name in sorted(names))


_DEFINITION: Final = "the definition, as it is and as it would be"
SOME: Final = of_some(Right.EDIT)
"""For all pages of the editor."""
EDITED: Final = Rule(Right.EDIT, _DEFINITION, _of_text)
HOP: Final = Rule(Right.EDIT, "the stream", _of_hop)
UNDONE: Final = Rule(Right.EDIT, "the definition", _of_undo)
SHOWN: Final = rules_of_change(_shown)
_PLACE: Final = "the stream that is begun, and the one whose connection it uses"
PLACED: Final = (
    Rule(Right.EDIT, _PLACE, _of_place),
    Rule(Right.VALUES, _PLACE, _of_place),
)
"""For a stream that is begun at a place: its first rows are shown."""
PREVIEWED: Final = (
    Rule(Right.EDIT, _DEFINITION, _of_preview),
    Rule(Right.VALUES, "the streams that the pipeline reads", _read_by_preview),
    Rule(Right.OPERATE, "the pipeline, whose steps are evaluated", _of_preview),
)
