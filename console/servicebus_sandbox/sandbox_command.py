"""`paired sandbox`: a sandbox as a process."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from servicebus_sandbox.sandbox_host import Sandbox
from servicebus_sandbox.serving.process_settings import HOST, run_until_signal
from servicebus_sandbox.spec_file import load_specs
from servicebus_sandbox.specs import NamespaceSpec, SandboxConfigError, primary_and_secondary


def run_sandbox(
    *,
    json_line: bool,
    config: Path | None = None,
    listen: str = HOST,
    primary_port: int = 0,
    secondary_port: int = 0,
    control_port: int = 0,
) -> int:
    """Serve the namespaces of the file `config`, else a primary and a secondary one, until SIGTERM or SIGINT.

    Port 0 is any free one; `listen` is the namespaces' address. Prints the addresses first, with `json_line` as one
    line of JSON. Returns the exit status: 0, or 2 with a sentence on stderr for an invalid file or an unavailable port
    or address.
    """

    def start() -> AbstractAsyncContextManager[Sandbox]:
        specs: Sequence[NamespaceSpec]
        if config is None:
            specs = primary_and_secondary(primary_port=primary_port, secondary_port=secondary_port)
        elif primary_port or secondary_port:
            raise SandboxConfigError(
                f"with --config, ports belong in the file: write port = … under [[namespace]] of {config}"
            )
        else:
            specs = load_specs(config)
        return Sandbox.start(specs, control_port=control_port, listen=listen)

    return run_until_signal("paired sandbox", start, describe_as_json if json_line else describe)


def describe_as_json(sandbox: Sandbox) -> str:
    """Return the addresses as one line of JSON."""
    namespaces = [
        {
            "name": namespace.name,
            "connection_string": namespace.connection_string,
            "amqp_port": namespace.amqp_port,
            "admin_url": namespace.admin_url,
            "key_name": namespace.key_name,
            "key": namespace.key,
        }
        for namespace in sandbox.namespaces
    ]
    whole = {
        "namespaces": namespaces,
        "ca_file": str(sandbox.ca_file),
        "control_url": sandbox.control_url,
        "arm_url": sandbox.arm_url,
    }
    return json.dumps(whole) + "\n"


def describe(sandbox: Sandbox) -> str:
    """Return the addresses as text."""
    lines = [f"{namespace.name:10} {namespace.connection_string}" for namespace in sandbox.namespaces]
    lines += [f"{'trust':10} {sandbox.ca_file}", f"{'control':10} {sandbox.control_url}"]
    lines += [f"{'arm':10} {sandbox.arm_url}", "Ctrl-C ends it."]
    return "\n".join(lines) + "\n"
