# ruff: noqa: INP001 - a script, in no package
"""What the site generator does to the pages."""

from __future__ import annotations

import re
from typing import Any, Final

from mkdocs.utils import get_relative_url

_SHIM: Final = "https://unpkg.com/iframe-worker/shim"
"""The theme loads it from there; it is kept in this folder."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leave a fence its language and the name of its file: the rest is for tests."""
    return re.sub(r"^( *```\w+.*?) *no-run:.*$", r"\1", markdown, flags=re.MULTILINE)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Load nothing from elsewhere."""
    return output.replace(_SHIM, get_relative_url("iframe-worker.js", page.url))


def on_post_template(output_content: str, **_: Any) -> str:
    """Load nothing from elsewhere."""
    return output_content.replace(_SHIM, "iframe-worker.js")
