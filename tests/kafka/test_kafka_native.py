"""The compiled part: when it reads, what it returns, and what it survives."""

from __future__ import annotations

import _ctypes
import gc
import logging
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from confluent_kafka import Message, Producer
from native.compiling import NoCompiler, cargo, compile_core
from tests.kafka.conftest import forget_core, load_core, stream_of
from tests.kafka.raw_headers import send_header
from tests.kafka.streams import drain, opened, reading
from tests.proving.drivers import REPOSITORY
from tests.proving.skipping import skip_or_fail

from streamfactory.backends.kafka import columns, native_library
from streamfactory.backends.kafka.client_pool import ClientPool
from streamfactory.backends.kafka.native_columns import NativeRows
from streamfactory.backends.kafka.native_library import library_for
from streamfactory.backends.kafka.options import READING
from streamfactory.compiled import core as loading
from streamfactory.spi import ConfigError, CorruptData, Partition, PermanentError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka.topics import Topics

    from streamfactory.compiled.core import Core
    from streamfactory.spi import StreamConfig

NOWHERE = stream_of("localhost:1", "t")


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package is not installed."""
    forget_core()
    monkeypatch.setattr(loading, "load", load_core)
    monkeypatch.setitem(sys.modules, "streamfactory_native", None)
    yield
    native_library.load.cache_clear()


def config_of(**options: str) -> StreamConfig:
    with opened({**NOWHERE, **options}) as source:
        return source.config


def chosen(value: str) -> StreamConfig:
    return config_of(**{"stream.kafka.native.reading": value})


@pytest.mark.parametrize("path", ["off", "required"])
def test_the_option_decides_which_path_reads(
    path: str, native: Core, topics: Topics, topic: str
) -> None:
    given = {**stream_of(topics.bootstrap, topic), "stream.kafka.native.reading": path}
    with opened(given) as source:
        clients = ClientPool(source.config)
        client = clients.acquire("test", clients.sizes.choose(topic, 0, 1))
        client.assign(Partition(topic, 0), 0)
        rows = client.rows(Partition(topic, 0), headers=True)
        assert isinstance(rows, NativeRows) == (path == "required")
        client.close()
        clients.close()


def test_both_paths_return_the_same_batches(
    native: Core, topics: Topics, topic: str
) -> None:
    chance = random.Random(3)
    texts = [None, b"", b"x", b"\xff\x00", bytes(3000)]
    now = int(1000 * time.time())
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    for _ in range(700):
        headers: list[tuple[str, str | bytes | None]] = [
            (chance.choice(["", "a", "é", "😀" * 9]), chance.choice(texts))
            for _ in range(chance.choice([0, 0, 1, 4]))
        ]
        producer.produce(
            topic,
            chance.choice(texts),
            chance.choice(texts),
            partition=0,
            timestamp=now - chance.randrange(10**7),
            headers=headers,
        )
    assert producer.flush(30) == 0
    found = {}
    for path in ("off", "required"):
        given = {"stream.kafka.native.reading": path}
        with reading({**stream_of(topics.bootstrap, topic), **given}) as reader:
            batches = [batch.rows for batch in drain(reader, end=700)]
        for batch in batches:
            batch.validate(full=True)
        found[path] = pa.Table.from_batches(batches).combine_chunks()
    assert found["required"].num_rows == 700
    assert found["required"].equals(found["off"])


@pytest.mark.parametrize("path", ["off", "required"])
def test_a_header_whose_name_is_no_text_is_reported_with_its_offset(
    path: str, native: Core, topics: Topics, topic: str
) -> None:
    topics.send(topic, [b"1", b"2"])
    send_header(topics.bootstrap, topic, b"\xff\xfe")
    given = {"stream.kafka.native.reading": path}
    with (
        reading({**stream_of(topics.bootstrap, topic), **given}) as reader,
        pytest.raises(CorruptData, match="offset 2: the name of a header") as caught,
    ):
        drain(reader, end=3)
    assert "start after this offset" in str(caught.value)


@pytest.mark.parametrize("path", ["off", "required"])
@pytest.mark.parametrize("part", ["headers", "value"])
def test_bytes_of_headers_count_in_the_size_of_a_batch(
    path: str, part: str, native: Core, topics: Topics, topic: str
) -> None:
    producer = Producer({"bootstrap.servers": topics.bootstrap})
    large = bytes(100_000)
    for _ in range(40):
        if part == "headers":
            producer.produce(topic, b"", partition=0, headers=[("h", large)])
        else:
            producer.produce(topic, large, partition=0)
    assert producer.flush(30) == 0
    given = {"stream.kafka.native.reading": path, "batch.bytes": "1MiB"}
    with reading({**stream_of(topics.bootstrap, topic), **given}) as reader:
        batches = drain(reader, end=40)
    assert sum(batch.num_rows for batch in batches) == 40
    assert all(b.size >= b.num_rows * len(large) for b in batches)
    # The compiled part counts each message; the Python client takes no more than fit if
    # they are as long as those before.
    assert max(batch.num_rows for batch in batches) <= 11


@pytest.mark.parametrize("column", ["key", "value", "headers"])
def test_a_message_that_does_not_fit_into_a_batch_is_named_by_its_offset(
    column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(columns, "_LARGEST", 1000)
    rows = columns.Columns(Partition("t", 3), headers=True)

    def message(offset: int, size: int) -> Message:
        part: Any = [("h", bytes(size))] if column == "headers" else bytes(size)
        given: dict[str, Any] = {column: part}
        return Message(topic="t", partition=3, offset=offset, **given)

    rows.add([message(5, 900)])
    with pytest.raises(PermanentError, match="t-3, offset 6: the message") as caught:
        rows.add([message(6, 200)])
    assert "batch.bytes" in str(caught.value)


def test_a_batch_outlives_its_reader_and_a_slice_its_batch(
    native: Core, topics: Topics, topic: str
) -> None:
    sent = [b"%06d" % number * 20 for number in range(2000)]
    topics.send(topic, sent)
    given = {"stream.kafka.native.reading": "required"}
    with reading({**stream_of(topics.bootstrap, topic), **given}) as reader:
        batches = drain(reader, end=2000)
    slices = [batch.rows.slice(1).column("value") for batch in batches]
    firsts = [batch.rows.column("value")[0].as_py() for batch in batches]
    del batches
    gc.collect()
    rest = [value.as_py() for column in slices for value in column]
    assert sorted(firsts + rest) == sent


def test_an_installed_library_that_does_not_fit_warns_once_and_is_not_used(
    native: Core,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(native_library, "_TRIED", ((1, 0),))
    config = chosen("auto")
    with caplog.at_level(logging.WARNING, "streamfactory.kafka"):
        assert library_for(config, READING) is None
        assert library_for(config, READING) is None
    assert [r.message for r in caplog.records if "not used" in r.message] == [
        caplog.records[0].message
    ]
    assert "was not tested with it, only 1.0" in caplog.records[0].message


class Renamed:
    """A core whose file has another name."""

    def __init__(self, core: Core, path: str) -> None:
        self.kafka = core.kafka
        self.__file__ = path


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/absent.so", "librdkafka does not load it: .*/absent"),
        ("/a;b.so", "semicolon"),
    ],
)
def test_a_file_that_librdkafka_does_not_load_is_refused(
    path: str, reason: str, native: Core
) -> None:
    with pytest.raises(native_library.Unusable, match=reason):
        native_library.Library(Renamed(native, path))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "reason"),
    [("/absent.so", "cannot be loaded"), (_ctypes.__file__, "rd_kafka_version is mis")],
)
def test_a_client_without_the_functions_of_librdkafka_is_refused(
    path: str, reason: str, native: Core, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(native_library, "cimpl", SimpleNamespace(__file__=path))
    with pytest.raises(native_library.Unusable, match=reason):
        native_library.Library(native)


def test_a_required_library_that_is_absent_is_an_error_with_the_remedy(
    absent: None, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ConfigError, match="is not installed") as caught:
        library_for(chosen("required"), READING)
    assert "native.reading=auto" in str(caught.value)
    assert library_for(chosen("auto"), READING) is None
    assert library_for(chosen("off"), READING) is None
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING]


def test_a_client_beside_another_plug_in_keeps_both(native: Core) -> None:
    library = native_library.Library(native)
    settings = library.add_to({"plugin.library.paths": "/other.so"})
    assert settings["plugin.library.paths"] == f"/other.so;{native.__file__}"


def test_a_forked_process_reads_with_a_client_of_its_own(
    native: Core, topics: Topics, topic: str
) -> None:
    topics.send(topic, [b"1", b"2", b"3"])
    done = subprocess.run(
        [sys.executable, "-c", FORKING, topics.bootstrap, topic],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["3", "3"]


FORKING = """
import os, sys
from tests.kafka.conftest import stream_of
from tests.kafka.raw_headers import send_header
from tests.kafka.streams import drain, reading
given = {**stream_of(*sys.argv[1:]), "stream.kafka.native.reading": "required"}
with reading(given) as reader:
    rows = sum(batch.num_rows for batch in drain(reader, rows=3))
    child = os.fork()
    if not child:
        found = sum(batch.num_rows for batch in drain(reader, rows=3))
        os.write(1, b"%d " % found)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    os.write(1, b"%d " % rows)
