"""Programs that tests start: forked by a server that has imported what they import.

Starting Python and importing the command line, Arrow and pandas takes 0.3 to 1.5 s of a
core, and a fork takes milliseconds. After `install`, ``subprocess.Popen`` forks the
programs that `can_be_forked` accepts and executes all others. A forked program has
its own process id, streams, folder, environment and session, as an executed one has.
It differs in what happens before its first line: modules are imported already. A test
about that uses the fixture ``executed``.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import inspect
import os
import pickle
import pkgutil
import runpy
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager, suppress
from functools import cache
from multiprocessing.connection import wait
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).parents[2]
PRELOADED: Final = (
    "pandas",  # pyarrow looks for it when it makes its first array
    "pyarrow.compute",
    "pyarrow.dataset",
    "pyarrow.flight",
    "pyarrow.parquet",
    "confluent_kafka.admin",
    "zmq",
)
"""Imported before the first fork. Nothing that starts a thread may be among them."""
PACKAGES: Final = ("arrowlog", "wiring", "transfer", "cli", "backends", "decoders")
"""Packages of streamfactory of which each module is imported before the first fork."""
LEFT_OUT: Final = ("starter", "delta", "hudi", "iceberg", "harness", "__main__")
"""Parts of names of modules that are not: their clients start threads."""
READ_AT_START: Final = ("PYTHON", "LD_", "LC_", "LANG", "ARROW_", "GRPC_", "OMP_")
"""How variables begin that count when a process starts or imports only."""
SINGLE_THREADED: Final = {
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
}
"""With these, importing NumPy and Arrow starts no thread."""
_PID: Final = struct.Struct("=i")
_LENGTH: Final = struct.Struct("=Q")

_real = subprocess.Popen
_executing: list[str] = []
"""Not empty while no program is forked; see `executed`."""


class Request(NamedTuple):
    """What a forked program is."""

    arguments: list[str]
    """Of Python: ``-m MODULE ...``, ``-c CODE`` or ``FILE ...``."""
    folder: str
    environment: dict[str, str]
    new_session: bool


class ForkServer:
    """The process that forks; it ends with this one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._control, theirs = socket.socketpair()
        self.environment = {
            name: text for name, text in os.environ.items() if _read_at_start(name)
        }
        code = f"import sys; sys.path.append({str(ROOT)!r})\n"
        code += f"from {__name__} import serve; serve({theirs.fileno()})"
        with theirs:
            self._process = _real(
                [sys.executable, "-c", code],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **SINGLE_THREADED},
                pass_fds=[theirs.fileno()],
                cwd=ROOT,
            )
        atexit.register(self.close)

    def fork(
        self, request: Request, streams: Sequence[int]
    ) -> tuple[int, socket.socket]:
        """Start a program.

        Args:
            request: The program.
            streams: Its standard input, output and error.

        Returns:
            Its process id, and where its exit status arrives.

        Raises:
            RuntimeError: The server has ended.
        """
        mine, theirs = socket.socketpair()
        with theirs, self._lock:
            descriptors = [theirs.fileno(), *streams]
            socket.send_fds(self._control, [b"."], descriptors)
        words = pickle.dumps(request)
        mine.sendall(_LENGTH.pack(len(words)) + words)
        answer = mine.recv(_PID.size)
        if not answer:
            msg = "the server that forks programs has ended"
            raise RuntimeError(msg)
        return _PID.unpack(answer)[0], mine

    def close(self) -> None:
        """End the server; its programs continue.

        It is waited for, so that what programs cost is counted to this process.
        """
        self._control.close()
        self._process.wait()


@cache
def _server() -> ForkServer:
    return ForkServer()


def _read_at_start(name: str) -> bool:
    return name.startswith(READ_AT_START) and name != "PYTHONPATH"


def _starts_unlike(environment: Mapping[str, str], server: ForkServer) -> bool:
    """Whether what Python reads when it starts differs from what the server read."""
    apart = {n: t for n, t in environment.items() if _read_at_start(n)}
    paths = environment.get("PYTHONPATH", "").split(os.pathsep)
    return apart != server.environment or any(
        Path(path, "sitecustomize.py").exists() for path in paths if path
    )


