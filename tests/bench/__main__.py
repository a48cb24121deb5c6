"""The developers' benches: `python -m tests.bench NAME`, from the project's root.

Exit status: 2 for an error that the developer can correct, with one sentence on standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Final, Literal

from cyclopts import App, CycloptsError, Parameter

from paired_servicebus.bench.bench_command import (
    check_plan,
    run_bench_send,
    run_bench_syphon,
    run_measurement,
    write_figures,
)
from paired_servicebus.bench.bench_plans import BenchError, SendPlan, SyphonPlan
from paired_servicebus.core.errors import PairedError
from paired_servicebus.printing import report_error
from paired_servicebus.verbs.parameters import JsonLine
from paired_servicebus.verbs.trial_verbs import Elsewhere, pairing_of
from tests.bench import (
    dead_destination,
    rabbitmq_shovel,
    regression,
    report_bench,
    trees,
)
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
from tests.bench.figures import figures_table
from tests.bench.gateway.gateway_bench import measure_gateway
from tests.bench.memory_growth import measure_memory
from tests.bench.screen.byte_bench import measure_bytes
from tests.bench.screen.key_bench import measure_screen
from tests.bench.spark.drain_bench import measure_drain
from tests.bench.spark.pipeline_bench import measure_pipeline

SMALLEST: Final = 10_000
LEAST_SECONDS: Final = 10.0
MAX_CONNECTIONS: Final = 10_000
MIN_MEMORY_MESSAGES: Final = 1000

app = App(
    name="python -m tests.bench",
    help="The developers' benches, on this machine.",
    version_flags=(),
    default_parameter=Parameter(negative=()),
    result_action="return_value",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one bench; return the exit status."""
    try:
        status = app(arguments, exit_on_error=False, print_error=False)
    except (CycloptsError, PairedError) as error:
        return report_error(str(error).rstrip())
    return status if isinstance(status, int) else 0


@app.command
def drain(*, plan: DrainPlan = DrainPlan(), json: JsonLine = False) -> int:
    """Measure how a drain grows with its tasks over a slow namespace; needs Spark."""
    check_plan(1, plan.size, plan.latency_ms, plan.rounds)
    figures = run_measurement(measure_drain(plan))
    return write_figures("drain", figures, figures_table, json)


@app.command
def engine(*, plan: EnginePlan = EnginePlan(), json: JsonLine = False) -> int:
    """Measure the cost of consoles for the engine: lateness of pings and times of sends with none, one and five."""
    figures = run_measurement(measure_engine(plan))
    return write_figures("engine", figures, figures_table, json)


@app.command
def console(*, plan: ScreenPlan = ScreenPlan(), json: JsonLine = False) -> int:
    """Measure how fast the dashboard opens and answers keys over an engine with many entities, on a pseudo-terminal."""
    figures = run_measurement(measure_screen(plan))
    return write_figures("console", figures, figures_table, json)


@app.command
def console_bytes(*, plan: BytesPlan = BytesPlan(), json: JsonLine = False) -> int:
    """Measure the bytes that dashboards write, each profile on a pseudo-terminal, healthy and in outages."""
    figures = run_measurement(measure_bytes(plan))
    return write_figures("console-bytes", figures, figures_table, json)


@app.command
def pipeline(*, plan: PipelinePlan = PipelinePlan(), json: JsonLine = False) -> int:
    """Measure how fast Spark makes a journal into tables, and its lag behind a live one."""
    if plan.events < SMALLEST or plan.seconds < LEAST_SECONDS:
        raise BenchError(f"--events must be {SMALLEST:,} at least, --seconds {LEAST_SECONDS:g} at least")
    figures = run_measurement(measure_pipeline(plan))
    return write_figures("pipeline", figures, figures_table, json)


@app.command
def report(
    *,
    rounds: Annotated[int, Parameter(help="How often each report is made.")] = 3,
    only: Annotated[str | None, Parameter(help='One of the histories, such as "a quiet day".')] = None,
    json: JsonLine = False,
) -> int:
    """Measure how long `paired report` takes, and its memory: a quiet day, 2,500 episodes, 10 million events."""
    return report_bench.run_bench_report(rounds=rounds, json_line=json, only=only)


