"""A call in a new process that inherits nothing, like an executor.

``python -m streamfactory.conformance.spark.process`` reads a pickled call and answers
its pickled result.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamfactory.conformance.expectations import Mismatch
from streamfactory.wiring.config.settled import Configured

if TYPE_CHECKING:
    from collections.abc import Callable

_PATIENCE = 60.0


def elsewhere(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function of a module in another process; answers what it answers.

    Raises:
        Mismatch: It failed there.
    """
    # What can be imported here can be imported there.
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter
            [sys.executable, "-m", __name__],
            input=pickle.dumps((function, arguments)),
            env=environment,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        msg = f"another process does not come back in {_PATIENCE:.0f} s"
        raise Mismatch(msg) from error
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines()
        last = lines[-1] if lines else f"ended with status {done.returncode}"
        msg = f"in another process: {last}"
        raise Mismatch(msg)
    return pickle.loads(done.stdout)  # noqa: S301 - our own


def portable(configured: Configured) -> Configured:
    """A configuration whose plug-ins go along by the names of their classes.

    An executor would find them by entry point; under test they may have none.
    """
    decoder, keys = configured.decoder, configured.key_decoder
    return Configured(
        configured.config,
        replace(configured.backend, options=(), translate=None),
        None if decoder is None else replace(decoder, options=()),
        None if keys is None else replace(keys, options=()),
    )


def main() -> None:
    """Serve one call."""
    function, arguments = pickle.load(sys.stdin.buffer)  # noqa: S301 - our own
    # Whatever prints does not stand between us and the caller.
    answer, sys.stdout = sys.stdout.buffer, sys.stderr
    answer.write(pickle.dumps(function(*arguments)))
    answer.flush()


if __name__ == "__main__":
    main()
