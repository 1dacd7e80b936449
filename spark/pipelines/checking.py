"""What is wrong with a pipeline as far as its file says; no Spark, and nobody asked."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamfactory.spark.pipelines.hooks import hook_of
from streamfactory.spi import ConfigError, Problem, StreamError
from streamfactory.wiring.configure import configure, inspect
from streamfactory.wiring.microbatch import check_shared, check_stream
from streamfactory.wiring.plugins import default_manager
from streamfactory.wiring.source import Source

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from streamfactory.spark.pipelines.definition import Draft, Pipeline
    from streamfactory.wiring.definition import StreamDefinition


def check_draft(draft: Draft) -> list[Problem]:
    """What is wrong with a file and the configuration of its streams; asks nobody."""
    problems = list(draft.problems)
    pipeline = draft.pipeline
    if pipeline is None:
        return problems
    for definition in (pipeline.source, *(one.stream for one in pipeline.outlets)):
        problems += stream_problems(definition)
    problems += _caught(pipeline, lambda: hook_of(pipeline.hook))
    if not errors(problems):
        problems += _caught(pipeline, lambda: _check_source(pipeline.source))
    return problems


def refuse(problems: Sequence[Problem], origin: str) -> None:
    """Raise where there are errors.

    Raises:
        ConfigError: config; with all of them.
    """
    found = errors(problems)
    if found:
        msg = f"{len(found)} problem{'s' * (len(found) > 1)} in {origin}"
        raise ConfigError(msg, problems=found)


def errors(problems: Iterable[Problem]) -> list[Problem]:
    """Those that forbid a run."""
    return [one for one in problems if one.level == "error"]


def stream_problems(definition: StreamDefinition) -> list[Problem]:
    """What forbids the use of a stream on Spark."""
    return errors(inspect(definition, default_manager(), use="spark").errors)


def _check_source(definition: StreamDefinition) -> None:
    configured = configure(definition, default_manager(), use="spark")
    check_stream(configured.config)
    source = Source(configured)
    try:
        check_shared(source)
    finally:
        source.close()


def _caught(pipeline: Pipeline, check: Callable[[], object]) -> list[Problem]:
    try:
        check()
    except StreamError as error:
        return [Problem(pipeline.name, error.what, pipeline.origin, error.remedy)]
    return []
