"""The command `servicebus-sandbox`, also `python -m servicebus_sandbox`; needs only the extra `sandbox`."""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
_PORTS = ("primary_port", "secondary_port", "token_port")
_WITHOUT_EMULATOR = (*_PORTS, "standard_ports")


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the sandbox's namespaces until SIGTERM or SIGINT; return the exit status."""
    parser = _parser()
    chosen = vars(parser.parse_args(arguments))
    is_emulator = chosen.pop("emulator")
    others = _WITHOUT_EMULATOR if is_emulator else ("amqp_port", "http_port")
    for name in others:
        if chosen.pop(name) is not None:
            option = f"--{name.replace('_', '-')}"
            parser.error(f"{option} is not an option {'with' if is_emulator else 'without'} --emulator")
    try:
        return _run_emulator(chosen) if is_emulator else _run_sandbox(chosen)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("aiohttp", "cryptography"):
            raise
        sys.stderr.write(
            f"servicebus-sandbox: {error.name} is not installed: pip install 'servicebus-paired-console[sandbox]'\n"
        )
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="servicebus-sandbox",
        description="Two Azure Service Bus namespaces on this machine, for tests, until SIGTERM or Ctrl-C.",
    )
    parser.add_argument("--json", dest="json_line", action="store_true", help="print the addresses as one line of JSON")
    parser.add_argument(
        "--config", type=Path, help="a TOML file of namespaces and their entities; with --emulator its config.json"
    )
    parser.add_argument("--listen", default=HOST, help=f"the address of the namespaces (default {HOST})")
    parser.add_argument("--control-port", type=int, default=0, help="the control port (default: any free one)")
    parser.add_argument("--token-port", type=int, help="the port of the token endpoint (default: any free one)")
    for name in ("primary", "secondary"):
        parser.add_argument(f"--{name}-port", type=int, help=f"the {name} port (default: any free one)")
    parser.add_argument(
        "--standard-ports",
        action="store_true",
        default=None,
        help="ports 5672, 5671 and 443, as in Azure: of 127.0.0.1 for primary, of 127.0.0.2 for secondary",
    )
    parser.add_argument(
        "--emulator", action="store_true", help="one namespace with the ports and the key of Microsoft's emulator"
    )
    parser.add_argument("--amqp-port", type=int, help="with --emulator: the port of AMQP (default 5672)")
    parser.add_argument(
        "--http-port",
        type=int,
        help="with --emulator: the port of administration and /health (default EMULATOR_HTTP_PORT, else 5300)",
    )
    return parser


def _run_emulator(chosen: dict[str, Any]) -> int:
    gc.disable()  # until the ports are open: imports make no garbage
    from servicebus_sandbox.emulator.emulator_host import run_emulator  # needs an extra

    return run_emulator(**chosen)


def _run_sandbox(chosen: dict[str, Any]) -> int:
    from servicebus_sandbox.sandbox_command import run_sandbox  # needs an extra

    ports = {name: int(chosen.pop(name) or 0) for name in _PORTS}
    chosen.update(ports, standard_ports=bool(chosen["standard_ports"]))
    return run_sandbox(**chosen)


if __name__ == "__main__":
    sys.exit(main())
