"""Files of stream definitions: what is read, where it stood, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamfactory.spi import ConfigError
from streamfactory.wiring.config.catalogue import read_definitions
from streamfactory.wiring.config.definition import Property, StreamDefinition


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def read_one(path: Path) -> StreamDefinition:
    [definition] = read_definitions(path)
    return definition


def values(definition: StreamDefinition) -> dict[str, str]:
    return {p.key: p.text for p in definition.properties}


def lines(definition: StreamDefinition) -> dict[str, str]:
    """Of each key, the line its origin says."""
    return {p.key: p.origin.rpartition(":")[2] for p in definition.properties}


def problems(path: Path) -> list[str]:
    """All problems, without the folder."""
    with pytest.raises(ConfigError) as caught:
        read_definitions(path)
    assert caught.value.problems
    return [str(p).replace(f"{path.parent}/", "") for p in caught.value.problems]


# --- TOML -------------------------------------------------------------------------

CLICKS = '''\
# Who clicked what.
name = "page-views"
description = """
name = "not this one"
"""

[properties]
streamType = "memory"
"stream.memory.topic.name" = 'clicks'
"stream.memory.partitions" = 4
includeHeaders = true

[properties.stream.memory]
"retention.rows" = 1_000_000  # kept
"decoder.class.name" = "json"
decoder.prop = { strict = false, "max.depth" = 8 }

[properties.stream.meta]
owner = """
[properties]
includeHeaders = "a trap"
"""
'''


def test_toml_tables_and_quoted_keys_flatten_by_dots(tmp_path: Path) -> None:
    definition = read_one(write(tmp_path, "clicks.toml", CLICKS))
    assert definition.name == "page-views"
    assert definition.description == 'name = "not this one"\n'
    assert definition.origin == str(tmp_path / "clicks.toml")
    assert values(definition) == {
        "streamType": "memory",
        "stream.memory.topic.name": "clicks",
        "stream.memory.retention.rows": "1000000",
        "stream.memory.decoder.class.name": "json",
        "stream.memory.decoder.prop.strict": "false",
        "stream.memory.decoder.prop.max.depth": "8",
        "stream.meta.owner": '[properties]\nincludeHeaders = "a trap"\n',
        "stream.memory.partitions": "4",
        "includeHeaders": "true",
    }


def test_toml_properties_report_their_line(tmp_path: Path) -> None:
    definition = read_one(write(tmp_path, "clicks.toml", CLICKS))
    assert lines(definition) == {
        "streamType": "8",
        "stream.memory.topic.name": "9",
        "stream.memory.partitions": "10",
        "includeHeaders": "11",
        "stream.memory.retention.rows": "14",
        "stream.memory.decoder.class.name": "15",
        # inside of an inline table: the line of the table
        "stream.memory.decoder.prop.strict": "16",
        "stream.memory.decoder.prop.max.depth": "16",
        "stream.meta.owner": "19",
    }


def test_toml_name_defaults_to_the_stem(tmp_path: Path) -> None:
    path = write(tmp_path, "clicks.toml", '[properties]\nstreamType = "memory"\n')
    assert read_one(path) == StreamDefinition(
        "clicks",
        (Property("streamType", "memory", f"{path}:2", str(tmp_path)),),
        origin=str(path),
    )


def test_toml_problems_are_reported_all_at_once(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "clicks.toml",
        """\
name = 7
descripton = "a typo"
streamType = "memory"

