"""Plans changes of definitions, says whom they affect, and makes them.

The pages and the interface for programs use it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from streamfactory.spi import MisuseError
from streamfactory.ui.changes import Confirmed, change_of, in_time
from streamfactory.ui.editing.checking import run_text, users_of
from streamfactory.ui.editing.drafts import draft_of, folder_of
from streamfactory.ui.editing.files import SUFFIX
from streamfactory.ui.people import Right
from streamfactory.ui.shown import ShownEdit
from streamfactory.ui.site import site

if TYPE_CHECKING:
    from streamfactory.ui.editing.drafts import Draft

_LOOKED_UP: Final = ("configuration", "partitions", "lags", "facts")


def plan_edit(draft: Draft, file: str, before: str, digest: str) -> ShownEdit:
    """Plan that a valid text becomes a new file, or replaces that of one.

    A file that has the name of its definition is renamed with it.

    Args:
        draft: The text.
        file: The file; empty for a new one.
        before: Its text.
        digest: Of its bytes.

    Raises:
        MisuseError: misuse; there is nothing to save, or the name is taken.
    """
    if file and before == draft.text:
        msg = "the text is that of the file: there is nothing to save"
        raise MisuseError(msg, remedy="change something")
    folder, new, former = folder_of(draft.kind), file, ""
    if file:
        former = draft_of(draft.kind, folder.path / file, before).name
    if file.removesuffix(SUFFIX) == former:
        new = folder.file_name(draft.name)  # it is named as what it defines
    if new != file and new in folder.names():
        msg = f"a file {new!r} is in {str(folder.path)!r} already"
        raise MisuseError(msg, remedy="choose another name")
    return ShownEdit(
        draft.kind, draft.name, former, file, new, before, draft.text, digest
    )


def plan_deletion(kind: str, file: str) -> ShownEdit:
    """Plan the deletion of a file.

    Raises:
        UnknownStream: config; there is none of this name.
        MisuseError: misuse; it cannot be shown, so it is not changed here.
    """
    folder = folder_of(kind)
    content = folder.read(file)
    draft = draft_of(kind, folder.path / file, content.text)
    name = draft.name or file.removesuffix(SUFFIX)
    return ShownEdit(kind, name, name, file, "", content.text, "", content.digest)


def title_of(change: ShownEdit) -> str:
    """What a change does, as a participle."""
    if not change.new:
        return f"deleted with its file {change.old}"
    if not change.old:
        return f"created as {change.new}"
    if change.old != change.new:
        return f"renamed from {change.old} to {change.new}"
    return f"saved as {change.new}"


def affected(change: ShownEdit) -> list[str]:
    """Who refers to what is changed, and which run reads it again."""
    runs = site().runs
    if change.kind == "stream":
        # A stream is found by the name of its file, too.
        files = {one.removesuffix(SUFFIX) for one in (change.old, change.new)}
        names = sorted({change.name, change.former, *files} - {""})
        return [user for name in names for user in users_of(name, site().files, runs)]
    path = folder_of(change.kind).path / (change.old or change.new)
    running = run_text(path, runs)
    return [f"pipeline {change.name}{running}"] if running else []


def make_edit(change: ShownEdit) -> str:
    """Make a change that was confirmed, and record it.

    Returns:
        The digest of the file after it; empty if it is deleted.

    Raises:
        Changed: config; the file is not as it was when the change was planned.
        StreamTimeout: transient; see `in_time`.
        ConfigError: config; it cannot be written.
    """
    lookups, edits, found = site().lookups, site().edits, list[str]()
    names, folder = {change.name, change.former}, folder_of(change.kind)
    keys = [(key, name) for key in _LOOKED_UP for name in names]
    keys += [("definition", str(folder.path / one)) for one in (change.old, change.new)]
    confirmed = Confirmed(
        f"{change.kind} {change.name}",
        change_of(Right.EDIT, change.kind, change.name, change.before, change.after),
        shown=change.digest,
        fields={change.kind: change.name},
        ended=lambda: lookups.forget(keys),
    )
    what = title_of(change)

    def apply() -> None:
        found.append(edits.apply(change))

    in_time(lambda: confirmed.perform(what, apply), confirmed)
    return found[0]
