"""Notices that files of pipelines, or streams that they use, change during a run.

A change is named by keys, without values: those may be secrets. It is logged, and noted
in the checkpoint's folder while the run holds that, for pages and ``lag``.
"""

from __future__ import annotations

import os
import threading
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, final

from streamfactory.spark.checkpoints import Place
from streamfactory.spark.checkpoints.holding import note, noted
from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.pipelines.outcomes import Outcome
from streamfactory.spark.pipelines.overriding import Overrides, PipelineFiles
from streamfactory.spark.pipelines.problems import errors
from streamfactory.spi import ConfigError, Sample, StreamError
from streamfactory.wiring.config.catalogue import Catalogue, active_profile
from streamfactory.wiring.config.documents import open_document, read_toml
from streamfactory.wiring.config.profiles import FOLDER
from streamfactory.wiring.core.guard import log
from streamfactory.wiring.core.shown import printable
from streamfactory.wiring.metrics import vocabulary as v
from streamfactory.wiring.metrics.registry import registry

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from streamfactory.spark.pipelines.model import Draft

LOOK: Final = 2.0
"""Seconds between two looks at the files."""
_SLICE: Final = 0.1
_MOST: Final = 20
"""Keys of a file or stream that are named."""

Values = dict[str, dict[str, str]]
"""Keys and values, by the file or stream that has them."""
Stamp = dict[str, tuple[int, ...] | None]
"""What `stat` says of each file; None if there is none."""


@dataclass(slots=True)
class _Watched:
    """A pipeline, as it was when its run began."""

    path: Path
    draft: Draft
    values: Values
    stamp: Stamp
    latest: Values | str
    """What the files said at the last look, or why they could not be read."""
    changes: tuple[str, ...] = ()


@final
@dataclass(frozen=True, slots=True)
class _Tally:
    """The metrics of a watch."""

    watched: Sequence[_Watched]

    def counters(self) -> tuple[()]:
        """See `Tally`."""
        return ()

    def gauges(self) -> Iterator[Sample]:
        """See `Tally`."""
        for one in self.watched:
            yield Sample(v.PIPELINE_CHANGED, (one.draft.name,), bool(one.changes))


@final
class Watch:
    """Compares the files of running pipelines with what they were at the start.

    Args:
        paths: Files of pipelines.
        overrides: Of the command line.
        check: Raises if what the files say now cannot be run; None: the run is not to
            end because of a change.
    """

    def __init__(
        self,
        paths: Sequence[Path],
        overrides: Overrides,
        check: Callable[[], None] | None = None,
    ) -> None:
        self._overrides = overrides
        self._check = check
        self.halt = threading.Event()
        """Set when the run is to end: its caller's stop, or for a restart."""
        self.restarts = False
        """Whether the run ends in order to begin again."""
        self._watched = list[_Watched]()
        for path in paths:
            try:
                draft, values, stamp = self._read(path)
            except ConfigError:
                continue  # the run refuses it
            self._watched.append(_Watched(path, draft, values, stamp, values))
        registry.track(self, _Tally(self._watched))

    def changes(self, pipeline: str) -> tuple[str, ...]:
        """What changed since the run of a pipeline began, each as one line."""
        return next(
            (one.changes for one in self._watched if one.draft.name == pipeline), ()
        )

    @contextmanager
    def following(self, stop: threading.Event) -> Iterator[None]:
        """Look at the files every `LOOK` seconds, in a thread.

        Args:
            stop: Sets `halt`.
        """
        ended = threading.Event()
        # In a thread each: a stop does not wait for a look, which may ask servers.
        looks, relays = (
            threading.Thread(target=target, args=given, daemon=True)
            for target, given in (
                (self._look_often, (ended,)),
                (self._relay, (stop, ended)),
            )
        )
        looks.start()
        relays.start()
        try:
            yield
        finally:
            ended.set()
            relays.join()
            looks.join(_SLICE)

    def look(self) -> None:
        """Compare the files with those of the start, once."""
        found = [self._look(one) for one in self._watched]
        if self._check is not None and any(found) and self._changed:
            refused = self._refusal()
            if refused is None:
                self.restarts = True
                self.halt.set()
            else:
                log.warning("not restarted, continues as it was: %s", refused)

    def _look_often(self, ended: threading.Event) -> None:
        while not ended.wait(LOOK) and not self.halt.is_set():
            try:
                self.look()
            except Exception as error:  # noqa: BLE001 - the run does not depend on it
                log.warning("changes of files are not known: %r", error)

    def _relay(self, stop: threading.Event, ended: threading.Event) -> None:
        while not ended.wait(_SLICE) and not stop.is_set():
            pass
        if stop.is_set():
            self.halt.set()

    @property
    def _changed(self) -> bool:
        return any(one.changes for one in self._watched)

    def _look(self, one: _Watched) -> bool:
        """Whether what a pipeline's files say differs from the last look."""
        stamp = _stamp(one.stamp)
        if stamp == one.stamp:
            return False
        before, one.stamp = one.latest, stamp
        try:
            _, one.latest, one.stamp = self._read(one.path, stamp)
            one.changes = tuple(_differences(one.values, one.latest))
        except ConfigError as error:
            one.latest = f"{one.path} cannot be read: {error.what}"
            one.changes = (printable(one.latest),)
        if one.latest == before:
            return False
        name = one.draft.name
        if one.changes:
            what = "pipeline %r runs as it was started; since then there changed: %s"
            log.warning(what, name, "; ".join(one.changes))
        else:
            log.warning("pipeline %r: its files are as they were at its start", name)
        if one.draft.pipeline is not None:
            note(Place.of(one.draft.pipeline.checkpoint), one.changes)
        return True

    def _read(
        self, path: Path, known: Iterable[str] = ()
    ) -> tuple[Draft, Values, Stamp]:
        """What a pipeline's files say, and their state before they were read.

        Args:
            path: Of the pipeline.
            known: Files whose state is looked at, too: a definition that cannot be
                read is none of the pipeline's any more.
        """
        folder, profile = Catalogue().folder, active_profile()
        places = [str(path), str(folder)]
        if profile is not None:
            places.append(str(folder.parent / FOLDER / f"{profile}.toml"))
        # Which files define the streams is known after they were read.
        places += [stream.origin for stream in self._draft(path).streams]
        stamp = _stamp([*known, *places])
        draft = self._draft(path)
        values = {str(path): dict(_flat(read_toml(open_document(path))))}
        for stream in draft.streams:
            own = [p for p in stream.properties if not _is_of(p.origin, path)]
            values[f"stream {stream.name}"] = {p.key: p.text for p in own}
        return draft, values, stamp

    def _draft(self, path: Path) -> Draft:
        allowed = self._overrides.allow_class_paths
        return read_pipeline(path, allow_class_paths=allowed)

    def _refusal(self) -> str | None:
        """Why the run cannot begin again with the files as they are."""
        paths = [one.path for one in self._watched]
        files = PipelineFiles.read(paths, self._overrides)
        wrong = errors(files.problems)
        if wrong:
            return str(wrong[0])
        for one, draft in zip(self._watched, files.drafts, strict=True):
            for what, part in _FIXED.items():
                if part(one.draft) != part(draft):
                    return f"{what} of pipeline {one.draft.name!r} changed"
        try:
            assert self._check is not None
            self._check()
        except StreamError as error:
            return str(error)
        return None


