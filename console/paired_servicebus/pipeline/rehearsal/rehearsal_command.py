"""`paired rehearse`: reads the journal, runs every policy on Spark in another process, prints the result."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from paired_servicebus.core.errors import ConfigurationError, PipelineError, UnreadableError
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pipeline.progress_bar import Bar, wait_shown
from paired_servicebus.pipeline.rehearsal.histories.journal_history import read_history
from paired_servicebus.pipeline.rehearsal.histories.recorded_history import HOUR, RecordedHistory
from paired_servicebus.pipeline.rehearsal.policy_ranking import Order, order_of, policies_of, rehearsed
from paired_servicebus.pipeline.rehearsal.rehearsal_format import as_object, as_text
from paired_servicebus.pipeline.rehearsal.spark_tasks import ORDER, ROWS, SparkChoice, SparkOrder, SparkResult
from paired_servicebus.pipeline.spark_processes import (
    TROUBLE,
    end_process,
    exit_on_signal,
    said,
    start_process,
    wait_for,
)
from paired_servicebus.printing import print_lines, print_object
from paired_servicebus.settings import seconds_of

_RAN: Final = msgspec.json.Decoder(SparkResult)


def run_rehearsal(asked: RehearsalRequest, *, journals: Sequence[Path], current: Policy | None, json_line: bool) -> int:
    """Rehearse, and print the table and the recommendation.

    Args:
        journals: journals of engines, or trees of them; none, or such in which nothing failed: a made-up hour.
        current: the policy in force; None: not known, the defaults.

    Raises:
        PairedError: it cannot be done; one sentence.
    """
    policy = current or Policy()
    order = rehearsal_order(asked, history_for(journals, policy), policy)
    sys.stderr.write(f"rehearsing {len(order.policies)} policies, {order.seeds} readings each\n")
    with exit_on_signal():
        ran = run_on_spark(order, asked.spark, bar=Bar())
    found = rehearsed(order, ran.rows)
    rate = order.runs / ran.seconds * 60
    sys.stderr.write(f"{order.runs:,} runs in {ran.seconds:,.1f} s, {rate:,.0f} a minute, Spark's start aside\n")
    if json_line:
        print_object(as_object(order, found))
    else:
        print_lines(as_text(order, found, known=bool(current)))
    return 0


# -- on Spark ------------------------------------------------------------------------------------------------------


def run_on_spark(order: Order, spark: SparkChoice, *, bar: Bar) -> SparkResult:
    """Every run, in a process of its own with a log instead of a terminal.

    Raises PipelineError: it could not; the sentence is the process's own.
    """
    with tempfile.TemporaryDirectory(prefix="paired-rehearse-") as name:
        folder = Path(name)
        (folder / ORDER).write_bytes(msgspec.json.encode(SparkOrder(order=order, spark=spark)))
        log = folder / "process.log"
        process = start_process("paired_servicebus.pipeline.rehearsal.spark_tasks", name, log=log)
        try:
            status = wait_shown(partial(wait_for, process), log, bar)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsalRequest:
    """The arguments as written on the command line."""

    intervals: str
    pings: str
    ping_intervals: str
    seeds: int
    spark: SparkChoice = field(default_factory=SparkChoice)


def history_for(journals: Sequence[Path], policy: Policy) -> RecordedHistory:
    """Return the recorded history, or the synthetic hour if the journals have no failure.

    Raises PairedError: a journal is not there, or there is nothing in any.
    """
    if not journals:
        return HOUR
    history = read_history(journals, policy)
    return history if history.outages else HOUR


def rehearsal_order(asked: RehearsalRequest, history: RecordedHistory, policy: Policy) -> Order:
    """Return the order of the command line. Raises ConfigurationError: an unreadable list, or a value out of range."""
    policies = policies_of(
        policy,
        intervals=_seconds("--failover-interval", asked.intervals),
        pings=_counts("--failback-pings", asked.pings),
        ping_intervals=_seconds("--ping-interval", asked.ping_intervals),
    )
    return order_of(history, policies, asked.seeds)


def _seconds(name: str, text: str) -> Sequence[float]:
    found = [seconds_of(part) for part in text.split(",")]
    if any(one is None for one in found):
        raise ConfigurationError(f'{name} is {text!r}; it lists times, as in "0s,5s,1m"')
    return [one for one in found if one is not None]


def _counts(name: str, text: str) -> Sequence[int]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() for part in parts):
        raise ConfigurationError(f'{name} is {text!r}; it lists whole numbers, as in "1,3"')
    return [int(part) for part in parts]
