"""``serve``: a server of streams, in the foreground."""

from __future__ import annotations

import json
import os
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from streamfactory.cli.draining import draining
from streamfactory.cli.metrics_endpoint import (
    metrics_option,
    remote_option,
    telemetry,
    telemetry_option,
)
from streamfactory.cli.parameters import json_flag, log_format_option, overrides_of
from streamfactory.cli.status import Status, status_of
from streamfactory.cli.ui_endpoint import (
    pages_endpoint,
    ui_option,
    ui_settings_option,
)
from streamfactory.spi import ConfigError, Problem, StreamError
from streamfactory.wiring.config.definition import Property
from streamfactory.wiring.metrics.endpoint import ProcessMonitor
from streamfactory.wiring.options.texts import canonical_text, not_text
from streamfactory.wiring.serving.servers import open_metrics, open_server

if TYPE_CHECKING:
    from streamfactory.cli.printing import Printer


@click.command("serve")
@click.option("--flight", "address", metavar="ADDRESS", help="Serve Arrow Flight.")
@click.option(
    "--path", metavar="PATH", help="Keep the topics in a folder, or at s3://..."
)
@click.option("--memory", is_flag=True, help="Keep the topics in memory.")
@metrics_option
@remote_option
@ui_option
@ui_settings_option
@click.option(
    "-o",
    "--option",
    "options",
    multiple=True,
    metavar="KEY=VALUE",
    callback=overrides_of,
    help="A setting of the server; may be given several times.",
)
@click.option(
    "--config",
    metavar="FILE",
    help="Settings as a JSON object; - reads one line, and ends with the input.",
)
@click.option("--type", "kind", default="flight", hidden=True)
@telemetry_option
@log_format_option
@json_flag
@click.pass_obj
def serve_command(
    printer: Printer,
    address: str | None,
    path: str | None,
    memory: bool,
    metrics: str | None,
    metrics_remote: bool,
    ui_address: str | None,
    ui_settings: dict[str, str],
    opentelemetry: bool,
    options: dict[str, str],
    config: str | None,
    kind: str,
) -> Status:
    """Serve streams to other processes until SIGTERM or SIGINT."""
    given = _from_config(config)
    if address is not None:
        given.append(Property("address", address, "--flight"))
    if path is not None:
        given.append(Property("path", path, "--path"))
    if memory:
        given.append(Property("memory", "true", "--memory"))
    if metrics is not None:
        given.append(Property("metrics.address", metrics, "--metrics"))
    if metrics_remote:
        flag = "--metrics-allow-remote"
        given.append(Property("metrics.allow.remote", "true", flag))
    given += [Property(key, text, "--option") for key, text in options.items()]
    with ExitStack() as stack:
        stack.enter_context(pages_endpoint(ui_address, ui_settings, printer))
        try:
            server = open_server(kind, given)
        except StreamError as error:
            if config != "-":
                raise
            printer.show(error.to_dict(), ())  # the program that started it raises it
            return status_of(error)
        # Not before: what opens the topics may wait long for an object store. Ctrl-C
        # reaches a child beside the SIGTERM of its parent: two signals are one.
        stop = stack.enter_context(draining(interrupt=False, patient=True))
        endpoint = open_metrics(server)
        location = endpoint and endpoint.location
        lines = [f"{kind}: listening on {server.location}"]
        lines += [] if location is None else [f"metrics: {location}"]
        printer.show(
            {"type": kind, "location": server.location, "metrics": location}, lines
        )
        sys.stdout.flush()
        if config == "-":
            threading.Thread(target=_watch_input, args=(stop,), daemon=True).start()
        with telemetry(opentelemetry, lambda: ProcessMonitor(server)):
            stop.wait()
            server.drain(server.config["drain.timeout.millis"] / 1000)
        server.close()
        # gRPC waits for the calls of idle clients for ever; what must be finished is.
        os._exit(Status.FINE)


def _from_config(config: str | None) -> list[Property]:
    if config is None:
        return []
    try:
        standard = config == "-"
        text = sys.stdin.readline() if standard else Path(config).read_text("utf-8")
        plain: Any = json.loads(text)
    except (OSError, ValueError, RecursionError) as error:
        msg = f"--config {config!r} cannot be read: {error}"
        raise ConfigError(msg, remedy="give a JSON object of settings") from error
    if not isinstance(plain, dict):
        msg = f"--config {config!r} is not a JSON object"
        raise ConfigError(msg, remedy="give a JSON object of settings")
    texts = {key: canonical_text(value) for key, value in plain.items()}
    problems = [
        Problem(key, not_text(plain[key]), config)
        for key, text in texts.items()
        if text is None
    ]
    if problems:
        msg = f"--config {config!r} holds settings that are not text"
        raise ConfigError(msg, problems=problems)
    return [
        Property(key, text, config) for key, text in texts.items() if text is not None
    ]


def _watch_input(stop: threading.Event) -> None:
    while sys.stdin.readline():
        pass
    stop.set()