def can_be_forked(command: Sequence[str], options: Mapping[str, Any]) -> bool:
    """Whether a forked program does what an executed one does.

    Args:
        command: The program and its arguments.
        options: Of ``subprocess.Popen``.
    """
    if _executing or command[0] != sys.executable or not hasattr(os, "fork"):
        return False
    match command[1:]:
        case ["-m", "streamfactory", "run", *_]:  # Spark's driver
            return False
        case ["-m", name, *_] if name.split(".")[0] == "streamfactory":
            pass
        case ["-c", code] if code.startswith("from streamfactory.conformance."):
            pass
        case [path, *_] if path.endswith(".py"):
            # Examples are executed, as their readers do.
            if Path(path).is_relative_to(ROOT / "examples"):
                return False
        case _:
            return False
    unlike = ("executable", "preexec_fn", "pass_fds", "shell", "process_group")
    return not any(options.get(name) not in (None, (), False, -1) for name in unlike)


class Program(_real[Any]):
    """A process, forked where that makes no difference. As ``subprocess.Popen``."""

    _ended: socket.socket | None = None
    """Where the exit status of a forked program arrives."""

    def _execute_child(self, *given: Any) -> None:
        execute = super()._execute_child  # type: ignore[misc]
        options = inspect.signature(execute).bind(*given).arguments
        command = options["args"]
        if isinstance(command, (str, bytes, os.PathLike)):
            execute(*given)
            return
        command = [os.fsdecode(word) for word in command]
        environment = options["env"]
        environment = dict(os.environ if environment is None else environment)
        if not can_be_forked(command, options):
            execute(*given)
            return
        server = _server()
        if _starts_unlike(environment, server):
            execute(*given)
            return
        folder = str(Path(os.fsdecode(options["cwd"] or ".")).absolute())
        request = Request(
            command[1:], folder, environment, bool(options["start_new_session"])
        )
        pipes = ("p2cread", "c2pwrite", "errwrite")
        streams = [
            number if options[name] == -1 else options[name]
            for number, name in enumerate(pipes)
        ]
        self._guard = threading.Lock()
        self.pid, self._ended = server.fork(request, streams)
        self._child_created = True
        names = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
        self._close_pipe_fds(*(options[name] for name in names))  # type: ignore[attr-defined]

    def poll(self) -> int | None:
        """Its exit status, or minus the signal; None while it runs."""
        if self._ended is None:
            return super().poll()
        return self._status(0)

    def wait(self, timeout: float | None = None) -> int:
        """Wait for its end.

        Raises:
            subprocess.TimeoutExpired: It has not ended after so many seconds.
        """
        if self._ended is None:
            return super().wait(timeout)
        status = self._status(timeout)
        if status is None:
            assert timeout is not None
            raise subprocess.TimeoutExpired(self.args, timeout)
        return status

    def _status(self, timeout: float | None) -> int | None:
        deadline = None if timeout is None else time.monotonic() + timeout
        while self.returncode is None:
            assert self._ended is not None
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            # In slices: another thread may read the status.
            slice_ = 0.1 if left is None else min(0.1, left)
            readable = _readable([self._ended], slice_)
            with self._guard:
                if readable and self.returncode is None:
                    self.returncode = _taken(self._ended)
            if not readable and left == 0:
                return None
        return self.returncode


def _readable(
    sockets: Sequence[socket.socket], timeout: float | None = None
) -> list[socket.socket]:
    """Wait until one can be read; descriptors may have any number, unlike `select`."""
    return [one for one in wait(sockets, timeout) if isinstance(one, socket.socket)]


def _taken(ended: socket.socket) -> int:
    """The exit status that has arrived; its process is a zombie no more."""
    with ended:
        answer = ended.recv(_PID.size)
        with suppress(OSError):
            ended.shutdown(socket.SHUT_WR)
            ended.recv(1)  # returns when the server has waited for the process
    if not answer:
        msg = "the server that forks programs has ended"
        raise RuntimeError(msg)
    status: int = _PID.unpack(answer)[0]
    return status


def install() -> None:
    """Have ``subprocess`` fork the programs of this process."""
    subprocess.Popen = Program  # type: ignore[misc]


@contextmanager
def executed() -> Iterator[None]:
    """Execute every program that is started within the block."""
    _executing.append("")
    try:
        yield
    finally:
        _executing.pop()


# --- in the server --------------------------------------------------------------


def serve(control: int) -> None:
    """What the server does, until the process that started it has ended."""
    preload()
    with socket.socket(fileno=control) as requests:
        request = _serve(requests)
    if request is not None:
        _become(request)


