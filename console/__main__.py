"""`python -m console`: the same as the command `paired`."""

import sys

from console.cli import main

if __name__ == "__main__":
    sys.exit(main())
