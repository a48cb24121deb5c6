"""`paired browse`: the messages of any entity of a namespace or a sandbox, by its connection string."""

from __future__ import annotations

import os
import sys
from typing import Annotated, Final

from cyclopts import Parameter

from paired_servicebus.connection_string import complaint, host_of, is_emulated, is_loopback, parts_of
from paired_servicebus.core.errors import ConfigurationError, PairedError
from paired_servicebus.engine.control.control_client import user_name

VARIABLE: Final = "SERVICEBUS_CONNECTION_STRING"


def browse(
    entity: Annotated[str, Parameter(help="A queue, or TOPIC/Subscriptions/NAME; none: picked from a list.")] = "",
    /,
    *,
    connection: Annotated[
        str | None,
        Parameter(env_var=VARIABLE, help="The namespace's or entity's connection string; best in the variable."),
    ] = None,
) -> int:
    """Look into any entity of a namespace: counts, messages, dead letters. Read-only; a sandbox takes test messages."""
    from paired_servicebus.engine.clients.namespace_source import NamespaceSource  # with the SDK behind it
    from paired_servicebus.ui import run_browser  # with Textual behind it

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise PairedError("paired browse needs a terminal for its input and output")
    string = connection or os.environ.get(VARIABLE, "")
    if not string:
        raise ConfigurationError(f"no connection string: set {VARIABLE}, or give it with --connection")
    parts = {**parts_of(string)}
    own = parts.pop("entitypath", "")
    if reason := complaint(parts):
        raise ConfigurationError(f"the connection string {reason}")
    source = NamespaceSource(string, takes_tests=is_emulated(parts) and is_loopback(parts))
    return run_browser(source, namespace=host_of(parts), entity=entity or own, by=user_name(), close=source.close)
