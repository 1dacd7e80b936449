"""Facts about pipelines, as documents of plain values without secrets."""

from __future__ import annotations

import os
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spark.checkpoint_facts import checkpoint_facts
from streamfactory.spark.checkpoints import (
    Place,
    differences,
    ledger_folder,
    read_commits,
)
from streamfactory.spark.checkpoints.holding import running
from streamfactory.spark.locating import locate
from streamfactory.spark.pipelines.checking import check_draft, pipeline_verdict
from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.pipelines.detection import PIPELINES
from streamfactory.spark.pipelines.model import Table
from streamfactory.spark.pipelines.watching import noted_changes
from streamfactory.spark.targets import pipeline_files
from streamfactory.spi import (
    ConfigError,
    PositionRefused,
    StreamError,
    UnknownStream,
)
from streamfactory.spi.masking import mask_userinfo
from streamfactory.ui.catalogue import catalogue
from streamfactory.wiring.config.configure import inspect
from streamfactory.wiring.controls.states import Controls, pipeline_job
from streamfactory.wiring.core.guard import masked_errors
from streamfactory.wiring.core.plain import moment, plain
from streamfactory.wiring.core.shown import all_of, masked
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from streamfactory.spark.checkpoints import Batch, QueryCheckpoint, SinkCommit
    from streamfactory.spark.locating import Located
    from streamfactory.spark.pipelines.model import Draft, Lookup
    from streamfactory.wiring.controls.states import Pause

Document = dict[str, Any]

BATCHES: Final = 50
"""Batches of which a page shows the history."""


def pipelines(files: Sequence[Path] = ()) -> dict[str, Path]:
    """The files of pipelines by name: those given, and those beside the catalogue.

    Of two with one name, the second has the path of its file as its name. A file that
    is found by several paths is one pipeline.
    """
    found: dict[str, Path] = {}
    files_once: dict[str, Path] = {}
    for path in (*files, *pipeline_files()):
        # `resolve` raises an error for a link to itself.
        files_once.setdefault(os.path.realpath(path), path)
    for path in files_once.values():
        try:
            name = read_pipeline(path, catalogue()).name or path.stem
        except ConfigError:
            name = path.stem
        found[str(path) if name in found else name] = path
    return found


def definition(path: Path) -> Document:
    """What a pipeline's file defines, with its problems and its guarantee.

    Connects to nothing.

    Raises:
        ConfigError: config; the file cannot be read.
    """
    draft = read_pipeline(path, catalogue())
    pipeline = draft.pipeline
    document: Document = {
        "name": draft.name,
        "origin": draft.origin,
        "file": path.name if path.parent == _beside() else None,
        "description": "" if pipeline is None else pipeline.description,
        "problems": [
            {"level": one.level, "text": str(one)} for one in check_draft(draft)
        ],
        "steps": [{"id": step.id, "sql": step.sql} for step in draft.steps],
        "sinks": [
            {
                "name": one.name,
                "rows": one.rows,
                "table": isinstance(one, Table),
                "to": one.path if isinstance(one, Table) else one.stream.name,
            }
            for one in draft.targets
        ],
        "sources": [],
        "lookups": [],
        "expectations": [],
        "dead_letters": None,
        "trigger": None,
        "guarantee": None,
    }
    if pipeline is not None:
        letters = pipeline.dead_letters
        document |= {
            "sources": [one.stream.name for one in pipeline.sources],
            "lookups": [_lookup(one) for one in pipeline.lookups],
            "expectations": [
                {
                    "name": one.name,
                    "on": step.shown,
                    "condition": one.condition,
                    "on_failure": one.on_failure,
                }
                for step in pipeline.steps
                for one in step.expectations
            ],
            "checkpoint": mask_userinfo(pipeline.checkpoint),
            "dead_letters": None if letters is None else letters.stream.name,
            "mode": pipeline.mode,
        }
        try:
            document["guarantee"] = plain(pipeline_verdict(pipeline))
        except StreamError as error:
            document["guarantee"] = {"guarantee": None, "reasons": [str(error)]}
    return _safe(document, draft)


def _lookup(lookup: Lookup) -> Document:
    """What a lookup reads; not the options of its connector, which have secrets."""
    stream, path = lookup.stream, lookup.path
    return {
        "id": lookup.id,
        "stream": None if stream is None else stream.name,
        "key": list(lookup.key),
        "format": lookup.format,
        "path": None if path is None else mask_userinfo(path),
        "refresh": str(lookup.refresh),
    }


def pause(path: Path) -> Pause | None:
    """Why a pipeline is paused; None if it is not.

    Raises:
        ConfigError: config; its state, or its file, cannot be read.
    """
    name = read_pipeline(path, catalogue()).name
    return Controls().read(pipeline_job(name)).pause


def changes(path: Path) -> list[str]:
    """What changed in a pipeline's files since the run began that uses its checkpoint.

    Raises:
        ConfigError: config; the file cannot be read.
        PositionRefused: permanent; the checkpoint cannot be reached.
    """
    found = noted_changes(path, catalogue())
    if not found:
        return []
    draft = read_pipeline(path, catalogue())
    lines: list[str] = masked(list(found), all_of(_masks(draft)))
    return lines


def paused_jobs() -> dict[str, Pause]:
    """All jobs that are paused, by their names.

    Raises:
        ConfigError: config; a state cannot be read.
    """
    return Controls().paused()


def _beside() -> Path:
    """The folder of pipelines beside the catalogue."""
    return catalogue().folder.parent / PIPELINES


