"""Run a developers' bench and write its figures: a table for people, or one JSON object for programs."""

from __future__ import annotations

from typing import Final

from paired_servicebus.bench.bench_command import check_plan, run_measurement, write_figures
from paired_servicebus.bench.bench_plans import BenchError
from tests.bench import developer_tables
from tests.bench.added_time import measure_added
from tests.bench.developer_plans import (
    AddedPlan,
    BytesPlan,
    DrainPlan,
    EnginePlan,
    FailoverPlan,
    GatewayPlan,
    MemoryPlan,
    PipelinePlan,
    ScreenPlan,
)
from tests.bench.engine_bench import measure_engine
from tests.bench.failover_bench import measure_failover
from tests.bench.gateway.gateway_bench import measure_gateway
from tests.bench.gateway.gateway_figures import gateway_table
from tests.bench.memory_growth import measure_memory
from tests.bench.screen.byte_bench import measure_bytes
from tests.bench.screen.key_bench import measure_screen
from tests.bench.spark.drain_bench import measure_drain
from tests.bench.spark.pipeline_bench import measure_pipeline

SMALLEST: Final = 10_000
LEAST_SECONDS: Final = 10.0
MAX_CONNECTIONS: Final = 10_000
MIN_MEMORY_MESSAGES: Final = 1000


def run_bench_drain(plan: DrainPlan, *, json_line: bool) -> int:
    """Measure how a drain grows with its tasks; exit status as above. Raises BenchError."""
    check_plan(1, plan.size, plan.latency_ms, plan.rounds)
    figures = run_measurement(measure_drain(plan))
    return write_figures("drain", figures, developer_tables.drain_table, json_line)


def run_bench_engine(plan: EnginePlan, *, json_line: bool) -> int:
    """Measure what consoles cost the engine; exit status as above. Raises BenchError."""
    figures = run_measurement(measure_engine(plan))
    return write_figures("engine", figures, developer_tables.engine_table, json_line)


def run_bench_console(plan: ScreenPlan, *, json_line: bool) -> int:
    """Measure how fast the dashboard is; exit status as above. Raises BenchError."""
    figures = run_measurement(measure_screen(plan))
    return write_figures("console", figures, developer_tables.screen_table, json_line)


def run_bench_console_bytes(plan: BytesPlan, *, json_line: bool) -> int:
    """Measure what dashboards write; exit status as above. Raises BenchError."""
    figures = run_measurement(measure_bytes(plan))
    return write_figures("console-bytes", figures, developer_tables.bytes_table, json_line)


def run_bench_pipeline(plan: PipelinePlan, *, json_line: bool) -> int:
    """Measure how a journal becomes tables; exit status as above. Raises BenchError."""
    if plan.events < SMALLEST or plan.seconds < LEAST_SECONDS:
        raise BenchError(f"--events must be {SMALLEST:,} at least, --seconds {LEAST_SECONDS:g} at least")
    figures = run_measurement(measure_pipeline(plan))
    return write_figures("pipeline", figures, developer_tables.pipeline_table, json_line)


def run_bench_failover(plan: FailoverPlan, *, json_line: bool) -> int:
    """Measure the wait of a send at a failover; exit status as above. Raises BenchError."""
    check_plan(plan.messages, plan.size, plan.latency_ms)
    figures = run_measurement(measure_failover(rounds=plan.messages, size=plan.size, latency_ms=plan.latency_ms))
    return write_figures("failover", figures, developer_tables.failover_table, json_line)


def run_bench_gateway(plan: GatewayPlan, *, json_line: bool) -> int:
    """Measure the gateway; exit status as above. Raises BenchError."""
    check_plan(plan.messages, plan.size, rounds=plan.rounds)
    if not 1 <= plan.connections <= MAX_CONNECTIONS:
        raise BenchError(f"--connections is {plan.connections}; it must be between 1 and {MAX_CONNECTIONS:,}")
    if plan.backlog < 1:
        raise BenchError(f"--backlog is {plan.backlog}; it must be 1 at least")
    return write_figures("gateway", run_measurement(measure_gateway(plan)), gateway_table, json_line)


def run_bench_memory(plan: MemoryPlan, *, json_line: bool) -> int:
    """Measure the growth of the syphon's memory; exit status as above. Raises BenchError."""
    check_plan(plan.messages, plan.size)
    if plan.messages < MIN_MEMORY_MESSAGES:
        raise BenchError(f"--messages is {plan.messages}; it must be {MIN_MEMORY_MESSAGES:,} at least")
    figures = run_measurement(measure_memory(plan.messages, plan.size))
    return write_figures("memory", figures, developer_tables.memory_table, json_line)


def run_bench_added(plan: AddedPlan, *, json_line: bool) -> int:
    """Measure the time that the pairing adds to a send; exit status as above. Raises BenchError."""
    check_plan(1, plan.size)
    return write_figures("added", run_measurement(measure_added(plan.size)), developer_tables.added_table, json_line)
