"""What plug-ins there are, and what they can do."""

from __future__ import annotations

import json
import os
import re
from typing import TYPE_CHECKING

import pytest

from streamfactory.spi import (
    Backend,
    ConsumerFactory,
    MetadataProvider,
    Option,
    Yields,
    choice,
)
from streamfactory.wiring.config.describing import abilities
from streamfactory.wiring.config.json_schemas import json_schema
from streamfactory.wiring.plugins.manager import default_manager
from streamfactory.wiring.streams.probing import Lines

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.proving.commands import Outcome


class UndeclaredFactory(ConsumerFactory):
    """Makes providers of two kinds, one of which can list topics."""


class PlainProvider(MetadataProvider):
    def fetch_partitions(self, topics: object, known: object) -> list[object]:  # type: ignore[override]
        return []


class ListingProvider(PlainProvider):
    def fetch_topics(self) -> list[str]:
        return []


BACKEND = Backend(
    name="some",
    doc="For tests.",
    spi_level=1,
    yields=Yields.ENVELOPE,
    consumer_factory=UndeclaredFactory,
    client_namespaces=frozenset({"consumer"}),
    options=(
        Option("mode", "How.", choice("fast", "safe"), default="safe"),
        Option("password", "To get in.", secret=True, aliases=("pass.word",)),
    ),
)


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    """A folder with an installed distribution whose plug-in cannot be imported."""
    info = tmp_path / "broken_stream-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: broken-stream\nVersion: 1.0\n"
    )
    (info / "entry_points.txt").write_text(
        "[streamfactory.backends]\nbroken = broken_stream\n"
    )
    (tmp_path / "broken_stream.py").write_text("raise RuntimeError('no luck')\n")
    return tmp_path


