"""Findings about plug-ins, the catalogue and its streams."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.cli.doctor.findings import ERROR, OK, WARNING, Finding
from streamfactory.cli.results import count
from streamfactory.spi import ConfigError, StreamError, TopicNotFound
from streamfactory.spi.references import has_reference
from streamfactory.spi.topics import LEFT_OVER, TO_COMPACT
from streamfactory.wiring.config.catalogue import ENVIRONMENT, Catalogue
from streamfactory.wiring.core.bounded import Hung, bounded
from streamfactory.wiring.core.guard import looking_once
from streamfactory.wiring.plugins.manager import NOUNS, default_manager
from streamfactory.wiring.streams.checks import StreamCheck
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from streamfactory.cli.printing import Printer
    from streamfactory.wiring.config.definition import StreamDefinition

_AT_ONCE: Final = 8
"""Streams that are checked concurrently: one that hangs delays no other."""
_FOLDERS: Final = ("checkpoint.location", "spool.path")
"""Options that name folders which this machine writes."""
_SECONDS: Final = 30.0
"""For the facts of a topic, which may be read from all files of a table."""
_MANY: Final = 100
"""Files to merge from which on a warning is due: each costs readers a request."""


def stream_findings(
    printer: Printer, targets: Sequence[str], *, connect: bool
) -> Iterator[Finding]:
    """Findings about plug-ins, the catalogue, and the named streams or all of it.

    Args:
        printer: Masks the secrets of the streams from then on.
        targets: Streams, by name or file; all of the catalogue by default.
        connect: Whether streams are checked.
    """
    yield from _plugins()
    catalogue = Catalogue().snapshot()
    try:
        names, broken = catalogue.names(), catalogue.broken()
    except ConfigError as error:
        yield Finding("catalogue", str(catalogue.folder), ERROR, error.what, _SET)
        return
    if not catalogue.folder.is_dir():
        what = "the folder does not exist: streams have no names here"
        yield Finding("catalogue", str(catalogue.folder), OK, what)
    else:
        what = count(len(names), "stream")
        yield Finding("catalogue", str(catalogue.folder), OK, what)
    for path, problem in broken.items():
        remedy = f"see `streamfactory validate {path}`"
        yield Finding("catalogue", str(path), ERROR, problem.what, remedy)
    with looking_once(), ThreadPoolExecutor(_AT_ONCE) as pool:
        checked = (targets or names) if connect else ()
        found = pool.map(partial(_checked, printer, catalogue), checked)
        for findings in found:
            yield from findings


_SET: Final = f"check the permissions, or set {ENVIRONMENT} to another folder"


def _plugins() -> Iterator[Finding]:
    manager = default_manager()
    for group, kind in NOUNS.items():
        infos = manager.list(group)
        for info in infos:
            if info.error is not None:
                remedy = info.error.remedy or f"remove or update {info.distribution}"
                what = f"[{info.error.code}] {info.error.what}"
                yield Finding("plug-in", f"{kind} {info.name}", WARNING, what, remedy)
        good = [
            f"{info.name} ({info.distribution} {info.version})"
            for info in infos
            if info.error is None
        ]
        yield Finding("plug-in", f"{kind}s", OK, ", ".join(good))


def _checked(printer: Printer, catalogue: Catalogue, target: str) -> list[Finding]:
    """The check of one stream, and its folders."""
    check = StreamCheck(lambda: catalogue.one(target))
    printer.also_mask(check.mask)
    result = check.run()
    if isinstance(result.failure, TopicNotFound):
        what = "the topic does not exist yet: publish to it, or create it with "
        what += "`streamfactory topics create`"
        return [Finding("stream", target, OK, what)]
    if result.failure is not None:
        failed = next(step for step in result.steps if step.outcome == "failed")
        what = f"{failed.name}: [{result.failure.code}] {result.failure.what}"
        remedy = result.failure.remedy or f"see `streamfactory check {target}`"
        return [Finding("stream", target, ERROR, what, remedy)]
    steps = [step for step in result.steps if step.outcome == "ok"]
    shown = [s.what for s in steps if s.name in ("partitions", "lag")]
    found = [Finding("stream", target, OK, "; ".join(shown))]
    found += [
        Finding("stream", target, WARNING, f"{one.key}: {one.what}", one.suggestion)
        for one in result.warnings
    ]
    definition = catalogue.one(target)
    return [*found, *_upkeep(target, definition), *_folders(target, definition)]


def _upkeep(target: str, definition: StreamDefinition) -> Iterator[Finding]:
    """What a compaction of the stream's topic removes or merges."""
    try:
        facts = bounded("facts of the topic", _SECONDS, partial(_facts, definition))
    except Hung as error:
        remedy = "check that the stream's server can be reached"
        yield Finding("stream", target, WARNING, error.what, remedy)
        return
    except StreamError:
        return  # its type has no administration, or it shows nothing to readers
    remedy = f"run: streamfactory topics compact {target}"
    if left := int(facts.get(LEFT_OVER, 0)):
        what = f"killed processes left {left} files or folders"
        yield Finding("stream", target, WARNING, what, remedy)
    if TO_COMPACT in facts:
        many = int(facts[TO_COMPACT])
        what = f"{many:,} files can be merged"
        if facts.keys() >= {"files", "bytes"}:
            files, size = int(facts["files"]), facts["bytes"]
            held = f"{files:,} file{'s' * (files != 1)} of {size:,} bytes"
            what = f"{held}, of which {many:,} can be merged"
        if many < _MANY:
            yield Finding("stream", target, OK, what)
        else:
            yield Finding("stream", target, WARNING, what, remedy)


def _facts(definition: StreamDefinition) -> Mapping[str, str | int]:
    with open_admin(definition) as admin:
        return admin.facts()


def _folders(target: str, definition: StreamDefinition) -> Iterator[Finding]:
    """Folders that the stream names, and that cannot be written."""
    for given in definition.properties:
        if given.key.lower() not in _FOLDERS:
            continue
        if "://" in given.text or has_reference(given.text):
            continue
        folder = Path(given.text)
        while not folder.exists() and folder != folder.parent:
            folder = folder.parent  # created when it is first used
        if not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
            what = f"{given.key}: {folder} is not a writable folder"
            remedy = "check the permissions of this user"
            yield Finding("stream", target, ERROR, what, remedy)
