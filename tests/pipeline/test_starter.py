"""What a process does when whoever started it has gone. No Spark."""

import subprocess
import sys

from paired_servicebus.pipeline.spark_processes import ORPHANED

PROGRAM = """
import threading
from paired_servicebus.pipeline.spark_processes import watch_parent
watch_parent(lambda: print("told", flush=True), within=0.0)
print("up", flush=True)
threading.Event().wait()
"""


def test_a_process_is_told_and_then_ended_when_its_starter_has_gone() -> None:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == "up\n"
            process.stdin.write("what comes before the end is no end\n")
            process.stdin.close()
            assert process.stdout.readline() == "told\n"
            assert process.wait(60) == ORPHANED
        finally:
            process.kill()
