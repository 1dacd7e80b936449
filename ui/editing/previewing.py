"""Runs ``streamfactory preview`` for a text that is not saved, in a process of its own.

Spark analyses the steps there, and evaluates them over the first rows of the sources.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spi import MisuseError, Problem, StorageFailed, StreamTimeout
from streamfactory.ui.editing.drafts import remark_of
from streamfactory.ui.jobs import Jobs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from streamfactory.ui.editing.drafts import Remark
    from streamfactory.ui.jobs import Job

ROWS: Final = 5
"""Of each source and step."""
SECONDS: Final = 180.0
"""For a preview; Spark takes about ten to start."""
_MOST_BYTES: Final = 4 << 20
"""Of its output."""
_MOST_CHARACTERS: Final = 400
"""Of a value."""
_MOST_COLUMNS: Final = 60
_KEPT: Final = 16
"""Results, each of up to `_MOST_BYTES`."""
_TURN: Final = 0.2
_IN_SQL: Final = re.compile(r"\(line (\d{1,6}) of the SQL")
_SQL_KEY: Final = re.compile(r"\s*sql\s*=\s*(?P<rest>.*?)\s*$", re.IGNORECASE)
_COMMAND: Final = (
    sys.executable,
    "-m",
    "streamfactory",
    "preview",
    "--json",
    "--until-input-ends",
)


@final
class Previews:
    """The previews of one server. Thread-safe.

    Args:
        command: What previews a pipeline whose text is on its standard input, up to a
            null character; the number of rows and the file are added. It ends when its
            standard input ends, so when this process ends, too.
    """

    def __init__(self, command: Sequence[str] = _COMMAND) -> None:
        self._command = command
        self._jobs = Jobs(_KEPT)
        self._numbers = count()

    def start(self, path: Path, text: str) -> Job:
        """Start a preview.

        Raises:
            MisuseError: misuse; too many are running.
        """
        # New pipelines of several users have the same path.
        title = f"preview {next(self._numbers)}"
        return self._jobs.start(title, lambda job: self._run(job, path, text))

    def get(self, number: int) -> Job | None:
        """A preview by its number."""
        return self._jobs.get(number)

    def stop(self) -> None:
        """End all of them."""
        self._jobs.stop()

    def _run(self, job: Job, path: Path, text: str) -> dict[str, Any]:
        more = ("--stdin", "--rows", str(ROWS), "--", str(path))
        process = subprocess.Popen(  # noqa: S603 - this interpreter and our own command
            [*self._command, *more],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # Spark is a process of its group
        )
        assert process.stdin is not None
        ended = threading.Event()
        watch = threading.Thread(
            target=_watch, args=(process, job, ended), name=job.title, daemon=True
        )
        watch.start()
        begin = time.monotonic()
        try:
            assert process.stdout is not None
            with suppress(BrokenPipeError):
                process.stdin.write(text.encode() + b"\0")
                process.stdin.flush()
            with process.stdout:
                output = process.stdout.read(_MOST_BYTES + 1)
        finally:
            ended.set()
            watch.join()
            _kill(process)
            with suppress(BrokenPipeError):
                process.stdin.close()
        if time.monotonic() - begin >= SECONDS:
            msg = f"the preview has not ended within {SECONDS:g} s"
            raise StreamTimeout(msg, remedy="use `streamfactory preview`")
        if job.stop.is_set():
            msg = "the preview was stopped: the pages are ending"
            raise MisuseError(msg, remedy="start it again")
        found = _understood(output)
        found["remarks"] = [placed(one, text) for one in found["remarks"]]
        return found


def _watch(process: subprocess.Popen[bytes], job: Job, ended: threading.Event) -> None:
    """End a process that takes too long, or whose job is stopped."""
    deadline = time.monotonic() + SECONDS
    while not ended.wait(_TURN):
        if job.stop.is_set() or time.monotonic() > deadline:
            _kill(process)
            return


def _kill(process: subprocess.Popen[bytes]) -> None:
    """End a process and those that it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _understood(output: bytes) -> dict[str, Any]:
    """``samples`` of ids, or the ``remarks`` of the pipeline's problems."""
    try:
        document = json.loads(output) if len(output) <= _MOST_BYTES else None
    except ValueError:
        document = None
    if not isinstance(document, dict):
        what = "nothing that can be shown"
        if len(output) > _MOST_BYTES:
            what = f"more than {_MOST_BYTES >> 20} MiB"
        msg = f"the preview printed {what}"
        raise StorageFailed(msg, remedy="use `streamfactory preview`")
    if "ids" in document:
        return {"samples": [_sample(one) for one in document["ids"]], "remarks": []}
    problems = [
        Problem(**{key: one[key] or "" for key in ("key", "what", "origin")})
        for one in document.get("problems") or ()
    ]
    what = f"{document.get('what')}; {document.get('remedy') or 'correct it'}"
    found = problems or [Problem("", what)]
    return {"samples": [], "remarks": [remark_of(one) for one in found]}


def placed(remark: Remark, text: str) -> Remark:
    """A remark of Spark about a query, at its line in the text of the file."""
    found = _IN_SQL.search(remark.text)
    if found is None or remark.line is None:
        return remark
    lines = text.split("\n")
    at = remark.line - 1
    while at < len(lines) and not _SQL_KEY.match(lines[at]):
        at += 1
    if at < len(lines) and _SQL_KEY.match(lines[at])["rest"] in ('"""', "'''"):  # type: ignore[index]
        at += 1
        while at < len(lines) and not lines[at].strip():
            at += 1  # a query begins with its first word
    line = at + int(found[1])
    return replace(remark, line=line) if line <= len(lines) else remark


def _sample(one: dict[str, Any]) -> dict[str, Any]:
    """The rows of an id as texts."""
    rows = one["rows"]
    columns = list(rows[0])[:_MOST_COLUMNS] if rows else []
    return {
        "id": one["id"],
        "columns": columns,
        "rows": [[_text(row.get(name)) for name in columns] for row in rows],
    }


def _text(value: Any) -> str:
    if value is None:
        return "null"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} …"
