"""The check of a stream: connects to it step by step, within deadlines."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spi import (
    NotAuthorized,
    PartitionState,
    Position,
    Role,
    StreamError,
    TopicAdmin,
)
from streamfactory.wiring.config.configure import inspect
from streamfactory.wiring.config.documents import refusal
from streamfactory.wiring.config.guarantees import offline_verdict
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.core.bounded import Hung, bounded
from streamfactory.wiring.core.clock import Clock
from streamfactory.wiring.core.defects import InternalError
from streamfactory.wiring.core.guard import Guard
from streamfactory.wiring.core.plain import total
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.lag import lag_text, measure_lag, waiting_of
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.reading.starts import starting_offsets

if TYPE_CHECKING:
    from collections.abc import Callable

    from streamfactory.spi import PartitionInfo, Problem
    from streamfactory.wiring.config.definition import StreamDefinition
    from streamfactory.wiring.config.settled import Configured

log = logging.getLogger("streamfactory")

_TIMEOUT: Final = 30.0
"""Seconds for a step before the configuration is known."""
_TOPICS: Final = 5
"""Maximum number of topics whose settings are shown."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a check."""

    name: str
    outcome: str
    """``ok``, ``failed`` or ``skipped``."""
    what: str
    """What was found, why it was skipped, or what failed; may have several lines."""
    millis: float | None
    """Duration; None if it was skipped."""
    error: dict[str, Any] | None
    """The failure, as `StreamError.to_dict`."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The result of a check."""

    steps: tuple[Step, ...]
    warnings: tuple[Problem, ...]
    """Of the configuration."""
    failure: StreamError | None
    """Of the first step that failed."""


class _SkipStep(Exception):
    """Why a step does not apply."""


