"""`paired sandbox`: a sandbox as a process."""

from __future__ import annotations

import json
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from servicebus_sandbox.sandbox_host import Sandbox
from servicebus_sandbox.serving.process_settings import HOST, run_until_signal
from servicebus_sandbox.spec_file import load_sandbox
from servicebus_sandbox.specs import SandboxConfigError, SandboxSpec, primary_and_secondary


def run_sandbox(
    *,
    json_line: bool,
    config: Path | None = None,
    listen: str = HOST,
    primary_port: int = 0,
    secondary_port: int = 0,
    standard_ports: bool = False,
    control_port: int = 0,
    token_port: int = 0,
) -> int:
    """Serve the namespaces of the file `config`, else a primary and a secondary one, until SIGTERM or SIGINT.

    Port 0 is any free one; `listen` is the namespaces' address. With `standard_ports` they have those of Azure, the
    secondary one at SECOND_ADDRESS. Prints the addresses first, with `json_line` as one
    line of JSON. Returns the exit status: 0, or 2 with a sentence on stderr for an invalid file or an unavailable port
    or address.
    """

    def start() -> AbstractAsyncContextManager[Sandbox]:
        if standard_ports and (primary_port or secondary_port):
            raise SandboxConfigError("--standard-ports sets every port; leave --primary-port and --secondary-port out")
        if config is None:
            spec = SandboxSpec(
                primary_and_secondary(
                    primary_port=primary_port, secondary_port=secondary_port, standard_ports=standard_ports
                )
            )
        elif standard_ports or primary_port or secondary_port:
            raise SandboxConfigError(
                "with --config, ports belong in the file: write port = … or standard_ports = true under [[namespace]] "
                f"of {config}"
            )
        else:
            spec = load_sandbox(config)
        return Sandbox.start(
            spec.namespaces,
            identities=spec.identities,
            tenant=spec.tenant,
            activation_s=spec.activation_s,
            control_port=control_port,
            token_port=token_port,
            listen=listen,
        )

    return run_until_signal("paired sandbox", start, describe_as_json if json_line else describe)


def describe_as_json(sandbox: Sandbox) -> str:
    """Return the addresses as one line of JSON."""
    namespaces = [
        {
            "name": namespace.name,
            "connection_string": namespace.connection_string,
            "standard_connection_string": namespace.standard_connection_string,
            "host": namespace.host_name,
            "amqp_port": namespace.amqp_port,
            "admin_url": namespace.admin_url,
            "key_name": namespace.key_name,
            "key": namespace.key,
        }
        for namespace in sandbox.namespaces
    ]
    tokens = sandbox.tokens
    identities = [
        {"managed_identity": tokens.managed_identity(each), "client_secret": tokens.client_secret(each)}
        for each in tokens.identities
    ]
    whole = {
        "namespaces": namespaces,
        "ca_file": str(sandbox.ca_file),
        "control_url": sandbox.control_url,
        "arm_url": sandbox.arm_url,
        "identities": identities,
    }
    return json.dumps(whole) + "\n"


def describe(sandbox: Sandbox) -> str:
    """Return the addresses as text."""
    lines = [f"{namespace.name:10} {namespace.connection_string}" for namespace in sandbox.namespaces]
    standard = [each for each in sandbox.namespaces if each.has_standard_ports]
    lines += [f"{each.name:10} {each.standard_connection_string}" for each in standard]
    lines += [f"{'hosts':10} {each.host} {each.host_name}" for each in standard]
    lines += [f"{'trust':10} {sandbox.ca_file}", f"{'control':10} {sandbox.control_url}"]
    lines += [f"{'arm':10} {sandbox.arm_url}"]
    for identity in sandbox.tokens.identities:
        for variables in (sandbox.tokens.managed_identity(identity), sandbox.tokens.client_secret(identity)):
            lines.append(f"{'identity':10} {' '.join(f'{name}={value}' for name, value in variables.items())}")
    lines.append("Ctrl-C ends it.")
    return "\n".join(lines) + "\n"
