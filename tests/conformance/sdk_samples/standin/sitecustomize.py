"""For a sample's process: it trusts the sandbox, and `paired_client` opens a pairing where the sample made a client."""

from __future__ import annotations

import builtins
import os
from typing import Any

import certifi
from azure.servicebus import ServiceBusClient
from azure.servicebus.aio import ServiceBusClient as AsyncClient

certifi.where = lambda: os.environ["SANDBOX_CA"]
PLAIN = {"use_tls": False}
"""The SDK speaks TLS on port 5671 only; the sandbox has a port of its own."""


def speak_plainly(kind: Any) -> None:
    """Make clients of this class connect without TLS."""
    make = kind.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        make(self, *arguments, **PLAIN | options)

    kind.__init__ = init


speak_plainly(ServiceBusClient)
speak_plainly(AsyncClient)


def paired_client(*arguments: Any, **options: Any) -> Any:
    """Pair the namespace of the SDK's arguments with the secondary one."""
    import paired_servicebus.sync
    from paired_servicebus import Namespace

    is_string = "conn_str" in options or len(arguments) == 1
    secondary = Namespace.from_connection_string(os.environ["SANDBOX_SECONDARY"])
    if is_string:
        text = options.pop("conn_str", None) or arguments[0]
        primary = Namespace.from_connection_string(text, messaging=options)
    else:
        names = ("fully_qualified_namespace", "credential")
        given = dict(zip(names, arguments, strict=False)) | {
            name: options.pop(name) for name in names if name in options
        }
        primary = Namespace(*(given[name] for name in names), messaging=options)
    door = paired_servicebus if os.environ["SAMPLE_KIND"] == "async" else paired_servicebus.sync
    return door.pair_namespaces(primary, secondary, primary_name="primary", backlog_queue_count=1)


builtins.paired_client = paired_client  # type: ignore[attr-defined]
