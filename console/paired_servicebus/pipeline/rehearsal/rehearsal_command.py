"""`paired rehearse`: reads the journal, runs every policy on Spark in another process, prints the result."""

from __future__ import annotations

import gc
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from paired_servicebus.core.errors import ConfigurationError, PairedError, PipelineError, UnreadableError
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.time_format import clock, day_and_clock
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pipeline import spark_processes
from paired_servicebus.pipeline.rehearsal import policy_ranking
from paired_servicebus.pipeline.rehearsal.recorded_history import (
    HOUR,
    Outage,
    RecordedHistory,
    TimeBounds,
    read_history,
)
from paired_servicebus.pipeline.spark.spark_session import open_session
from paired_servicebus.printing import print_lines, print_object
from paired_servicebus.settings import seconds_of

# A rehearsal in words: a table for a person, one JSON object for a program.

HEADS: Final = (
    ("failover", "interval"),
    ("failback", "pings"),
    ("ping", "interval"),
    ("failovers", ""),
    ("flaps", ""),
    ("refused", "for s"),
    ("parked", ""),
    ("dupli-", "cates"),
    ("out of", "order"),
    ("pings", ""),
    ("billed", "besides"),
    ("weighed", "s"),
    ("", ""),
)
COUNTS: Final = ("failovers", "flaps", "unavailable_ms", "parked", "duplicates", "out_of_order", "pings", "operations")
MOST: Final = 12
"""Outages that are listed one by one."""


def as_text(order: policy_ranking.Order, found: policy_ranking.RehearsalResult, *, known: bool) -> list[str]:
    """Give lines for a person.

    Args:
        known: whether the first policy is the one in force, and not only the defaults.
    """
    return [*_what(order.history), "", *_table(found, known=known), "", *_advice(order, found)]


def _what(history: RecordedHistory) -> Iterator[str]:
    when = "" if history.began_at is None else f" from {day_and_clock(history.began_at)} UTC"
    entities = ", ".join(history.entities)
    offered = f"about {history.messages:,} messages to {entities}"
    yield f"replayed: {history.source}, {history.seconds:,.0f} s{when}; {offered}"
    for outage in history.outages[:MOST]:
        yield f"  {_outage(outage, history.began_at)}"
    if len(history.outages) > MOST:
        yield f"  and {len(history.outages) - MOST} more"


def _outage(outage: Outage, began_at: float | None) -> str:
    target = outage.target if isinstance(outage.target, str) else f"backlog/{outage.target}"
    share = "" if outage.share == 1.0 else f", {outage.share:.0%} of requests"
    return f"{target}: {outage.failure} from {_span(outage.began, began_at)} to {_span(outage.ended, began_at)}{share}"


def _span(span: TimeBounds, began_at: float | None) -> str:
    earliest, latest = _clock(span.earliest, began_at), _clock(span.latest, began_at)
    return earliest if earliest == latest else f"{earliest}–{latest}"


def _clock(at: float, began_at: float | None) -> str:
    return f"{at:,.0f} s" if began_at is None else clock(began_at + at)


# -- the table -----------------------------------------------------------------------------------------------------


def _table(found: policy_ranking.RehearsalResult, *, known: bool) -> Iterator[str]:
    rows = [tuple(head[part] for head in HEADS) for part in (0, 1)]
    rows += [_row(line, _mark(index, found.best, known=known)) for index, line in enumerate(found.lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADS))]
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row[:-1], widths, strict=False)]
        yield "  ".join([*cells, row[-1]]).rstrip()


def _mark(index: int, best: int, *, known: bool) -> str:
    marks = [("in force" if known else "the defaults")] if index == 0 else []
    return ", ".join(marks + (["recommended"] if index == best else []))


def _row(line: policy_ranking.PolicyFigures, mark: str) -> tuple[str, ...]:
    policy = line.policy
    told = (f"{policy.failover_interval:g} s", str(policy.failback_pings), f"{policy.ping_primary_interval:g} s")
    return (*told, *(_cell(line[name], name) for name in COUNTS), f"{line.score:,.1f}", mark)


