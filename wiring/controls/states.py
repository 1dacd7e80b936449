"""What users ask of jobs: files in one folder, written by commands and pages.

A job is a pipeline, a copy or a spool, by its name: ``pipeline/NAME``,
``copy/FROM/TO`` (the writer id of the copy), ``spool/STREAM``.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spi import ConfigError, MisuseError, StorageFailed
from streamfactory.wiring.config.catalogue import Catalogue
from streamfactory.wiring.config.documents import open_document
from streamfactory.wiring.core.durable import (
    locked_folder,
    make_folder,
    replace_file,
    sync_folder,
)
from streamfactory.wiring.core.places import is_folder
from streamfactory.wiring.core.shown import printable
from streamfactory.wiring.core.throttle import Rate

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

ENVIRONMENT: Final = "STREAMFACTORY_CONTROLS"
FOLDER: Final = "controls"
"""The folder beside the catalogue's."""
_VERSION: Final = 1
_MEMBERS: Final = {"version", "job", "pause", "rate"}
_PAUSE: Final = ("since", "by", "why")


def pipeline_job(name: str) -> str:
    """The job of a pipeline."""
    return f"pipeline/{name}"


def spool_job(stream: str) -> str:
    """The job that receives a stream into its spool."""
    return f"spool/{stream}"


def copy_job(writer_id: str) -> str:
    """The job of a copy: its writer id, which begins with ``copy/`` by default."""
    return writer_id if writer_id.startswith("copy/") else f"copy/{writer_id}"


def check_rate(job: str, rate: Rate | None, *, limited: bool = True) -> None:
    """Refuse a limit that a job cannot keep.

    Args:
        job: Its name.
        rate: The limit; None for that of its stream.
        limited: Whether the job keeps any limit.

    Raises:
        MisuseError: misuse; it keeps none, or the limit is one of bytes, and the job is
            a pipeline.
    """
    if rate and not limited:
        msg = f"{job} cannot be limited: in real time Spark's connector reads all rows "
        msg += "that there are"
        raise MisuseError(msg, remedy="set another trigger, or --none")
    if rate is not None and rate.bytes is not None and job.startswith(pipeline_job("")):
        msg = f"{job} cannot be limited in bytes: Spark plans batches by offsets"
        raise MisuseError(msg, remedy="limit its rows")


@dataclass(frozen=True, slots=True)
class Pause:
    """When, by whom and why a job was paused."""

    since: str
    """Time in UTC, ISO 8601."""
    by: str
    why: str
    """Empty if no reason was given."""

    def __str__(self) -> str:
        reason = f": {self.why}" if self.why else ""
        return printable(f"paused since {self.since} by {self.by}{reason}")


@dataclass(frozen=True, slots=True)
class JobState:
    """What users ask of a job."""

    pause: Pause | None = None
    rate: Rate | None = None
    """The most that it reads per second, in place of what its stream configures; None:
    as that."""


@final
class Controls:
    """The states of all jobs. The files are read again on each call. Thread-safe.

    Args:
        folder: The folder of the files; by default STREAMFACTORY_CONTROLS, then
            ``controls`` beside the catalogue's folder. It need not exist.
    """

    def __init__(self, folder: Path | None = None) -> None:
        named = os.environ.get(ENVIRONMENT)
        beside = Path(named) if named else Catalogue().folder.parent / FOLDER
        self.folder = (folder or beside).absolute()

    def path(self, job: str) -> Path:
        """The file of a job, which exists once something was asked of it."""
        return self.folder / _file_name(job)

    def read(self, job: str) -> JobState:
        """The state of a job.

        Raises:
            ConfigError: config; its file cannot be read.
        """
        found = _read(self.path(job))
        return JobState() if found is None else found[1]

    def all(self) -> dict[str, JobState]:
        """The states that were asked for, by job, sorted.

        Raises:
            ConfigError: config; a file cannot be read.
        """
        if not is_folder(self.folder):
            return {}
        found = dict(filter(None, map(_read, self.folder.glob("[!.]*.json"))))
        return {job: found[job] for job in sorted(found)}

    def paused(self) -> dict[str, Pause]:
        """Why jobs are paused, by job, sorted.

        Raises:
            ConfigError: config; a file cannot be read.
        """
        found = self.all().items()
        return {job: state.pause for job, state in found if state.pause is not None}

    def change(self, job: str, update: Callable[[JobState], JobState]) -> JobState:
        """Replace the state of a job, durably; returns it.

        Args:
            job: Its name.
            update: Returns the state that follows another one. No other change comes
                between.

        Raises:
            ConfigError: config; its file cannot be read.
            StorageFailed: permanent; the state is as it was.
        """
        path = self.path(job)
        try:
            make_folder(self.folder)
            with locked_folder(self.folder):
                state = update(self.read(job))
                if state != JobState():
                    replace_file(path, _text(job, state).encode())
                else:
                    path.unlink(missing_ok=True)
                sync_folder(self.folder)
        except OSError as error:
            msg = f"the state of job {job!r} cannot be saved in {self.folder}: "
            msg += error.strerror or str(error)
            remedy = f"set {ENVIRONMENT} to a folder that can be written, also for the "
            raise StorageFailed(msg, remedy=remedy + "processes of the jobs") from error
        return state