@app.command
def syphon(
    *,
    plan: SyphonPlan = SyphonPlan(),
    peer: Literal["rabbitmq"] | None = None,
    config: Elsewhere = None,
    json: JsonLine = False,
) -> int:
    """Measure the syphon as `paired bench syphon` does. --peer: also RabbitMQ's shovel; needs rabbitmq-server."""
    other = rabbitmq_shovel.shovel if peer else None
    return run_bench_syphon(plan, pairing_of(config), json_line=json, peer=other)


@app.command
def send(*, plan: SendPlan = SendPlan(), config: Elsewhere = None, json: JsonLine = False) -> int:
    """Measure the cost of a healthy send as `paired bench send` does."""
    return run_bench_send(plan, pairing_of(config), json_line=json)


@app.command
def added(*, plan: AddedPlan = AddedPlan(), json: JsonLine = False) -> int:
    """Measure the processor time that the pairing adds to a send, on a stub of the SDK."""
    check_plan(1, plan.size)
    return write_figures("added", run_measurement(measure_added(plan.size)), figures_table, json)


@app.command
def memory(*, plan: MemoryPlan = MemoryPlan(), json: JsonLine = False) -> int:
    """Measure the growth of the syphon's memory while it moves many messages."""
    check_plan(plan.messages, plan.size)
    if plan.messages < MIN_MEMORY_MESSAGES:
        raise BenchError(f"--messages is {plan.messages}; it must be {MIN_MEMORY_MESSAGES:,} at least")
    figures = run_measurement(measure_memory(plan.messages, plan.size))
    return write_figures("memory", figures, figures_table, json)


@app.command
def failover(*, plan: FailoverPlan = FailoverPlan(), json: JsonLine = False) -> int:
    """Measure how long a send waits at a failover with failover_interval 0, and at the failback."""
    check_plan(plan.messages, plan.size, plan.latency_ms)
    figures = run_measurement(measure_failover(rounds=plan.messages, size=plan.size, latency_ms=plan.latency_ms))
    return write_figures("failover", figures, figures_table, json)


@app.command
def gateway(*, plan: GatewayPlan = GatewayPlan(), json: JsonLine = False) -> int:
    """Measure what a gateway adds to its clients' sends, its CPU and memory, and sends during a drain."""
    check_plan(plan.messages, plan.size, rounds=plan.rounds)
    if not 1 <= plan.connections <= MAX_CONNECTIONS:
        raise BenchError(f"--connections is {plan.connections}; it must be between 1 and {MAX_CONNECTIONS:,}")
    if plan.backlog < 1:
        raise BenchError(f"--backlog is {plan.backlog}; it must be 1 at least")
    return write_figures("gateway", run_measurement(measure_gateway(plan)), figures_table, json)


@app.command(name="dead-destination")
def measure_dead_destination(*counts: int) -> None:
    """Measure the cost of a dead destination for the messages behind it. counts: MANY and FEW."""
    dead_destination.main(*counts)


@app.command(name="trees")
def compare_trees(
    *more: Annotated[str, Parameter(help="Arguments of that bench, after `--`.")],
    old: Annotated[Path, Parameter(help="Interpreter of the environment with the old tree installed.")],
    new: Annotated[Path, Parameter(help="The same of the new tree; that of the old one again measures the noise.")],
    bench: trees.BenchName,
    rounds: Annotated[int, Parameter(help="Each is old, new, new, old.")] = 3,
    json: JsonLine = False,
) -> int:
    """Compare a bench of two trees, which take turns."""
    return trees.run_bench_trees({"old": old, "new": new}, bench, more, rounds=rounds, json_line=json)


@app.command(name="regression")
def check_regression() -> int:
    """Fail when a ratio is several times worse than it was; CI runs this."""
    return regression.main()


if __name__ == "__main__":
    sys.exit(main())
