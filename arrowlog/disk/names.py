"""Names of files: all components of paths are created and validated here.

Names in files (of segments, parts, incarnations) are matched against these patterns
before they are used, and listed names that match none are ignored.
"""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote

from streamfactory.arrowlog.options import LONGEST_QUOTED
from streamfactory.spi import MisuseError

if TYPE_CHECKING:
    from collections.abc import Iterable

INCARNATION: Final = re.compile(r"[0-9a-f]{32}")
"""The folder of one incarnation of a topic."""
ARROW: Final = "arrow"
PARQUET: Final = "parquet"
"""Formats of segments, by the suffix of their names."""
SEGMENTS: Final = {
    name: re.compile(rf"data/[0-9a-f]{{32}}\.{name}") for name in (ARROW, PARQUET)
}
"""Segments by format."""
SEGMENT: Final = re.compile(r"data/[0-9a-f]{32}\.(?:arrow|parquet)")
"""Segments of any format."""
PART: Final = re.compile(r"index/[0-9a-f]{32}\.arrow")
ATTEMPT: Final = re.compile(r"[0-9a-f]{32}")
"""The folder, within `STAGING`, of an attempt whose files another program writes."""
STAGING: Final = "staging"
ATTEMPT_ID: Final = re.compile(r"[!-~]{1,64}")
"""The attempt of carried rows, which the record of their commit names."""
TEMPORARY: Final = re.compile(r"\.tmp-[0-9a-f]{32}")
"""A temporary file, of a running write or left by a crash."""
HIGHEST: Final = 2**63 - 1
"""Digits of all versions and generations."""

_VERSION: Final = re.compile(r"([0-9]{20})(\.json|\.snapshot)")
_GENERATION: Final = re.compile(r"([0-9]{6}|[1-9][0-9]{6,18})\.json")
TOPIC_SUFFIX: Final = ".topic"
"""Of the folder of a topic."""


def record_name(version: int) -> str:
    """The name of the record of a version."""
    return f"log/{version:020d}.json"


def snapshot_name(version: int) -> str:
    """The name of the snapshot of a version."""
    return f"log/{version:020d}.snapshot"


def records(names: Iterable[str]) -> list[int]:
    """Versions of the records among the names in the folder ``log``, rising."""
    return _versions(names, ".json")


def snapshots(names: Iterable[str]) -> list[int]:
    """Versions of the snapshots among the names in the folder ``log``, rising."""
    return _versions(names, ".snapshot")


def is_log_name(name: str) -> bool:
    """Whether a name in the folder ``log`` is one that the format defines."""
    return bool(_VERSION.fullmatch(name) or TEMPORARY.fullmatch(name))


def new_segment(suffix: str) -> str:
    """A name that no other segment has, of a format."""
    return f"data/{uuid.uuid4().hex}.{suffix}"


def new_part() -> str:
    """A name that no other part of an index has."""
    return f"index/{uuid.uuid4().hex}.arrow"


def new_temporary() -> str:
    """A name that no other temporary file has."""
    return f".tmp-{uuid.uuid4().hex}"


def generation_name(number: int) -> str:
    """The name, in the folder of a topic, of the file of a generation."""
    return f"{number:06d}.json"


def generations(names: Iterable[str]) -> list[int]:
    """The generations among the names in the folder of a topic, rising."""
    found = [_GENERATION.fullmatch(name) for name in names]
    return sorted(int(one[1]) for one in found if one and int(one[1]) <= HIGHEST)


def topic_folder(topic: str) -> str:
    """The folder of a topic: one component of a path, whatever the topic's name.

    Raises:
        MisuseError: misuse; the name is empty, too long, or not encodable.
    """
    try:
        quoted = quote(topic, safe="")
    except UnicodeEncodeError:
        quoted = ""
    if quoted.startswith("."):
        quoted = f"%2E{quoted[1:]}"
    if not 0 < len(quoted) <= LONGEST_QUOTED:
        most = LONGEST_QUOTED
        msg = f"a topic's name has 1 to {most} characters, quoted: {topic[:50]!r}"
        raise MisuseError(msg)
    return f"{quoted}{TOPIC_SUFFIX}"


def topic_of(folder: str) -> str | None:
    """Return the topic of a folder name; None if it is not a topic's."""
    if not folder.endswith(TOPIC_SUFFIX):
        return None
    topic = unquote(folder.removesuffix(TOPIC_SUFFIX))
    try:
        return topic if topic_folder(topic) == folder else None
    except MisuseError:
        return None


def _versions(names: Iterable[str], suffix: str) -> list[int]:
    found = [_VERSION.fullmatch(name) for name in names]
    numbers = [int(one[1]) for one in found if one and one[2] == suffix]
    return sorted(number for number in numbers if number <= HIGHEST)
