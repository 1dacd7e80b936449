"""Commands that connect."""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.proving.commands import Outcome

STEPS = ["configuration", "plug-in", "partitions", "schema", "fetch", "lag", "close"]


def _outcomes(outcome: Outcome) -> dict[str, str]:
    return {step["name"]: step["outcome"] for step in outcome.json["steps"]}


def test_check_takes_every_step(
    streamfactory: Callable[..., Outcome], clicks: Path
) -> None:
    outcome = streamfactory("check", "clicks.toml")
    assert (outcome.status, outcome.err) == (0, "")
    topic = f"clicks-{clicks.parent.name}"
    shown_lines = [
        re.sub(r" +[0-9.]+ ms +", "  ", line) for line in outcome.out.splitlines()
    ]
    assert shown_lines == [
        "clicks.toml: ok",
        "  configuration  ok  stream 'clicks' of type 'memory'",
        "  plug-in        ok  type 'memory'",
        "  partitions     ok  2 partitions, 3 offsets",
        "  schema         ok  2 columns",
        f"  fetch          ok  1 row of {topic}-1 from offset 0",
        "  lag            ok  3 offsets behind, where a new reader starts",
        "  close          ok  closed without leaks",
    ]


def test_check_has_stable_keys(
    streamfactory: Callable[..., Outcome], clicks: Path
) -> None:
    checked = streamfactory("check", str(clicks), "--json").json
    assert list(checked) == ["stream", "ok", "steps", "warnings"]
    assert [step["name"] for step in checked["steps"]] == STEPS
    for step in checked["steps"]:
        assert list(step) == ["name", "outcome", "what", "millis", "error"]


def test_step_that_fails_skips_the_others(
    streamfactory: Callable[..., Outcome], clicks: Path
) -> None:
    outcome = streamfactory(
        "check", str(clicks), "--json", "--set", "stream.memory.topic.name=nobody"
    )
    assert outcome.status == 1
    assert list(_outcomes(outcome).values()) == [
        "ok", "ok", "failed", "skipped", "skipped", "skipped", "ok",
    ]  # fmt: skip
    failed = outcome.json["steps"][2]
    assert failed["error"]["error"] == "topic_not_found"


def test_bad_configuration_fails_the_first_step_with_every_problem(
    streamfactory: Callable[..., Outcome], clicks: Path
) -> None:
    outcome = streamfactory(
        "check", str(clicks), "--json", "--set", "batch.rows=0", "--set", "bacth.rows=1"
    )
    assert outcome.status == 2
    assert set(list(_outcomes(outcome).values())[1:]) == {"skipped"}
    problems = outcome.json["steps"][0]["error"]["problems"]
    assert [problem["key"] for problem in problems] == ["bacth.rows", "batch.rows"]


def test_plugin_that_is_not_installed_fails_its_step_with_status_3(
    streamfactory: Callable[..., Outcome], tmp_path: Path
) -> None:
    (tmp_path / "k.properties").write_text(
        "streamType=pulsar\nstream.pulsar.topic.name=t\n"
        "stream.pulsar.decoder.class.name=raw\n"
    )
    outcome = streamfactory("check", "k.properties", "--json")
    assert outcome.status == 3
    assert list(_outcomes(outcome).values())[:3] == ["ok", "failed", "skipped"]
    assert outcome.json["warnings"][0]["what"] == "is not installed here"


def test_empty_stream_skips_the_fetch(
    streamfactory: Callable[..., Outcome], clicks: Path
) -> None:
    outcome = streamfactory(
        "check", str(clicks), "--json",
        "--set", f'assign={{"clicks-{clicks.parent.name}": [0]}}',
        "--set", "startingOffsets=latest",
    )  # fmt: skip
    # A topic and an assignment exclude each other.
    assert outcome.status == 2
    (clicks.parent / "none.properties").write_text(
        f'streamType=memory\nassign={{"clicks-{clicks.parent.name}": [0]}}\n'
    )
    empty = streamfactory("check", "none.properties", "--json")
    assert empty.status == 0
    assert empty.json["steps"][4]["what"] == "all partitions are empty"


def test_stream_that_cannot_be_read_again_is_not_read(
    program: Callable[..., Outcome], stranger: Callable[..., Path]
) -> None:
    path = stranger(schema="id bigint")
    outcome = program("check", str(path), "--allow-class-paths", "--json")
    assert outcome.status == 0
    fetch = outcome.json["steps"][4]
    assert (fetch["outcome"], fetch["what"]) == (
        "skipped",
        "messages of this stream cannot be read again",
    )


def test_plugin_that_hangs_is_given_up_in_time(
    program: Callable[..., Outcome], stranger: Callable[..., Path]
) -> None:
    path = stranger(
        partitions="time.sleep(600)",
        **{"stream.stranger.connection.timeout.millis": "200ms"},
    )
    begin = time.monotonic()
    outcome = program("check", str(path), "--allow-class-paths", "--json")
    assert time.monotonic() - begin < 200
    assert outcome.status == 1
    failed, close = outcome.json["steps"][2], outcome.json["steps"][6]
    assert failed["error"]["error"] == "timeout"
    assert failed["error"]["what"] == "partitions: no answer within 0.2 s"
    assert close["what"] == "a call to the plug-in has not returned"


def test_secret_in_a_foreign_error_is_masked(
    program: Callable[..., Outcome], stranger: Callable[..., Path]
) -> None:
    path = stranger(
        constructor="raise RuntimeError('no entry with ' + config['password'])",
        **{"stream.stranger.password": "${env:STRANGER}"},
    )
    for command in ("check", "schema"):
        for flags in ([], ["--json"]):
            outcome = program(
                "--verbose", command, str(path), "--allow-class-paths", *flags,
                STRANGER="hunter2",
            )  # fmt: skip
            assert outcome.status == 3
            assert "no entry with ***" in outcome.out + outcome.err
            assert "hunter2" not in outcome.out + outcome.err


def test_schema_is_reported_as_ddl_and_as_arrow(
    streamfactory: Callable[..., Outcome], clicks: Path
) -> None:
    outcome = streamfactory("schema", str(clicks))
    assert (outcome.status, outcome.out) == (
        0,
        (
            "clicks, as Spark DDL:\n"
            "  id bigint not null, at date\n"
            "\n"
            "as Arrow:\n"
            "  id  int64        not null\n"
            "  at  date32[day]\n"
        ),
    )
    assert streamfactory("schema", str(clicks), "--json").json == {
        "stream": "clicks",
        "ddl": "id bigint not null, at date",
        "ddl_problem": None,
        "columns": [
            {"name": "id", "type": "int64", "nullable": False},
            {"name": "at", "type": "date32[day]", "nullable": True},
        ],
    }


def test_check_shows_each_problem_of_a_configuration_on_a_line(
    streamfactory: Callable[..., Outcome], tmp_path: Path
) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('[properties]\nstreamType = "memory"\nnone = "1"\nnada = "2"\n')
    done = streamfactory("check", path)
    assert "\\n" not in done.out
    lines = [line.strip() for line in done.out.splitlines()]
    assert [line.partition(":")[0] for line in lines if "unknown option" in line] == [
        "none",
        "nada",
    ]
