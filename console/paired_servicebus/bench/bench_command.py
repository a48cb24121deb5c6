"""The output of `paired bench`: a table for people, or one JSON object for programs."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from paired_servicebus.bench import result_tables
from paired_servicebus.bench.bench_plans import BenchError, SendPlan, SyphonPlan
from paired_servicebus.bench.send_bench import measure_send
from paired_servicebus.bench.syphon_bench import Peer, measure_syphon
from paired_servicebus.config import PairingConfig

Found = TypeVar("Found")
Figures = TypeVar("Figures", bound=result_tables.Figures)

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
    return write_figures("syphon", figures, result_tables.syphon_table, json_line)


def run_bench_send(plan: SendPlan, config: PairingConfig | None, *, json_line: bool) -> int:
    """Measure the cost of a healthy send; exit status and `config` as above. Raises BenchError."""
    check_plan(plan.messages, plan.size, plan.latency_ms, plan.rounds)
    figures = run_measurement(measure_send(plan, config))
    return write_figures("send", figures, result_tables.send_table, json_line)


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


def write_figures(bench: str, figures: Figures, table: Callable[[Figures], str], json_line: bool) -> int:
    """Write the figures on standard output; return the exit status."""
    sys.stdout.write(result_tables.as_json(bench, figures) if json_line else table(figures))
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
