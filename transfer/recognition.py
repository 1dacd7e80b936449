"""Recognises what is at a place that a user names: files, a table, topics, a server.

Only names are looked at, of a limited number of files; nothing is opened.
"""

from __future__ import annotations

import os
import re
import shlex
from collections import defaultdict
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from streamfactory.spi import ConfigError, MisuseError, StreamError
from streamfactory.spi.hooks import BACKENDS
from streamfactory.transfer.inputs.formats import format_of
from streamfactory.transfer.inputs.raw import COMPRESSED
from streamfactory.wiring.core.places import is_file, is_folder, is_special
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

_MOST_NAMED: Final = 20
"""Files whose paths are in a command, where no pattern matches them alone."""
MOST_ENTRIES: Final = 10_000
"""Of a folder that are looked at."""
FILES: Final = "file"
"""The stream type of files."""
FLIGHT: Final = "flight"
_SERVER: Final = re.compile(r"[\w.-]+:\d{1,5}(\s*,\s*[\w.-]+:\d{1,5})*", re.ASCII)
_SCHEMES: Final = dict.fromkeys(("grpc", "grpc+tcp", "grpc+tls"), FLIGHT)
"""Stream types by what an address begins with."""
_READ_AS: Final = {"arrow": "auto", "parquet": "parquet"}
"""Formats that streams are read from, as the option ``format`` has them."""
_REMEDY: Final = "give the type of the stream"


@dataclass(frozen=True, slots=True)
class Recognised:
    """What is at a place."""

    kind: str
    """The stream type."""
    options: dict[str, str] = field(default_factory=dict)
    """Of the type, beside that of the place."""
    inputs: tuple[str, ...] = ()
    """Files that are published into a stream, and are not read as one."""
    pattern: str = ""
    """Their paths, for a shell: a pattern, where one matches them and no others."""
    notes: tuple[str, ...] = ()


def recognise(place: str, kind: str = "") -> Recognised:
    """Recognise what is at a place.

    Args:
        place: A path, a URL, or the address of a server.
        kind: The stream type if it is known.

    Raises:
        ConfigError: config; the place has nothing that can be read.
        MisuseError: misuse; the type cannot be recognised.
    """
    path = Path(place)
    local = "://" not in place
    if local and is_special(path):
        msg = f"{place!r} is neither a file nor a folder"
        raise ConfigError(msg, remedy="name a file or a folder")
    if local and kind in ("", FILES) and (is_folder(path) or is_file(path)):
        return _at_path(path, kind)
    if kind:
        return Recognised(kind, _formatted(place) if kind == FILES else {})
    if _SERVER.fullmatch(place):
        return Recognised("kafka")
    scheme = place.partition("://")[0].lower()
    if not local and scheme in _SCHEMES:
        return Recognised(_SCHEMES[scheme])
    if local:
        msg = f"there is no file, folder or link to one at {place!r}"
        raise ConfigError(msg, remedy="check the path, or give HOST:PORT of a server")
    msg = f"what is at {place!r} cannot be recognised without connecting to it"
    raise MisuseError(msg, remedy=_REMEDY)


def _formatted(place: str) -> dict[str, str]:
    """The format of an object or a prefix, by the end of its name."""
    found = _READ_AS.get(format_of(place.rstrip("/")) or "")
    return {} if found is None else {"format": found}


def _at_path(path: Path, kind: str) -> Recognised:
    if is_file(path):
        return _of_files(path, [path.name], [path.name], [])
    try:
        with os.scandir(path) as found:
            entries = list(islice(found, MOST_ENTRIES + 1))
    except OSError as error:
        msg = f"the folder {str(path)!r} cannot be listed: {error.strerror}"
        raise ConfigError(msg, remedy="check its permissions") from error
    notes = []
    if len(entries) > MOST_ENTRIES:
        notes.append(f"only {MOST_ENTRIES:,} of its files and folders were looked at")
    names = sorted(one.name for one in entries[:MOST_ENTRIES])
    for type_, marker in _marked(names):
        if kind in ("", type_):
            return Recognised(type_, notes=(*notes, f"recognised by {marker!r}"))
    plain = sorted(
        one.name
        for one in entries[:MOST_ENTRIES]
        # Links are not read by default, and names like these are not of the stream.
        if one.is_file(follow_symlinks=False) and one.name[0] not in "._"
    )
    hidden = [one for one in names if one[0] in "._" and (path / one).is_dir()]
    if hidden:
        notes.append(f"it has {hidden[0]!r}: it may be a table of an unknown type")
    return _of_files(path, plain, names, notes)


