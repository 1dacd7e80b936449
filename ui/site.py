"""What the pages share: look-ups, history, access, jobs and runs of one server."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flask import current_app

from streamfactory.ui.editing.applying import Edits
from streamfactory.ui.editing.previewing import Previews
from streamfactory.ui.feeds import Feeds
from streamfactory.ui.jobs import Jobs
from streamfactory.ui.runs import Runs

if TYPE_CHECKING:
    from pathlib import Path

    from streamfactory.transfer.auditing import AuditTrail
    from streamfactory.ui.access import Access
    from streamfactory.ui.lookups import Lookups
    from streamfactory.ui.recording import Recorder

EXTENSION = "streamfactory"


@dataclass(frozen=True, slots=True)
class Site:
    """Everything behind the pages of one server."""

    access: Access
    recorder: Recorder
    lookups: Lookups
    files: tuple[Path, ...] = ()
    """Pipelines besides those of the catalogue."""
    jobs: Jobs = field(default_factory=Jobs)
    runs: Runs = field(default_factory=Runs)
    feeds: Feeds = field(default_factory=Feeds)
    edits: Edits = field(default_factory=Edits)
    previews: Previews = field(default_factory=Previews)
    trail: AuditTrail | None = None
    """Where changes are recorded."""


def site() -> Site:
    """The site of the request."""
    found = current_app.extensions[EXTENSION]
    assert isinstance(found, Site)
    return found
