"""``check``: connects to a stream, step by step."""

from __future__ import annotations

import logging
import time
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import click

from streamfactory.cli.bounded import Hung, bounded
from streamfactory.cli.parameters import (
    class_paths_flag,
    json_flag,
    one_definition,
    set_option,
)
from streamfactory.cli.results import Result, count, printable, table
from streamfactory.cli.status import InternalError, Status, status_of
from streamfactory.spi import (
    NotAuthorized,
    PartitionState,
    Position,
    Role,
    StreamError,
    TopicAdmin,
)
from streamfactory.wiring.config.configure import Configured, inspect
from streamfactory.wiring.config.documents import refusal
from streamfactory.wiring.config.guarantees import offline_verdict
from streamfactory.wiring.config.loading import load
from streamfactory.wiring.core.clock import Clock
from streamfactory.wiring.core.guard import Guard
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.reading.source import Source
from streamfactory.wiring.reading.starts import starting_offsets

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from streamfactory.cli.printing import Printer
    from streamfactory.spi import PartitionInfo, Problem
    from streamfactory.wiring.config.definition import StreamDefinition

log = logging.getLogger("streamfactory")

_TIMEOUT: Final = 30.0
"""Seconds for a step before the configuration says how many."""
_TOPICS: Final = 5
"""Of a stream of many, those whose settings are shown."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step of ``check``."""

    name: str
    outcome: str
    """``ok``, ``failed`` or ``skipped``."""
    what: str
    """What it found, or why it was skipped, or what went wrong."""
    millis: float | None
    """How long it took; None where it was skipped."""
    error: dict[str, Any] | None
    """What went wrong, as errors are printed with ``--json``."""


@dataclass(frozen=True, slots=True)
class Check(Result):
    """The answer of ``check``."""

    stream: str
    ok: bool
    steps: list[Step]
    warnings: list[Problem]

    def lines(self) -> Iterator[str]:
        """The answer as text."""
        rows = [
            (
                step.name,
                step.outcome,
                "" if step.millis is None else f"{step.millis:.1f} ms",
                step.what.partition("\n")[0],
            )
            for step in self.steps
        ]
        yield f"{self.stream}: {'ok' if self.ok else 'failed'}"
        for step, line in zip(self.steps, table(rows, indent="  "), strict=True):
            yield line
            # Problems of a configuration have a line each.
            for more in step.what.splitlines()[1:]:
                yield f"    {printable(more.strip())}"
        for warning in self.warnings:
            yield f"  warning: {warning}"


@click.command("check")
@click.argument("target", metavar="NAME-OR-FILE")
@set_option
@class_paths_flag
@json_flag
@click.pass_obj
def check_command(
    printer: Printer, *, target: str, overrides: dict[str, str], allow_class_paths: bool
) -> Status:
    """Connect to a stream, and say how far it can be read.

    The steps are: configuration, plug-in, partitions, settings (of the topics, where
    the type has any), schema, fetch (one message of the first partition that holds any,
    where the stream can be read again), lag (from where a new reader starts), close.
    Each takes connection.timeout.millis at the most. Nothing is written, and nothing is
    used up.
    """
    checker = _Checker(printer, target, overrides, class_paths=allow_class_paths)
    printer.show(checker.run())
    return Status.FINE if checker.failure is None else status_of(checker.failure)


class _SkipStep(Exception):
    """Why a step does not apply."""