_FIXED: Final[Mapping[str, Callable[[Draft], Any]]] = {
    "the name": lambda draft: draft.name,
    "the engine": lambda draft: draft.engine,
    "the checkpoint": lambda draft: draft.pipeline and draft.pipeline.checkpoint,
    "a source": lambda draft: (
        draft.pipeline and [(one.id, one.stream.name) for one in draft.pipeline.sources]
    ),
    "a setting of Spark": lambda draft: draft.pipeline and dict(draft.pipeline.spark),
}
"""What a run that continues cannot change: its position, or its session, depends on
it."""


def run_watched(
    paths: Sequence[Path],
    overrides: Overrides,
    stop: threading.Event,
    run: Callable[[threading.Event], list[Outcome]],
    check: Callable[[], None] | None = None,
) -> list[Outcome]:
    """Run pipelines, notice changes of their files, and run them again where asked.

    Args:
        paths: Their files.
        overrides: Of the command line.
        stop: Ends the run.
        run: Reads the files, and runs the pipelines until they end or its event is set.
        check: As of `Watch`; None: changes are noticed only.

    Returns:
        The outcomes of the last run, with the rows of those before.
    """
    outcomes = list[Outcome]()
    while True:
        watch = Watch(paths, overrides, check)
        with watch.following(stop):
            found = run(watch.halt)
        for one in found:
            one.changes = watch.changes(one.pipeline)
        for one, before in zip(found, outcomes, strict=bool(outcomes)):
            one.follow(before)
        if not watch.restarts or stop.is_set():
            return found
        outcomes = found
        log.warning("starts again with the changed files")


def noted_changes(path: Path, catalogue: Catalogue) -> tuple[str, ...]:
    """What changed since the run began that uses a pipeline's checkpoint.

    Empty if no run of this machine uses it. Needs no Spark.

    Raises:
        ConfigError: config; the file cannot be read.
        PositionRefused: permanent; the checkpoint cannot be reached.
    """
    pipeline = read_pipeline(path, catalogue).pipeline
    return () if pipeline is None else noted(Place.of(pipeline.checkpoint))


def _stamp(places: Iterable[str]) -> Stamp:
    found = Stamp()
    for place in places:
        try:
            state = os.stat(place)  # noqa: PTH116 - also of what is no path
            found[place] = (state.st_mtime_ns, state.st_size, state.st_ino)
        except (OSError, ValueError):
            found[place] = None
    return found


def _is_of(origin: str, path: Path) -> bool:
    return origin == str(path) or origin.startswith(f"{path}:")


def _flat(value: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """The values of a file; tables of an array are named by what identifies them."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{prefix}.{key}" if prefix else key)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        labels = [_label(inner, index) for index, inner in enumerate(value)]
        for index, inner in enumerate(value):
            again = labels.index(labels[index]) < index
            label = f"{labels[index]}#{index}" if again else labels[index]
            yield from _flat(inner, f"{prefix}.{label}")
    else:
        yield prefix, repr(value)


def _label(value: Any, index: int) -> str:
    names = [value.get(key) for key in ("id", "name", "stream")]
    return next((one for one in names if isinstance(one, str)), str(index))


def _differences(before: Values, after: Values) -> Iterator[str]:
    """The keys that differ, as one line for each file or stream.

    A stream that is new to the pipeline is a change of its file.
    """
    for what, old in before.items():
        if what not in after:
            yield printable(f"{what}: is not used any more, or cannot be read")
            continue
        new = after[what]
        words = [
            f"{key} ({'new' if key not in old else 'removed'})"
            if key not in old or key not in new
            else key
            for key in {**old, **new}
            if old.get(key) != new.get(key)
        ]
        if words:
            more = f" and {len(words) - _MOST} more" if len(words) > _MOST else ""
            yield printable(f"{what}: {', '.join(words[:_MOST])}{more}")
