"""A folder that tells of every step before it is taken.

A step is one that a kill or a power cut can come before: a file begun, synced, linked
or removed, a folder made or synced. Steps have names, as ``link record``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, final

from streamfactory.arrowlog.disk import LocalStorage, NewBlob

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from streamfactory.arrowlog.disk import Storage

    Step = Callable[[str, Path], None]


def kind_of(path: Path) -> str:
    """What a path is to the log."""
    if path.name.startswith(".tmp-"):
        return "temporary"
    if path.suffix == ".snapshot":
        return "snapshot"
    if path.suffix == ".arrow":
        return {"data": "segment", "index": "part"}[path.parent.name]
    if path.suffix == ".json":
        return "record" if path.parent.name == "log" else "name"
    if path.suffix == ".topic":
        return "topic"
    return path.name if path.name in {"log", "data", "index"} else "folder"


@final
class _SteppedBlob(NewBlob):
    def __init__(self, storage: SteppedStorage, blob: NewBlob, path: Path) -> None:
        self._storage = storage
        self._blob = blob
        self._path = path
        self.sink = blob.sink

    def finish(self) -> int:
        self._storage.step("finish", self._path)
        return self._blob.finish()

    def abandon(self) -> None:
        self._blob.abandon()
        self._storage.took("remove", self._path)


class SteppedStorage(LocalStorage):
    """A folder, and a function that is called before each step."""

    def __init__(self, root: Path, step: Step, **options: Any) -> None:
        super().__init__(root, **options)
        self._step = step
        self._options = options

    def step(self, verb: str, path: Path) -> None:
        self._step(f"{verb} {kind_of(path)}", path)

    def took(self, verb: str, path: Path) -> None:
        """A step was taken that changed something."""

    def within(self, folder: str) -> Storage:
        return type(self)(self.root / folder, self._step, **self._options)

    def create(self, name: str) -> NewBlob:
        self.step("create", self.root / name)
        blob = super().create(name)
        self.took("create", self.root / name)
        return _SteppedBlob(self, blob, self.root / name)

    def publish(self, name: str, data: bytes) -> bool:
        self.step("publish", self.root / name)
        return super().publish(name, data)

    def remove(self, names: Iterable[str]) -> None:
        for name in names:
            self.step("remove", self.root / name)
            super().remove([name])
            self.took("remove", self.root / name)

    def remove_folder(self, folder: str) -> None:
        place = self.root / folder
        for path in [*sorted(place.rglob("*"), reverse=True), place]:
            self.step("remove", path)
            if path.is_dir():
                super().remove_folder(str(path.relative_to(self.root)))
            else:
                path.unlink(missing_ok=True)
            self.took("remove", path)

    def sync_file(self, path: Path) -> None:
        self.took("write", path)
        super().sync_file(path)

    def _sync(self, path: Path) -> None:
        self.step("sync", path)
        path.stat()  # missing ones are missed; a kill takes nothing from memory
        self.took("sync", path)

    def _link(self, temporary: Path, final: Path) -> bool:
        self.step("link", final)
        return super()._link(temporary, final)

    def _settle_link(self, final: Path) -> None:
        self.took("link", final)
        self.step("settle", final)
        super()._settle_link(final)

    def _make_folder(self, path: Path) -> None:
        self.step("make", path)
        super()._make_folder(path)
