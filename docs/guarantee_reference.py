# ruff: noqa: INP001 - part of a script, in no package
"""The table of the guarantees of built-in stream types, from their claims."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from cells import code, own_names

from streamfactory.spi import Role, Unsupported
from streamfactory.spi.hooks import BACKENDS
from streamfactory.wiring.config.guarantees import offline_verdict
from streamfactory.wiring.config.loading import load

if TYPE_CHECKING:
    from collections.abc import Mapping

_LEAST: Final[Mapping[str, tuple[Mapping[str, str], Mapping[str, str]]]] = {
    "delta": ({"path": "DIR"},) * 2,
    "file": ({"path": "DIR"}, {"path": "DIR"}),
    "flight": ({"location": "grpc://localhost:8815"},) * 2,
    "hudi": ({"path": "DIR"},) * 2,
    "iceberg": ({"table": "shop.orders", "warehouse": "DIR"},) * 2,
    "kafka": ({"broker.list": "localhost:9092", "decoder.class.name": "json"},) * 2,
    "memory": ({}, {}),
    "push": ({}, {}),
    "shm": ({}, {}),
    "socket": ({"listen": "127.0.0.1:7000"}, {"connect": "127.0.0.1:7000"}),
    "zeromq": (
        {"pattern": "dealer-router", "bind": "tcp://127.0.0.1:5555"},
        {"pattern": "dealer-router", "connect": "tcp://127.0.0.1:5555"},
    ),
}
"""The options that a stream of each type requires, to be read and to be written."""
_SCHEMA: Final = {"schema": "id bigint"}
_FORGETFUL: Final = ("socket", "zeromq")
"""Those that a spool is for."""
_SPOOL: Final = {"spool.path": "spool"}


def guarantees() -> str:
    """What each built-in promises, and behind a spool where it cannot be read again."""
    lines = ["| stream type | as a source | as a sink |", "|---|---|---|"]
    for name in own_names(BACKENDS):
        read, write = _LEAST[name]
        source, sink = _verdict(name, read, "read"), _verdict(name, write, "write")
        lines.append(f"| {code(name)} | {source} | {sink} |")
        if name in _FORGETFUL:
            spooled = _verdict(name, read, "read", _SPOOL)
            lines.append(f"| {code(name)} with `spool.path` | {spooled} | as above |")
    return "\n".join(lines)


def _verdict(
    name: str, options: Mapping[str, str], use: str, more: Mapping[str, str] = {}
) -> str:
    own = {f"stream.{name}.{key}": text for key, text in options.items()}
    topic = {f"stream.{name}.topic.name": "clicks"}
    role = Role.READ if use == "read" else Role.WRITE
    try:
        configured = load({"streamType": name, **topic, **_SCHEMA, **own, **more}, use)
    except Unsupported:
        return "none"
    backend = configured.backend
    if role is Role.WRITE and backend.producer_factory is None:
        return "none"
    return str(offline_verdict(configured.config, backend, role))
