"""``pipeline.json``: the pipeline of a checkpoint folder, and applied overrides."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spark.checkpoints.documents import read_document
from streamfactory.spi import PositionRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.spark.checkpoints.places import Place

RECORD: Final = "pipeline.json"
VERSION: Final = 2
"""Written with names; version 1 has none."""
_WHAT: Final = "the record of a pipeline's checkpoint"
MAX_HISTORY: Final = 100
"""Older entries are dropped, to keep the file small."""


@final
@dataclass(frozen=True, slots=True)
class Change:
    """The reason for a new generation."""

    generation: int
    at: str
    why: str


@final
@dataclass(frozen=True, slots=True)
class Record:
    """State of a pipeline's checkpoint besides Spark's."""

    pipeline: str
    sources: tuple[str, ...]
    """The streams, in the order of the query."""
    generation: int
    begun: bool
    """Whether a batch of this generation was planned."""
    start: tuple[dict[str, str], ...]
    """Start options of this generation for each source; may be empty."""
    reset: str | None
    """The last applied token of ``--reset``."""
    ignored: str | None
    """The last applied label of ``--ignore-checkpoint``."""
    history: tuple[Change, ...]
    names: tuple[str, ...] = ()
    """Ids of several sources, in the order of the query; empty for one."""

    def to_json(self) -> str:
        """One line, sorted keys."""
        body = {"version": VERSION, **asdict(self)}
        if not self.names:  # an earlier release continues it
            del body["names"]
            body["version"] = 1
        body["history"] = body["history"][-MAX_HISTORY:]
        return json.dumps(body, sort_keys=True, separators=(",", ":")) + "\n"


def read_record(place: Place) -> Record | None:
    """The record of a pipeline's checkpoint; None where there is none.

    Raises:
        PositionRefused: permanent; it is corrupt, foreign or newer (rule P2).
    """
    body = read_document(place, RECORD, VERSION, _WHAT)
    if body is None:
        return None
    if not _is_record(body):
        msg = f"{place.text}/{RECORD} is not {_WHAT}"
        raise PositionRefused(msg)
    return Record(
        pipeline=body["pipeline"],
        sources=tuple(body["sources"]),
        generation=body["generation"],
        begun=body["begun"],
        start=tuple(body["start"]),
        reset=body["reset"],
        ignored=body["ignored"],
        history=tuple(Change(**entry) for entry in body["history"]),
        names=tuple(body.get("names", ())),
    )


def _is_record(body: dict[str, Any]) -> bool:
    checks: dict[str, Callable[[Any], Any]] = {
        "version": lambda v: v == (VERSION if "names" in body else 1),
        "pipeline": _is_text,
        "sources": lambda v: _all(v, _is_text) and v,
        "generation": _is_number,
        "begun": lambda v: isinstance(v, bool),
        "start": lambda v: _all(v, _is_options),
        "reset": lambda v: v is None or _is_text(v),
        "ignored": lambda v: v is None or _is_text(v),
        "history": lambda v: _all(v, _is_change),
    }
    if body.get("version") == VERSION:
        checks["names"] = lambda v: _all(v, _is_text) and len(v) == len(body["sources"])
    if set(body) != set(checks) or not all(checks[key](body[key]) for key in checks):
        return False
    return len(body["start"]) == len(body["sources"])


def _all(values: Any, check: Any) -> bool:
    return isinstance(values, list) and all(check(value) for value in values)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value)


def _is_number(value: Any) -> bool:
    return type(value) is int and value > 0


def _is_options(value: Any) -> bool:
    return isinstance(value, dict) and all(map(_is_text, value.values()))


def _is_change(value: Any) -> bool:
    if not isinstance(value, dict) or set(value) != {"generation", "at", "why"}:
        return False
    return _is_number(value["generation"]) and _is_text(value["at"] and value["why"])
