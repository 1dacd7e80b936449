"""Bars of jobs in notebooks."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

import streamfactory

if TYPE_CHECKING:
    from pathlib import Path


class Bar:
    """What of tqdm's protocol is used."""

    made: list[Bar]

    def __init__(self, desc: str, **_: Any) -> None:
        self.desc, self.n, self.closed = desc, 0, False
        self.made.append(self)

    def __enter__(self) -> Bar:
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def update(self, more: int) -> None:
        self.n += more


@pytest.fixture
def streams(tmp_path: Path) -> list[dict[str, str]]:
    place = {"streamType": "file", "stream.file.path": str(tmp_path / "streams")}
    found = [place | {"stream.file.topic.name": name} for name in ("a", "b")]
    with streamfactory.open_sink(found[0]) as sink:
        sink.put(pa.table({"n": range(10)}))
    return found


def notebook(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = SimpleNamespace(get_ipython=lambda: SimpleNamespace(kernel=1))
    monkeypatch.setitem(sys.modules, "IPython", shell)


def test_a_notebook_shows_the_rows_of_each_job_in_a_bar(
    streams: list[dict[str, str]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    notebook(monkeypatch)
    monkeypatch.setitem(sys.modules, "tqdm", SimpleNamespace(tqdm=Bar))
    monkeypatch.setattr(Bar, "made", [], raising=False)
    streamfactory.copy(*streams)
    streamfactory.export(streams[0], tmp_path / "rows.parquet")
    streamfactory.publish(streams[1], tmp_path / "rows.parquet")
    assert [(bar.n, bar.closed) for bar in Bar.made] == [(10, True)] * 3


def test_without_tqdm_rich_draws(
    streams: list[dict[str, str]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    notebook(monkeypatch)
    monkeypatch.setitem(sys.modules, "tqdm", None)
    streamfactory.copy(*streams)
    assert "10 rows" in capsys.readouterr().out


def test_a_script_shows_no_bar(
    streams: list[dict[str, str]], capsys: pytest.CaptureFixture[str]
) -> None:
    streamfactory.copy(*streams)
    assert capsys.readouterr() == ("", "")
