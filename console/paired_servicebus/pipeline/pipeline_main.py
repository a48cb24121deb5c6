"""The pipeline's process; `spark_processes` starts it with an order.

Its order is the first line of standard input, and the end of that input ends it. The last log line has the reason for a
failure. SIGTERM ends a following pipeline cleanly, any other immediately. A kill loses nothing: see batch_loop.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
import traceback
from functools import partial
from typing import Final

import msgspec

from paired_servicebus.core.errors import PairedError
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import indent_lines, one_line
from paired_servicebus.pipeline import spark_processes
from paired_servicebus.pipeline.ingest.journal_files import JournalFlusher, find_journal_files
from paired_servicebus.pipeline.spark.spark_session import (
    DELTA_SETTINGS,
    LOCAL,
    first_line,
    is_connect,
    is_local,
    open_session,
    require_sight,
)
from paired_servicebus.pipeline.table_store.lake import STAGING, Lake
from paired_servicebus.pipeline.table_store.store_path import Place, own_folder, place_of, spark_settings_of_store

NICE: Final = 10


def main() -> int:
    """Run the order; return the exit status."""
    order = spark_processes.PipelineOrder.read(sys.stdin.buffer.readline())
    tables = place_of(order.tables)
    os.nice(NICE)
    ending: list[int] = []
    if order.once:  # there is no order to end it in: what it had begun is done again
        spark_processes.watch_parent(lambda: None, within=0.0)
    else:
        spark_processes.watch_parent(lambda: ending.append(signal.SIGTERM), within=spark_processes.STOP)
        signal.signal(signal.SIGTERM, lambda number, _: ending.append(number))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        _run(order, tables, ending)
    except PairedError as error:
        return _say(str(error))
    except Exception as error:  # noqa: BLE001 - Spark's kinds of errors are many: all of it is above in the log
        spark_processes.write_line(masked(indent_lines("".join(traceback.format_exception(error)))))
        return _say(
            f"the pipeline ended: {first_line(error)}; the tables are as they were, and the next start goes on; see "
            f"{own_folder(tables) / 'logs' / 'pipeline.log'}"
        )
    return 0


def _run(order: spark_processes.PipelineOrder, folder: Place, ending: list[int]) -> None:
    began = time.monotonic()
    listed = find_journal_files(order.journals)
    if order.once:
        listed.require()
    JournalFlusher().ask(listed.journals)  # the engines have time while Spark starts
    with Lake(folder) as lake:
        if lake.note:
            spark_processes.write_line(spark_processes.NOTE + one_line(lake.note))
        work = own_folder(folder) / "work"
        master = order.master or LOCAL
        shutil.rmtree(work / "scratch", ignore_errors=True)
        session = open_session(
            app="pipeline",
            work=work,
            java_home=order.java_home,
            master=master,
            private={
                **spark_settings_of_store(),
                **(DELTA_SETTINGS if order.format == "delta" and not is_connect(master) else {}),
                **order.settings,
            },
        )
        with session as spark:
            from paired_servicebus.pipeline.ingest.batch_loop import BatchLoop  # with pyarrow, which the extra brings
            from paired_servicebus.pipeline.publishing.delta_tables import write_delta

            signal.signal(signal.SIGINT, signal.SIG_IGN)  # Spark had taken it
            if not is_local(master):
                require_sight(spark, read=listed.roots, written=folder / STAGING)
            publish = partial(write_delta, spark, lake) if order.format == "delta" else None
            loop = BatchLoop(spark, lake, listed.roots, spark_processes.ProgressLines().show, publish=publish)
            stands_at = time.monotonic()
            if order.once:
                loop.once()
                times = spark_processes.PipelineTimes(stands_at - began, time.monotonic() - stands_at)
                spark_processes.write_line(spark_processes.TOOK + msgspec.json.encode(times).decode())
            else:
                loop.follow(order.trigger, lambda: bool(ending))


def _say(sentence: str) -> int:
    spark_processes.write_line(spark_processes.TROUBLE + one_line(sentence))
    return 2


if __name__ == "__main__":
    sys.exit(main())
