# ruff: noqa: INP001 - a script, in no package
"""Draws the pictures of the pages, as SVG: ``python docs/pictures.py``.

``docs/reference.py`` writes and checks them with the generated parts of the pages. They
have a background of their own, so that they can be read on light and dark pages.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Final

from paths import drawn as paths
from plots import plots

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

FOLDER: Final = Path(__file__).parent / "pictures"
_STYLE: Final = """
  .page { fill: #ffffff; stroke: #d0d7de }
  .box { fill: #eef2ff; stroke: #4051b5 }
  .store { fill: #e8f5e9; stroke: #2e7d32 }
  .lost { fill: #fdecea; stroke: #c62828 }
  .gone { fill: none; stroke: #9aa0a6; stroke-dasharray: 4 3 }
  .area { fill: #f6f8fa; stroke: #d0d7de }
  .line { fill: none; stroke: #57606a; stroke-width: 1.5 }
  text { font: 13px "Segoe UI", Helvetica, Arial, sans-serif; fill: #1f2328 }
  .small { font-size: 11px; fill: #57606a }
  .head { font-weight: 600 }
"""
_ARROW_TIP: Final = (
    '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" '
    'markerWidth="7" markerHeight="7" orient="auto-start-reverse">'
    '<path d="M0 0 L10 5 L0 10 z" fill="#57606a"/></marker></defs>'
)
CELL: Final = 34


@dataclass
class Picture:
    """Shapes on a page of some size; y grows downwards."""

    title: str
    """What it shows, for readers who do not see it."""
    width: int
    height: int
    parts: list[str] = field(default_factory=list)

    def box(self, at: Sequence[int], size: Sequence[int], text: str, kind: str) -> None:
        """A rectangle; its text has a line for each ``|``, the first one bold."""
        (x, y), (width, height) = at, size
        self.parts.append(
            f'<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}"'
            ' rx="5"/>'
        )
        lines = [line for line in text.split("|") if line]
        top = y + height / 2 - (len(lines) - 1) * 8 + 4.5
        for number, line in enumerate(lines):
            kind_of_text = "head" if number == 0 else "small"
            self.text((x + width / 2, top + number * 16), line, kind_of_text)

    def area(self, at: Sequence[int], size: Sequence[int], text: str) -> None:
        """What other shapes lie in, with its name at the top."""
        self.box(at, size, "", "area")
        self.text((at[0] + 10, at[1] + 18), text, "small", anchor="start")

    def text(
        self,
        at: Sequence[float],
        text: str,
        kind: str = "",
        anchor: str = "middle",
    ) -> None:
        """One line."""
        x, y = at
        self.parts.append(
            f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}">'
            f"{escape(text)}</text>"
        )

    def arrow(self, begin: Sequence[int], end: Sequence[int], text: str = "") -> None:
        """A straight arrow, with words above its middle."""
        (x, y), (to_x, to_y) = begin, end
        self.parts.append(
            f'<path class="line" marker-end="url(#tip)" d="M{x} {y} L{to_x} {to_y}"/>'
        )
        if text:
            self.text(((x + to_x) / 2, (y + to_y) / 2 - 6), text, "small")

    def cells(self, at: Sequence[int], cells: Sequence[tuple[str, str]]) -> None:
        """Offsets beside one another: the text and the kind of each."""
        x, y = at
        for number, (text, kind) in enumerate(cells):
            self.box((x + number * CELL, y), (CELL, CELL), "", kind)
            middle = x + number * CELL + CELL / 2
            self.text((middle, y + CELL / 2 + 4), text, "small")

    def svg(self) -> str:
        """The file."""
        size = f'width="{self.width}" height="{self.height}"'
        view = f'viewBox="0 0 {self.width} {self.height}"'
        inner = f'width="{self.width - 1}" height="{self.height - 1}"'
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" {view}>',
            f"<title>{escape(self.title)}</title>",
            f"<style>{_STYLE}</style>",
            _ARROW_TIP,
            f'<rect class="page" x="0.5" y="0.5" {inner} rx="8"/>',
            *self.parts,
            "</svg>",
        ]
        return "\n".join(lines) + "\n"


def _held(numbers: range, first: int = 0) -> list[tuple[str, str]]:
    return [(str(n), "gone" if n < first else "store") for n in numbers]


def _parts() -> Picture:
    picture = Picture("What lies between a source and its readers", 760, 250)
    for number, name in enumerate(["Kafka", "files", "Flight", "ZeroMQ", "sockets"]):
        picture.box((20, 20 + number * 43), (90, 34), name, "store")
        picture.arrow((110, 37 + number * 43), (168, 37 + number * 43))
    picture.box((170, 20), (120, 206), "stream types|plug-ins:|the contract", "box")
    picture.arrow((290, 123), (338, 123))
    picture.box((340, 20), (170, 60), "configuration|one map of strings", "box")
    picture.box((340, 93), (170, 60), "reading|offsets, losses, retries", "box")
    picture.box((340, 166), (170, 60), "writing|epochs, each once", "box")
    for number, name in enumerate(
        ["Python: open()", "Spark", "pipelines", "query engines", "command line"]
    ):
        picture.arrow((510, 37 + number * 43), (568, 37 + number * 43))
        picture.box((570, 20 + number * 43), (170, 34), name, "box")
    return picture


def _stream() -> Picture:
    picture = Picture("A stream is a configuration of a stream type", 640, 130)
    picture.box((20, 30), (190, 70), "stream clicks|configs/streams/clicks.toml", "box")
    picture.arrow((210, 65), (268, 65), "type")
    picture.box((270, 30), (130, 70), "file|stream type", "box")
    picture.arrow((400, 65), (458, 65), "topic")
    picture.box((460, 20), (160, 40), "clicks-0|partition", "store")
    picture.box((460, 70), (160, 40), "clicks-1|partition", "store")
    return picture


def _offsets() -> Picture:
    picture = Picture("Offsets number the messages of each partition", 520, 170)
    picture.text((20, 61), "clicks-0", "head", anchor="start")
    picture.cells((100, 40), _held(range(9), 2))
    picture.text((20, 121), "clicks-1", "head", anchor="start")
    picture.cells((100, 100), _held(range(6)))
    picture.text((185, 30), "earliest = 2", "small")
    picture.text((430, 61), "latest = 9", "small", anchor="start")
    picture.text((328, 121), "latest = 6", "small", anchor="start")
    picture.text((100, 155), "dashed: removed by retention", "small", anchor="start")
    return picture


def _position() -> Picture:
    picture = Picture("A position: the next offset of each partition", 520, 170)
    picture.text((20, 61), "clicks-0", "head", anchor="start")
    picture.cells((100, 40), [(str(n), "box" if n < 5 else "store") for n in range(9)])
    picture.text((20, 121), "clicks-1", "head", anchor="start")
    picture.cells((100, 100), [(str(n), "box" if n < 3 else "store") for n in range(6)])
    picture.arrow((287, 20), (287, 38))
    picture.text((287, 15), "next: 5", "small")
    picture.arrow((219, 152), (219, 136))
    picture.text((252, 155), "next: 3", "small", anchor="start")
    return picture


def _epochs() -> Picture:
    picture = Picture("An epoch is staged, and becomes visible by its commit", 700, 170)
    picture.box((20, 55), (110, 60), "writer shop|epoch 2", "box")
    picture.arrow((130, 70), (248, 45), "stage")
    picture.arrow((130, 100), (248, 125), "stage")
    picture.box((250, 22), (120, 46), "task 0|staged rows", "gone")
    picture.box((250, 102), (120, 46), "task 1|staged rows", "gone")
    picture.arrow((370, 45), (448, 75))
    picture.arrow((370, 125), (448, 95))
    picture.box((450, 60), (90, 50), "commit|at once", "box")
    picture.arrow((540, 85), (588, 85))
    for number in range(3):
        kind = "box" if number == 2 else "store"
        picture.box((590, 20 + number * 46), (90, 38), f"epoch {number}", kind)
    return picture


def _guarantee() -> Picture:
    picture = Picture("A guarantee follows from claims and options", 700, 150)
    picture.box((20, 20), (170, 44), "claims of the source|replayable, durable", "box")
    picture.box((20, 86), (170, 44), "claims of the sink|idempotent, visible", "box")
    picture.box((250, 53), (150, 44), "options|out.of.range, writer", "box")
    picture.arrow((190, 42), (468, 42))
    picture.arrow((190, 108), (468, 108))
    picture.arrow((400, 75), (468, 75))
    picture.box((470, 30), (210, 90), "the weaker of both|with its reasons", "store")
    return picture


def _spool() -> Picture:
    picture = Picture("A spool stores what a transport delivers", 740, 170)
    picture.box((20, 40), (110, 50), "sender|ZeroMQ, socket", "box")
    picture.arrow((130, 55), (228, 55), "rows")
    picture.arrow((228, 78), (132, 78))
    picture.text((180, 96), "acknowledged", "small")
    picture.box((230, 40), (110, 50), "receiver|one", "box")
    picture.arrow((340, 65), (408, 65), "write")
    picture.cells((410, 48), _held(range(5)))
    picture.text((495, 40), "the spool: an Arrow log", "small")
    for number, name in enumerate(["Spark", "open()", "groups"]):
        picture.arrow((580, 65), (628, 35 + number * 46))
        picture.box((630, 18 + number * 46), (90, 34), name, "box")
    picture.text((180, 130), "once, not again", "small")
    picture.text((495, 130), "any number of times, by offset", "small")
    return picture


def _letters() -> Picture:
    picture = Picture("Messages that cannot be decoded become dead letters", 660, 150)
    picture.cells((20, 48), [("7", "store"), ("8", "lost"), ("9", "store")])
    picture.text((71, 40), "messages", "small")
    picture.arrow((122, 65), (188, 65))
    picture.box((190, 40), (110, 50), "decoder|json", "box")
    picture.arrow((300, 55), (398, 40))
    picture.box((400, 20), (240, 42), "rows|of messages 7 and 9", "store")
    picture.arrow((300, 78), (398, 105))
    picture.box(
        (400, 84), (240, 46), "dead letter stream|8: offset, bytes, reason", "lost"
    )
    return picture


def _reading() -> Picture:
    picture = Picture(
        "Reading: from the plan on the driver to rows in a task", 760, 250
    )
    picture.area((15, 15), (730, 85), "driver")
    picture.area((15, 135), (730, 100), "task")
    for number, text in enumerate(
        [
            "configuration|validated",
            "bounds|of each partition",
            "plan|ranges of offsets",
        ]
    ):
        picture.box((30 + number * 190, 40), (150, 46), text, "box")
        if number:
            picture.arrow((number * 190 - 10, 63), (28 + number * 190, 63))
    picture.arrow((485, 86), (105, 160))
    picture.text((370, 124), "a range for each task", "small", anchor="start")
    for number, text in enumerate(
        ["consumer|fetch by offset", "checks|losses, bounds", "decoder|dead letters"]
    ):
        picture.box((30 + number * 180, 162), (145, 50), text, "box")
        picture.arrow((175 + number * 180, 187), (208 + number * 180, 187))
    picture.box((570, 162), (160, 50), "Arrow batches|to Spark", "store")
    return picture


def _writing() -> Picture:
    picture = Picture(
        "Writing: tasks stage, the driver commits an epoch once", 760, 260
    )
    picture.area((15, 15), (730, 95), "tasks")
    picture.area((15, 150), (730, 95), "driver")
    for number, text in enumerate(
        ["rows|checked", "routing|a partition each", "writer|stages the rows"]
    ):
        picture.box((30 + number * 190, 42), (150, 50), text, "box")
        if number:
            picture.arrow((number * 190 - 10, 67), (28 + number * 190, 67))
    picture.arrow((560, 67), (598, 67))
    picture.box((600, 42), (130, 50), "staged rows|not visible", "gone")
    picture.arrow((485, 92), (120, 178))
    picture.text((385, 137), "commit messages", "small", anchor="start")
    picture.box((30, 180), (170, 50), "committer|all of the epoch", "box")
    picture.arrow((200, 205), (268, 205))
    picture.box((270, 180), (190, 50), "is it there already?|writer id, epoch", "box")
    picture.arrow((460, 205), (568, 205), "no: commit")
    picture.box((570, 180), (160, 50), "topic|visible at once", "store")
    return picture


def _shared_memory() -> Picture:
    picture = Picture("Writers append records to a ring; readers map them", 740, 190)
    for number, name in enumerate(["writer", "writer"]):
        picture.arrow((110, 52 + number * 60), (208, 80))
        picture.box((20, 35 + number * 60), (90, 34), name, "box")
    picture.text((160, 40), "one lock", "small")
    picture.cells((210, 62), [*_held(range(3, 8), 3), ("", "gone"), ("", "gone")])
    picture.text((330, 54), "a ring: a mapped file", "small")
    picture.text((227, 112), "tail", "small")
    picture.text((397, 112), "head", "small")
    picture.box((210, 128), (238, 40), "control file|bounds, commit word", "store")
    for number, name in enumerate(["reader", "reader", "reader in C"]):
        picture.arrow((450, 80), (568, 35 + number * 50))
        picture.box((570, 18 + number * 50), (110, 34), name, "box")
    picture.text((510, 30), "no copy, by a lease", "small")
    return picture


PICTURES: Final[Mapping[str, Callable[[], Picture]]] = {
    "parts": _parts,
    "stream": _stream,
    "offsets": _offsets,
    "position": _position,
    "epochs": _epochs,
    "guarantee": _guarantee,
    "shm": _shared_memory,
    "spool": _spool,
    "dead-letters": _letters,
    "reading": _reading,
    "writing": _writing,
}


def drifted(*, write: bool) -> list[Path]:
    """The files that are not as drawn here; they are written on request."""
    found = []
    drawings = {name: draw() for name, draw in PICTURES.items()} | paths(Picture)
    drawn = {name: one.svg() for name, one in drawings.items()} | plots()
    for name, svg in drawn.items():
        path = FOLDER / f"{name}.svg"
        if not path.exists() or path.read_text("utf-8") != svg:
            found.append(path)
            if write:
                path.write_text(svg, "utf-8")
    return found


if __name__ == "__main__":
    drifted(write=True)
