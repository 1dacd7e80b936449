"""Checkpoints in an object store: read as folders are, and records put whole."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from pyarrow import fs
from tests.checkpoints.conftest import FIXTURES
from tests.objects.server import BUCKET, HOST, OWNER
from tests.objects.stage import place

from streamfactory.spark.checkpoints import PipelineCheckpoint, Place, read_query
from streamfactory.spi import PositionRefused

if TYPE_CHECKING:
    from contextlib import ExitStack

    from tests.checkpoints.conftest import Topic
    from tests.objects.server import ObjectServer


@pytest.fixture
def url(object_server: ObjectServer, monkeypatch: pytest.MonkeyPatch) -> str:
    """A place of its own, with the credentials in the environment."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", object_server.endpoint)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", OWNER.key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", OWNER.secret)
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return place()


@pytest.mark.long("a query on Spark for each store")
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_query_in_an_object_store_is_read(url: str, scheme: str) -> None:
    target, path = fs.FileSystem.from_uri(url)
    fs.copy_files(str(FIXTURES / "two"), path, destination_filesystem=target)
    query = read_query(Place.of(url.replace("s3", scheme, 1)))
    assert (query.last, query.unfinished) == (4, None)
    assert query.committed_at() is not None


@pytest.mark.long("waits for timeouts of the client")
def test_what_is_not_there_is_refused(url: str) -> None:
    with pytest.raises(PositionRefused) as caught:
        read_query(Place.of(url))
    assert caught.value.what == f"the folder {url} does not exist"


def test_a_pipeline_keeps_its_record_there(
    url: str, topic: Topic, stack: ExitStack
) -> None:
    sources = {"input": topic.source(stack)}
    first = PipelineCheckpoint.open(url, "delays", sources, reset="earliest")
    assert first.folder == f"{url}/1"
    again = PipelineCheckpoint.open(url, "delays", sources, reset="earliest")
    assert (again.generation, again.start) == (1, first.start)
    assert (
        PipelineCheckpoint.open(url, "delays", sources, reset="latest").generation == 2
    )
    content = Place.of(url).read("pipeline.json")
    assert content is not None
    assert json.loads(content)["reset"] == "latest"


@pytest.mark.long("waits for timeouts of the client")
def test_a_store_that_does_not_answer_is_refused(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{HOST}:9")
    with pytest.raises(PositionRefused) as caught:
        read_query(Place.of(f"s3://{BUCKET}/absent"))
    assert caught.value.what.startswith(f"s3://{BUCKET}/absent cannot be read: ")
    assert OWNER.secret not in str(caught.value)
