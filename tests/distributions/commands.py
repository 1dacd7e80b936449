"""A program: the commands of a user on a stream type of others. Prints JSON.

The kit's harness of the type starts the server, which ends with this program.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any


def main() -> None:
    """Publish ``rows.jsonl``, copy the topic twice, and read the copy."""
    kind = sys.argv[1]
    harness_type = getattr(
        importlib.import_module(f"streamfactory_{kind}.harness"),
        f"{kind.capitalize()}Harness",
    )
    harness = harness_type(Path(tempfile.mkdtemp(dir=".")))
    harness.create(1)
    given = {
        **harness.properties(),
        f"stream.{kind}.decoder.class.name": "json",
        f"stream.{kind}.decoder.prop.schema": "id bigint, name string",
    }
    for name in ("first", "second"):
        properties = {**given, f"stream.{kind}.topic.name": name}
        stream = Path("configs", "streams", f"{name}.toml")
        stream.parent.mkdir(parents=True, exist_ok=True)
        # JSON's strings are TOML's.
        lines = [f"{json.dumps(k)} = {json.dumps(v)}" for k, v in properties.items()]
        stream.write_text("\n".join(["[properties]", *lines]), encoding="utf-8")
    call("topics", "create", "first", "--messages", "--partitions", "2")
    found = {
        "first": call("publish", "first", "rows.jsonl", "--writer", "p"),
        "copied": call("copy", "first", "second"),
        "again": call("copy", "first", "second"),
        "values": read({**given, f"stream.{kind}.topic.name": "second"}),
        "described": call("describe", kind),
    }
    harness.close()
    sys.stdout.write(json.dumps(found))


def call(*arguments: str) -> Any:
    """A command's JSON answer."""
    done = subprocess.run(
        [sys.executable, "-m", "streamfactory", *arguments, "--json"],
        stdout=subprocess.PIPE,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, (arguments, done.stdout)
    return json.loads(done.stdout)


def read(properties: dict[str, str]) -> list[int]:
    """All ids of a topic."""
    import streamfactory

    with streamfactory.open(properties) as stream:
        ids: list[int] = stream.to_reader().read_all()["id"].to_pylist()
    return ids


if __name__ == "__main__":
    main()
