"""`paired rehearse`: reads the journal, runs every policy on Spark in another process, prints the result."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import PipelineError, UnreadableError
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pipeline.rehearsal.policy_grid import Order
from paired_servicebus.pipeline.rehearsal.policy_ranking import rehearsed
from paired_servicebus.pipeline.rehearsal.rehearsal_format import as_object, as_text
from paired_servicebus.pipeline.rehearsal.rehearsal_request import RehearsalRequest, history_for, rehearsal_order
from paired_servicebus.pipeline.rehearsal.spark_tasks import ORDER, ROWS, SparkOrder, SparkResult
from paired_servicebus.pipeline.spark_processes import TROUBLE, end_process, exit_on_signal, said, start_process
from paired_servicebus.printing import print_lines, print_object

LOCAL: Final = "local[*]"
_RAN: Final = msgspec.json.Decoder(SparkResult)


def run_rehearsal(asked: RehearsalRequest, *, journal: Path | None, current: Policy | None, json_line: bool) -> int:
    """Rehearse, and print the table and the recommendation.

    Args:
        journal: an engine's journal; None, or one in which nothing failed: a made-up hour.
        current: the policy in force; None: not known, the defaults.

    Raises:
        PairedError: it cannot be done; one sentence.
    """
    policy = current or Policy()
    order = rehearsal_order(asked, history_for(journal, policy), policy)
    sys.stderr.write(f"rehearsing {len(order.policies)} policies, {order.seeds} readings each\n")
    with exit_on_signal():
        ran = run_on_spark(order, asked.master or LOCAL)
    found = rehearsed(order, ran.rows)
    rate = order.runs / ran.seconds * 60
    sys.stderr.write(f"{order.runs:,} runs in {ran.seconds:,.1f} s, {rate:,.0f} a minute, Spark's start aside\n")
    if json_line:
        print_object(as_object(order, found))
    else:
        print_lines(as_text(order, found, known=bool(current)))
    return 0


# -- on Spark ------------------------------------------------------------------------------------------------------


def run_on_spark(order: Order, master: str) -> SparkResult:
    """Every run, in a process of its own with a log instead of a terminal.

    Raises:
        PipelineError: it could not; the sentence is the process's own.
    """
    with tempfile.TemporaryDirectory(prefix="paired-rehearse-") as name:
        folder = Path(name)
        (folder / ORDER).write_bytes(msgspec.json.encode(SparkOrder(order=order, master=master)))
        log = folder / "process.log"
        process = start_process("paired_servicebus.pipeline.rehearsal.spark_tasks", name, log=log)
        try:
            status = process.wait()
        finally:
            end_process(process)  # with its JVM, which writes into the folder
        if status:
            raise PipelineError(_why(log))
        return _rows(folder / ROWS, log)


def _rows(path: Path, log: Path) -> SparkResult:
    try:
        return read_json(_RAN, path.read_bytes())
    except (OSError, UnreadableError) as error:
        raise PipelineError(f"the rehearsal on Spark left no rows that can be read ({error}): {_why(log)}") from error


def _why(log: Path) -> str:
    last = said(log, "")
    return said(log, TROUBLE) or f"the rehearsal on Spark failed: {last or 'it said nothing'}"