def _cell(figure: policy_ranking.Figure, name: str) -> str:
    """Return the middle of all readings, and the ends where they differ."""
    scale = 1000 if name.endswith("_ms") else 1
    middle, least, greatest = (f"{round(value / scale):,}" for value in (figure.middle, figure.least, figure.greatest))
    return middle if least == greatest else f"{middle} ({least}–{greatest})"


def _advice(order: policy_ranking.Order, found: policy_ranking.RehearsalResult) -> Iterator[str]:
    yield f"recommended: {_policy(found.recommended)}"
    yield f"  {found.reason}"
    weight = f"{policy_ranking.FAILOVER:g}"
    yield f"  weighed: the seconds in which senders were refused, and {weight} for each failover; the mean of all"
    yield f"  {order.seeds} readings of the record; in the table the middle one, and the ends in brackets"
    if order.history.unknown:
        yield "the record cannot tell:"
        yield from (f"  {sentence}" for sentence in order.history.unknown)
    yield "duplicates: none where the destination detects them"


def _policy(policy: Policy) -> str:
    return (
        f'failover_interval = "{policy.failover_interval:g}s", failback_pings = {policy.failback_pings}, '
        f'ping_primary_interval = "{policy.ping_primary_interval:g}s"'
    )


# -- for programs --------------------------------------------------------------------------------------------------


def as_object(order: policy_ranking.Order, found: policy_ranking.RehearsalResult) -> str:
    """One JSON object; the same bytes for the same runs, wherever they were run."""
    told: dict[str, Any] = {
        "history": _history(order.history),
        "seeds": order.seeds,
        "policies": [_policy_object(line) for line in found.lines],
        "recommended": found.best,
        "reason": found.reason,
        "unknown": order.history.unknown,
    }
    return msgspec.json.encode(told).decode()


def _history(history: RecordedHistory) -> dict[str, Any]:
    return {
        "source": history.source,
        "began_at": history.began_at,
        "seconds": history.seconds,
        "entities": history.entities,
        "messages": history.messages,
        "outages": [outage._asdict() for outage in history.outages],
    }


def _policy_object(line: policy_ranking.PolicyFigures) -> dict[str, Any]:
    policy = line.policy
    figures: dict[str, Sequence[int]] = {
        name: (figure.middle, figure.least, figure.greatest) for name, figure in line.figures.items()
    }
    return {
        "failover_interval": policy.failover_interval,
        "failback_pings": policy.failback_pings,
        "ping_primary_interval": policy.ping_primary_interval,
        "weighed": line.score,
        **figures,
    }


# The chunks on Spark, one task each, in a process of its own: it runs this module with a folder for its work.
#
# A task gets the order as text and its chunk's number. It returns whole numbers, which are sorted here. So the
# result is the same on any master, with any number of executors and any task retries.

ROWS: Final = "rows.json"


class SparkChoice(msgspec.Struct, frozen=True, kw_only=True):
    """Where and on what Spark runs."""

    master: str = "local[*]"
    java_home: Path | None = None
    settings: dict[str, str] = {}
    """Spark's own, on top of ours."""


class SparkOrder(msgspec.Struct, frozen=True, kw_only=True):
    """The order of the process."""

    order: policy_ranking.Order
    spark: SparkChoice


class SparkResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the process."""

    rows: list[policy_ranking.Row]
    seconds: float
    """From the first chunk to the last, without Spark's start."""


_WANTED: Final = msgspec.json.Decoder(SparkOrder, dec_hook=lambda kind, value: kind(value))


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
    with spark_processes.exit_on_signal():
        ran = run_on_spark(order, asked.spark, bar=spark_processes.Bar())
    found = policy_ranking.rehearsed(order, ran.rows)
    rate = order.runs / ran.seconds * 60
    sys.stderr.write(f"{order.runs:,} runs in {ran.seconds:,.1f} s, {rate:,.0f} a minute, Spark's start aside\n")
    if json_line:
        print_object(as_object(order, found))
    else:
        print_lines(as_text(order, found, known=bool(current)))
    return 0


# -- on Spark ------------------------------------------------------------------------------------------------------


