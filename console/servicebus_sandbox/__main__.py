"""The command `servicebus-sandbox`, also `python -m servicebus_sandbox`; needs only the extra `sandbox`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

HOST = "127.0.0.1"


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the sandbox's namespaces until SIGTERM or SIGINT; return the exit status."""
    parser = argparse.ArgumentParser(
        prog="servicebus-sandbox",
        description="Two Azure Service Bus namespaces on this machine, for tests, until SIGTERM or Ctrl-C.",
    )
    parser.add_argument("--json", dest="json_line", action="store_true", help="print the addresses as one line of JSON")
    parser.add_argument("--config", type=Path, help="a TOML file of namespaces and their entities")
    parser.add_argument("--listen", default=HOST, help=f"the address of the namespaces (default {HOST})")
    for name in ("primary", "secondary", "control"):
        parser.add_argument(f"--{name}-port", type=int, default=0, help=f"the {name} port (default: any free one)")
    chosen = vars(parser.parse_args(arguments))
    try:
        from servicebus_sandbox.sandbox_command import run_sandbox  # needs an extra
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] not in ("aiohttp", "cryptography"):
            raise
        sys.stderr.write(
            f"servicebus-sandbox: {error.name} is not installed: pip install 'servicebus-paired-console[sandbox]'\n"
        )
        return 2
    return run_sandbox(**chosen)


if __name__ == "__main__":
    sys.exit(main())
