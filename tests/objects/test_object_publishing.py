"""Publication in a bucket: one wins, whatever gets lost on the way."""

from __future__ import annotations

import random
import threading
import uuid
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from tests.objects.proxy import Fault
from tests.objects.stage import options, storage_at

from streamfactory.arrowlog.disk.objects import ObjectStorage
from streamfactory.spi import StorageFailed, TransientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.objects.proxy import FaultyProxy
    from tests.objects.server import ObjectServer

    Proxied = Callable[[Callable[[str, str], Fault | None]], FaultyProxy]


def only_first(fault: Fault, method: str, part: str = "") -> Callable[..., Any]:
    """The first request of a kind meets the fault, others none."""
    left = [fault]

    def plan(asked: str, path: str) -> Fault | None:
        fits = asked == method and part in path and ".probe" not in path
        return left.pop() if fits and left else None

    return plan


def test_the_server_keeps_to_conditions(server: ObjectServer) -> None:
    # What all other tests stand on; the server's own client, and none of our code.
    import obstore

    store, wins = server.store(), Counter[str]()

    def put(name: str, number: int) -> None:
        try:
            obstore.put(store, name, b"%d" % number, mode="create")
        except obstore.exceptions.AlreadyExistsError:
            return
        wins[name] += 1

    names = [f"race/{uuid.uuid4().hex}" for _ in range(8)]
    for name in names:
        threads = [threading.Thread(target=put, args=(name, n)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(120)
    assert wins == dict.fromkeys(names, 1)


def test_of_two_publications_the_first_stays(server: ObjectServer, url: str) -> None:
    storage, other = storage_at(server.endpoint, url), storage_at(server.endpoint, url)
    assert storage.publish("log/0", b"one") is True
    assert other.publish("log/0", b"two") is False
    assert storage.read("log/0") == b"one"


def test_the_same_bytes_are_our_own(server: ObjectServer, url: str) -> None:
    storage = storage_at(server.endpoint, url)
    assert storage.publish("log/0", b"one") is True
    assert storage.publish("log/0", b"one") is True


@pytest.mark.parametrize(
    "fault",
    [
        Fault.LOST_REQUEST,
        Fault.LOST_REPLY,
        Fault.NO_REPLY,
        Fault.BUSY,
        Fault.CONFLICT,
        Fault.TORN_REPLY,
    ],
)
def test_a_publication_with_a_fault_is_reported(
    server: ObjectServer, proxied: Proxied, url: str, fault: Fault
) -> None:
    proxy = proxied(only_first(fault, "PUT"))
    storage = storage_at(proxy.endpoint, url, timeout=1.0)
    assert storage.publish("log/0", b"ours") is True
    assert [met[2] for met in proxy.met] == [fault]
    assert storage_at(server.endpoint, url).read("log/0") == b"ours"


@pytest.mark.parametrize("fault", [Fault.LOST_REPLY, Fault.CONFLICT, Fault.BUSY])
def test_a_publication_that_came_second_is_reported_through_faults(
    server: ObjectServer, proxied: Proxied, url: str, fault: Fault
) -> None:
    storage_at(server.endpoint, url).publish("log/0", b"theirs")
    proxy = proxied(only_first(fault, "PUT"))
    assert storage_at(proxy.endpoint, url).publish("log/0", b"ours") is False
    assert proxy.met


def test_a_store_that_is_always_busy_is_a_passing_trouble(
    proxied: Proxied, url: str
) -> None:
    proxy = proxied(lambda method, path: Fault.BUSY if "log/0" in path else None)
    storage = storage_at(proxy.endpoint, url, timeout=0.2)
    with pytest.raises(TransientError) as caught:
        storage.publish("log/0", b"ours")
    assert str(caught.value).startswith(f"{url}/log/0: ")
    assert "503" in str(caught.value)


def test_a_conflict_without_a_winner_is_a_passing_trouble(
    proxied: Proxied, url: str
) -> None:
    def plan(method: str, path: str) -> Fault | None:
        return Fault.CONFLICT if method == "PUT" and "log/0" in path else None

    storage = storage_at(proxied(plan).endpoint, url)
    with pytest.raises(TransientError) as caught:
        storage.publish("log/0", b"ours")
    assert str(caught.value) == (
        f"{url}/log/0: the store reported an existing object, but it does not exist"
    )


def test_a_store_that_ignores_conditions_is_refused(
    server: ObjectServer, proxied: Proxied, url: str
) -> None:
    proxy = proxied(lambda method, path: Fault.UNCONDITIONAL)
    storage = storage_at(proxy.endpoint, url)
    for _ in range(2):
        with pytest.raises(StorageFailed) as caught:
            storage.within("topic").publish("log/0", b"ours")
        assert str(caught.value) == (
            f"{url}: the store ignores `If-None-Match: *`, so two writers could "
            f"overwrite each other; use a store that supports conditional puts"
        )
    # It is refused before anything is written, and the probes are gone.
    assert storage_at(server.endpoint, url).names("") == []


def test_a_store_is_probed_once(
    server: ObjectServer, proxied: Proxied, url: str
) -> None:
    puts: list[str] = []

    def plan(method: str, path: str) -> Fault | None:
        if method == "PUT":
            puts.append(path)
        return None

    storage = storage_at(proxied(plan).endpoint, url)
    for number in range(3):
        storage.within(f"topic-{number}").publish("log/0", b"ours")
    assert len(puts) == 2 + 3
    assert len([path for path in puts if "/.probe-" in path]) == 2


@pytest.mark.parametrize(
    "fault", [Fault.LOST_REPLY, Fault.LOST_REQUEST, Fault.CONFLICT]
)
def test_a_fault_under_the_probe_is_no_refusal(
    proxied: Proxied, url: str, fault: Fault
) -> None:
    left = [fault]

    def plan(method: str, path: str) -> Fault | None:
        return left.pop() if left and "/.probe-" in path else None

    assert storage_at(proxied(plan).endpoint, url).publish("log/0", b"ours") is True
    assert not left


def test_a_client_without_conditional_puts_is_refused(url: str) -> None:
    def http_store(module: Any) -> Any:
        return module.store.HTTPStore.from_url("http://127.0.0.1:1")

    storage = ObjectStorage(url, options("http://127.0.0.1:1"), make=http_store)
    with pytest.raises(StorageFailed) as caught:
        storage.publish("log/0", b"ours")
    assert "the store ignores `If-None-Match: *`" in str(caught.value)


@pytest.mark.long("many writers")
def test_many_writers_publish_each_number_once(
    server: ObjectServer, proxied: Proxied, url: str
) -> None:
    chance, guard = random.Random(5), threading.Lock()
    kinds = [Fault.LOST_REPLY, Fault.LOST_REQUEST, Fault.CONFLICT, Fault.BUSY]

    def plan(method: str, path: str) -> Fault | None:
        with guard:
            return chance.choice(kinds) if chance.random() < 0.2 else None

    proxy = proxied(plan)
    won: dict[int, list[str]] = {number: [] for number in range(20)}

    def write(who: str) -> None:
        storage = storage_at(proxy.endpoint, url, timeout=5.0)
        for number, winners in won.items():
            while True:
                try:
                    if storage.publish(f"log/{number}", who.encode()):
                        winners.append(who)
                    break
                except TransientError:
                    continue

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    direct = storage_at(server.endpoint, url)
    there = {number: [direct.read(f"log/{number}").decode()] for number in won}
    assert won == there
    assert len(proxy.met) > 20