def run_on_spark(order: policy_ranking.Order, spark: SparkChoice, *, bar: spark_processes.Bar) -> SparkResult:
    """Every run, in a process of its own with a log instead of a terminal.

    Raises PipelineError: it could not; the sentence is the process's own.
    """
    with tempfile.TemporaryDirectory(prefix="paired-rehearse-") as name:
        folder = Path(name)
        log, text = folder / "process.log", msgspec.json.encode(SparkOrder(order=order, spark=spark))
        module = "paired_servicebus.pipeline.rehearsal.rehearsal_command"
        process = spark_processes.start_process(module, name, log=log, order=text)
        try:
            status = spark_processes.wait_shown(partial(spark_processes.wait_for, process), log, bar)
        finally:
            spark_processes.end_process(process)  # with its JVM, which writes into the folder
        if status:
            raise PipelineError(_why(log))
        return _rows(folder / ROWS, log)


def _rows(path: Path, log: Path) -> SparkResult:
    try:
        return read_json(_RAN, path.read_bytes())
    except (OSError, UnreadableError) as error:
        raise PipelineError(f"the rehearsal on Spark left no rows that can be read ({error}): {_why(log)}") from error


def _why(log: Path) -> str:
    last = spark_processes.said(log, "")
    return (
        spark_processes.said(log, spark_processes.TROUBLE)
        or f"the rehearsal on Spark failed: {last or 'it said nothing'}"
    )


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


def rehearsal_order(asked: RehearsalRequest, history: RecordedHistory, policy: Policy) -> policy_ranking.Order:
    """Return the order of the command line. Raises ConfigurationError: an unreadable list, or a value out of range."""
    policies = policy_ranking.policies_of(
        policy,
        intervals=_seconds("--failover-interval", asked.intervals),
        pings=_counts("--failback-pings", asked.pings),
        ping_intervals=_seconds("--ping-interval", asked.ping_intervals),
    )
    return policy_ranking.order_of(history, policies, asked.seeds)


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


def spread(spark: Any, order: policy_ranking.Order) -> list[policy_ranking.Row]:
    """Every row, by policy and seed."""
    text = msgspec.json.encode(order)

    def run(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow

        gc.freeze()
        gc.set_threshold(50_000, 20, 100)  # a run's World goes as a whole: walks through it find nothing before
        told = msgspec.json.decode(text, type=policy_ranking.Order)
        schema = pyarrow.schema([(name, pyarrow.int64()) for name in policy_ranking.NAMES])
        for batch in batches:
            for chunk in batch.column(0).to_pylist():
                columns = list(zip(*policy_ranking.run_chunk(told, chunk), strict=True))
                yield pyarrow.record_batch([pyarrow.array(one, pyarrow.int64()) for one in columns], schema=schema)

    chunks = spark.range(0, order.chunks, 1, order.chunks)
    found = chunks.mapInArrow(run, ", ".join(f"{name} long" for name in policy_ranking.NAMES)).toArrow()
    return sorted(zip(*(found.column(name).to_pylist() for name in policy_ranking.NAMES), strict=True))


def main(folder: Path, wanted: SparkOrder) -> int:
    """Run the order and write the rows into `folder`. Return 2 and write one sentence on failure."""
    try:
        choice = wanted.spark
        with open_session(
            app="rehearse", work=folder, java_home=choice.java_home, master=choice.master, private=choice.settings
        ) as spark:
            spark_processes.ProgressLines().show(f"rehearsing on {masked(choice.master)}, {wanted.order.runs:,} runs")
            began = time.monotonic()
            rows = spread(spark, wanted.order)
            ran = SparkResult(rows=rows, seconds=time.monotonic() - began)
        (folder / ROWS).write_bytes(msgspec.json.encode(ran))
    except PairedError as error:
        sys.stderr.write(f"{spark_processes.TROUBLE}{one_line(str(error))}\n")
        return 2
    return 0


if __name__ == "__main__":
    os.nice(10)  # engines and people first
    wanted = read_json(_WANTED, sys.stdin.buffer.readline())
    spark_processes.watch_parent(lambda: None, within=0.0)
    sys.exit(main(Path(sys.argv[1]), wanted))