[properties]
ratio = 0.5
since = 2026-01-31
topics = ["a", "b"]
Epoch = 1
epoch = 2
"stream.memory.topic.name" = "a"
stream.memory.topic.name = "b"
""",
    )
    assert problems(path) == [
        (
            "descripton: is not a key of a stream definition; did you mean "
            "description? [clicks.toml:2]"
        ),
        (
            "streamType: is not a key of a stream definition; options go under "
            "properties [clicks.toml:3]"
        ),
        "name: is not a string [clicks.toml:1]",
        (
            "ratio: is a number with a fraction or exponent: put it in quotes "
            "[clicks.toml:6]"
        ),
        "since: is a date: put it in quotes [clicks.toml:7]",
        "topics: is an array: write a string, a,b,c [clicks.toml:8]",
        (
            "epoch: is defined twice in another case, as Epoch; first at clicks.toml:9 "
            "[clicks.toml:10]"
        ),
        (
            "stream.memory.topic.name: is defined twice; first at clicks.toml:11 "
            "[clicks.toml:12]"
        ),
    ]


def test_misspelt_table_reports_where_it_begins(tmp_path: Path) -> None:
    path = write(tmp_path, "x.toml", '\n[propertis]\nstreamType = "memory"\n')
    assert problems(path) == [
        (
            "propertis: is not a key of a stream definition; did you mean properties? "
            "[x.toml:2]"
        ),
        "properties: is missing [x.toml]",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            'name = "a"\n[properties\n',
            (
                "x.toml: is not TOML: Expected ']' at the end of a table declaration "
                "(line 2, column 12) [x.toml:2:12]"
            ),
        ),
        (
            "[properties]\na = 1\na = 2\n",
            (
                "x.toml: is not TOML: Cannot overwrite a value (line 3, column 6) "
                "[x.toml:3:6]"
            ),
        ),
        (
            "[properties]\na = ",
            "x.toml: is not TOML: Invalid value (line 2, column 1) [x.toml:2:1]",
        ),
        (
            f"a = {'9' * 5000}",
            (
                "x.toml: is not TOML: it contains a number with too many digits "
                "(line 1, "
                "column 1) [x.toml:1:1]"
            ),
        ),
        (
            f"a = {'[' * 5000}",
            (
                "x.toml: is not TOML: it is nested too deeply (line 1, column 1) "
                "[x.toml:1:1]"
            ),
        ),
        (
            f"[properties]\n{'a.' * 5000}a = 1",
            (
                "x.toml: is not a configuration: it is nested too deeply (line 2, "
                "column 1) [x.toml:2:1]"
            ),
        ),
    ],
    ids=["table", "twice", "end", "number", "depth", "dots"],
)
def test_unparsable_toml_reports_line_and_column(
    tmp_path: Path, text: str, problem: str
) -> None:
    assert problems(write(tmp_path, "x.toml", text)) == [problem]


# --- JSON -------------------------------------------------------------------------


def test_json_has_the_members_of_toml(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "clicks.json",
        """\
{
  "name": "page-views", "description": "Who, \\"what\\"",
  "properties": {
    "streamType": "memory",
    "stream": {"memory": {"topic.name": "a/b~c",
      "partitions": 4}},

    "includeHeaders": false
  }
}
""",
    )
    definition = read_one(path)
    assert (definition.name, definition.description) == ("page-views", 'Who, "what"')
    assert values(definition) == {
        "streamType": "memory",
        "stream.memory.topic.name": "a/b~c",
        "stream.memory.partitions": "4",
        "includeHeaders": "false",
    }
    assert list(lines(definition).values()) == ["4", "5", "6", "8"]


def test_json_problems_are_reported_all_at_once(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "clicks.json",
        """\
{
  "properties": {
    "epoch": 1,
    "a/b": 0.5,
    "nothing": null,
    "nan": NaN,
    "epoch": 2,
    "Nested": {"x": "1"},
    "nested.X": "2",
    "half": "\\ud800"
  },
  "property": {}
}
""",
    )
    assert problems(path) == [
        "epoch: is defined twice; first at clicks.json:3 [clicks.json:7]",
        (
            "property: is not a key of a stream definition; did you mean properties? "
            "[clicks.json:12]"
        ),
        (
            "a/b: is a number with a fraction or exponent: put it in quotes "
            "[clicks.json:4]"
        ),
        "nothing: is null: omit the key [clicks.json:5]",
        (
            "nan: is a number with a fraction or exponent: put it in quotes "
            "[clicks.json:6]"
        ),
        (
            "nested.X: is defined twice in another case, as Nested.x; first at "
            "clicks.json:8 [clicks.json:9]"
        ),
        "'half': contains a lone surrogate (half of a character) [clicks.json:10]",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            '{\n  "properties": {,}\n}',
            (
                "x.json: is not JSON: Expecting property name enclosed in double "
                "quotes (line 2, column 18) [x.json:2:18]"
            ),
        ),
        (
            "",
            "x.json: is not JSON: Expecting value (line 1, column 1) [x.json:1:1]",
        ),
        (
            "[]",
            (
                "x.json: is not a JSON object: expected { at the beginning (line 1, "
                "column 1) [x.json:1:1]"
            ),
        ),
        (
            '{"a":' * 100_000,
            (
                "x.json: is not JSON: it is nested too deeply (line 1, column 1) "
                "[x.json:1:1]"
            ),
        ),
        (
            "9" * 5000,
            (
                "x.json: is not JSON: it contains a number with too many digits "
                "(line 1, "
                "column 1) [x.json:1:1]"
            ),
        ),
    ],
    ids=["comma", "empty", "array", "depth", "number"],
)
def test_unparsable_json_reports_line_and_column(
    tmp_path: Path, text: str, problem: str
) -> None:
    assert problems(write(tmp_path, "x.json", text)) == [problem]


def test_duplicate_keys_are_found_in_foreign_json_too(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "x.json",
        '{\n"streamType": "kafka",\n"stream.kafka.a": "1",\n"stream.kafka.a": "2"}',
    )
    assert problems(path) == [
        "stream.kafka.a: is defined twice; first at x.json:3 [x.json:4]"
    ]


def test_duplicates_and_other_problems_of_foreign_json_come_together(
    tmp_path: Path,
) -> None:
    text = '{"dataStream": {"Unknown": {}}, "name": "a", "name": "b"}'
    found = problems(write(tmp_path, "x.json", text))
    assert [problem.partition(":")[0] for problem in found] == ["name", "Unknown"]


# --- Java properties ----------------------------------------------------------------


def test_properties_file_is_a_flat_map(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "clicks.properties",
        "# a comment\n"
        "streamType=memory\n"
        "\n"
        "stream.memory.topic.name : page \\\n"
        "    views\n"
        "stream.meta.owner M\\u00fcller\r\n"
        "schema=Größe int\n",
    )
    definition = read_one(path)
    assert definition.name == "clicks"
    assert values(definition) == {
        "streamType": "memory",
        "stream.memory.topic.name": "page views",
        "stream.meta.owner": "Müller",
        "schema": "Größe int",
    }
    assert list(lines(definition).values()) == ["2", "4", "6", "7"]


def test_properties_file_with_repeated_keys(tmp_path: Path) -> None:
    path = write(tmp_path, "x.properties", "a=1\nb=2\na=1\nB=2\n")
    assert problems(path) == [
        "a: is defined twice; first at x.properties:1 [x.properties:3]",
        (
            "B: is defined twice in another case, as b; first at x.properties:2 "
            "[x.properties:4]"
        ),
    ]


def test_properties_file_with_a_bad_escape(tmp_path: Path) -> None:
    path = write(tmp_path, "x.properties", "a=1\nb=\\u12\n")
    assert problems(path) == [
        (
            "x.properties: is not a properties file: \\u12 is not an escape: \\u "
            "takes four hexadecimal digits (line 2, column 1) [x.properties:2:1]"
        )
    ]


# --- any file -----------------------------------------------------------------------


@pytest.mark.parametrize("name", ["", " ", " a", "a/b", "..", "a\\b", "a\nb"])
def test_names_that_are_none(tmp_path: Path, name: str) -> None:
    text = f"name = {name!r}\n".replace("'", '"') + "[properties]\n"
    [problem] = problems(write(tmp_path, "x.toml", text))
    assert problem.startswith("name: ")
    assert problem.endswith(" [x.toml:1]")


def test_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    path = write(tmp_path, "x.json", '\ufeff{"properties": {"streamType": "memory"}}')
    assert values(read_one(path)) == {"streamType": "memory"}


def test_missing_file(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    with pytest.raises(ConfigError) as caught:
        read_definitions(path)
    assert str(caught.value) == f"'{path}' cannot be read: No such file or directory"


def test_folder_instead_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.mkdir()
    with pytest.raises(ConfigError) as caught:
        read_definitions(path)
    assert str(caught.value) == f"'{path}' is a folder, expected a file"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes")
def test_pipe_is_refused_and_not_waited_on(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    os.mkfifo(path)
    with pytest.raises(ConfigError) as caught:
        read_definitions(path)
    assert str(caught.value) == f"'{path}' is not a regular file, expected a file"


def test_file_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / "x.toml"
    path.write_bytes(b'name = "a"\ndescription = "\xff"\n')
    with pytest.raises(ConfigError) as caught:
        read_definitions(path)
    assert str(caught.value) == f"'{path}' is not UTF-8 text: see line 2"


def test_file_that_is_too_large(tmp_path: Path) -> None:
    path = write(tmp_path, "x.toml", "#" * (1 << 20) + "\n")
    with pytest.raises(ConfigError) as caught:
        read_definitions(path)
    assert str(caught.value) == (
        f"'{path}' is larger than 1 MiB, the maximum of a configuration"
    )


def test_file_of_another_kind(tmp_path: Path) -> None:
    path = write(tmp_path, "x.yaml", "name: a\n")
    with pytest.raises(ConfigError) as caught:
        read_definitions(path)
    assert str(caught.value) == (
        f"'{path}' has an unknown suffix: known are .toml, .json, .properties"
    )


def test_path_with_a_null_character() -> None:
    with pytest.raises(ConfigError, match="cannot be read: embedded null"):
        read_definitions(Path("a\0.toml"))


def test_reading_files_loads_no_arrow(tmp_path: Path) -> None:
    path = write(tmp_path, "x.json", '{"streamType": "kafka"}')
    code = (
        "import sys; from pathlib import Path;"
        "from streamfactory.wiring.config.catalogue import Catalogue;"
        f"Catalogue(Path({str(tmp_path)!r})).find({str(path)!r});"
        "sys.exit('pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
