"""The pipeline's own process; started by launch.py with an order, or by a person's `paired pipeline`.

Its order is the first line of its standard input, whose end ends it. Says in its last line why it failed. SIGTERM ends
one that follows a journal in order, any other at once; killed, it has lost nothing: see streaming_queries.py.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import PairedError
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import indent_lines, one_line
from paired_servicebus.pipeline.ingest.journal_flush import JournalFlusher
from paired_servicebus.pipeline.ingest.journal_source import journal_files, require_files
from paired_servicebus.pipeline.processes.parent_watch import watch_parent
from paired_servicebus.pipeline.processes.pipeline_launcher import STOP, TOOK, TROUBLE, PipelineOrder, PipelineTimes
from paired_servicebus.pipeline.spark.java import find_java
from paired_servicebus.pipeline.spark.spark_session import LOCAL, first_line, open_session
from paired_servicebus.pipeline.table_store.lake import Lake

NICE: Final = 10


def main() -> int:
    """Do what is ordered; the exit status."""
    order = msgspec.json.decode(sys.stdin.buffer.readline(), type=PipelineOrder)
    os.nice(NICE)
    ending: list[int] = []
    if order.once:  # there is no order to end it in: what it had begun is done again
        watch_parent(lambda: None, within=0.0)
    else:
        watch_parent(lambda: ending.append(signal.SIGTERM), within=STOP)
        signal.signal(signal.SIGTERM, lambda number, _: ending.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _run(order, ending)
    except PairedError as error:
        return _say(str(error))
    except Exception as error:  # noqa: BLE001 - Spark's kinds of errors are many: all of it is above in the log
        _write(masked(indent_lines("".join(traceback.format_exception(error)))))
        return _say(
            f"the pipeline ended: {first_line(error)}; what it had begun is done again at the next start. Should that "
            f"fail likewise, remove {Path(order.tables) / 'checkpoints'}: nothing is lost or taken twice by it"
        )
    return 0


def _run(order: PipelineOrder, ending: list[int]) -> None:
    from paired_servicebus.pipeline.ingest.streaming_queries import Pipeline

    began = time.monotonic()
    journal, folder = Path(order.journal), Path(order.tables)
    if order.once:
        require_files(journal)
    else:
        journal_files(journal)
    JournalFlusher(journal).ask()  # the engine has time while Spark starts
    with Lake(folder) as lake:
        work = folder / "work"
        java = find_java(configured=Path(order.java_home) if order.java_home else None, shims=work)
        shutil.rmtree(work / "scratch", ignore_errors=True)
        session = open_session(
            app="pipeline", work=work, java=java, master=order.master or LOCAL, private=order.settings
        )
        with session as spark:
            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Spark had taken it
            pipeline = Pipeline(spark, lake, journal)
            stands_at = time.monotonic()
            if order.once:
                pipeline.once()
                _write(
                    f"{TOOK}{msgspec.json.encode(PipelineTimes(stands_at - began, time.monotonic() - stands_at)).decode()}"
                )
            else:
                pipeline.follow(order.trigger, lambda: bool(ending))


def _say(sentence: str) -> int:
    _write(TROUBLE + one_line(sentence))
    return 2


def _write(line: str) -> None:
    """A line of its own in the log, whatever Spark wrote before."""
    sys.stdout.write(f"\n{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
