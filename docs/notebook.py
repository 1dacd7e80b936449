# ruff: noqa: INP001 - a script, in no package
"""Executes the first notebook, and writes it with its outputs as ``notebook.md``.

    python docs/notebook.py

A test compares the code of the page with that of the notebook.
"""

from __future__ import annotations

import base64
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGE: Final = Path(__file__).parent / "notebook.md"
NOTEBOOK: Final = PAGE.parents[1] / "examples/notebooks/first.ipynb"
_FENCE: Final = "```python no-run: a cell of the notebook, which a test runs"
_NOTE: Final = (
    "*Written by `docs/notebook.py` from `examples/notebooks/first.ipynb`, with the "
    "outputs of a run.*"
)


def page(cells: list[Any], pictures: dict[str, bytes]) -> str:
    """Return executed cells as a page; pictures are added by name."""
    parts: list[str] = []
    for cell in cells:
        if cell["cell_type"] == "markdown":
            parts.append("".join(cell["source"]))
            continue
        parts.append(f"{_FENCE}\n{''.join(cell['source'])}\n```")
        for output in cell["outputs"]:
            parts += _shown(output, pictures)
    parts.insert(1, _NOTE)
    return "\n\n".join(parts) + "\n"


def _shown(output: Any, pictures: dict[str, bytes]) -> Iterator[str]:
    data = output.get("data", {})
    if "image/png" in data:
        name = f"notebook-{len(pictures) + 1}.png"
        pictures[name] = base64.b64decode(data["image/png"])
        yield f"![The plot of this cell](pictures/{name})"
    elif "text/html" in data:
        html = re.sub(r"(?s)<style.*?</style>", "", "".join(data["text/html"]))
        # A blank line would end the block of HTML.
        yield "\n".join(line for line in html.splitlines() if line.strip())
    else:
        text = "".join(output.get("text", data.get("text/plain", "")))
        yield f"```text\n{text.rstrip()}\n```"


def main() -> None:
    """Write the page and its pictures."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(shutil.copy(NOTEBOOK, folder))
        command = ["-m", "jupyter", "execute", "--inplace", str(copy)]
        subprocess.run(  # noqa: S603 - a program of ours
            [sys.executable, *command], check=True, timeout=300
        )
        cells = json.loads(copy.read_text("utf-8"))["cells"]
    pictures: dict[str, bytes] = {}
    PAGE.write_text(page(cells, pictures), encoding="utf-8")
    for name, content in pictures.items():
        (PAGE.parent / "pictures" / name).write_bytes(content)


if __name__ == "__main__":
    main()
