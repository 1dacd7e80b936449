# ruff: noqa: INP001 - a script, in no package
"""What the site generator does to the pages."""

from __future__ import annotations

import re
from html import escape, unescape
from typing import Any, Final

from mkdocs.utils import get_relative_url

_SHIM: Final = "https://unpkg.com/iframe-worker/shim"
"""The theme loads it from there; it is kept in this folder."""

_CONSOLE: Final = re.compile(r'(<div class="highlight")>(<pre>.*?</pre>)', re.DOTALL)
_PROMPT: Final = '<span class="gp">'
_TAG: Final = re.compile("<[^>]*>")


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Leave a fence its language and the name of its file: the rest is for tests."""
    return re.sub(r"^( *```\w+.*?) *no-run:.*$", r"\1", markdown, flags=re.MULTILINE)


def on_page_content(html: str, **_: Any) -> str:
    """Have the copy button of a console copy its commands, and not their output."""
    return _CONSOLE.sub(_with_commands, html)


def _with_commands(found: re.Match[str]) -> str:
    lines = [line for line in found[2].splitlines() if _PROMPT in line]
    commands = [unescape(_TAG.sub("", line)).removeprefix("$ ") for line in lines]
    text = escape("\n".join(commands)).replace("\n", "&#10;")
    return f'{found[1]} data-copy="{text}">{found[2]}' if commands else found[0]


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Load nothing from elsewhere."""
    return output.replace(_SHIM, get_relative_url("iframe-worker.js", page.url))


def on_post_template(output_content: str, **_: Any) -> str:
    """Load nothing from elsewhere."""
    return output_content.replace(_SHIM, "iframe-worker.js")