"""


_FUZZER = [
    *("--edition=2024", "-g", "-Copt-level=1", "-Coverflow-checks=on"),
    *("-Cdebug-assertions=on", "-Zsanitizer=address", "-Dwarnings"),
]
"""Options of the compiler; for some of them it has to be allowed what is unstable."""


def test_hostile_answers_of_librdkafka_break_nothing(tmp_path: Path) -> None:
    try:
        compiler = Path(cargo()).with_name("rustc")
    except NoCompiler as reason:
        skip_or_fail(str(reason))
    program, source = tmp_path / "fuzz", REPOSITORY / "tests/kafka/native_fuzz.rs"
    built = subprocess.run(
        [compiler, *_FUZZER, "-o", program, source],
        env={**os.environ, "RUSTC_BOOTSTRAP": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    if "sanitizer is not supported for this target" in built.stderr:
        skip_or_fail(f"the compiler has no sanitizer: {built.stderr}")
    assert built.returncode == 0, built.stderr
    for seed in ("1", "2"):
        done = subprocess.run(
            [program, seed, "150"],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        counts = dict(pair.split("=") for pair in done.stdout.split())
        assert all(int(count) > 0 for count in counts.values()), counts


def test_without_a_compiler_the_build_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("CARGO", raising=False)
    with pytest.raises(NoCompiler, match="install it by rustup"):
        compile_core(tmp_path)
