"""Install each extra in its own environment, compare its size with its limit: `python -m tests.installed_size`.

Needs the package index. Sizes are those of all files below site-packages without
compiled bytecode, in MB of 1,048,576 bytes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
LIMITS_MB: Final = {"sandbox": 32, "library": 25, "console": 125}
FORBIDDEN: Final = {"sandbox": "azure/servicebus", "library": "textual", "console": "pyspark"}
MEGABYTE: Final = 1 << 20


def install(extra: str, folder: Path) -> Path:
    """Install the distribution with one extra; return its site-packages. Raises CalledProcessError."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", folder / "bin/python"),
            *("install", "-q", "--no-compile", f"{ROOT}[{extra}]"),
        ],
        check=True,
    )
    return next((folder / "lib").glob("python*/site-packages"))


def main() -> int:
    """Print each size beside its limit; 1 if one is over it, or has a package that belongs to another extra."""
    failed = False
    for extra, limit in LIMITS_MB.items():
        with tempfile.TemporaryDirectory() as name:
            packages = install(extra, Path(name))
            files = [path for path in packages.rglob("*") if path.is_file() and path.suffix != ".pyc"]
            size = sum(path.stat().st_size for path in files) / MEGABYTE
            intruder = (packages / FORBIDDEN[extra]).exists()
        failed |= size > limit or intruder
        print(
            f"{extra:8} {size:6.1f} MB of at most {limit} MB{' with ' + FORBIDDEN[extra] if intruder else ''}",
            flush=True,
        )
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
