"""The command `paired`, also `python -m paired_servicebus`."""

from __future__ import annotations

import sys

from paired_servicebus.extras import explain_missing


def main() -> int:
    """Run the command line; 2 with one sentence if a package is missing that an extra brings."""
    try:
        from paired_servicebus.cli import main as run  # cyclopts and msgspec come with an extra
    except ModuleNotFoundError as error:
        sentence = explain_missing(error, what="the command paired")
        if sentence is None:
            raise
        sys.stderr.write(f"paired: {sentence} (the sandbox has a command of its own, servicebus-sandbox)\n")
        return 2
    return run()


if __name__ == "__main__":
    sys.exit(main())