@final
class StreamCheck:
    """One check of a stream that can be read. One thread runs it, once.

    Each step takes at most ``connection.timeout.millis``; nothing is written or
    consumed.

    Args:
        find: Finds the definition; part of the first step.
        allow_class_paths: Whether the configuration may name Python objects.
    """

    def __init__(
        self,
        find: Callable[[], StreamDefinition],
        *,
        allow_class_paths: bool = False,
    ) -> None:
        self._mask: Callable[[str], str] = str
        self._find = find
        self._class_paths = allow_class_paths
        self._failure: StreamError | None = None
        self._timeout = _TIMEOUT
        self._hung = False
        self._warnings: list[Problem] = []
        self._definition: StreamDefinition
        self._configured: Configured | None = None
        self._source: Source | None = None
        self._infos: list[PartitionInfo] = []

    def mask(self, text: str) -> str:
        """A text without secrets of the configuration, once that is known."""
        return self._mask(text)

    def run(self) -> CheckResult:
        """Run all steps; a failure is part of the result."""
        steps = {
            "configuration": self._configuration,
            "plug-in": self._plugin,
            "partitions": self._partitions,
            "settings": self._settings,
            "schema": self._schema,
            "fetch": self._fetch,
            "lag": self._lag,
        }
        results = [
            self._run(name, step)
            for name, step in steps.items()
            if name != "settings" or self._has_settings()
        ]
        results.append(self._run_close())
        return CheckResult(tuple(results), tuple(self._warnings), self._failure)

    def _run(self, name: str, step: Callable[[], str]) -> Step:
        if self._failure is not None and name != "close":
            return Step(name, "skipped", "an earlier step failed", None, None)
        begin = time.perf_counter()
        error = None
        try:
            outcome, what = "ok", bounded(name, self._timeout, step)
        except _SkipStep as skip:
            return Step(name, "skipped", str(skip), None, None)
        except Exception as found:
            failure = found if isinstance(found, StreamError) else self._foreign(found)
            log.debug("the step %s failed", name, exc_info=found)
            outcome, what, error = "failed", str(failure), failure.to_dict()
            self._hung = self._hung or isinstance(failure, Hung)
            self._failure = self._failure or failure
        millis = round((time.perf_counter() - begin) * 1000, 1)
        return Step(name, outcome, what, millis, error)

    def _foreign(self, error: Exception) -> StreamError:
        """Translate an exception that was raised outside of the framework's guard."""
        if self._configured is None:
            return InternalError(f"{type(error).__name__}: {error}")
        config, backend = self._configured.config, self._configured.backend
        return Guard(config, backend, Clock()).translate(error)

    # --- the steps ------------------------------------------------------------------

    def _configuration(self) -> str:
        self._definition = self._find()
        inspection = inspect(
            self._definition,
            default_manager(),
            use="read",
            allow_class_paths=self._class_paths,
        )
        # Notes are about options for another use: the file is for all uses.
        self._warnings = [one for one in inspection.warnings if one.level == "warning"]
        config = inspection.config
        if config is None:
            raise refusal(self._definition.origin, inspection.errors)
        self._mask = config.mask
        self._timeout = config["connection.timeout.millis"] / 1000
        return f"stream {config.name!r} of type {config.type!r}"

    def _plugin(self) -> str:
        # The warnings are part of the result, so they are not logged as well.
        configured = load(
            self._definition,
            "read",
            allow_class_paths=self._class_paths,
            quiet=True,
        )
        self._configured, config = configured, configured.config
        decoder = configured.decoder
        with_decoder = "" if decoder is None else f", decoder {decoder.name!r}"
        what = f"type {configured.backend.name!r}{with_decoder}"
        if "spool.path" in config:
            verdict = offline_verdict(config, configured.backend, Role.READ)
            what += f", read through a spool; {verdict}"
        return what

    def _partitions(self) -> str:
        assert self._configured is not None
        self._source = Source(self._configured, client_id="streamfactory-check")
        self._infos = [
            info
            for info in self._source.metadata.partitions()
            if info.state is not PartitionState.VANISHED
        ]
        metadata = self._source.metadata
        held = [metadata.behind(info, info.start) for info in self._infos]
        known = [count for count in held if count is not None]
        unknown = "" if len(known) == len(held) else ", some unknown"
        return f"{_count(len(held), 'partition')}, {_offsets(sum(known))}{unknown}"

    def _has_settings(self) -> bool:
        """Whether topics of this type have settings to show."""
        if self._configured is None:
            return False
        made = self._configured.backend.topic_admin
        return made is not None and made.settings is not TopicAdmin.settings

    def _settings(self) -> str:
        assert self._configured is not None
        made = self._configured.backend.topic_admin
        assert made is not None
        topics = sorted({info.partition.topic for info in self._infos})
        with closing(made(self._configured.config)) as admin:
            try:
                found = {topic: admin.settings(topic) for topic in topics[:_TOPICS]}
            except NotAuthorized as error:
                raise _SkipStep(str(error)) from error
        lines = [
            f"{topic}: {', '.join(f'{key}={value}' for key, value in settings.items())}"
            for topic, settings in found.items()
        ]
        if len(topics) > len(found):
            lines.append(f"and {_count(len(topics) - len(found), 'topic')} more")
        return "\n".join(lines)

    def _schema(self) -> str:
        source = self._source
        assert source is not None
        found = _count(len(source.schema), "column")
        difference = source.differs_from_declared()
        if difference is None:
            return found
        return f"{found}; the topic differs from the option schema: {difference}"

    def _fetch(self) -> str:
        source = self._source
        assert source is not None
        if not source.claims.replayable:
            msg = "messages of this stream cannot be read again"
            raise _SkipStep(msg)
        info = next((info for info in self._infos if _held(info)), None)
        if info is None:
            msg = "all partitions are empty"
            raise _SkipStep(msg)
        reader = source.reader(info.partition, info=info)
        try:
            batch = reader.fetch(
                info.start, end=info.latest, max_rows=1, timeout=self._timeout
            )
        finally:
            reader.close()
        rows = _count(batch.num_rows, "row")
        return f"{rows} of {info.partition} from offset {info.start}"

    def _lag(self) -> str:
        source = self._source
        assert source is not None
        starts = starting_offsets(
            source.config, source.metadata, self._infos, start=None, default="earliest"
        )
        lags = measure_lag(Position(starts), source)
        known = [lag.behind for lag in lags if lag.behind is not None]
        unknown = "" if len(known) == len(lags) else ", some unknown"
        commits = total(lag.commits for lag in lags) if lags else None
        behind = lag_text(sum(known), commits, "offset")
        waiting = waiting_of(lags)
        more = f"; {waiting}" if waiting else ""
        return f"{behind}, where a new reader starts{unknown}{more}"

    def _run_close(self) -> Step:
        if self._hung:
            # The call that hangs may hold a lock that closing waits for.
            what = "a call to the plug-in has not returned"
            return Step("close", "skipped", what, None, None)
        return self._run("close", self._close)

    def _close(self) -> str:
        if self._source is None:
            msg = "nothing was opened"
            raise _SkipStep(msg)
        self._source.close()
        return "closed without leaks"


def _held(info: PartitionInfo) -> int | None:
    return None if info.latest is None else info.latest - info.start


def _offsets(number: int) -> str:
    return _count(number, "offset")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'s' * (number != 1)}"
