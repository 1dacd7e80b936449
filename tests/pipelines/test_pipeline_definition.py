"""What the file of a pipeline says, and every mistake in it, without Spark."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from streamfactory.spark.pipelines.checking import check_draft
from streamfactory.spark.pipelines.definition import read_pipeline
from streamfactory.spark.pipelines.detection import is_pipeline
from streamfactory.spark.pipelines.model import Watermark
from streamfactory.spark.pipelines.overriding import Overrides
from streamfactory.spark.pipelines.together import Pipelines
from streamfactory.spi import ConfigError

if TYPE_CHECKING:
    from tests.pipelines.conftest import Works

GOOD = """\
checkpoint = "c"
[source]
stream = "in"
[[sinks]]
stream = "out"
"""


@pytest.fixture(autouse=True)
def streams(works: Works) -> None:
    for name in ("in", "out", "other"):
        works.topic(name)


def problems(tmp_path: Path, text: str) -> list[str]:
    """What is said of a file, its name cut off."""
    path = tmp_path / "p.toml"
    path.write_text(text)
    return [
        str(one).replace(str(path), "p") for one in check_draft(read_pipeline(path))
    ]


def test_a_whole_pipeline_is_read(tmp_path: Path) -> None:
    (tmp_path / "late.sql").write_text("select * from a where late;\n")
    path = tmp_path / "delays.toml"
    path.write_text("""
name = "late-flights"
description = "For people"
checkpoint = "c"
trigger = "10s"
"output.mode" = "update"
"idle.stop.rounds" = 3
"hook.command" = "notify --quiet"
"hook.on.failure" = "fail"
"hook.timeout.millis" = "2s"

[source]
stream = "in"
id = "flights"
maxOffsetsPerTrigger = 7
"watermark.column" = "at"
"watermark.delay" = "1 day 2 hours"

[[steps]]
id = "a"
sql = "select * from flights ; "

[[steps]]
id = "b"
"sql.file" = "late.sql"
"watermark.column" = "seen"

[[sinks]]
stream = "out"
from = "a"

[[sinks]]
stream = "out"
name = "again"
"epoch.mismatch" = "fail"

[dead-letters]
stream = "other"

