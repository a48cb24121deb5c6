"""How soon the emulator answers: `python -m tests.first_frame [RUNS]`, from the project's root.

Each run starts `servicebus-sandbox --emulator` and tries to connect until the AMQP header is answered. Printed are the
times from the start of the command, and their median. On Linux the processor time until then is printed too: on a busy
machine the command waits for its turn. Exit status: 0 within LIMIT, 1 above it.
"""

from __future__ import annotations

import contextlib
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from servicebus_amqp.encoding.frames import AMQP_HEADER
from tests.ports import free_port

RUNS: Final = 9
LIMIT: Final = 0.6
"""Seconds of the median."""
_COMMAND: Final = str(Path(sys.executable).with_name("servicebus-sandbox"))
_PATIENCE: Final = 30.0
_PAUSE: Final = 0.002


def main() -> int:
    """Measure, print and judge."""
    runs = int(sys.argv[1]) if sys.argv[1:] else RUNS
    measure_once()  # compiles, and fills the file cache
    times, worked = zip(*(measure_once() for _ in range(runs)), strict=True)
    median = statistics.median(times)
    print(f"first AMQP frame after {median:.3f} s, the median of {' '.join(f'{each:.3f}' for each in sorted(times))}")
    if all(worked):
        print(f"processor time until then {statistics.median(worked):.3f} s, the median")
    return 0 if median <= LIMIT else 1


def measure_once() -> tuple[float, float]:
    """Start the emulator once; return the seconds until its AMQP header, and those that it ran, 0 for unknown."""
    port = free_port()
    command = [_COMMAND, "--emulator", "--amqp-port", str(port), "--http-port", "0"]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        try:
            _await_header(port, began + _PATIENCE)
            return time.monotonic() - began, _seconds_run(process.pid)
        finally:
            process.terminate()


def _await_header(port: int, deadline: float) -> None:
    while True:
        with (
            contextlib.suppress(OSError),
            socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE) as connection,
        ):
            connection.sendall(AMQP_HEADER)
            if connection.recv(len(AMQP_HEADER)) == AMQP_HEADER:
                return
        if time.monotonic() > deadline:
            raise TimeoutError(f"no AMQP header on port {port} within {_PATIENCE:g} s")
        time.sleep(_PAUSE)


def _seconds_run(process: int) -> float:
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[0]) / 1e9
    except OSError:
        return 0.0


if __name__ == "__main__":
    sys.exit(main())