def _marked(names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the stream types that a folder shows by its names, with the name."""
    manager = default_manager()
    for type_ in manager.names(BACKENDS):
        try:
            markers = manager.backend(type_).markers
        except StreamError:
            continue  # `list` shows why it cannot be used
        for name in names:
            if any(fnmatchcase(name, one) for one in markers):
                yield type_, name
                break


def _of_files(
    path: Path, names: Sequence[str], beside: Sequence[str], notes: list[str]
) -> Recognised:
    """The files of the commonest format, as a stream or to be published.

    Args:
        path: The file, or the folder.
        names: Of the files.
        beside: All names of the folder: a shell's pattern may match them, too.
        notes: What is to be said about them; one is added.
    """
    form, chosen = _commonest(names, _format_at)
    if not form:
        msg = f"{str(path)!r} has no files of Arrow, Parquet, CSV or JSON"
        raise ConfigError(msg, remedy="their names end in .arrow, .parquet, .csv, ...")
    mixed = len(chosen) < len(names)
    if mixed and len(set(map(_end, chosen))) > 1:
        _, chosen = _commonest(chosen, _end)  # one pattern has to name them
    if mixed:
        others = len(names) - len(chosen)
        notes.append(f"{others} of its files have other names, and are left out")
    alone = is_file(path)
    ends = set(map(_end, chosen))
    pattern = f"*{ends.pop()}" if len(ends) == 1 else "*"
    if form in _READ_AS:
        options = {"format": _READ_AS[form]}
        if mixed:
            options["names"] = pattern
        return Recognised(FILES, options, notes=tuple(notes))
    inputs = [str(path)] if alone else [str(path / name) for name in chosen]
    if alone:
        shown = shlex.quote(str(path))
    else:
        shown, matched = _for_shell(path, pattern, chosen, beside)
        if matched:
            notes.append(f"the pattern of the command matches {matched[0]!r}, too")
    return Recognised(FILES, {}, tuple(inputs), shown, tuple(notes))


def _for_shell(
    path: Path, pattern: str, chosen: Sequence[str], beside: Sequence[str]
) -> tuple[str, list[str]]:
    """The files of a folder for a shell, and what else it matches: nothing, if it can.

    Args:
        path: The folder.
        pattern: That matches the files.
        chosen: Their names.
        beside: All names of the folder.
    """
    folder, wanted = shlex.quote(str(path)), set(chosen)
    others: list[str] = []
    for matching in (pattern, f"[!_]{pattern}"):
        found = (one for one in beside if one[0] != "." and fnmatchcase(one, matching))
        others = [one for one in found if one not in wanted]
        if not others:
            return f"{folder}/{matching}", []
    if len(chosen) <= _MOST_NAMED:
        return shlex.join(str(path / name) for name in chosen), []
    return f"{folder}/[!_]{pattern}", others


def _commonest(
    names: Sequence[str], group: Callable[[str], str]
) -> tuple[str, list[str]]:
    """The largest group of names; names of the group "" do not count."""
    found = defaultdict[str, list[str]](list)
    for name in names:
        found[group(name)].append(name)
    found.pop("", None)
    return max(found.items(), key=lambda one: (len(one[1]), one[0]), default=("", []))


def _format_at(name: str) -> str:
    """The format of a file; empty if it is unknown, or cannot be read so."""
    found = format_of(name) or ""
    packed = Path(name).suffix.lower() in COMPRESSED
    return "" if packed and found in _READ_AS else found


def _end(name: str) -> str:
    """What the name of a file ends in: ``.csv``, ``.csv.gz``."""
    path = Path(name)
    if path.suffix.lower() in COMPRESSED:
        return Path(path.stem).suffix + path.suffix
    return path.suffix
