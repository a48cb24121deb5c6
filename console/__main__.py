"""`python -m console`: the same as the command `paired`."""

from console.cli import main

if __name__ == "__main__":
    main()
