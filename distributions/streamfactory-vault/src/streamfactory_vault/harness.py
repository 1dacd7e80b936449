"""What the conformance kit drives the scheme with: a development server of OpenBao."""

from __future__ import annotations

import os
import tempfile
import uuid
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
from streamfactory.conformance import LocalServer, find_program

if TYPE_CHECKING:
    from collections.abc import Iterator

TOKEN = "kit-root-token"


class Store:
    """Writes secrets without the code under test.

    Args:
        address: Of the server.
        token: One that may do everything.
    """

    def __init__(self, address: str, token: str) -> None:
        self.address = address
        self._client = httpx.Client(
            base_url=f"{address}/v1/", headers={"X-Vault-Token": token}, trust_env=False
        )

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> Any:
        """Make a request; return the answer."""
        answer = self._client.request(method, path, json=body, headers=headers)
        answer.raise_for_status()
        return answer.json() if answer.content else {}

    def put(self, path: str, **fields: Any) -> None:
        """Write a secret of the mount ``secret``, version 2."""
        self.call("POST", f"secret/data/{path}", {"data": fields})

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


class StoreHarness:
    """The harness over a server that runs.

    Args:
        store: The server.
    """

    def __init__(self, store: Store) -> None:
        self._store = store

    def store(self, value: str) -> str:
        """Store a value; return what follows the colon."""
        name = f"kit/{uuid.uuid4().hex}"
        self._store.put(name, password=value)
        return f"secret/{name}#password"

    def replace(self, what: str, value: str) -> None:
        """Replace a stored value."""
        path = what.partition("#")[0].removeprefix("secret/")
        self._store.put(path, password=value)

    def missing(self) -> list[str]:
        """A key, a secret, and a secret that was deleted."""
        kept, deleted = f"kit/{uuid.uuid4().hex}", f"kit/{uuid.uuid4().hex}"
        self._store.put(kept, other="x")
        self._store.put(deleted, password="x")
        self._store.call("DELETE", f"secret/data/{deleted}")
        never = f"secret/kit/{uuid.uuid4().hex}"
        return [f"secret/{name}#password" for name in (kept, deleted)] + [f"{never}#k"]

    def close(self) -> None:
        """Nothing to remove: the server forgets when it ends."""


class BaoHarness(StoreHarness):
    """The harness of the kit: `prepare` starts the server, once in a process."""

    _server: LocalServer | None = None

    @classmethod
    def prepare(cls) -> None:
        """Start the server.

        Raises:
            RuntimeError: The program ``bao`` is not installed.
        """
        if cls._server is None:
            cls._server = bao_server(Path(tempfile.mkdtemp(prefix="conformance-")))

    def __init__(self) -> None:
        self.prepare()
        server = type(self)._server
        assert server is not None
        address = f"http://{server.address}"
        ours = {"VAULT_ADDR": address, "VAULT_TOKEN": TOKEN}
        self._before = {name: os.environ.get(name) for name in ours}
        os.environ.update(ours)
        super().__init__(Store(address, TOKEN))

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Suspend the server: the system still accepts its connections."""
        server = type(self)._server
        assert server is not None
        server.freeze()
        try:
            yield
        finally:
            server.thaw()

    def close(self) -> None:
        """Close the connections; the server stays for the next case."""
        for name, value in self._before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
        self._store.close()


def bao_server(folder: Path) -> LocalServer:
    """A development server, which keeps secrets in memory, started."""
    program = find_program("bao", "OpenBao 2.6: https://openbao.org")

    def command(port: int) -> list[str]:
        listen = f"-dev-listen-address=127.0.0.1:{port}"
        root = f"-dev-root-token-id={TOKEN}"
        return [program, "server", "-dev", "-dev-no-store-token", listen, root]

    def answers(port: int) -> bool:
        try:
            url = f"http://127.0.0.1:{port}/v1/sys/internal/ui/mounts/secret"
            headers = {"X-Vault-Token": TOKEN}
            return httpx.get(url, headers=headers, trust_env=False).status_code == 200
        except httpx.HTTPError:
            return False

    server = LocalServer(folder, command, answers=answers)
    server.start()
    return server
