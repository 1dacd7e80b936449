"""Power cuts: whatever was not synced is there or not, whole or torn, by chance.

A folder writes down what it does. At a cut another folder is made of that: what was
synced, and of all else what chance leaves.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, final

from tests.proving.numbers import everything, store_at
from tests.proving.points import STRIDE, go_on
from tests.proving.program import COUNTING, SETTINGS, rows_until, run
from tests.proving.stepping import SteppedStorage
from tests.proving.verdict import Verdict

from streamfactory.arrowlog.disk import DiskLogStore
from streamfactory.spi import CorruptData

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from streamfactory.arrowlog.disk import Storage


class PowerCut(BaseException):
    """The power is gone. Nothing that an `except Exception` would survive."""


@dataclass(slots=True)
class _Node:
    """A file, or a folder, whatever its names are."""

    folder: bool
    data: bytes = b""
    synced: bool = False


@dataclass(slots=True)
class _Folder:
    """The names in a folder: on the medium, and changes that are not."""

    safe: dict[str, _Node] = field(default_factory=dict)
    waiting: list[tuple[str, _Node | None]] = field(default_factory=list)

    def now(self) -> dict[str, _Node]:
        """As running processes see it."""
        return _changed(self.safe, self.waiting)

    def sync(self) -> None:
        self.safe, self.waiting = self.now(), []

    def after(self, chance: random.Random) -> dict[str, _Node]:
        """As it is after a cut: of each name some first changes have come through."""
        names = self.safe
        for name in sorted({name for name, _ in self.waiting}):
            changes = [change for change in self.waiting if change[0] == name]
            names = _changed(names, changes[: chance.randint(0, len(changes))])
        return names


def _changed(
    names: dict[str, _Node], changes: Iterable[tuple[str, _Node | None]]
) -> dict[str, _Node]:
    names = dict(names)
    for name, node in changes:
        if node is None:
            names.pop(name, None)
        else:
            names[name] = node
    return names


class Medium:
    """A disk with a cache: what it was asked for, and what it has done.

    Args:
        root: Where the files are; those that are there are on the medium.
        cut: Before which step the power goes; never where it is None.
    """

    def __init__(self, root: Path, cut: int | None = None) -> None:
        self._root = root
        self._cut = cut
        self.steps = 0
        self.dead = False
        self.acknowledged: list[int] = []
        """Epochs whose commit has returned."""
        self.users: list[PoweredStorage] = []
        self._temporary: Path | None = None
        self._folders: dict[Path, _Folder] = {root.parent: _Folder()}
        if root.is_dir():
            self._begin(root)
            self._folders[root.parent].sync()

    def _begin(self, folder: Path) -> None:
        known = self._folder(folder)
        for path in folder.iterdir():
            if path.is_dir():
                self._begin(path)
            else:
                node = _Node(folder=False, data=path.read_bytes(), synced=True)
                known.waiting.append((path.name, node))
        known.sync()

    def step(self, name: str, path: Path) -> None:
        """A step is about to be taken."""
        if self.steps == self._cut:
            self.dead = True
        self.steps += 1
        if self.dead:
            msg = f"before step {self._cut}: {name} {path}"
            raise PowerCut(msg)

    def took(self, verb: str, path: Path) -> None:
        """A step was taken."""
        if self.dead:
            return
        folder = self._folder(path.parent)
        match verb:
            case "create":
                folder.waiting.append((path.name, _Node(folder=False)))
            case "write" if path.name.startswith(".tmp-"):
                self._temporary = path
                node = _Node(folder=False, data=path.read_bytes())
                folder.waiting.append((path.name, node))
            case "write":
                folder.now()[path.name].data = path.read_bytes()
            case "link":
                assert self._temporary is not None
                node = folder.now()[self._temporary.name]
                folder.waiting.append((path.name, node))
            case "remove":
                folder.waiting.append((path.name, None))
                self._folders.pop(path, None)
            case "sync" if path.is_dir():
                for inner in path.iterdir():
                    if inner.is_dir():
                        self._folder(inner)
                self._folder(path).sync()
            case "sync":
                folder.now()[path.name].synced = True

    def _folder(self, path: Path) -> _Folder:
        found = self._folders.get(path)
        if found is None:
            found = self._folders[path] = _Folder()
            above = self._folder(path.parent)
            above.waiting.append((path.name, _Node(folder=True)))
        return found

    def published(self) -> None:
        """The temporary name is gone."""
        if self._temporary is not None and not self.dead:
            self.took("remove", self._temporary)

    def leave(self, target: Path, chance: random.Random) -> None:
        """Make a folder as the cut leaves it."""
        if self._root.name in self._folders[self._root.parent].after(chance):
            self._leave(self._root, target, chance)

    def _leave(self, source: Path, target: Path, chance: random.Random) -> None:
        target.mkdir(parents=True)
        folder = self._folders.get(source, _Folder())
        for name, node in sorted(folder.after(chance).items()):
            if node.folder:
                self._leave(source / name, target / name, chance)
            else:
                data = node.data if node.synced else _torn(node.data, chance)
                (target / name).write_bytes(data)


def _torn(data: bytes, chance: random.Random) -> bytes:
    """What an unsynced file has after a cut."""
    part = data[: chance.randrange(len(data) + 1)]
    return chance.choice([data, b"", part, part.ljust(len(data), b"\0")])


@final
class PoweredStorage(SteppedStorage):
    """A folder on a `Medium`.

    With ``fsync=interval`` it is chance, not the clock, that syncs.
    """

    def __init__(
        self, root: Path, medium: Medium, chance: random.Random, **options: Any
    ) -> None:
        super().__init__(root, medium.step, **options)
        self._medium = medium
        self._chance = chance
        medium.users.append(self)

    def unplug(self) -> None:
        """End what a process that lost its power has no more: timers, open folders."""
        if self._timer is not None:
            self._timer.cancel()
        self._folders.forget()

    def within(self, folder: str) -> Storage:
        inner = self.root / folder
        return PoweredStorage(inner, self._medium, self._chance, **self._options)

    def took(self, verb: str, path: Path) -> None:
        self._medium.took(verb, path)

    def publish(self, name: str, data: bytes) -> bool:
        try:
            won = super().publish(name, data)
        finally:
            self._medium.published()
        if self._options["fsync"] == "interval" and self._chance.random() < 0.2:
            self._sync_now()
        return won


def cut_once(root: Path, cut: int | None, chance: random.Random, fsync: str) -> Medium:
    """Take the steps of the program until the power goes.

    Answers:
        The medium: `dead` where the power went, else the program came to its end.
    """
    medium = Medium(root, cut)
    options = {"fsync": fsync, "interval": 3600.0}
    store = DiskLogStore(PoweredStorage(root, medium, chance, **options), SETTINGS)
    try:
        run(store, medium.acknowledged.append)
    except PowerCut:
        pass
    finally:
        with contextlib.suppress(PowerCut):
            store.close()
        while medium.users:
            medium.users.pop().unplug()
    return medium


def survive(root: Path, cuts: Iterable[int], chance: random.Random) -> Verdict:
    """Cut the power where everything is synced: nothing acknowledged may be gone.

    Again and again, while other processes go on; the last one comes to its end.

    Args:
        root: Has a folder for what each cut leaves.
        cuts: Before which step of each process, as long as the program goes on.
        chance: Of what is left.
    """
    verdict, now = Verdict(), root / "0"
    for number, cut in enumerate(cuts):
        medium = cut_once(now, cut, chance, "always")
        if not medium.dead:
            break
        verdict.kills += 1
        now = root / f"{number + 1}"
        medium.leave(now, chance)
        verdict.lost += max(0, max(medium.acknowledged, default=-1) - last_epoch(now))
    verdict += go_on(now)
    return verdict


def last_epoch(root: Path) -> int:
    """That is there; -1 where none is."""
    store = store_at(root)
    held = store.open(COUNTING).last("w") if COUNTING in store.names() else None
    store.close()
    return -1 if held is None else held.epoch


def lose(root: Path, cut: int, chance: random.Random, fsync: str) -> str:
    """Cut the power where not everything is synced.

    Answers:
        ``whole`` where all acknowledged is there, ``suffix`` where the last epochs
        are gone, ``refused`` where an error names what is broken. Else it fails.
    """
    medium = cut_once(root / "0", cut, chance, fsync)
    after = root / "1"
    medium.leave(after, chance)
    store = store_at(after)
    try:
        if COUNTING not in store.names():
            return "suffix"
        log = store.open(COUNTING)
        held = log.last("w")
        edges, rows = log.bounds(), everything(log)
    except CorruptData as error:
        if str(after) not in error.what:
            raise
        return "refused"
    finally:
        store.close()
    epoch = -1 if held is None else held.epoch
    for partition, (numbers, bounds) in enumerate(
        zip(rows.values(), edges, strict=True)
    ):
        written = rows_until(epoch, partition)
        assert bounds.latest == len(written), (epoch, bounds)
        assert numbers == written[bounds.earliest :], (epoch, partition)
    return (
        "suffix" if medium.acknowledged and epoch < medium.acknowledged[-1] else "whole"
    )


def steps(root: Path, fsync: str) -> int:
    """How many steps the program has."""
    return cut_once(root, None, random.Random(0), fsync).steps


def prove(rounds: int, seed: int, root: Path) -> Verdict:
    """Cut the power so often, on the way through the program."""
    chance = random.Random(seed)
    verdict = Verdict()
    while verdict.kills < rounds:
        place, left = root / f"{verdict.kills}", rounds - verdict.kills
        cuts = [chance.randrange(STRIDE) for _ in range(left)]
        done = survive(place, cuts, chance)
        if not done.good:
            cuts = cuts[: done.kills]
            verdict.notes.append(f"power cuts before steps {cuts}: {done}")
        verdict += done
        shutil.rmtree(place)
    return verdict
