"""Hosts of a network of their own, whose links can be cut: namespaces of Linux.

``in_a_network`` runs a module as the root of a new network, without rights outside it.
There `Host` makes a host with an address of its own. Between two hosts, and between a
host and the module, packets are forwarded by the module's namespace, where they can be
dropped without a word, as a switch that has failed does.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

Way = Literal["in", "out", "both"]
"""Which packets of a host are lost."""

_NEW: Final = ("unshare", "--map-root-user", "--net")
_NO_ONE: Final = "02:00:00:00:00:01"
"""A hardware address that no host has."""
_FORWARDING: Final = Path("/proc/sys/net/ipv4/ip_forward")


@cache
def missing_network() -> str | None:
    """Why this machine cannot do it; None where it can."""
    probe = "ip link set lo up && ip link add v0 type veth peer name p0"
    try:
        done = subprocess.run(
            [*_NEW, "sh", "-c", probe],
            capture_output=True,
            text=True,
            check=False,
            timeout=20,
        )
    except FileNotFoundError:
        return "it needs Linux with unshare"
    return f"no network of its own: {done.stderr.strip()}" if done.returncode else None


def in_a_network(module: str, *arguments: object) -> str:
    """Run a module as the root of a new network; what it prints.

    Raises:
        subprocess.CalledProcessError: It failed; its messages are on standard error.
    """
    command = [*_NEW, sys.executable, "-m", module, *map(str, arguments)]
    root = Path(__file__).parents[2]
    return subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True, cwd=root
    ).stdout


class Host:
    """A host of the network.

    Args:
        number: From 1 to 254; no other host has it.
    """

    def __init__(self, number: int) -> None:
        if number == 1:
            _run("ip", "link", "set", "lo", "up")
            _FORWARDING.write_text("1")
        self.address = f"10.77.{number}.2"
        self._gateway = f"10.77.{number}.1"
        self._outer, self._inner = f"v{number}", f"p{number}"
        # Its namespace exists while it runs, and it ends with this process.
        self._holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "echo; exec cat"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        assert self._holder.stdout is not None
        self._holder.stdout.readline()
        pid = str(self._holder.pid)
        _run("ip", "link", "add", self._outer, "type", "veth", "peer", self._inner)
        _run("ip", "link", "set", self._inner, "netns", pid)
        _run("ip", "addr", "add", f"{self._gateway}/30", "dev", self._outer)
        _run("ip", "link", "set", self._outer, "up")
        for line in (
            "ip link set lo up",
            f"ip addr add {self.address}/30 dev {self._inner}",
            f"ip link set {self._inner} up",
            f"ip route add default via {self._gateway}",
        ):
            _run(*self.within(line.split()))

    def within(self, command: Sequence[str]) -> list[str]:
        """A command that runs on this host."""
        return ["nsenter", f"--net=/proc/{self._holder.pid}/ns/net", *command]

    def cut(self, way: Way) -> None:
        """Lose what is sent to it, what it sends, or both."""
        change = ("ip", "neigh", "replace")
        nowhere = ("lladdr", _NO_ONE, "nud", "permanent")
        if way != "out":
            _run(*change, self.address, *nowhere, "dev", self._outer)
        if way != "in":
            line = (*change, self._gateway, *nowhere, "dev", self._inner)
            _run(*self.within(line))

    def mend(self) -> None:
        """Lose nothing more."""
        for command in (
            ["ip", "neigh", "del", self.address, "dev", self._outer],
            self.within(["ip", "neigh", "del", self._gateway, "dev", self._inner]),
        ):
            subprocess.run(command, capture_output=True, check=False)  # may not be cut

    def close(self) -> None:
        """Remove it; what runs on it keeps running, alone."""
        assert self._holder.stdin is not None
        assert self._holder.stdout is not None
        self._holder.stdin.close()
        self._holder.wait()
        self._holder.stdout.close()


def separate(one: Host, other: Host) -> None:
    """Lose what two hosts send to each other; everybody else reaches both."""
    for source, target in ((one, other), (other, one)):
        _run("ip", "rule", "add", *_between(source, target))


def join(one: Host, other: Host) -> None:
    """Lose nothing more between them."""
    for source, target in ((one, other), (other, one)):
        with suppress(subprocess.CalledProcessError):
            _run("ip", "rule", "del", *_between(source, target))


def _between(source: Host, target: Host) -> tuple[str, ...]:
    return ("from", source.address, "to", target.address, "blackhole")


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True)