def preload() -> None:
    """Import what programs import.

    Raises:
        RuntimeError: An import has started a thread, of which a fork has no copy.
    """
    for name in PRELOADED:
        with suppress(ImportError):  # an extra that is not installed
            importlib.import_module(name)
    for folder in PACKAGES:
        package = importlib.import_module(f"streamfactory.{folder}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not any(part in module.name.split(".") for part in LEFT_OUT):
                with suppress(ImportError):
                    importlib.import_module(module.name)
    threads = Path("/proc/self/task")
    if threads.is_dir() and len(list(threads.iterdir())) > 1:
        names = [(one / "comm").read_text().strip() for one in threads.iterdir()]
        msg = f"an import has started a thread, of which a fork has no copy: {names}"
        raise RuntimeError(msg)
    # The collections of programs do not copy these pages.
    gc.collect()
    gc.freeze()


def _serve(requests: socket.socket) -> Request | None:
    """Fork on request: returns in each program, and None in the server at the end."""
    woken, wakes = socket.socketpair()
    for end in (woken, wakes):
        end.setblocking(False)
    # From a terminal it is for the tests; in a program it waits for its handler.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wakes.fileno())
    running: dict[int, socket.socket] = {}
    zombies: dict[socket.socket, int] = {}
    while True:
        readable = _readable([requests, woken, *zombies])
        for one in readable:
            if one is woken:
                with suppress(BlockingIOError):
                    woken.recv(4096)
                _report_ends(running, zombies)
            elif one is not requests and not one.recv(4096):
                os.waitpid(zombies.pop(one), 0)
                one.close()
        if requests not in readable:
            continue
        word, descriptors, _, _ = socket.recv_fds(requests, 1, 4)
        if not word:
            return None
        channel, *streams = descriptors
        client = socket.socket(fileno=channel)
        pid = os.fork()
        if not pid:
            signal.set_wakeup_fd(-1)
            for other in (requests, woken, wakes, *running.values(), *zombies):
                other.close()
            return _receive(client, streams)
        for descriptor in streams:
            os.close(descriptor)
        running[pid] = client
        with suppress(OSError):
            client.send(_PID.pack(pid))


def _report_ends(
    running: dict[int, socket.socket], zombies: dict[socket.socket, int]
) -> None:
    """Send exit statuses; a process stays a zombie until its owner has its status.

    Until then a signal to it raises no error, as with an executed program.
    """
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    for pid, client in [*running.items()]:
        ended = os.waitid(os.P_PID, pid, options)
        if ended is None:
            continue
        status = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        zombies[client] = pid
        del running[pid]
        with suppress(OSError):
            client.send(_PID.pack(status))


# --- in a program ---------------------------------------------------------------


def _receive(client: socket.socket, streams: Sequence[int]) -> Request:
    for number, descriptor in enumerate(streams):
        os.dup2(descriptor, number)
        os.close(descriptor)
    with client, client.makefile("rb") as words:
        (length,) = _LENGTH.unpack(words.read(_LENGTH.size))
        request: Request = pickle.loads(words.read(length))
    return request


def _become(request: Request) -> None:
    """Run a program to its end, which is that of this process."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    if request.new_session:
        os.setsid()
    os.chdir(request.folder)
    os.environ.clear()
    os.environ.update(request.environment)
    time.tzset()
    tempfile.tempdir = None  # another TMPDIR
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        mode, errors = "rww"[number], getattr(sys, name).errors
        stream = os.fdopen(number, mode, closefd=False, errors=errors)
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    sys.stderr.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    _exit_with(_run(request))


def _run(request: Request) -> int:
    """Run a program; returns its exit status, or minus the signal that ends it."""
    first, *rest = request.arguments
    before = [*filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    try:
        if first == "-m":
            name, *rest = rest
            sys.path[:1] = [request.folder, *before]
            sys.argv = [name, *rest]
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        elif first == "-c":
            sys.path[:1] = [request.folder, *before]
            sys.argv = [first]
            exec(rest[0], {"__name__": "__main__"})
        else:
            sys.path[:1] = [str(Path(first).resolve().parent), *before]
            sys.argv = [first, *rest]
            runpy.run_path(first, run_name="__main__")
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        sys.stderr.write(f"{end.code}\n")
        return 1
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _exit_with(status: int) -> None:
    """End as Python does, without the modules: that would copy all their pages."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError):
            stream.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status & 0xFF)
