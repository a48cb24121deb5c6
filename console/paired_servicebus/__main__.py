"""`python -m paired_servicebus`: the same as the command `paired`."""

import sys

from paired_servicebus.cli import main

if __name__ == "__main__":
    sys.exit(main())