class _Checker:
    """One check; each step leaves what the next ones need."""

    def __init__(
        self,
        printer: Printer,
        target: str,
        overrides: Mapping[str, str],
        *,
        class_paths: bool,
    ) -> None:
        self.failure: StreamError | None = None
        """Of the first step that failed."""
        self._printer = printer
        self._target = target
        self._overrides = dict(overrides)
        self._class_paths = class_paths
        self._timeout = _TIMEOUT
        self._hung = False
        self._warnings: list[Problem] = []
        self._definition: StreamDefinition
        self._configured: Configured | None = None
        self._source: Source | None = None
        self._infos: list[PartitionInfo] = []

    def run(self) -> Check:
        """Take all steps."""
        steps = {
            "configuration": self._configuration,
            "plug-in": self._plugin,
            "partitions": self._partitions,
            "settings": self._settings,
            "schema": self._schema,
            "fetch": self._fetch,
            "lag": self._lag,
        }
        taken = [
            self._take(name, step)
            for name, step in steps.items()
            if name != "settings" or self._has_settings()
        ]
        taken.append(self._take_close())
        return Check(self._target, self.failure is None, taken, self._warnings)

    def _take(self, name: str, step: Callable[[], str]) -> Step:
        if self.failure is not None and name != "close":
            return Step(name, "skipped", "an earlier step failed", None, None)
        begin = time.perf_counter()
        told = None
        try:
            outcome, what = "ok", bounded(name, self._timeout, step)
        except _SkipStep as skip:
            return Step(name, "skipped", str(skip), None, None)
        except Exception as error:
            failure = error if isinstance(error, StreamError) else self._foreign(error)
            log.debug("the step %s failed", name, exc_info=error)
            outcome, what, told = "failed", str(failure), failure.to_dict()
            self._hung = self._hung or isinstance(failure, Hung)
            self.failure = self.failure or failure
        millis = round((time.perf_counter() - begin) * 1000, 1)
        return Step(name, outcome, what, millis, told)

    def _foreign(self, error: Exception) -> StreamError:
        """An exception that came from outside of what the framework guards."""
        if self._configured is None:
            return InternalError(f"{type(error).__name__}: {error}")
        config, backend = self._configured.config, self._configured.backend
        return Guard(config, backend, Clock()).translate(error)

    # --- the steps ------------------------------------------------------------------

    def _configuration(self) -> str:
        self._definition = one_definition(self._target, self._overrides)
        inspection = inspect(
            self._definition,
            default_manager(),
            use="read",
            allow_class_paths=self._class_paths,
        )
        self._warnings = inspection.warnings
        config = inspection.config
        if config is None:
            raise refusal(self._definition.origin, inspection.errors)
        self._printer.mask = config.mask
        self._timeout = config["connection.timeout.millis"] / 1000
        return f"stream {config.name!r} of type {config.type!r}"

    def _plugin(self) -> str:
        configured = load(self._definition, "read", allow_class_paths=self._class_paths)
        # The warnings are part of the answer: they need not be logged as well.
        config = replace(configured.config, warnings=())
        self._configured = replace(configured, config=config)
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
        held = [_held(info) for info in self._infos]
        known = [count for count in held if count is not None]
        unknown = "" if len(known) == len(held) else ", of some not known"
        return f"{count(len(held), 'partition')}, {_offsets(sum(known))}{unknown}"

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
                told = {topic: admin.settings(topic) for topic in topics[:_TOPICS]}
            except NotAuthorized as error:
                raise _SkipStep(str(error)) from error
        lines = [
            f"{topic}: {', '.join(f'{key}={value}' for key, value in found.items())}"
            for topic, found in told.items()
        ]
        if len(topics) > len(told):
            lines.append(f"and {count(len(topics) - len(told), 'topic')} more")
        return "\n".join(lines)

    def _schema(self) -> str:
        assert self._source is not None
        return count(len(self._source.schema), "column")

    def _fetch(self) -> str:
        source = self._source
        assert source is not None
        if not source.claims.replayable:
            msg = "what is read here cannot be read again"
            raise _SkipStep(msg)
        info = next((info for info in self._infos if _held(info)), None)
        if info is None:
            msg = "no partition holds anything"
            raise _SkipStep(msg)
        reader = source.reader(info.partition, info=info)
        try:
            batch = reader.fetch(
                info.earliest, end=info.latest, max_rows=1, timeout=self._timeout
            )
        finally:
            reader.close()
        rows = count(batch.num_rows, "row")
        return f"{rows} of {info.partition} from offset {info.earliest}"

    def _lag(self) -> str:
        source = self._source
        assert source is not None
        starts = starting_offsets(
            source.config, source.metadata, self._infos, start=None, default="earliest"
        )
        lag = source.metadata.lag(Position(starts))
        known = [behind for behind in lag.values() if behind is not None]
        unknown = "" if len(known) == len(lag) else ", of some not known"
        return f"{_offsets(sum(known))} behind, where a new reader starts{unknown}"

    def _take_close(self) -> Step:
        if self._hung:
            # The call that hangs may hold what closing waits for.
            what = "a call to the plug-in has not come back"
            return Step("close", "skipped", what, None, None)
        return self._take("close", self._close)

    def _close(self) -> str:
        if self._source is None:
            msg = "nothing was opened"
            raise _SkipStep(msg)
        self._source.close()
        return "closed without leaks"


def _held(info: PartitionInfo) -> int | None:
    return None if info.latest is None else info.latest - info.earliest


def _offsets(number: int) -> str:
    return count(number, "offset")
