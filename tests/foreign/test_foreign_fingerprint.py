"""Fingerprints of whole files: cheap at any length, and different for any byte."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.foreign.stage import NUMBERS

import streamfactory
from streamfactory.arrowlog.disk.folders import Folders, Modes
from streamfactory.backends.file.foreign.arrowfile import ArrowFile
from streamfactory.backends.file.foreign.medium import LocalMedium
from streamfactory.backends.file.foreign.parts import MANIFEST

if TYPE_CHECKING:
    from pathlib import Path


def written(path: Path, rows: int) -> ArrowFile:
    with pa.ipc.new_file(path, NUMBERS) as writer:
        writer.write_batch(
            pa.record_batch([pa.array(range(rows), pa.int64())], schema=NUMBERS)
        )
    medium = LocalMedium(str(path), Folders(path.parent, Modes()))
    return ArrowFile(medium, "auto", 1 << 30)


@pytest.mark.parametrize("rows", [1, 400, 520, 600, 5_000, 8_000, 9_000, 100_000])
def test_a_fingerprint_reads_a_few_times_at_any_length(
    tmp_path: Path, rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path / "a.arrow", rows)
    sizes: list[int] = []
    peek = LocalMedium.peek

    def counted(medium: LocalMedium, offset: int, length: int) -> bytes:
        found = peek(medium, offset, length)
        sizes.append(len(found))
        return found

    monkeypatch.setattr(LocalMedium, "peek", counted)
    file.fingerprint()
    assert len(sizes) <= 17
    assert sum(sizes) <= 17 * 4096
    file.close()


@pytest.mark.parametrize("rows", [1, 600, 8_000])
def test_any_other_byte_of_a_short_file_is_another_fingerprint(
    tmp_path: Path, rows: int
) -> None:
    path = tmp_path / "a.arrow"
    file = written(path, rows)
    data, before = path.read_bytes(), file.fingerprint()
    seen = {before}
    for at in range(0, len(data), max(1, len(data) // 50)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        seen.add(file.fingerprint())
    assert len(seen) > 50
    path.write_bytes(data)
    assert file.fingerprint() == before
    file.close()


@pytest.mark.parametrize("rows", [1, 600, 8_000])
def test_a_manifest_with_fingerprints_of_an_earlier_version_is_read(
    tmp_path: Path, rows: int
) -> None:
    """They were made of samples, many of short files."""
    folder = tmp_path / "folder"
    folder.mkdir()
    file = written(folder / "a.arrow", rows)
    stream = {
        "streamType": "file",
        "stream.file.path": str(folder),
        "stream.file.format": "auto",
    }
    with streamfactory.open(stream) as found:
        assert found.to_reader().read_all().num_rows == rows
    part = folder / MANIFEST / f"{0:020d}.jsonl"
    lines = [json.loads(line) for line in part.read_text().splitlines()]
    assert lines[1]["incarnation"] == file.fingerprint()
    lines[1]["incarnation"] = file.sampled()
    assert file.sampled() != file.fingerprint()
    part.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with streamfactory.open(stream) as found:
        assert found.to_reader().read_all().num_rows == rows
    file.close()
