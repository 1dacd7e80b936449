"""Removes paths and URLs of the server from errors for clients."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, final

from streamfactory.arrowlog import LogStore
from streamfactory.arrowlog.checks import NO_TOPIC_REMEDY
from streamfactory.spi import StreamError, TopicNotFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pyarrow as pa

    from streamfactory.arrowlog import Log

_REPLACEMENT: Final = "<store>"


@final
class Redactor:
    """Removes paths and URLs of the server from texts.

    Args:
        places: Folders and URLs.
    """

    def __init__(self, places: Iterable[str]) -> None:
        found = {place.rstrip("/") for place in places}
        found |= {os.path.realpath(place) for place in found if place.startswith("/")}
        self._places = sorted(found - {""}, key=len, reverse=True)

    def public(self, text: str) -> str:
        """The text without paths and URLs."""
        for place in self._places:
            text = text.replace(place, _REPLACEMENT)
        return text

    def conceals(self, text: str) -> bool:
        """Whether a text contains such a path or URL."""
        return self.public(text) != text

    def public_error(self, error: StreamError) -> StreamError:
        """The error with texts for clients; for one response."""
        error.what = self.public(error.what)
        if error.remedy is not None:
            error.remedy = self.public(error.remedy)
        return error


class NoSuchTopic(TopicNotFound):
    """A topic that the store does not have; the names of others are added later."""

    def __init__(self, name: str) -> None:
        super().__init__(f"topic {name!r} does not exist", remedy=NO_TOPIC_REMEDY)


@final
class ServedStore(LogStore):
    """A store whose errors reveal neither its location nor its other topics.

    Args:
        store: The topics; the caller closes it.
        redactor: Has the places.
    """

    def __init__(self, store: LogStore, redactor: Redactor) -> None:
        self._store = store
        self.redactor = redactor

    def create(self, name: str, schema: pa.Schema, partitions: int = 1) -> Log:
        return self._store.create(name, schema, partitions)

    def open(self, name: str) -> Log:
        try:
            return self._store.open(name)
        except TopicNotFound:
            raise NoSuchTopic(name) from None

    def delete(self, name: str) -> None:
        try:
            self._store.delete(name)
        except TopicNotFound:
            raise NoSuchTopic(name) from None

    def names(self) -> Sequence[str]:
        return self._store.names()
