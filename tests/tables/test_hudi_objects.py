"""Hudi tables in an object store."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyarrow import fs
from tests.objects.server import HOST, OWNER
from tests.objects.stage import place
from tests.tables.states import Fixture

import streamfactory

if TYPE_CHECKING:
    from pathlib import Path

    from tests.objects.server import ObjectServer


@pytest.mark.parametrize("name", ["hudi-cow", "hudi-mor"])
def test_a_table_in_an_object_store_is_read(
    name: str,
    object_server: ObjectServer,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OBJECT_KEY", OWNER.key)
    monkeypatch.setenv("OBJECT_SECRET", OWNER.secret)
    fixture = Fixture(name, tmp_path)
    state = fixture.show(3)
    url = place()
    store = fs.S3FileSystem(
        access_key=OWNER.key,
        secret_key=OWNER.secret,
        endpoint_override=f"{HOST}:{object_server.port}",
        scheme="http",
        region="us-east-1",
    )
    path = url.removeprefix("s3://").partition("?")[0]
    fs.copy_files(str(fixture.folder), path, destination_filesystem=store)
    properties = {
        "streamType": "hudi",
        "stream.hudi.path": f"s3://{path}",
        "stream.hudi.storage.endpoint": object_server.endpoint,
        "stream.hudi.storage.allow.http": "true",
        "stream.hudi.storage.region": "us-east-1",
        "stream.hudi.storage.access.key": "${env:OBJECT_KEY}",
        "stream.hudi.storage.secret.key": "${env:OBJECT_SECRET}",
    }
    with streamfactory.open(properties, follow=False) as stream:
        rows = [row for batch in stream for row in batch.rows.to_pylist()]
    found = sorted((row["id"], row["name"]) for row in rows)
    assert found == [(row["id"], row["name"]) for row in state.rows]
