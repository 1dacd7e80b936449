"""The object store of docs/file.md: what the page shows, on a real server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from tests.house import pages
from tests.objects.server import OWNER

if TYPE_CHECKING:
    import pytest
    from tests.objects.server import ObjectServer

PAGE = Path(__file__).parents[2] / "docs" / "file.md"
HEADING = "## In an object store"


def test_object_store_of_the_page_does_what_is_shown(
    server: ObjectServer, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    section = text.partition(HEADING)[2].partition("\n## ")[0]
    for shown, real in (
        ("s3://analytics/streams", url),
        ("http://localhost:8333", server.endpoint),
    ):
        assert shown in section
        section = section.replace(shown, real)
    page = tmp_path / "page.md"
    # As a file, so that it is written too.
    section = section.replace('```text title="', '```properties title="')
    page.write_text(re.sub("no-run: .*", "", section), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("S3_KEY", OWNER.key)
    monkeypatch.setenv("S3_SECRET", OWNER.secret)
    tally = pages.run(page)
    assert (tally.commands, tally.files) == (3, 2)
