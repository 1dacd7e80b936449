"""Makes the pictures of docs/ui.md: ``python -m tests.ui.pictures``.

A Chromium shows the pages of a catalogue that is made for them.
"""

from __future__ import annotations

import json
import os
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.parquet as pq
from tests.checkpoints.conftest import QueryFolder, Topic
from tests.checkpoints.test_offsets_and_lag import grouped
from tests.proving.chromium import Chromium, chromium
from tests.ui.conftest import TOKEN, Browser, World, settings

from streamfactory.spark.checkpoints import Ledger, PipelineCheckpoint
from streamfactory.ui import catalogue
from streamfactory.ui.server import PageServer
from streamfactory.wiring.writing.counting import PartitionCounts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FOLDER: Final = Path(__file__).parents[2] / "docs" / "pictures"
PICTURES: Final[Mapping[str, str]] = {
    "ui-overview": "/",
    "ui-stream": "/stream?name=clicks",
    "ui-messages": "/messages?stream=clicks",
    "ui-map": "/map",
    "ui-pipeline": "/pipeline?name=delays",
    "ui-dead-letters": "/dead-letters?stream=letters",
}
EDITOR: Final[Mapping[str, str]] = {
    "ui-edit": "/edit/file?kind=stream&file=clicks.toml",
    "ui-edit-pipeline": "/edit/file?kind=pipeline&file=delays.toml",
}
"""Pages that need the token."""
PLACES: Final[Mapping[str, dict[str, str]]] = {
    "ui-discover": {"name": "visits", "place": "visits"},
}
"""What is at a place, by what its form sends."""
SIZES: Final[Mapping[str, tuple[int, int]]] = {"": (960, 720), "-narrow": (420, 720)}
"""Width and height of the pictures of a page, by the end of their names."""
_DEFINITION: Final = """\
# Clicks of the shop, from all regions.
name = "clicks"
description = "Clicks by page"

[properties]
streamType = "file"
"stream.file.path" = "topics"
"stream.file.topic.name" = "clicks"
"stream.file.partitions" = 2
"""
MOST_BYTES: Final = 150_000
_BATCHES: Final = 40
_PIPELINE: Final = """\
name = "delays"
description = "Clicks by hour"
checkpoint = "kept"

[source]
stream = "clicks"

[[steps]]
id = "hourly"
sql = "select id % 24 as hour, count(*) as clicks from input group by id % 24"

[[sinks]]
stream = "hours"

[dead-letters]
stream = "letters"
"""


def pictures() -> Iterator[tuple[str, bytes]]:
    """The name and the content of each picture."""
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        world = place(work)
        before = os.environ.get("STREAMFACTORY_STREAMS")
        os.environ["STREAMFACTORY_STREAMS"] = "configs/streams"
        stack.callback(_restore, before, Path.cwd())
        os.chdir(work)
        server = stack.enter_context(PageServer(settings(), every=1))
        browser = stack.enter_context(Chromium(chromium(), work / "profile"))
        client = Browser(server.location)
        for number in range(20):  # points of the plots
            world.topic.write(40 + 10 * (number % 7), 30)
            time.sleep(0.7)
        for path in PICTURES.values():
            client.get(path)  # its look-ups are answered when it is shown
        yield from _shown(browser, server.location, PICTURES)
        yield from _editor(stack, browser)


def _shown(
    browser: Chromium, location: str, pages: Mapping[str, str]
) -> Iterator[tuple[str, bytes]]:
    for end, size in SIZES.items():
        browser.resize(*size)
        for name, path in pages.items():
            browser.visit(f"{location.rstrip('/')}{path}")
            yield f"{name}{end}.png", browser.picture()


