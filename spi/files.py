"""Reads small files that configurations name: regular ones, of bounded size."""

from __future__ import annotations

import errno
import os
import stat
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def read_file(path: str | Path, most: int, *, links: bool = True) -> bytes:
    """Return the content of a regular file; never blocks.

    A definition may come from somebody else: a pipe would be waited for, and a device
    has no end.

    Args:
        path: The file.
        most: Maximum bytes.
        links: Whether the path may be a symbolic link.

    Raises:
        OSError: It cannot be opened, is no regular file, has no data, or has more than
            ``most`` bytes; ``strerror`` is the reason.
    """
    no_link = 0 if links else os.O_NOFOLLOW
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | no_link)
    except ValueError as error:  # a null character
        raise OSError(errno.EINVAL, "the path is not valid") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file")
    with os.fdopen(descriptor, "rb") as file:
        content: bytes | None = file.read(most + 1)
    if content is None:  # /proc has regular files that wait for data
        raise OSError(errno.EAGAIN, "it has no data")
    if len(content) > most:
        raise OSError(errno.EFBIG, f"the file is larger than {most >> 20} MiB")
    return content
