"""JSON schemas of files, which editors use: they accept what is valid."""

from __future__ import annotations

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema_rs
import pytest

from streamfactory.spark.pipelines.options import PIPELINE_OPTIONS, STEP_OPTIONS
from streamfactory.spark.pipelines.schemas import pipeline_file_schema
from streamfactory.spi import Option
from streamfactory.wiring.config.json_schemas import (
    Types,
    installed_types,
    stream_file_schema,
)
from streamfactory.wiring.plugins.manager import default_manager

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.proving.commands import Outcome

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path.relative_to(ROOT)
    for base in ("configs", "examples", "cli")
    for path in (ROOT / base).rglob("*.toml")
    if {"configs", "streams"} <= {*path.parts} or "pipelines" in path.parts
    if not path.name.endswith(".test.toml")
)


@pytest.fixture(scope="module")
def schemas() -> dict[str, Any]:
    types = installed_types(default_manager())
    return {
        "streams": stream_file_schema(types),
        "pipelines": pipeline_file_schema(types),
    }


@pytest.fixture(scope="module")
def problems(schemas: dict[str, Any]) -> Callable[[str, str], list[str]]:
    validators = {
        kind: jsonschema_rs.Draft7Validator(schema) for kind, schema in schemas.items()
    }

    def found(kind: str, text: str) -> list[str]:
        errors = validators[kind].iter_errors(tomllib.loads(text))
        return [f"{'/'.join(map(str, one.instance_path))}: {one}" for one in errors]

    return found


def test_all_configurations_of_the_repository_are_valid(
    problems: Callable[[str, str], list[str]],
) -> None:
    assert len(FILES) >= 20
    for path in FILES:
        assert problems(path.parent.name, (ROOT / path).read_text()) == [], path


STREAM = """[properties]
streamType = "file"
"stream.file.path" = "streams"
"stream.file.topic.name" = "orders"
"""
PIPELINE = """checkpoint = "c"
[source]
stream = "orders"
maxOffsetsPerTrigger = 10
[source.watermark]
column = "at"
[[lookups]]
id = "prices"
format = "csv"
option.header = true
[[steps]]
id = "all"
sql = "select * from input"
[[expectations]]
name = "x"
condition = "true"
[[sinks]]
stream = "out"
"stream.file.path" = "elsewhere"
[spark]
sql.shuffle.partitions = 8
"""


def test_nested_tables_aliases_and_references_are_valid(
    problems: Callable[[str, str], list[str]],
) -> None:
    assert problems("streams", STREAM) == []
    assert problems("pipelines", PIPELINE) == []
    nested = '[properties]\nstream.type = "kafka"\n[properties.stream.kafka]\n'
    nested += 'broker.list = "a:1"\n"topic.name" = "t"\n'
    nested += 'consumer.prop.fetch.min.bytes = 1\ndecoder.prop.schema = "id int"\n'
    assert problems("streams", nested) == []
    assert problems("streams", STREAM.replace('"file"', '"${env:TYPE}"')) == []


@pytest.mark.parametrize(
    ("kind", "old", "new", "place"),
    [
        ("streams", "stream.file.path", "stream.file.pth", "properties"),
        ("streams", '"file"', '"fil"', "properties/streamType"),
        ("streams", "stream.file.path", "stream.kafka.broker.list", "properties"),
        ("streams", "[properties]", "[property]", ""),
        ("streams", "streamType", "decode.on.error", "properties"),
        ("streams", '"streams"', "[]", "properties/stream.file.path"),
        ("pipelines", "checkpoint", "checkpont", ""),
        ("pipelines", "column", "colum", "source/watermark"),
        ("pipelines", '= "csv"', "= []", "lookups/0/format"),
        ("pipelines", "sql =", "sqll =", "steps/0"),
        ("pipelines", 'name = "x"\n', "", "expectations/0"),
        ("pipelines", "condition", "conditions", "expectations/0"),
        ("pipelines", "stream.file.path", "stream.file.pth", "sinks/0"),
        ("pipelines", "maxOffsetsPerTrigger", "maxOffsets", "source"),
    ],
)
def test_mistakes_are_found_at_their_place(
    problems: Callable[[str, str], list[str]], kind: str, old: str, new: str, place: str
) -> None:
    text = {"streams": STREAM, "pipelines": PIPELINE}[kind]
    assert old in text
    found = problems(kind, text.replace(old, new, 1))
    assert any(one.startswith(f"{place}: ") for one in found), found


def test_every_option_has_its_text(schemas: dict[str, Any]) -> None:
    texts = schemas["pipelines"]["properties"]
    for option in PIPELINE_OPTIONS:
        assert texts[option.key]["description"] == option.doc
    steps = texts["steps"]["items"]["properties"]
    assert {steps[one.key]["description"] for one in STEP_OPTIONS} == {
        one.doc for one in STEP_OPTIONS
    }
    for schema in schemas.values():
        for name, one in schema["$defs"].items():
            assert (
                name == "stream"
                or name.startswith("table-")
                or (name == "names" or one["description"])
            ), name


def test_types_of_others_are_in_it_and_those_not_installed_are_not_checked() -> None:
    mine = replace(
        default_manager().backend("memory"),
        name="mine",
        options=(Option("place", "Where."),),
    )
    schema = stream_file_schema(Types([mine], [], ["absent"]))
    assert schema["$defs"]["stream.mine.place"]["description"] == "Where."
    validator = jsonschema_rs.Draft7Validator(schema)
    for kind, key, fine in (
        ("mine", "place", True),
        ("mine", "plaice", False),
        ("absent", "anything", True),
        ("other", "anything", False),
    ):
        body = {"streamType": kind, f"stream.{kind}.{key}": "x"}
        assert validator.is_valid({"properties": body}) is fine, (kind, key)


def test_init_writes_schemas_and_writes_them_again(
    streamfactory: Callable[..., Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    schemas: dict[str, Any],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert streamfactory("init", "shop").status == 0
    rules = tomllib.loads(Path("shop/.taplo.toml").read_text())["rule"]
    paths = [Path("shop", rule["schema"]["path"]) for rule in rules]
    assert [json.loads(path.read_text()) for path in paths] == [*schemas.values()]
    kinds = [next(Path("shop").glob(rule["include"][0])).parent.name for rule in rules]
    assert kinds == ["streams", "pipelines"]
    paths[0].write_text("old")
    made = streamfactory("init", "shop", "--editor", "--json").json
    assert made["files"] == [str(path.relative_to("shop")) for path in paths]
    assert json.loads(paths[0].read_text()) == schemas["streams"]