def progress(path: Path) -> Document:
    """The checkpoint of a pipeline, and the history of its batches.

    Raises:
        PositionRefused: permanent; there is no checkpoint, or it cannot be read.
        ConfigError: config; the file is invalid.
    """
    draft = read_pipeline(path, catalogue())
    with masked_errors(_masks(draft)):
        located = locate(str(path), catalogue=catalogue())
        document = checkpoint_facts(located, datetime.now(UTC))
        document["history"] = _history(located)
    return _safe(document, draft)


def begins_late(path: Path) -> list[str]:
    """What a first run does not read: rows of sources that begin at the latest offset.

    Empty if the pipeline has run before, or its sources say where they begin.

    Raises:
        ConfigError: config; the file cannot be read.
    """
    pipeline = read_pipeline(path, catalogue()).pipeline
    if pipeline is None:
        return []
    with suppress(PositionRefused):
        locate(str(path), catalogue=catalogue())
        return []
    return [
        f"{one.stream.name} without startingOffsets, so at its latest offset: rows "
        "that exist now are not read, unless it is a table"
        for one in pipeline.sources
        if not any(_is_start(prop.key) for prop in one.stream.properties)
    ]


def _is_start(key: str) -> bool:
    """Whether an option says where reading begins."""
    return key.lower().startswith("starting") or key.lower().endswith(
        ".auto.offset.reset"
    )


def checkpoint(path: Path) -> Document:
    """What `progress` has, and what changed since the run began that uses it.

    Raises as `progress`.
    """
    return {**progress(path), "changes": changes(path)}


def used(path: Path) -> str | None:
    """Why a run may be using a pipeline's checkpoint; None if none is.

    Raises:
        PositionRefused: permanent; the checkpoint cannot be reached.
        ConfigError: config; the file is invalid.
    """
    draft = read_pipeline(path, catalogue())
    if draft.pipeline is None:
        return None
    with masked_errors(_masks(draft)):
        return running(Place.of(draft.pipeline.checkpoint))


def compared(path: Path, first: int, second: int) -> list[Document]:
    """The differences of the ends of two planned batches, by source and partition.

    Raises:
        PositionRefused: permanent; one of the batches is not kept.
        ConfigError: config; the file is invalid.
    """
    with masked_errors(_masks(read_pipeline(path, catalogue()))):
        query = locate(str(path), catalogue=catalogue()).asked()
        before, after = query.batch(first), query.batch(second)
    return [
        {
            "source": index if old.name is None else old.name,
            "partitions": plain(differences(old.position, new.position)),
        }
        for index, (old, new) in enumerate(
            zip(before.sources, after.sources, strict=True)
        )
    ]


def find(name: str, files: Mapping[str, Path]) -> Path:
    """The file of a pipeline.

    Raises:
        UnknownStream: config; there is none of this name.
    """
    if name not in files:
        msg = f"no pipeline is named {name!r}"
        raise UnknownStream(msg, remedy="the overview lists all of them")
    return files[name]


def _history(located: Located) -> list[Document]:
    """The last batches, newest first."""
    query, record = located.query, located.record
    if query is None:
        return []
    ledger = None
    if record is not None:
        ledger = ledger_folder(Place.of(located.folder), record.generation)
    numbers = query.planned[-BATCHES - 1 :]
    plans = [query.batch(number) for number in numbers]
    found = []
    for index, plan in enumerate(plans):
        before = plans[index - 1] if index else None
        if before is None and plan.number > 0:
            continue  # its start is in a plan that is not shown
        found.append(_batch(query, plan, before, ledger))
    return found[::-1]


def _batch(
    query: QueryCheckpoint, plan: Batch, before: Batch | None, ledger: Place | None
) -> Document:
    commits = [] if ledger is None else read_commits(ledger, plan.number)
    done = None
    if plan.number in query.committed:
        done = query.place.child("commits").written(str(plan.number))
    seconds = None if done is None else max(0.0, (done - plan.planned).total_seconds())
    offsets = _offsets(plan, before)
    return {
        "batch": plan.number,
        "planned": moment(plan.planned),
        "at": plan.planned.timestamp(),
        "committed": moment(done),
        "seconds": seconds,
        "offsets": offsets,
        "rate": offsets / seconds if offsets is not None and seconds else None,
        "rows": _written(commits, dead_letters=False),
        "dead_letters": _written(commits, dead_letters=True),
        "sinks": ", ".join(sorted({one.sink for one in commits})),
    }


def _written(commits: Sequence[SinkCommit], *, dead_letters: bool) -> int | None:
    if not commits:
        return None
    return sum(
        counts.writes
        for one in commits
        if one.dead_letters is dead_letters
        for counts in one.partitions
    )


def _offsets(plan: Batch, before: Batch | None) -> int | None:
    """Offsets that a batch read of all sources; None if one of them is unknown."""
    total, seen = 0, set[str | None]()
    for index, source in enumerate(plan.sources):
        if source.name in seen:
            continue  # a second scan of a source reads the same offsets
        seen.add(source.name)
        start = source.offset.begun
        if before is not None:
            start = before.sources[index].position
        for one in differences(start, source.position):
            if one.before is None or one.offsets is None:
                return None
            total += one.offsets
    return total


def _safe(document: Document, draft: Draft) -> Document:
    """The document without the secrets of the pipeline's streams."""
    safe: Document = masked(document, all_of(_masks(draft)))
    return safe


def _masks(draft: Draft) -> list[Callable[[str], str]]:
    found = [inspect(stream, default_manager()).config for stream in draft.streams]
    return [config.mask for config in found if config is not None]
