# ruff: noqa: INP001 - part of a script, in no package
"""The sections of docs/errors.md: one per error code, from the error tree."""

from __future__ import annotations

import importlib
import inspect
import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Final

import streamfactory
from streamfactory.cli.status import Interrupted, Status, status_of
from streamfactory.spi.errors import StreamError

if TYPE_CHECKING:
    from collections.abc import Iterator

_CAUSES: Final = Path(__file__).with_name("errors.toml")
_PACKAGE: Final = Path(streamfactory.__file__).parent
_DECLARED: Final = re.compile(r'^    code = "', re.MULTILINE)


def error_sections() -> str:
    """All codes, in alphabetical order.

    Raises:
        SystemExit: A code has no causes, or causes have no code.
    """
    kinds = {kind.code: kind for kind in reversed(list(_tree(StreamError)))}
    causes = tomllib.loads(_CAUSES.read_text("utf-8"))
    if set(causes) != set(kinds):
        drift = sorted(set(causes) ^ set(kinds))
        msg = f"{_CAUSES.name} and the error tree differ in {', '.join(drift)}"
        raise SystemExit(msg)
    return "\n\n".join(_section(kinds[code], **causes[code]) for code in sorted(kinds))


def _tree(kind: type[StreamError]) -> Iterator[type[StreamError]]:
    """Ours only: parents before children."""
    _load_all()
    if kind.__module__.startswith("streamfactory."):
        yield kind
        for child in kind.__subclasses__():
            yield from _tree(child)


def _load_all() -> None:
    """Import each module that declares a code."""
    for room in sorted(_PACKAGE.iterdir()):
        for path in sorted(room.resolve().rglob("*.py")) if room.is_dir() else ():
            if _DECLARED.search(path.read_text("utf-8")):
                inner = path.relative_to(room.resolve()).with_suffix("").parts
                parts = [part for part in inner if part != "__init__"]
                importlib.import_module(".".join(["streamfactory", room.name, *parts]))


def _section(kind: type[StreamError], causes: list[str], remedy: str) -> str:
    facts = f"`{kind.__name__}`, class `{kind.error_class.value}`"
    status = str(status_of(kind("")).value)
    if kind is Interrupted:
        status = f"{Status.INTERRUPTED.value}, or {Status.TERMINATED.value} for SIGTERM"
    retried = "; retried by the framework" if kind("").retryable else ""
    meaning = (inspect.getdoc(kind) or "").split("\n\n")[0].replace("\n", " ")
    lines = [
        f"## {kind.code}",
        "",
        f"{facts}, exit status {status}{retried}.",
        "",
        re.sub("``", "`", meaning),
        "",
        "Typical causes:",
        "",
        *(f"- {cause}" for cause in causes),
        "",
        f"Remedy: {remedy}",
    ]
    return "\n".join(lines)
