"""Server programs that the harnesses and the tests of backends start."""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_SUPERVISOR: Final = """
stop=$1; server=; shift
resume() {
  for child in $(cat /proc/"$1"/task/*/children 2>/dev/null); do resume "$child"; done
  kill -s CONT "$1" 2>/dev/null
}
end() {
  [ -z "$server" ] && return
  kill -s "$stop" "$server"; resume "$server"; wait "$server"; server=
}
while read -r word; do
  if [ "$word" = start ]; then
    "$@" >>server.log 2>&1 &
    server=$!
    echo "$server"
  else
    end
    echo stopped
  fi
done
end
"""
"""A shell that starts and stops the server as it reads, and ends it with this process,
however that ends. A suspended server is resumed first, with its processes: it may wait
for them.

It leads a session of its own. Otherwise Ctrl-C in a terminal would end the shell alone:
a shell starts programs in the background so that they ignore that signal."""
_LOOK: Final = 0.01
"""Seconds between two looks at whether a server answers."""
_SHOWN: Final = 2000
"""Characters of a log that an error shows."""
_SUSPENDED: Final = "TtZX"
"""States of processes that do nothing: suspended, traced, or ended."""


def find_program(name: str, package: str) -> str:
    """The path of an installed program.

    Args:
        name: Of the program. Debian's folder of daemons, ``/usr/sbin``, is searched
            too: it is often not on the path of a user.
        package: What has it, for the error: ``Debian: mosquitto``.

    Raises:
        RuntimeError: It is not installed.
    """
    path = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin"])
    found = shutil.which(name, path=path)
    if found is None:
        msg = f"the program {name} is not installed ({package})"
        raise RuntimeError(msg)
    return found


