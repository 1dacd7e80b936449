"""Configuration is a row of steps: each runs once, and imports earlier ones only."""

from __future__ import annotations

import ast
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamfactory
from streamfactory.wiring.config.classification import Classified
from streamfactory.wiring.config.crosschecks import Checked
from streamfactory.wiring.config.definition import StreamDefinition
from streamfactory.wiring.config.resolution import Resolved
from streamfactory.wiring.config.settled import Configured
from streamfactory.wiring.streams.opening import open_sink

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

FOLDER = Path(__file__).parents[2] / "wiring" / "config"
READING = ("catalogue", "documents", "files")
"""Modules that are passed before the steps, if a stream is opened by its name."""
STEPS = ("definition", "classification", "resolution", "crosschecks", "settled")
"""Modules of the steps, in the order in which they run."""
VALUES = (StreamDefinition, Classified, Resolved, Checked, Configured)
"""What each step returns."""

PROPERTIES = {
    "streamType": "memory",
    "stream.memory.topic.name": "straight",
    "batch.rows": "${env:STRAIGHT_ROWS}",
    "stream.meta.owner": "tests",
}


def walk_of(call: Callable[[], Any]) -> list[str]:
    """The modules of the configuration that a call enters, in their order."""
    entered: list[str] = []

    def profile(frame: Any, event: str, _: object) -> None:
        path = Path(frame.f_code.co_filename)
        if event != "call" or path.parent.parts[-2:] != FOLDER.parts[-2:]:
            return
        if entered[-1:] != [path.stem]:
            entered.append(path.stem)

    previous = sys.getprofile()
    sys.setprofile(profile)
    try:
        opened = call()
    finally:
        sys.setprofile(previous)
    opened.close()
    return entered


def steps_of(entered: Sequence[str], order: Sequence[str]) -> list[str]:
    return [module for module in entered if module in order]


@pytest.fixture
def named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a stream in a catalogue of several files, whose topic exists."""
    table = "".join(f'"{key}" = "{text}"\n' for key, text in PROPERTIES.items())
    for name in ("clicks", "views"):
        (tmp_path / f"{name}.toml").write_text(f"[properties]\n{table}")
    monkeypatch.setenv("STREAMFACTORY_STREAMS", str(tmp_path))
    monkeypatch.setenv("STRAIGHT_ROWS", "10")
    with open_sink(PROPERTIES) as sink:
        sink.put(pa.table({"id": [1]}))
    return "clicks"


@pytest.mark.parametrize("opener", [streamfactory.open, open_sink])
def test_properties_pass_each_step_once(
    opener: Callable[[Any], Any],
    named: str,
) -> None:
    opener(PROPERTIES).close()  # modules are imported, which is no step
    entered = walk_of(lambda: opener(PROPERTIES))
    assert steps_of(entered, STEPS) == [*STEPS]
    assert len(entered) == len(set(entered))


@pytest.mark.parametrize("opener", [streamfactory.open, open_sink])
def test_a_named_stream_passes_its_file_and_each_step_once(
    opener: Callable[[Any], Any], named: str
) -> None:
    opener(named).close()
    entered = walk_of(lambda: opener(named))
    # Each file of the catalogue is parsed before the first definition is read.
    assert steps_of(entered, READING + STEPS) == [*READING, *STEPS]
    assert len(entered) == len(set(entered))


def test_the_walk_shows_a_module_that_is_entered_again() -> None:
    from streamfactory.wiring.config.definition import from_mapping
    from streamfactory.wiring.config.loading import find_definition

    def back_and_forth() -> Any:
        from_mapping(PROPERTIES)
        find_definition(PROPERTIES)
        return open_sink({"streamType": "memory", "stream.memory.topic.name": "t"})

    entered = walk_of(back_and_forth)
    assert entered[:4] == ["definition", "loading", "definition", "loading"]


@pytest.mark.parametrize("step", STEPS)
def test_a_step_imports_earlier_steps_only(step: str) -> None:
    tree = ast.parse((FOLDER / f"{step}.py").read_text(encoding="utf-8"))
    prefix = "streamfactory.wiring.config."
    modules = {
        node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)
    }
    imported = {module.removeprefix(prefix) for module in modules}
    later = {*STEPS[STEPS.index(step) :], "configure", "loading", *READING}
    assert imported & later == set()


@pytest.mark.parametrize("value", VALUES)
def test_what_a_step_returns_cannot_be_changed(value: Any) -> None:
    assert value.__dataclass_params__.frozen
