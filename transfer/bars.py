"""A progress bar of a job in a notebook: that of tqdm, else that of rich."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@contextmanager
def progress_bar(what: str) -> Iterator[Callable[[int], None]]:
    """Show a bar during the block; outside of notebooks, and without either, nothing.

    Yields:
        A function to call with the number of rows so far.
    """
    for library, bar in _BARS.items() if _in_notebook() else ():
        try:
            found = import_module(library)
        except ImportError:
            continue
        with bar(found, what) as update:
            yield update
        return
    yield lambda _: None


def _in_notebook() -> bool:
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


@contextmanager
def _tqdm(tqdm: Any, what: str) -> Iterator[Callable[[int], None]]:
    with tqdm.tqdm(desc=what, unit=" rows", unit_scale=True) as shown:
        yield lambda rows: shown.update(rows - shown.n)


@contextmanager
def _rich(rich: Any, what: str) -> Iterator[Callable[[int], None]]:
    columns = ("{task.description}", rich.BarColumn(), "{task.completed:,} rows")
    with rich.Progress(*columns, rich.TimeElapsedColumn()) as shown:
        task = shown.add_task(what, total=None)
        yield lambda rows: shown.update(task, completed=rows)


_BARS: Final = {"tqdm": _tqdm, "rich.progress": _rich}
"""How each library draws, by the module to import."""