def _editor(stack: ExitStack, browser: Chromium) -> Iterator[tuple[str, bytes]]:
    """Pictures of the editor, of a server that has a token."""
    (file,) = Path("configs/streams").glob("clicks.*")
    file.unlink()
    Path("configs/streams/clicks.toml").write_text(_DEFINITION, encoding="utf-8")
    catalogue.forget()
    server = stack.enter_context(PageServer(settings(token=TOKEN, edit="true")))
    client = Browser(server.location)
    client.log_in()
    for name, value in client.cookies.items():
        browser.call("Network.setCookie", name=name, value=value, url=server.location)
    _parquet(Path("visits"))
    csrf = client.csrf(client.get("/edit/"))
    found = {
        name: client.ask("/edit/look", {"csrf": csrf, **form}).headers["Location"]
        for name, form in PLACES.items()
    }
    for path in found.values():
        client.get(path)
    yield from _shown(browser, server.location, {**EDITOR, **found})


def _parquet(folder: Path) -> None:
    """Files that a stream is begun of."""
    folder.mkdir()
    rows = pa.table(
        {
            "id": range(1, 7),
            "page": ["/", "/shop", "/shop/7", "/", "/cart", "/pay"],
            "seconds": [2.5, 14.0, 31.5, 1.0, 9.0, 22.5],
        }
    )
    pq.write_table(rows, folder / "2026-03.parquet")


def place(folder: Path) -> World:
    """A catalogue, a pipeline that has committed batches, and dead letters."""
    world = World(folder, Topic(Path("topics"), "clicks"))
    del world.topic.options["stream.file.fsync"]  # as users have it
    os.chdir(folder)
    world.catalogue.mkdir(parents=True)
    for number in range(8):
        world.topic.write(400 + 100 * (number % 3), 300)
    grouped(world.topic, Path(), world.catalogue)
    world.letters(
        {
            "json_syntax": b'{"id": 17, "price": 12.5',
            "schema_mismatch": b'{"id": "seventeen", "price": 12.5}',
            "invalid_text": b"\xff\xfe\x00\x17",
        },
        "the message cannot be decoded",
    )
    letters = Topic(Path("topics"), "letters")
    del letters.options["stream.file.fsync"]
    letters.file(world.catalogue)
    with ExitStack() as stack:
        sources = {"input": world.topic.source(stack)}
        PipelineCheckpoint.open("kept", "delays", sources, reset="earliest#1")
    _run(world)
    hours = Topic(Path("topics"), "hours")
    del hours.options["stream.file.fsync"]
    hours.write(12, 12)
    hours.file(world.catalogue)
    target = folder / "configs" / "pipelines"
    target.mkdir()
    (target / "delays.toml").write_text(_PIPELINE, encoding="utf-8")
    return world


def _run(world: World) -> None:
    """What Spark leaves of some batches."""
    query = QueryFolder(Path("kept") / "1")
    ledger = Ledger("kept/written/1", "hours")
    at = world.topic.at
    now = time.time()
    for number in range(_BATCHES):
        moved = (number + 1) * 85, (number + 1) * 55
        query.plan(at(*moved), begun=[at(0, 0)])
        planned = now - 10 * (_BATCHES - number)
        path = query.folder / "offsets" / str(number)
        lines = path.read_text("utf-8").split("\n")
        head = {**json.loads(lines[1]), "batchTimestampMs": int(planned * 1000)}
        path.write_text("\n".join([lines[0], json.dumps(head), *lines[2:]]), "utf-8")
        ledger.record(number, [PartitionCounts("hours", 0, writes=140, size=4096)])
        query.commit()
        done = planned + 1.2 + 0.8 * abs((number % 9) - 4) / 4
        os.utime(query.folder / "commits" / str(number), (done, done))


def _restore(catalogue: str | None, folder: Path) -> None:
    os.chdir(folder)
    if catalogue is None:
        os.environ.pop("STREAMFACTORY_STREAMS", None)
    else:
        os.environ["STREAMFACTORY_STREAMS"] = catalogue


if __name__ == "__main__":
    for name, content in pictures():
        (FOLDER / name).write_bytes(content)
