"""Iceberg tables of a REST catalog: Iceberg's own server, in a process of its own."""

from __future__ import annotations

import contextlib
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from tests.proving.maven import java_peer
from tests.tables.lakes import IcebergLake, staged

import streamfactory
from streamfactory.spi import WriterFenced
from streamfactory.wiring.topics.admin import open_admin

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyiceberg.catalog import Catalog

HERE: Final = Path(__file__).parent / "rest"
pytestmark = [
    pytest.mark.long("starts a Java server, which Maven fetches the first time"),
    pytest.mark.timeout(600),
    pytest.mark.xdist_group("iceberg-rest"),
]


class RestLake(IcebergLake):
    """A table of a REST catalog."""

    def __init__(self, folder: Path, uri: str, name: str) -> None:
        super().__init__(folder, name)
        self._uri = uri
        self.config = {
            "streamType": "iceberg",
            "stream.iceberg.table": self.identifier,
            "stream.iceberg.catalog.prop.uri": uri,
        }

    @contextlib.contextmanager
    def catalog(self) -> Iterator[Catalog]:  # type: ignore[override]
        from pyiceberg.catalog.rest import RestCatalog

        with contextlib.closing(RestCatalog("default", uri=self._uri)) as catalog:
            yield catalog


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The folder of the warehouse, and the address of the catalog."""
    folder = tmp_path_factory.mktemp("rest")
    warehouse = folder / "warehouse"
    command = java_peer(HERE / "RestCatalog.java", folder)
    with subprocess.Popen(
        [*command, f"file://{warehouse}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            yield warehouse, f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.kill()


@pytest.fixture
def lake(server: tuple[Path, str], request: pytest.FixtureRequest) -> RestLake:
    warehouse, uri = server
    return RestLake(warehouse, uri, request.node.name)


def test_epochs_are_committed_once_whoever_commits_between(
    lake: RestLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lake.sink() as sink:
        assert sink.put({"id": [0]}, writer_id="w", epoch=0)
        lake.disturb(monkeypatch, lambda: lake.append({"id": [7]}), 2)
        assert sink.put({"id": [1]}, writer_id="w", epoch=1)
    with lake.sink() as again:
        assert again.put({"id": [1]}, writer_id="w", epoch=1) is False
    assert lake.ids() == [0, 1, 7, 7]


def test_a_later_instance_fences_an_earlier_one(
    lake: RestLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    with lake.sink() as sink:
        sink.put({"id": [0]}, writer_id="w", epoch=0)
        message = staged(sink, 1, [1])
        with contextlib.closing(sink.committer(writer_id="w")) as committer:
            assert committer.last_epoch() == 0
            lake.disturb(monkeypatch, lake.last)
            with pytest.raises(WriterFenced):
                committer.commit(1, [message])
    assert lake.ids() == [0]


def test_rows_are_changed_by_key_merged_and_expired(lake: RestLake) -> None:
    more: dict[str, Any] = {
        "schema.contract": "evolve",
        "producer.key.columns": "id",
        "stream.iceberg.partition.by": "bucket[2](id)",
    }
    with lake.sink(**more) as sink:
        sink.put([{"id": 1, "a": "x"}, {"id": 2, "a": "y"}], writer_id="w")
        sink.put([{"id": 1, "b": 5, "_change": "update_after"}], writer_id="w")
        sink.put([{"id": 2, "_change": "delete"}, {"id": 3, "a": "z"}], writer_id="w")
    with open_admin(lake.config) as admin:
        admin.compact()
        with streamfactory.open(lake.config, follow=False) as stream:
            list(stream)
            (at,) = stream.position.values()
        admin.truncate({0: at})
    with lake.table() as table:
        assert len(table.snapshots()) == 1
    assert sorted(lake.rows(), key=lambda row: row["id"]) == [
        {"id": 1, "a": None, "b": 5},
        {"id": 3, "a": "z", "b": None},
    ]