def accepts(port: int) -> bool:
    """Whether a program of this machine accepts connections at a port."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1):
            return True
    except OSError:
        return False


class LocalServer:
    """A server for tests: on a free port of 127.0.0.1, ended with this process.

    It ends however this process ends, also by SIGKILL. One thread at a time uses it.

    Args:
        folder: Where it runs. Its output is in ``server.log`` there.
        command: Returns its command line for a port; called again with another port
            where a program took the first one meanwhile.
        answers: Whether it answers at a port; called until it does.
        stop_signal: What ends it.
        timeout: Seconds in which it has to start, and to end.
        run_as: Ids of a user and a group, for a server that does not run as root.

    Example::

        server = LocalServer(folder, lambda port: ["redis-server", "--port", str(port)])
        server.start()
        connect(server.address)
    """

    def __init__(
        self,
        folder: Path,
        command: Callable[[int], Sequence[str]],
        *,
        answers: Callable[[int], bool] = accepts,
        stop_signal: signal.Signals = signal.SIGTERM,
        timeout: float = 60.0,
        run_as: tuple[int, int] | None = None,
    ) -> None:
        self._folder, self._command, self._answers = folder, command, answers
        self._stop_signal, self._timeout = stop_signal, timeout
        self._run_as = run_as
        self._port = 0
        self._shell: subprocess.Popen[str] | None = None
        self._server = 0
        self._suspended: list[int] = []
        """Its processes, the server first, while it is frozen."""

    @property
    def port(self) -> int:
        """Its port; 0 before it was started."""
        return self._port

    @property
    def address(self) -> str:
        """Its host and port."""
        return f"127.0.0.1:{self._port}"

    @property
    def log(self) -> str:
        """What it has printed since it was started first."""
        return (self._folder / "server.log").read_text(errors="replace")

    def start(self) -> None:
        """Start it: the first time on a free port, and then on the same.

        Returns when it answers.

        Raises:
            RuntimeError: It does not answer in time, or another program has its port.
                It is closed.
        """
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    def _start(self) -> None:
        if self._shell is not None:
            self._launch(self._shell)
            if not self._await():
                msg = f"another program listens on {self.address} now"
                raise RuntimeError(msg)
            return
        while True:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self._port = free.getsockname()[1]
            self._shell = self._supervise(self._command(self._port))
            self._launch(self._shell)
            if self._await():
                return
            self.close()  # another program took the port meanwhile

    def stop(self) -> None:
        """End it; what it has stored stays, and `start` starts it again.

        Raises:
            RuntimeError: It was not started, or does not end in time: it is killed.
        """
        if self._shell is None:
            msg = "the server was not started"
            raise RuntimeError(msg)
        self._suspended = []  # the shell lets them go on
        if self._exchange(self._shell, "stop") is None:
            # The shell has not waited for it: its id is no other process's.
            with suppress(ProcessLookupError):
                os.kill(self._server, signal.SIGKILL)
            self._read(self._shell)  # the answer that was late
            self._server = 0
            raise RuntimeError(self._late("end"))
        self._server = 0

    def freeze(self) -> None:
        """Suspend its processes: it accepts connections, and answers nothing.

        Raises:
            RuntimeError: It does not run, or is not suspended in time.
        """
        if self._shell is None or not self._server:
            msg = "the server does not run"
            raise RuntimeError(msg)
        self._suspended = [self._server]
        try:
            # A process that is suspended starts no other: its children are all.
            for pid in self._suspended:
                os.kill(pid, signal.SIGSTOP)
                self._await_suspended(pid)
                self._suspended += _children(pid)
        except BaseException:
            self.thaw()
            raise

    def _await_suspended(self, pid: int) -> None:
        deadline = time.monotonic() + self._timeout
        while _state(pid) not in _SUSPENDED:
            if time.monotonic() > deadline:
                raise RuntimeError(self._late("stop answering"))
            time.sleep(_LOOK)

    def thaw(self) -> None:
        """Let its processes go on; without `freeze` this has no effect."""
        suspended, self._suspended = self._suspended, []
        for pid in suspended:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def close(self) -> None:
        """End it for good; twice is allowed."""
        self.thaw()
        shell, self._shell = self._shell, None
        if shell is None:
            return
        try:
            shell.communicate(timeout=self._timeout)
        except subprocess.TimeoutExpired:
            os.killpg(shell.pid, signal.SIGKILL)
            shell.communicate()

    def _supervise(self, command: Sequence[str]) -> subprocess.Popen[str]:
        log = self._folder / "server.log"
        log.write_text("")
        user, group = self._run_as or (None, None)
        if user is not None and group is not None:
            os.chown(log, user, group)
        return subprocess.Popen(  # noqa: S603 - programs that the harness names
            ["/bin/sh", "-c", _SUPERVISOR, "sh", self._stop_signal.name[3:], *command],
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
            user=user,
            group=group,
            extra_groups=None if group is None else (),
        )

    def _launch(self, shell: subprocess.Popen[str]) -> None:
        answer = self._exchange(shell, "start")
        if not answer:
            raise RuntimeError(self._late("start"))
        self._server = int(answer)

    def _exchange(self, shell: subprocess.Popen[str], word: str) -> str | None:
        """What the shell answers to a word; None if it does not in time."""
        assert shell.stdin is not None
        shell.stdin.write(f"{word}\n")
        shell.stdin.flush()
        return self._read(shell)

    def _read(self, shell: subprocess.Popen[str]) -> str | None:
        assert shell.stdout is not None
        ready, _, _ = select.select([shell.stdout], [], [], self._timeout)
        return shell.stdout.readline() if ready else None

    def _await(self) -> bool:
        """Wait until it answers; False where its port is taken.

        Raises:
            RuntimeError: It does not.
        """
        deadline = time.monotonic() + self._timeout
        while not self._answers(self._port):
            if "address already in use" in self.log.lower():
                return False
            if time.monotonic() > deadline:
                raise RuntimeError(self._late("start"))
            time.sleep(_LOOK)
        return True

    def _late(self, what: str) -> str:
        seconds = f"{self._timeout:g} s"
        return f"the server does not {what} within {seconds}: {self.log[-_SHOWN:]}"


def _state(pid: int) -> str:
    """The state of a process in the letter of Linux; X where there is none."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return "X"
    return text.rpartition(")")[2].split()[0]


def _children(pid: int) -> list[int]:
    """Processes that a process has started."""
    try:
        found = [p.read_text() for p in Path(f"/proc/{pid}/task").glob("*/children")]
    except FileNotFoundError:
        return []
    return [int(child) for text in found for child in text.split()]
