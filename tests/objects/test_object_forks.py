"""Children of a fork use object stores of their own, whatever the parent does."""

from __future__ import annotations

import gc
import os
import signal
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from tests.objects.server import BUCKET
from tests.objects.stage import options, storage_at

from streamfactory.arrowlog.disk.objects import ObjectStorage

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.objects.server import ObjectServer

DEADLINE = 60.0

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork.*:DeprecationWarning"),
]


def in_a_child(action: Callable[[], object]) -> None:
    """Fork, act there, and end; a child that does not end is killed with its own."""
    child = os.fork()
    if not child:
        status = 1
        try:
            os.setpgid(0, 0)
            action()
            status = 0
        finally:
            os._exit(status)
    deadline = time.monotonic() + DEADLINE
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0):
        if time.monotonic() > deadline:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
            msg = f"the child did not end in {DEADLINE:.0f} s"
            raise TimeoutError(msg)
        time.sleep(0.01)
    assert os.waitstatus_to_exitcode(ended[1]) == 0


def test_children_and_their_children_read_and_write(
    server: ObjectServer, url: str
) -> None:
    storage = storage_at(server.endpoint, url)
    name = uuid.uuid4().hex
    storage.publish(name, b"parent")

    def grandchild() -> None:
        storage.publish(f"{name}-grandchild", storage.read(name))

    def child() -> None:
        storage.publish(f"{name}-child", storage.read(name) + b" and child")
        in_a_child(grandchild)

    in_a_child(child)
    assert storage.read(f"{name}-child") == b"parent and child"
    assert storage.read(f"{name}-grandchild") == b"parent"
    assert storage.read(name) == b"parent"


def test_a_fork_while_another_thread_opens_the_store(
    server: ObjectServer, url: str
) -> None:
    """That thread holds the locks of the client and of the proof of conditions."""
    parent, opening, going_on = os.getpid(), threading.Event(), threading.Event()

    def make(module: Any) -> Any:
        if os.getpid() == parent:
            opening.set()
            going_on.wait(DEADLINE)
        config = options(server.endpoint).config
        allowed = {"allow_http": True}
        return module.store.from_url(url, config=config, client_options=allowed)

    storage = ObjectStorage(url, options(server.endpoint), make=make)
    other = threading.Thread(target=storage.publish, args=("log/a", b"parent"))
    other.start()
    assert opening.wait(DEADLINE)
    try:
        in_a_child(lambda: storage.publish("log/b", b"child"))
    finally:
        going_on.set()
        other.join(DEADLINE)
    assert sorted(storage.names("log")) == ["a", "b"]


class Inherited:
    """A store of the client, as far as its end is concerned."""

    def __init__(self, freed: int) -> None:
        self._freed = freed

    def __del__(self) -> None:
        os.write(self._freed, b"freed")


@pytest.mark.parametrize("how", ["used", "closed", "collected"])
def test_a_child_frees_no_store_of_its_parent(how: str) -> None:
    """Its connections close under a lock that a thread of the parent may hold."""
    # What other tests left is not collected in the child: a client that does not
    # survive a fork ended it there (seen with engines that have threads of their own).
    gc.collect()
    gc.freeze()
    seen, freed = os.pipe()
    held = [
        ObjectStorage(f"s3://{BUCKET}/x", make=lambda module: Inherited(freed)),
    ]
    with held[0]._client.asking("x") as (_, first):
        assert isinstance(first, Inherited)
    del first

    def child() -> None:
        if how == "used":
            with held[0]._client.asking("x"):
                pass
        elif how == "closed":
            held[0].close()
        else:
            held.clear()
            gc.collect()
        os.set_blocking(seen, False)
        with pytest.raises(BlockingIOError):
            os.read(seen, 5)

    try:
        in_a_child(child)
    finally:
        gc.unfreeze()
        held[0].close()
        assert os.read(seen, 5) == b"freed"
        os.close(seen)
        os.close(freed)
