"""Commands over all streams read each file of the catalogue once."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from streamfactory.cli.top.observing import CatalogueObserver
from streamfactory.spi import StreamConfig
from streamfactory.wiring.config import catalogue, documents

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.proving.commands import Outcome

STREAMS = 12
STREAM = '[properties]\nstreamType = "memory"\n"stream.memory.topic.name" = "none"\n'
PIPELINE = """
[source]
stream = "stream-1"

[sinks.main]
stream = "stream-2"
"""


@pytest.fixture
def reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often each file of a catalogue of several streams was read."""
    folder = tmp_path / "configs/streams"
    folder.mkdir(parents=True)
    for number in range(STREAMS):
        (folder / f"stream-{number}.toml").write_text(STREAM)
    pipelines = tmp_path / "configs/pipelines"
    pipelines.mkdir()
    (pipelines / "first.toml").write_text(PIPELINE)
    (pipelines / "second.toml").write_text(PIPELINE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(catalogue.ENVIRONMENT, raising=False)
    found = Counter[str]()

    def count(path: Path) -> documents.Document:
        found[path.name] += 1
        return read_document(path)

    read_document = documents.read_document
    monkeypatch.setattr(catalogue, "read_document", count)
    return found


@pytest.mark.parametrize(
    "command",
    [
        ("validate", "--no-spark"),
        ("lag",),
        ("doctor",),
        ("lag", *(f"stream-{number}" for number in range(STREAMS))),
        ("lag", "a-group"),
    ],
    ids=" ".join,
)
def test_each_file_of_the_catalogue_is_read_once(
    command: tuple[str, ...],
    streamfactory: Callable[..., Outcome],
    reads: Counter[str],
) -> None:
    streamfactory(*command)
    assert reads == {f"stream-{number}.toml": 1 for number in range(STREAMS)}


def test_a_frame_of_top_reads_each_file_of_the_catalogue_once(
    reads: Counter[str],
) -> None:
    assert len(list(CatalogueObserver().observe())) == STREAMS + 2
    assert set(reads.values()) == {1}


def test_the_secrets_of_each_stream_are_masked_once_for_all_lines(
    streamfactory: Callable[..., Outcome],
    reads: Counter[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls = Counter[str]()

    def count(config: StreamConfig, text: str) -> str:
        calls[config.name] += 1
        return mask(config, text)

    mask = StreamConfig.mask
    monkeypatch.setattr(StreamConfig, "mask", count)
    done = streamfactory("doctor")
    assert f"{STREAMS} streams" in done.out
    assert len(calls) == STREAMS == len(reads)
    # Once for the output, however many lines it has, and twice for the stream's error.
    assert max(calls.values()) <= 3 < STREAMS