@pytest.mark.parametrize(
    ("needed", "state"),
    [("click>=1", "available"), ("surely-not-installed", "needs acme-stream[wire]")],
)
def test_list_names_the_extra_that_a_plug_in_needs(
    streamfactory: Callable[..., Outcome],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    needed: str,
    state: str,
) -> None:
    info = tmp_path / "acme_stream-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: acme-stream\nVersion: 1.0\n"
        "Provides-Extra: wire\nProvides-Extra: other\n"
        f'Requires-Dist: {needed}; extra == "wire"\n'
        'Requires-Dist: neither-installed; extra == "other"\n'
    )
    (info / "entry_points.txt").write_text(
        "[streamfactory.backends]\nacme = acme_stream [wire]\nplain = acme_stream\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    found = streamfactory("list", "--json").json["plugins"]
    states = {one["name"]: one["state"] for one in found}
    assert (states["acme"], states["plain"]) == (state, "available")


def test_list_prints_name_distribution_version_and_state(
    streamfactory: Callable[..., Outcome],
) -> None:
    outcome = streamfactory("list")
    assert outcome.status == 0
    lines = [line.split() for line in outcome.out.splitlines()]
    assert lines[0] == ["KIND", "NAME", "DISTRIBUTION", "VERSION", "STATE"]
    types = [line[2] for line in lines if line[:2] == ["stream", "type"]]
    assert types == [
        "delta",
        "file",
        "flight",
        "hudi",
        "iceberg",
        "kafka",
        "memory",
        "push",
        "shm",
        "socket",
        "zeromq",
    ]
    assert ["stream", "type", "memory", "streamfactory", "0.1.0"] in [
        line[:5] for line in lines
    ]
    assert ["decoder", "raw", "streamfactory", "0.1.0"] in [line[:4] for line in lines]


def test_list_has_stable_keys(streamfactory: Callable[..., Outcome]) -> None:
    [memory] = [
        p
        for p in streamfactory("list", "--json").json["plugins"]
        if p["name"] == "memory"
    ]
    assert memory == {
        "kind": "stream type",
        "name": "memory",
        "distribution": "streamfactory",
        "version": "0.1.0",
        "state": memory["state"],
        "reason": None,
        "target": "streamfactory.backends.memory",
    }


def test_broken_plugin_is_found_out_by_loading_only(
    program: Callable[..., Outcome], broken: Path
) -> None:
    def state(*arguments: str) -> tuple[str, str | None]:
        outcome = program("list", "--json", *arguments)
        assert (outcome.status, outcome.err) == (0, "")
        [line] = [p for p in outcome.json["plugins"] if p["name"] == "broken"]
        return line["state"], line["reason"]

    assert state() == ("available", None)
    word, reason = state("--load")
    assert word == "broken"
    assert reason is not None
    assert reason.endswith("failed to load: RuntimeError: no luck")
    described = program("describe", "broken")
    assert (described.status, described.out) == (3, "")
    assert described.err == f"error: [broken_plugin] {reason}\n"


def test_blocked_plugin_is_listed_with_its_reason(
    program: Callable[..., Outcome],
) -> None:
    outcome = program("list", STREAMFACTORY_PLUGINS_BLOCK="memory")
    assert re.search(
        r"memory +streamfactory +0\.1\.0 +blocked +'memory' is blocked by "
        r"STREAMFACTORY_PLUGINS_BLOCK\n",
        outcome.out,
    )


def test_describe_prints_abilities_and_guarantees(
    streamfactory: Callable[..., Outcome],
) -> None:
    outcome = streamfactory("describe", "MEMORY")
    assert outcome.status == 0
    assert outcome.out.startswith(
        "memory: Streams within one process: for tests, examples and notebooks.\n"
    )
    for line in (
        (
            "can           read, write, offsets by time, topic list, schema, wake, "
            "replace, manage topics"
        ),
        "cannot        own group, keeps checkpoints",
        "as a source   exactly-once",
        (
            "as a sink     at-most-once; accepted rows may be lost when the sink's "
            "process ends (not durable)"
        ),
        "  stream.memory.partitions (integer; default 1)",
        "  stream.memory.topic.name (string; required)",
    ):
        assert f"\n{line}\n" in outcome.out
    assert "startingOffsets" not in outcome.out
    assert "\n  startingOffsets (" in streamfactory("describe", "memory", "--all").out


def test_description_has_stable_keys(streamfactory: Callable[..., Outcome]) -> None:
    described = streamfactory("describe", "memory", "--json").json
    assert list(described) == [
        "name", "doc", "distribution", "version", "rows", "abilities", "source",
        "sink", "options", "words", "namespaces",
    ]  # fmt: skip
    assert described["source"] == {
        "claims": {
            "replayable": True,
            "durable": False,
            "shared": False,
            "idempotent": True,
            "epoch_visibility": "whole",
            "redelivers": False,
        },
        "guarantee": "exactly-once",
        "reasons": [],
        "renumbers": False,
    }
    assert list(described["options"][0]) == [
        "key", "type", "default", "required", "secret", "doc", "aliases", "applies",
        "example", "former",
    ]  # fmt: skip


def test_decoder_is_described(streamfactory: Callable[..., Outcome]) -> None:
    described = streamfactory("describe", "--decoder", "raw", "--json").json
    assert described == {
        "name": "raw",
        "doc": "Messages without decoding: key, value, offset, timestamp, headers.",
        "distribution": "streamfactory",
        "version": "0.1.0",
        "decodes": False,
        "message_by_message": False,
        "encodes": False,
        "options": [],
    }


def test_ability_that_some_classes_have_is_not_known() -> None:
    found = abilities(BACKEND)
    assert (found.read, found.write) == (True, False)
    assert found.topic_list is None
    assert found.offsets_by_time is False
    assert found.wake is None  # no consumer class stands beside the factory


def test_json_schema_is_printed_as_it_is(
    streamfactory: Callable[..., Outcome],
) -> None:
    plain = streamfactory("describe", "memory", "--schema")
    with_json = streamfactory("describe", "memory", "--schema", "--json")
    expected = json_schema(default_manager().backend("memory"))
    assert json.loads(plain.out) == with_json.json == expected


def test_json_schema_follows_the_declarations() -> None:
    schema = json_schema(BACKEND)
    keys = schema["properties"]
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert keys["streamType"]["enum"] == keys["stream.type"]["enum"] == ["some"]
    assert keys["stream.some.mode"] == {
        "description": "How.",
        "anyOf": [{"enum": ["fast", "safe"]}, {"$ref": "#/$defs/reference"}],
        "default": "safe",
    }
    assert keys["stream.some.password"]["writeOnly"] is True
    assert keys["stream.some.pass.word"] == {
        "description": "The same as stream.some.password.",
        "type": "string",
        "writeOnly": True,
    }
    assert keys["failOnDataLoss"]["description"] == "The same as out.of.range."
    assert schema["additionalProperties"] is False
    assert list(schema["patternProperties"]) == [
        r"^stream\.meta\.",
        r"^stream\.some\.decoder\.prop\.",
        r"^stream\.some\.consumer\.prop\.",
    ]
    assert schema["allOf"] == [
        {"anyOf": [{"required": ["streamType"]}, {"required": ["stream.type"]}]},
        {
            "anyOf": [
                {"required": [key]}
                for key in (
                    "stream.some.topic.name", "subscribe", "subscribePattern", "assign",
                )
            ]
        },
    ]  # fmt: skip


HOSTILE = {
    "hangs": "import time; time.sleep(600)",
    "exits": "import sys; sys.exit('no more')",
    "gone": "import os; os._exit(7)",
    "crashes": "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)",
    "quits": "class Quit(BaseException): pass\nraise Quit('enough')",
    "interrupts": "raise KeyboardInterrupt",
    "sub": "class Stop(KeyboardInterrupt): pass\nraise Stop('now')",
    "talks": "print('x' * 100_000); raise RuntimeError('told')",
}


def test_answers_of_plugins_that_come_at_once_are_read_one_at_a_time() -> None:
    reading, writing = os.pipe()
    os.write(writing, b"null\nnull\n")
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as pipe:
        lines = Lines(pipe)
        assert [lines.next(5.0) for _ in range(3)] == [b"null\n", b"null\n", b""]


@pytest.mark.long("waits for a plug-in that hangs")
def test_plugin_that_hangs_or_ends_its_process_stops_no_other(
    program: Callable[..., Outcome], tmp_path: Path
) -> None:
    for name, code in HOSTILE.items():
        info = tmp_path / f"{name}_stream-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {name}-stream\nVersion: 1.0\n"
        )
        (info / "entry_points.txt").write_text(
            f"[streamfactory.backends]\n{name} = {name}_stream\n"
        )
        (tmp_path / f"{name}_stream.py").write_text(code)
    outcome = program("list", "--load", "--json", "--timeout", "10")
    assert (outcome.status, outcome.err) == (0, "")
    lines = {line["name"]: line for line in outcome.json["plugins"]}
    assert lines["memory"]["state"] == lines["text"]["state"] == "loaded"
    assert {lines[name]["state"] for name in HOSTILE} == {"broken"}
    reasons = {name: lines[name]["reason"] for name in HOSTILE}
    assert reasons["hangs"] == "plug-in 'hangs' was not loaded within 10 s"
    ended = "ended the process that loaded it, with status"
    assert reasons["gone"] == f"plug-in 'gone' {ended} 7"
    assert reasons["crashes"] == f"plug-in 'crashes' {ended} -11"
    assert reasons["exits"].endswith("failed to load: SystemExit: no more")
    assert reasons["quits"].endswith("failed to load: Quit: enough")
    assert reasons["sub"].endswith("failed to load: Stop: now")
    assert reasons["interrupts"].endswith("failed to load: KeyboardInterrupt")
    assert reasons["talks"].endswith("failed to load: RuntimeError: told")