def _file_name(job: str) -> str:
    readable = re.sub("[^A-Za-z0-9._-]+", "-", job).strip("-._")[:80]
    digest = hashlib.sha256(job.encode(errors="surrogatepass")).hexdigest()[:12]
    return f"{readable}-{digest}.json"


def _read(path: Path) -> tuple[str, JobState] | None:
    """The job and the state in a file; None if there is none.

    Raises:
        ConfigError: config.
    """
    try:
        return _parsed(path)
    except ConfigError:
        # It may have been removed just now, by a change.
        if os.path.lexists(path):
            raise
        return None


def _text(job: str, state: JobState) -> str:
    plain = {"version": _VERSION, "job": job, **asdict(state)}
    return json.dumps(plain, indent=2) + "\n"


def _parsed(path: Path) -> tuple[str, JobState]:
    remedy = "delete it, and pause or resume the job again"
    try:
        body = json.loads(open_document(path).text)
    except (ValueError, RecursionError) as error:
        msg = f"{path} is not JSON"
        raise ConfigError(msg, remedy=remedy) from error
    version = body.get("version") if isinstance(body, dict) else None
    if type(version) is int and version > _VERSION:
        msg = f"{path} has version {version}, expected {_VERSION}"
        raise ConfigError(msg, remedy="upgrade streamfactory")
    whole = type(version) is int and version == _VERSION and set(body) == _MEMBERS
    if not whole or not isinstance(body["job"], str):
        msg = f"{path} is not the state of a job"
        raise ConfigError(msg, remedy=remedy)
    if path.name != _file_name(body["job"]):
        msg = f"{path} has the state of another job: {body['job'][:80]!r}"
        raise ConfigError(
            msg, remedy=f"delete it, or name it {_file_name(body['job'])}"
        )
    try:
        return body["job"], JobState(_pause(body["pause"]), _rate(body["rate"]))
    except ValueError as error:
        msg = f"{path}: {error}"
        raise ConfigError(msg, remedy=remedy) from error


def _pause(body: Any) -> Pause | None:
    if body is None:
        return None
    if not isinstance(body, dict) or sorted(body) != sorted(_PAUSE):
        msg = f"'pause' is not an object of {', '.join(_PAUSE)}"
        raise ValueError(msg)
    fields: Mapping[str, Any] = body
    if not all(isinstance(fields[name], str) for name in _PAUSE):
        msg = "'pause' has a value that is no text"
        raise ValueError(msg)
    return Pause(**fields)


def _rate(body: Any) -> Rate | None:
    if body is None:
        return None
    names = ("rows", "bytes")
    if not isinstance(body, dict) or sorted(body) != sorted(names):
        msg = f"'rate' is not an object of {' and '.join(names)}"
        raise ValueError(msg)
    for name in names:
        value = body[name]
        if value is not None and (type(value) is not int or value < 1):
            msg = f"{name!r} of 'rate' is no number above 0"
            raise ValueError(msg)
    return Rate(**body)
