"""Files of pipelines that run together, with the overrides of the command line."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self, final

from streamfactory.spark.checkpoints import Place
from streamfactory.spark.pipelines.checking import check_draft
from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.pipelines.model import Draft
from streamfactory.spark.pipelines.options import Trigger
from streamfactory.spark.pipelines.problems import refuse
from streamfactory.spi import ConfigError, PositionRefused, Problem, StreamError
from streamfactory.wiring.config.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


ONCE: Final = "once"
CONTINUOUS: Final = "continuous"


@dataclass(frozen=True, slots=True)
class Overrides:
    """Command-line overrides for all pipelines."""

    pace: str | None = None
    """``once``: all available rows; ``continuous``: until stopped; or as configured."""
    reset: str | None = None
    ignore: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    """Spark settings, which take precedence over those of files."""
    allow_class_paths: bool = False
    """Whether steps may name Python functions, which are imported."""


@final
@dataclass(frozen=True, slots=True)
class PipelineFiles:
    """The files of pipelines, and their problems that can be found without a run."""

    drafts: list[Draft]
    problems: list[Problem]

    @classmethod
    def read(
        cls,
        paths: Sequence[Path],
        overrides: Overrides,
        texts: Mapping[Path, str] | None = None,
    ) -> Self:
        """Read and check files. Connects to nothing.

        Args:
            paths: The files.
            overrides: Of the command line.
            texts: Texts that are read instead of those of the files.
        """
        drafts, problems = list[Draft](), list[Problem]()
        catalogue = Catalogue().snapshot()
        for path in paths:
            try:
                draft = read_pipeline(
                    path,
                    catalogue,
                    text=(texts or {}).get(path),
                    allow_class_paths=overrides.allow_class_paths,
                )
                drafts.append(_overridden(draft, overrides))
            except ConfigError as error:
                problems += error.problems or [
                    Problem(str(path), error.what, suggestion=error.remedy)
                ]
        for draft in drafts:
            problems += check_draft(draft)
        return cls(drafts, [*problems, *_clashes(drafts)])

    @property
    def origin(self) -> str:
        """The files, for messages."""
        return " and ".join(draft.origin for draft in self.drafts) or "the pipelines"

    def refuse(self) -> None:
        """Raise if the files have errors.

        Raises:
            ConfigError: config; with all of them.
        """
        refuse(self.problems, self.origin)


@contextmanager
def noting(draft: Draft, found: list[Problem]) -> Iterator[None]:
    """Collect permanent errors as problems; transient ones are raised."""
    try:
        yield
    except StreamError as error:
        if error.retryable:
            raise
        inner = error.problems if isinstance(error, ConfigError) else []
        found += inner or [Problem(draft.name, error.what, draft.origin, error.remedy)]


def _overridden(draft: Draft, over: Overrides) -> Draft:
    pipeline = draft.pipeline
    if pipeline is None:
        return draft
    trigger = pipeline.trigger
    if over.pace == ONCE:
        trigger = Trigger()
    elif over.pace == CONTINUOUS:
        trigger = replace(trigger, millis=trigger.millis or 0)
    settings = {**pipeline.spark, **over.settings}
    return replace(draft, pipeline=replace(pipeline, trigger=trigger, spark=settings))


def _clashes(drafts: Sequence[Draft]) -> Iterator[Problem]:
    names: dict[str, str] = {}
    places: dict[str, str] = {}
    for draft in drafts:
        if draft.name in names:
            what = f"two pipelines are named {draft.name!r}: see {names[draft.name]}"
            yield Problem("name", what, draft.origin)
        names.setdefault(draft.name, draft.origin)
        if draft.pipeline is not None:
            folder = draft.pipeline.checkpoint
            try:
                place = Place.of(folder).text
            except PositionRefused:
                continue  # reported already
            if place in places:
                what = f"{folder!r} is the checkpoint of {places[place]} too"
                yield Problem("checkpoint", what, draft.origin)
            places.setdefault(place, draft.origin)
