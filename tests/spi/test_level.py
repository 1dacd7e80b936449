"""Level 1 of the contract is frozen: what plug-ins rely on stays as it is."""

from __future__ import annotations

import subprocess
from dataclasses import fields, make_dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from tests.spi import signatures
from tests.spi.signatures import DIGESTS, FROZEN, PROJECT, digest, lines

from streamfactory import conformance, spi
from streamfactory.conformance.harness import Grows, Traits
from streamfactory.conformance.runner import all_cases
from streamfactory.spi import SPI_LEVEL
from streamfactory.wiring.writing import summary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOW = "; a plug-in of level 1 breaks: keep it, or raise SPI_LEVEL (docs/spi.md)"


def test_nothing_of_level_1_goes_or_changes() -> None:
    assert SPI_LEVEL == 1
    gone = _gone()
    assert gone == [], f"{gone}{HOW}"


def test_what_is_added_to_level_1_asks_nothing_of_plug_ins() -> None:
    asks = _asks()
    assert asks == [], f"{asks}{HOW}"


def test_lines_of_level_1_are_only_appended() -> None:
    frozen = _frozen()
    for line in DIGESTS.read_text(encoding="utf-8").splitlines():
        count, expected = line.split()
        assert digest(frozen[: int(count)]) == expected, f"of {count} lines{HOW}"
    released = _released()
    assert frozen[: len(released)] == released, HOW


def _replace_field(name: str, default: object) -> Callable[[pytest.MonkeyPatch], None]:
    """A change of the default of a field of `Fetched`."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        [field] = [field for field in fields(spi.Fetched) if field.name == name]
        patch.setattr(field, "default", default)

    return plant


def _replace(owner: Any, name: str, value: Any) -> Callable[[pytest.MonkeyPatch], None]:
    return lambda patch: patch.setattr(owner, name, value)


class _Renamed:
    """A project file in which a stream type has another name."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read_text(self, encoding: str) -> str:
        return self._path.read_text(encoding).replace("\nmemory =", "\nram =")


CHANGES = {
    "class variable": _replace(spi.ConsumerFactory, "SPARSE_OFFSETS", True),
    "default of a field": _replace_field("size", 0),
    "default of a parameter": _replace(
        spi.StreamConfig.problem, "__kwdefaults__", {"level": "warning"}
    ),
    "code of an error": _replace(spi.SpoolFull, "code", "full"),
    "class of an error": _replace(
        spi.TransientError, "error_class", spi.ErrorClass.PERMANENT
    ),
    "parent of an error": _replace(
        spi, "StreamTimeout", type("StreamTimeout", (spi.TransientError,), {})
    ),
    "column of the envelope": _replace(
        spi, "envelope_schema", lambda: pa.schema({"key": pa.string()})
    ),
    "sums of rows": _replace(summary, "ALGORITHM", "sha1"),
    "method of a position": lambda patch: patch.delattr(spi.Position, "items"),
    "attribute of harnesses": lambda patch: patch.setattr(
        Traits.__dataclass_fields__["largest_key"], "default", 1
    ),
    "group of entry points": _replace(spi.hooks, "BACKENDS", "streamfactory.decoders"),
    "name of an entry point": lambda patch: patch.setattr(
        signatures, "PROJECT", _Renamed(PROJECT)
    ),
    "field of a summary": _replace(
        spi, "Summary", make_dataclass("Summary", [("count", int, 0)])
    ),
    "value of a state": _replace(
        spi, "BatchState", Enum("BatchState", {s.name: s.name for s in spi.BatchState})
    ),
    "parameter of a hook": _replace(
        spi.hooks.HookSpecs, "streamfactory_backend", lambda self, version: None
    ),
    "name of the kit": _replace(
        conformance, "__all__", [n for n in conformance.__all__ if n != "Message"]
    ),
    "field of a harness's message": lambda patch: patch.setattr(
        conformance.Message.__dataclass_fields__["number"], "default", 0
    ),
    "name of a case": _replace(signatures, "all_cases", lambda: all_cases()[1:]),
    "place of a name that moved": _replace(spi, "_MOVED", {}),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_of_what_plug_ins_rely_on_is_noticed(
    change: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    change(monkeypatch)
    assert _gone() != []


def test_a_method_that_plug_ins_would_need_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method = spi.ConsumerFactory.create_metadata_provider  # abstract
    monkeypatch.setattr(spi.ConsumerFactory, "create_more", method, raising=False)
    monkeypatch.setattr(Grows, "shrink", Grows.grow, raising=False)
    # Of two kinds of classes: a backend's, and a harness's.
    assert [line.split("(")[0] for line in _asks()] == [
        "abstract ConsumerFactory.create_more",
        "abstract conformance.harness.Grows.shrink",
    ]


def _frozen() -> list[str]:
    return FROZEN.read_text(encoding="utf-8").splitlines()


def _gone() -> list[str]:
    return sorted(set(_frozen()) - set(lines()))


def _asks() -> list[str]:
    """What is added that a plug-in of level 1 would have to have."""
    frozen = _frozen()
    classes = {
        line.removeprefix("class ").split("(")[0]
        for line in frozen
        if line.startswith("class ")
    }
    return [
        line
        for line in lines()
        if line not in frozen
        and _place(line).rpartition(".")[0] in classes
        and (line.startswith("abstract ") or _is_required_field(line))
    ]


def _place(line: str) -> str:
    """What a line is about: ``Fetched.rows``."""
    return line.removeprefix("abstract ").split("(")[0].split(":")[0]


def _is_required_field(line: str) -> bool:
    return ": " in line.split("(", maxsplit=1)[0] and " = " not in line


def _released() -> list[str]:
    """The lines of the last tag; none where there is no tag, or no git."""

    def git(*words: str) -> str | None:
        try:
            done = subprocess.run(
                ["git", *words],
                cwd=PROJECT.parent,
                capture_output=True,
                text=True,
                check=False,
            )
        except FileNotFoundError:
            return None
        return done.stdout if done.returncode == 0 else None

    tag = git("describe", "--tags", "--abbrev=0")
    path = FROZEN.relative_to(PROJECT.parent).as_posix()
    text = git("show", f"{tag.strip()}:{path}") if tag else None
    return text.splitlines() if text else []
