"""What a change of a definition means: its users, and a check of the stream."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final

from streamfactory.spark.pipelines.definition import parse_pipeline, read_pipeline
from streamfactory.spark.pipelines.model import Table
from streamfactory.spi import ConfigError, MisuseError, PartitionState
from streamfactory.ui import pipelines as facts
from streamfactory.ui.catalogue import catalogue
from streamfactory.ui.streams import rows_of
from streamfactory.wiring.config.documents import Document, read_toml
from streamfactory.wiring.core.plain import plain
from streamfactory.wiring.core.shown import masked
from streamfactory.wiring.options.spool import PATH as SPOOL_PATH
from streamfactory.wiring.reading.opened import opened_source, refuse_transport
from streamfactory.wiring.streams.checks import StreamCheck

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from streamfactory.ui.runs import Runs
    from streamfactory.wiring.config.definition import StreamDefinition

ROWS: Final = 5
"""First rows of a stream that are shown."""
_MOST_LINES: Final = 1000
"""Of a text that is compared: for n lines, `difflib` takes up to n^2 steps and more."""
_COMMANDS: Final = ("hook", "spark")
"""What pipelines start with: commands, and settings of Spark that load code."""


def try_out(definition: StreamDefinition) -> dict[str, Any]:
    """Check a stream that is not saved yet, and read its first rows.

    Nothing is written or consumed.

    Raises:
        Unsupported: misuse; a second connection may take messages of the stream.
        StreamError: Its configuration is no source's.
    """
    with opened_source(definition) as source:
        refuse_transport(source)  # before anything connects
        check = StreamCheck(lambda: definition)
        result = check.run()
        document: dict[str, Any] = {
            "ok": result.failure is None,
            "steps": [plain(one) for one in result.steps],
            "schema": [],
            "rows": None,
        }
        if result.failure is None:
            document["schema"] = [
                {"name": one.name, "type": str(one.type)} for one in source.schema
            ]
            infos = [
                one
                for one in source.metadata.partitions()
                if one.state is not PartitionState.VANISHED
            ]
            held = (
                one for one in infos if one.latest is None or one.latest > one.start
            )
            first = next(held, None)
            if first is not None:
                rows = rows_of(source, first, last=False)
                document["rows"] = {**rows, "rows": rows["rows"][:ROWS]}
        safe: dict[str, Any] = masked(document, check.mask)
        return safe


def users_of(name: str, files: Sequence[Path], runs: Runs) -> Iterator[str]:
    """Say who refers to a stream: other streams, and pipelines with their runs.

    Args:
        name: The stream.
        files: Pipelines besides those of the catalogue.
        runs: Of this server.
    """
    streams = catalogue()
    for other in streams.names():
        for place in streams.definitions(other):
            for prop in place.properties:
                key = prop.key.lower()
                if key == "dead.letter.stream" and prop.text == name:
                    yield f"stream {other}: its dead letters"
                if key == SPOOL_PATH and other == name:
                    yield f"spool {prop.text}, and its receiver"
    for pipeline, path in facts.pipelines(files).items():
        try:
            draft = read_pipeline(path, streams)
        except ConfigError:
            continue  # the overview shows it
        if name in {one.name for one in draft.streams}:
            yield f"pipeline {pipeline}{run_text(path, runs)}"


def streams_of(path: Path, text: str) -> tuple[list[str], list[str]]:
    """The streams that the text of a pipeline reads, and those that it writes.

    Args:
        path: Of its file.
        text: The text; of one that cannot be read, both are empty.
    """
    document = Document(path, text)
    try:
        document.body = read_toml(document)
        pipeline = parse_pipeline(document, catalogue()).pipeline
    except ConfigError:
        return [], []
    if pipeline is None:
        return [], []
    lookups = [one.stream for one in pipeline.lookups if one.stream is not None]
    read = [one.stream.name for one in pipeline.sources]
    letters = [] if pipeline.dead_letters is None else [pipeline.dead_letters.stream]
    sinks = [one.stream for one in pipeline.targets if not isinstance(one, Table)]
    written = [one.name for one in (*sinks, *letters)]
    return [*read, *(one.name for one in lookups)], written


def run_text(path: Path, runs: Runs) -> str:
    """What a run of a pipeline does about a change of a file that it read."""
    run = runs.last(path)
    if run is None or not run.running:
        return ""
    return ", which runs here and reads the files again when it is restarted"


def refuse_commands(path: Path, before: str, after: str) -> None:
    """Refuse a text that changes what a pipeline would start on this machine.

    Raises:
        MisuseError: misuse; ``hook.*`` or ``spark`` differ.
    """
    if _commands(path, before) != _commands(path, after):
        msg = "hook.* and [spark] of a pipeline are not changed in the pages"
        remedy = "they start programs on this machine: change them in the file"
        raise MisuseError(msg, remedy=remedy)


def _commands(path: Path, text: str) -> dict[str, Any]:
    try:
        body = read_toml(Document(path, text))
    except ConfigError:
        return {}
    return {
        key: value
        for key, value in body.items()
        if key.partition(".")[0].lower() in _COMMANDS
    }


def difference(before: str, after: str) -> list[tuple[str, str]]:
    """The lines of a unified difference, each with its kind.

    Kinds: ``added``, ``removed``, ``place``, ``same``. Texts of very many lines are not
    compared: all lines of the first are removed, and those of the second added.
    """
    old, new = before.splitlines(), after.splitlines()
    if max(len(old), len(new)) > _MOST_LINES:
        removed = [("removed", f"-{one}") for one in old]
        return removed + [("added", f"+{one}") for one in new]
    kinds = {"+": "added", "-": "removed", "@": "place"}
    lines = difflib.unified_diff(old, new, lineterm="")
    return [(kinds.get(one[:1], "same"), one) for one in list(lines)[2:]]