[spark]
"sql.shuffle.partitions" = 3
"spark.sql.ansi.enabled" = true
""")
    draft = read_pipeline(path)
    assert draft.problems == ()
    found = draft.pipeline
    assert found is not None
    assert (found.name, found.sources[0].id, found.mode) == (
        "late-flights",
        "flights",
        "update",
    )
    assert found.trigger.millis == 10_000
    assert found.idle_rounds == 3
    assert found.sources[0].watermark == Watermark("at", "1 day 2 hours")
    assert [(s.id, s.sql, s.watermark) for s in found.steps] == [
        ("a", "select * from flights", None),
        ("b", "select * from a where late", Watermark("seen", "0 seconds")),
    ]
    assert [(s.name, s.rows, s.stream.name) for s in found.all_sinks] == [
        ("out", "a", "out"),
        ("again", "b", "out"),
        ("dead-letters", "flights", "other"),
    ]
    assert found.hook.timeout == 2
    assert found.spark == {
        "spark.sql.shuffle.partitions": "3",
        "spark.sql.ansi.enabled": "true",
    }
    (limit,) = [
        p for p in found.sources[0].stream.properties if p.key == "maxOffsetsPerTrigger"
    ]
    assert (limit.text, limit.origin) == ("7", f"{path}:15")


@pytest.mark.parametrize(
    ("trigger", "expected"),
    [
        ("available-now", "available-now"),
        ("Back-To-Back", "back-to-back"),
        ("1m", "every 60000 ms"),
        ("250", "every 250 ms"),
    ],
)
def test_triggers(tmp_path: Path, trigger: str, expected: str) -> None:
    path = tmp_path / "p.toml"
    path.write_text(f'trigger = "{trigger}"\n{GOOD}')
    found = read_pipeline(path).pipeline
    assert found is not None
    assert str(found.trigger) == expected


@pytest.mark.parametrize(
    "case", Path(__file__).with_name("mistakes.txt").read_text().split("-----\n")
)
def test_all_mistakes_are_reported_at_once(tmp_path: Path, case: str) -> None:
    text, *expected = case.rstrip("\n").split("\n=> ")
    found = problems(tmp_path, f"{text}\n")
    assert len(found) == len(expected), found
    for line, wanted in zip(found, expected, strict=True):
        assert line.startswith(wanted.replace("{folder}", str(tmp_path))), found


def test_mistakes_of_the_streams_are_reported_beside_those_of_the_file(
    tmp_path: Path,
) -> None:
    text = f'triger = "1s"\n{GOOD}'.replace(
        'stream = "in"\n', 'stream = "in"\nmaxOffsetsPerTriger = 3\n'
    )
    assert problems(tmp_path, text) == [
        "triger: is no option of a pipeline; did you mean trigger? [p:1]",
        (
            "maxOffsetsPerTriger: unknown option; did you mean "
            "maxOffsetsPerTrigger? [p:5]"
        ),
    ]


def test_what_other_processes_cannot_see_is_no_source(tmp_path: Path) -> None:
    memory = tmp_path / "memory.json"
    memory.write_text(
        '{"properties": {"streamType": "memory", "stream.memory.topic.name": "t"}}'
    )
    (found,) = problems(tmp_path, GOOD.replace('"in"', f'"{memory}"'))
    assert "memory" in found


@pytest.mark.parametrize(
    "text",
    [GOOD.replace('"out"', '"in"'), f'{GOOD}[dead-letters]\nstream = "in"\n'],
    ids=["rows", "dead letters"],
)
def test_a_sink_that_writes_what_the_source_reads_is_refused(
    tmp_path: Path, text: str
) -> None:
    (found,) = problems(tmp_path, text)
    assert "writes to the topic that the source 'in' reads" in found


def test_bad_messages_have_one_way_only(tmp_path: Path) -> None:
    text = GOOD.replace('"in"\n', '"in"\n"decode.on.error" = "skip"\n')
    assert problems(tmp_path, f'{text}[dead-letters]\nstream = "other"\n') == [
        (
            "decode.on.error: is 'skip', and bad messages have a sink: [dead-letters]; "
            "set dead-letter, or remove the option [p:4]"
        )
    ]


def test_a_file_that_is_no_toml_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    path.write_text('checkpoint = "c\n')
    with pytest.raises(ConfigError) as caught:
        read_pipeline(path)
    assert [one.origin for one in caught.value.problems] == [f"{path}:1:16"]
    with pytest.raises(ConfigError) as caught:
        read_pipeline(tmp_path / "p.json")
    assert caught.value.what.endswith("p.json' is no pipeline: that is a TOML file")
    with pytest.raises(ConfigError) as caught:
        read_pipeline(tmp_path / "none.toml")
    assert caught.value.what.endswith(
        "none.toml' cannot be read: No such file or directory"
    )


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        (GOOD, True),
        ("[[sinks]]\nstream = 3\n", True),
        ('name = "x"\n[properties]\nstreamType = "file"\n', False),
        ("properties = 3\n[source]\n", False),
        ("[source\n", False),
    ],
)
def test_pipelines_are_distinguished_from_streams(
    tmp_path: Path, text: str, verdict: bool
) -> None:
    path = tmp_path / "p.toml"
    path.write_text(text)
    assert is_pipeline(path) is verdict
    assert not is_pipeline(tmp_path / "none.toml")
    assert not is_pipeline(tmp_path)


def test_pipelines_that_run_together_have_names_and_checkpoints_of_their_own(
    works: Works,
) -> None:
    one = works.pipeline('[[sinks]]\nstream = "out"\n', "one", checkpoint="c")
    two = works.pipeline(
        '[[sinks]]\nstream = "out"\n', "two", name="one", checkpoint="./c/"
    )
    none = two.with_name("none.toml")
    pipelines: Any = Pipelines([one, two, none])
    assert [str(one) for one in pipelines._problems] == [
        f"{none}: {str(none)!r} cannot be read: No such file or directory",
        f"name: two pipelines are named 'one': see {one} [{two}]",
        f"checkpoint: './c/' is the checkpoint of {one} too [{two}]",
    ]


@pytest.mark.parametrize(
    ("trigger", "pace", "millis"),
    [
        ("10s", "once", None),
        ("available-now", "continuous", 0),
        ("10s", "continuous", 10_000),
        ("10s", None, 10_000),
    ],
)
def test_the_command_line_may_set_the_pace(
    works: Works, trigger: str, pace: str | None, millis: int | None
) -> None:
    path = works.pipeline('[[sinks]]\nstream = "out"\n', trigger=trigger)
    (draft,) = Pipelines([path], Overrides(pace)).drafts
    assert draft.pipeline is not None
    assert draft.pipeline.trigger.millis == millis


def test_reading_loads_no_spark(works: Works) -> None:
    path = works.pipeline('[[sinks]]\nstream = "out"\n')
    program = (
        "import sys; from pathlib import Path\n"
        "from streamfactory.spark.pipelines.checking import check_draft\n"
        "from streamfactory.spark.pipelines.definition import read_pipeline\n"
        f"assert check_draft(read_pipeline(Path({str(path)!r}))) == []\n"
        "assert 'pyspark' not in sys.modules\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr


# --- several sources --------------------------------------------------------------

TWO = """
[[sources]]
stream = "in"
"watermark.column" = "at"
[[sources]]
stream = "other"
id = "more"
maxOffsetsPerTrigger = 5
[[steps]]
id = "both"
sql = "select * from `in` union all select * from more"
[[sinks]]
stream = "out"
"""


def test_several_sources_have_ids_watermarks_and_options_of_their_own(
    works: Works,
) -> None:
    found = read_pipeline(works.pipeline(TWO)).pipeline
    assert found is not None
    assert [(one.id, one.stream.name) for one in found.sources] == [
        ("in", "in"),
        ("more", "other"),
    ]
    assert [one.watermark for one in found.sources] == [
        Watermark("at", "0 seconds"),
        None,
    ]
    limited = [
        p.key for p in found.sources[1].stream.properties if "PerTrigger" in p.key
    ]
    assert limited == ["maxOffsetsPerTrigger"]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (f'[source]\nstream = "in"\n{TWO}', "and [[sources]] exclude each other"),
        (TWO.replace('"more"', '"IN"'), "'IN' is an id already"),
        (TWO.replace('"both"', '"more"'), "'more' is an id already"),
        (TWO.replace('"more"', '"no id"'), "'no id' is no id"),
        ("sources = []\n[[sinks]]\nstream = 'out'\n", "is empty"),
        ("sources = 3\n[[sinks]]\nstream = 'out'\n", "is not an array of tables"),
        (TWO.replace('stream = "other"\n', ""), "stream"),
        (TWO + 'from = "input"\n', "'input' is no id; there are in, more, both"),
    ],
)
def test_mistakes_in_several_sources_are_named_with_their_place(
    works: Works, text: str, wrong: str
) -> None:
    draft = read_pipeline(works.pipeline(text))
    assert draft.pipeline is None
    found = [one for one in draft.problems if wrong in str(one)]
    assert len(found) == 1
    assert str(found[0].origin).startswith(str(works.folder / "p.toml"))


def test_the_name_of_a_stream_that_is_no_id_wants_one(works: Works) -> None:
    works.topic("late-orders")
    text = TWO.replace('"other"\nid = "more"', '"late-orders"')
    [problem] = read_pipeline(works.pipeline(text)).problems
    assert problem.what == "the stream's name 'late-orders' is no id"


def test_each_source_is_compared_with_each_sink(works: Works) -> None:
    text = TWO.replace('stream = "out"', 'stream = "other"')
    problems = check_draft(read_pipeline(works.pipeline(text)))
    assert [one.what for one in problems] == [
        "sink 'other' writes to the topic that the source 'other' reads"
    ]
