"""The output of `paired bench`: a table for people, or one JSON object for programs."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Final, TypeVar

import msgspec

from paired_servicebus.bench.bench_plans import BenchError, SendPlan, SyphonPlan
from paired_servicebus.bench.rounds import Figures, RoundFigures, Throughput
from paired_servicebus.bench.send_bench import CALLERS, measure_send
from paired_servicebus.bench.send_bench import PAIRS as SEND_PAIRS
from paired_servicebus.bench.syphon_bench import PAIRS as SYPHON_PAIRS
from paired_servicebus.bench.syphon_bench import Peer, measure_syphon
from paired_servicebus.config import PairingConfig

# Output of figures: one JSON object for programs, rows for people.

WAYS: Final = {
    "ours": "the syphon, with receipts",
    "mixed": "many destinations",
    "naive": "the naive loop on the SDK",
    "best_sdk": "the best loop on the SDK",
    "raw": "a plain copy on our AMQP",
    "peer": "the peer",
    "paired": "a paired sender",
    "plain": "a plain sender",
    "paired_callers": f"{CALLERS} callers, one paired sender",
    "plain_callers": f"{CALLERS} plain senders",
}
"""The label of each way."""


def as_json(bench: str, figures: Figures) -> str:
    """Return one line; `targets` holds the target of each figure that has one, and whether it is reached."""
    line: dict[str, Any] = {
        "bench": bench,
        **figures.as_dict(),
        "targets": {
            name: {"target": target, "reached": reached} for name, (target, reached) in figures.targets.items()
        },
        "reached": figures.reached,
    }
    return msgspec.json.encode(line).decode() + "\n"


def rounds_table(title: str, figures: RoundFigures, pairs: Mapping[str, tuple[str, str]]) -> str:
    """Return the table of a bench whose ways take turns. pairs: the ways of each ratio."""
    rows = [
        f"{title}, bodies of {figures.size:,} bytes, {figures.latency_ms:g} ms added, {figures.rounds} rounds",
        *(pace_row(WAYS[name], pace) for name, pace in figures.paces.items()),
    ]
    for name, found in figures.ratios.items():
        ours, theirs = (WAYS[way] for way in pairs[name])
        rows.append(f"{found:>9.2f} {ours} / {theirs}{_reached(figures, name, 'at least')}")
    if "cpu_us" in figures.targets:
        found = next(iter(figures.paces.values())).cpu_us
        rows.append(f"{found:>9.1f} µs of our CPU a message{_reached(figures, 'cpu_us', 'at most')}")
    rows.append(f"{figures.aa_low:>9.2f} to {figures.aa_high:.2f}: the ratio of equals in this run")
    return "\n".join(rows) + "\n"


def _reached(figures: Figures, name: str, bound: str) -> str:
    if name not in figures.targets:
        return ""
    target, reached = figures.targets[name]
    return f"; {bound} {target:g}: {'reached' if reached else 'missed'}"


def pace_row(what: str, pace: Throughput) -> str:
    """Return the row of a rate."""
    return (
        f"{pace.per_second:>9,.0f}/s {what}, from {pace.low:,.0f} to {pace.high:,.0f}, "
        f"client {pace.cpu_us:,.1f} µs a message"
    )


Found = TypeVar("Found")
Measured = TypeVar("Measured", bound=Figures)

MAX_BODY_BYTES: Final = 250_000
"""A message of the standard tier holds 256 KB."""
MAX_LATENCY_MS: Final = 1000.0
MAX_DESTINATIONS: Final = 5000


def run_bench_syphon(
    plan: SyphonPlan, config: PairingConfig | None, *, json_line: bool, peer: Peer | None = None
) -> int:
    """Measure the speed of moving a backlog. The exit status is 0 even if a target is missed.

    config: the namespaces; None: sandboxes. peer: another mover to compare. Raises BenchError.
    """
    check_plan(plan.messages, plan.size, plan.latency_ms, plan.rounds)
    if not 1 <= plan.destinations <= MAX_DESTINATIONS:
        raise BenchError(f"--destinations is {plan.destinations}; it must be between 1 and {MAX_DESTINATIONS:,}")
    figures = run_measurement(measure_syphon(plan, config, peer=peer))
    return write_figures("syphon", figures, partial(rounds_table, "moving a backlog", pairs=SYPHON_PAIRS), json_line)


def run_bench_send(plan: SendPlan, config: PairingConfig | None, *, json_line: bool) -> int:
    """Measure the cost of a healthy send; exit status and `config` as above. Raises BenchError."""
    check_plan(plan.messages, plan.size, plan.latency_ms, plan.rounds)
    figures = run_measurement(measure_send(plan, config))
    return write_figures("send", figures, partial(rounds_table, "sending while healthy", pairs=SEND_PAIRS), json_line)


def run_measurement(work: Coroutine[Any, Any, Found]) -> Found:
    """Run a measurement to its end. SIGTERM cancels it and ends its child processes. Raises BenchError."""

    async def main() -> Found:
        task = asyncio.current_task()
        assert task is not None, "a coroutine runs in a task"
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
        return await work

    try:
        return asyncio.run(main())
    except asyncio.CancelledError as error:
        raise BenchError("the measurement was ended by SIGTERM") from error


def write_figures(bench: str, figures: Measured, table: Callable[[Measured], str], json_line: bool) -> int:
    """Write the figures on standard output; return the exit status."""
    sys.stdout.write(as_json(bench, figures) if json_line else table(figures))
    return 0


def check_plan(messages: int, size: int, latency_ms: float = 0.0, rounds: int = 1) -> None:
    """Raise BenchError for a number that is out of its range."""
    if messages < 1:
        raise BenchError(f"--messages is {messages}; it must be 1 at least")
    if rounds < 1:
        raise BenchError(f"--rounds is {rounds}; it must be 1 at least")
    if not 0 <= size <= MAX_BODY_BYTES:
        raise BenchError(f"--size is {size}; it must be between 0 and {MAX_BODY_BYTES} bytes")
    if not 0 <= latency_ms <= MAX_LATENCY_MS:
        raise BenchError(f"--latency-ms is {latency_ms:g}; it must be between 0 and {MAX_LATENCY_MS:g}")
