"""What `paired bench` prints: a table for people, or one JSON object for programs."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from paired_servicebus.bench import result_tables
from paired_servicebus.bench.bench_plans import (
    FailoverPlan,
    SandboxPlan,
    SendPlan,
    SyphonPlan,
)
from paired_servicebus.bench.failover_bench import measure_failover
from paired_servicebus.bench.sandbox.sandbox_bench import measure_sandbox
from paired_servicebus.bench.sandbox_process import BenchError
from paired_servicebus.bench.send_bench import measure_send
from paired_servicebus.bench.syphon.syphon_bench import Peer, measure_syphon
from paired_servicebus.config import PairingConfig

Found = TypeVar("Found")
Figures = TypeVar("Figures", bound=result_tables.Figures)

LARGEST: Final = 250_000
"""Bytes of a body: a message of the standard tier holds 256 KB."""
MOST_LATENCY_MS: Final = 1000.0
MOST_DESTINATIONS: Final = 5000
LEAST_FOR_MEMORY: Final = 1000


def run_bench_sandbox(plan: SandboxPlan, *, json_line: bool) -> int:
    """Measure the sandbox; the exit status is 0 whether or not targets are reached: the figures say that.

    Raises BenchError.
    """
    check_plan(plan.messages, plan.size)
    figures = run_measurement(measure_sandbox(plan))
    sys.stdout.write(result_tables.sandbox_json(figures) if json_line else result_tables.sandbox_table(figures))
    return 0


def run_bench_syphon(
    plan: SyphonPlan, config: PairingConfig | None, *, json_line: bool, peer: Peer | None = None
) -> int:
    """Measure how fast a backlog is moved; exit status as above. config: whose namespaces; None: sandboxes.

    Raises BenchError."""
    check_plan(plan.messages, plan.size, plan.latency_ms, plan.rounds)
    if not 1 <= plan.destinations <= MOST_DESTINATIONS:
        raise BenchError(f"--destinations is {plan.destinations}; it must be between 1 and {MOST_DESTINATIONS:,}")
    if plan.memory and plan.memory < LEAST_FOR_MEMORY:
        raise BenchError(f"--memory is {plan.memory}; it must be {LEAST_FOR_MEMORY:,} at least, or 0")
    figures = run_measurement(measure_syphon(plan, config, peer=peer))
    return write_figures("syphon", figures, result_tables.syphon_table, json_line)


def run_bench_send(plan: SendPlan, config: PairingConfig | None, *, json_line: bool) -> int:
    """Measure what a healthy send costs; exit status and `config` as above. Raises BenchError."""
    check_plan(plan.messages, plan.size, plan.latency_ms, plan.rounds)
    figures = run_measurement(measure_send(plan, config))
    return write_figures("send", figures, result_tables.send_table, json_line)


def run_bench_failover(plan: FailoverPlan, *, json_line: bool) -> int:
    """Measure how long a send waits at a failover; exit status as above. Raises BenchError."""
    check_plan(plan.messages, plan.size, plan.latency_ms)
    figures = run_measurement(measure_failover(rounds=plan.messages, size=plan.size, latency_ms=plan.latency_ms))
    return write_figures("failover", figures, result_tables.failover_table, json_line)


def run_measurement(work: Coroutine[Any, Any, Found]) -> Found:
    """To its end; when this process is told to end, what was started for the measurement is ended first."""

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
    sys.stdout.write(result_tables.as_json(bench, figures) if json_line else table(figures))
    return 0


def check_plan(messages: int, size: int, latency_ms: float = 0.0, rounds: int = 1) -> None:
    if messages < 1:
        raise BenchError(f"--messages is {messages}; it must be 1 at least")
    if rounds < 1:
        raise BenchError(f"--rounds is {rounds}; it must be 1 at least")
    if not 0 <= size <= LARGEST:
        raise BenchError(f"--size is {size}; it must be between 0 and {LARGEST} bytes")
    if not 0 <= latency_ms <= MOST_LATENCY_MS:
        raise BenchError(f"--latency-ms is {latency_ms:g}; it must be between 0 and {MOST_LATENCY_MS:g}")
