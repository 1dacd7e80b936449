"""Planned changes that a page shows, until they are confirmed."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field
from typing import final

from streamfactory.spi import ConfigError


class Changed(ConfigError):
    """What a change replaces is not as it was when the change was shown."""


@final
@dataclass(frozen=True, slots=True)
class Shown:
    """A planned change that a page shows, until it is confirmed.

    It stays in the server: with many partitions a form of it would be too large.
    """

    place: str
    """The new position, as a client writes it or as JSON."""
    stream: str = ""
    group: str = ""
    pipeline: str = ""
    before: str | None = None
    """The position that it replaces, as JSON; None until it is planned."""
    key: str = field(default_factory=secrets.token_urlsafe)
    """By which the form that confirms it names it."""


@final
@dataclass(frozen=True, slots=True)
class ShownTopic:
    """A planned change of a topic, or a message, that a page shows."""

    kind: str
    """``create``, ``grow``, ``truncate``, ``delete`` or ``produce``."""
    stream: str
    text: str = ""
    """What the client gave: columns, a number, a place, or a row."""
    format: str = "json"
    """Of a row."""
    seen: str = ""
    """What the change depends on, as it was shown."""
    key: str = field(default_factory=secrets.token_urlsafe)


@final
@dataclass(frozen=True, slots=True)
class ShownReplay:
    """A replay of dead letters that a page shows."""

    letters: str
    """The stream of dead letters."""
    to: str
    of: str = ""
    """The stream that the letters come from; empty for that of the first one."""
    key: str = field(default_factory=secrets.token_urlsafe)


@final
@dataclass(frozen=True, slots=True)
class ShownRun:
    """A start, stop or restart of a pipeline that a page shows."""

    kind: str
    """``start``, ``stop`` or ``restart``."""
    pipeline: str
    pace: str = ""
    """Of a start."""
    seen: str = ""
    """The run that there was, and its state."""
    key: str = field(default_factory=secrets.token_urlsafe)


@final
@dataclass(frozen=True, slots=True)
class ShownEdit:
    """A change of the file of a definition that a page shows."""

    kind: str
    """``stream`` or ``pipeline``."""
    name: str
    """Of the definition, after the change; of a deletion, before."""
    former: str
    """Its name before; empty for a new one."""
    old: str
    """The file's name; empty for a new one."""
    new: str
    """Its name after the change; empty if it is deleted."""
    before: str
    """Its text."""
    after: str
    digest: str = ""
    """Of the bytes that the change replaces."""
    key: str = field(default_factory=secrets.token_urlsafe)


@final
@dataclass(frozen=True, slots=True)
class ShownPlace:
    """A place that a page shows, from which the definition of a stream is begun."""

    name: str
    """Of the stream."""
    text: str = ""
    """A path, a URL, or the address of a server."""
    kind: str = ""
    """The stream type; recognised if empty."""
    topic: str = ""
    like: str = ""
    """A stream whose connection is used, in place of `text`."""
    key: str = field(default_factory=secrets.token_urlsafe)


@final
@dataclass(frozen=True, slots=True)
class ShownPreview:
    """A preview of a pipeline whose text is not saved."""

    name: str
    """Of the pipeline."""
    file: str
    """Empty for a new one."""
    digest: str
    """Of the file when its text was read."""
    text: str
    job: int
    """The number of the preview."""
    key: str = field(default_factory=secrets.token_urlsafe)


AnyShown = (
    Shown | ShownTopic | ShownReplay | ShownRun | ShownEdit | ShownPlace | ShownPreview
)
