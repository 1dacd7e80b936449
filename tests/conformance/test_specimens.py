"""The kit's own specimens pass all of it, as far as they claim; and keep their word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from streamfactory.conformance import DecoderSubject, Outcome, Subject, run
from streamfactory.conformance.specimens import (
    durable,
    envelopes,
    forgetful,
    redelivering,
    upper,
)
from streamfactory.conformance.specimens.frames import Topic
from streamfactory.spi import (
    BatchState,
    Failed,
    NotAuthorized,
    Partition,
    PermanentError,
)
from streamfactory.wiring.plugins.manager import PluginManager
from streamfactory.wiring.streams.stream import open_stream

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path
    from types import ModuleType

    from streamfactory.wiring.streams.stream import Stream

NO_SECRETS = "no secrets: the type declares none, and has no client to pass one to"
READ_ONLY = "the type cannot be written"
NO_TOMBSTONES = "no ability: tombstone"
NO_GROUPS = "no ability: publish_position, fetch_groups, fetch_positions"
NOTHING_TO_RELEASE = {
    "no ability: acknowledge, acknowledged",
    "not claimed: redelivers",
}
NO_SERVER = {
    "no ability: stop, start",
    "no ability: refused_login",
    "no ability: refused_certificate",
    "no ability: unreachable",
}
NO_RIGHTS = {
    "no ability: freeze, thaw",
    "no ability: login_that_reads",
    "no ability: login_without_rights",
    "no ability: exceed",
}
NO_ENVELOPES = {
    "consumers answer typed rows, not envelopes",
    "no ability: write_messages",
    "no ability: write_values",
}
NO_TIMES = {"no ability: fetch_offsets_at, write_messages", "no ability: fetch_topics"}
NO_GAP, NO_FINISH = "no ability: gap", "no ability: finish"
NO_VISIBLE = "no ability: rows, visible"
NO_WAKE = "no ability: wake"
NOT_BY_TASK = "not claimed: epoch_visibility=task"


@pytest.mark.slow("the whole kit")
@pytest.mark.parametrize(
    ("plugin", "harness", "skipped"),
    [
        pytest.param(
            durable,
            durable.DurableHarness,
            {
                NO_SECRETS,
                NO_TOMBSTONES,
                NO_WAKE,
                "rows are not the bytes of messages",
                NOT_BY_TASK,
                NO_GAP,
                NO_FINISH,
                NO_GROUPS,
                *(NO_SERVER - {"no ability: stop, start"}),
                *NO_RIGHTS,
                "no ability: login_that_writes",
                "no ability: advance",
                "no ability: staged",
                *NO_ENVELOPES,
                *NO_TIMES,
                *NOTHING_TO_RELEASE,
                "no ability: fetch_offsets_at",
                "no ability: topic_admin",
                "CARRIES names nothing, or consumers answer typed rows",
            },
            id="durable",
            marks=pytest.mark.long("kills of processes; `file` has them, too"),
        ),
        pytest.param(
            envelopes,
            envelopes.EnvelopesHarness,
            {
                NO_SECRETS,
                NO_WAKE,
                "not claimed: durable",
                "not claimed: epoch_visibility",
                "not claimed: epoch_visibility=whole",
                "not claimed: idempotent",
                NOT_BY_TASK,
                "no ability: topic_admin",
                NO_FINISH,
                *NO_SERVER,
                *NO_RIGHTS,
                "no ability: advance",
                *NOTHING_TO_RELEASE,
                "no ability: fetch_topics",
            },
            id="envelopes",
            marks=pytest.mark.long("`kafka` has messages, too"),
        ),
        pytest.param(
            forgetful,
            forgetful.ForgetfulHarness,
            {
                READ_ONLY,
                NO_TOMBSTONES,
                NO_VISIBLE,
                NO_WAKE,
                "no ability: topic_admin",
                *NO_ENVELOPES,
                *NO_TIMES,
                *NOTHING_TO_RELEASE,
                *NO_RIGHTS,
                "no ability: acknowledge, acknowledged, recreate",
                "no ability: refused_certificate",
                NO_GROUPS,
                "not claimed: replayable",
                "not claimed: replayable or redelivers",
            },
            id="forgetful",
        ),
        pytest.param(
            redelivering,
            redelivering.RedeliveringHarness,
            {
                NO_SECRETS,
                READ_ONLY,
                NO_TOMBSTONES,
                NO_VISIBLE,
                NO_WAKE,
                "no ability: topic_admin",
                NO_FINISH,
                *NO_ENVELOPES,
                *NO_TIMES,
                *NO_RIGHTS,
                "no ability: refused_login",
                "no ability: refused_certificate",
                NO_GROUPS,
                "not claimed: replayable",
            },
            id="redelivering",
        ),
    ],
)
def test_specimen_passes_the_kit(
    plugin: ModuleType, harness: Any, skipped: set[str]
) -> None:
    plugins = PluginManager()
    backend = plugins.register(plugin)
    results = list(run(Subject(backend, harness, plugins)))  # type: ignore[arg-type]
    assert [r.case.name for r in results if r.outcome is Outcome.FAILED] == []
    assert {r.reason for r in results if r.outcome is Outcome.SKIPPED} == skipped


def test_decoder_specimen_passes_its_section() -> None:
    results = list(
        run(DecoderSubject(upper.streamfactory_decoder(), upper.UpperHarness))
    )
    left_out = {r.case.name for r in results if r.outcome is not Outcome.PASSED}
    assert left_out == {  # lines have neither fields nor types
        "undeclared_fields_are_reported_on_request",
        "misfitting_values_are_reported_on_request",
    }
    assert {r.outcome for r in results if r.case.name in left_out} == {Outcome.SKIPPED}


# --- durable ----------------------------------------------------------------------


@pytest.fixture
def frames(tmp_path: Path) -> durable.DurableHarness:
    harness = durable.DurableHarness(tmp_path)
    harness.create(1)
    harness.write(0, [1, 2, 3])
    return harness


def opened(harness: Any, *modules: ModuleType, **options: str) -> Stream:
    plugins = PluginManager()
    for module in (harness.plugin(), *modules):
        plugins.register(module)
    return open_stream({**harness.properties(), **options}, plugins=plugins)


def read(stream: Stream, column: str) -> list[Any]:
    with stream:
        return [value for batch in stream for value in batch.rows[column].to_pylist()]


def the_file(harness: durable.DurableHarness) -> Path:
    [path] = harness._folder.glob("*.frames")
    return path


@pytest.mark.parametrize("kept", [1, 9, -1])
def test_torn_tail_is_ignored_and_then_overwritten(
    frames: durable.DurableHarness, kept: int
) -> None:
    path = the_file(frames)
    whole = path.read_bytes()
    frames.write(0, [4, 5])
    tail = path.read_bytes()[len(whole) :]
    path.write_bytes(whole + tail[:kept])
    assert read(opened(frames), "number") == [1, 2, 3]
    Topic(str(path)).append({"earliest": {"0": 1}})
    assert read(opened(frames), "number") == [2, 3]


def test_damaged_frame_before_valid_ones_is_an_error(
    frames: durable.DurableHarness,
) -> None:
    path = the_file(frames)
    damaged = bytearray(path.read_bytes())
    frames.write(0, [4])
    tail = path.read_bytes()[len(damaged) :]
    damaged[-1] ^= 1
    path.write_bytes(damaged + tail)
    with pytest.raises(PermanentError) as caught:
        read(opened(frames), "number")
    assert caught.value.what.startswith("the file is corrupt: a frame of ")


# --- forgetful --------------------------------------------------------------------


@pytest.fixture
def queue(tmp_path: Path) -> Iterator[forgetful.ForgetfulHarness]:
    harness = forgetful.ForgetfulHarness(tmp_path)
    harness.create(1)
    yield harness
    harness.close()


def test_queue_ends_well_and_forgets(queue: forgetful.ForgetfulHarness) -> None:
    queue.write(0, [1, 2, 3])
    assert read(opened(queue), "number") == [1, 2, 3]
    assert read(opened(queue), "number") == []


def test_torn_connection_is_no_end(queue: forgetful.ForgetfulHarness) -> None:
    queue.write(0, [1], end=False)
    with opened(queue) as stream:
        reader = stream._source.reader(Partition("numbers", 0))
        states = [
            reader.fetch(0, timeout=1.0).state,
            reader.fetch(1, timeout=0.0).state,
        ]
        assert states == [BatchState.DATA, BatchState.IDLE]
        queue.server.tear()
        torn = reader.fetch(1, timeout=1.0)
        reader.close()
    assert torn.state is BatchState.END_OF_PARTITION
    assert torn.end == Failed("the connection broke off")


def test_the_server_requires_the_password(
    queue: forgetful.ForgetfulHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue.write(0, [1])
    queue.server.password = "sesame"
    monkeypatch.setenv("SPECIMEN_PASSWORD", "sesame")
    key = "stream.forgetful.password"
    assert read(opened(queue, **{key: "${env:SPECIMEN_PASSWORD}"}), "number") == [1]
    with pytest.raises(NotAuthorized) as caught:
        opened(queue)
    assert caught.value.what == "the server refuses: password"


# --- envelopes, decoded by upper ----------------------------------------------------


def test_envelopes_are_decoded(tmp_path: Path) -> None:
    harness = envelopes.EnvelopesHarness(tmp_path)
    harness.create(1)
    harness._send(0, [b"a\nb", None, b"\xff", b"", b"c"])
    options = {
        "stream.envelopes.decoder.class.name": "upper",
        "decode.on.error": "skip",
        "metadata.columns": "true",
    }
    stream = opened(harness, upper, **options)
    with stream:
        rows = [row for batch in stream for row in batch.rows.to_pylist()]
    assert [(row["text"], row["_offset"]) for row in rows] == [
        ("A", 0),
        ("B", 0),
        (None, 3),
        ("C", 12),
    ]
    assert stream.counters.bad_messages == 1
