"""The developers' benches: `python -m tests.bench NAME`, from the project's root.

Exit status: 2 for an error that the developer can correct, with one sentence on standard error.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, CycloptsError, Parameter

from paired_servicebus.bench.bench_command import run_bench_send, run_bench_syphon
from paired_servicebus.bench.bench_plans import SendPlan, SyphonPlan
from paired_servicebus.core.errors import PairedError
from paired_servicebus.printing import report_error
from paired_servicebus.verbs.bench_commands import Elsewhere, pairing_of
from paired_servicebus.verbs.parameters import JsonLine
from tests.bench import (
    dead_destination,
    developer_benches,
    rabbitmq_shovel,
    regression,
    report_bench,
    trees,
)
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
    return developer_benches.run_bench_drain(plan, json_line=json)


@app.command
def engine(*, plan: EnginePlan = EnginePlan(), json: JsonLine = False) -> int:
    """Measure the cost of consoles for the engine: lateness of pings and times of sends with none, one and five."""
    return developer_benches.run_bench_engine(plan, json_line=json)


@app.command
def console(*, plan: ScreenPlan = ScreenPlan(), json: JsonLine = False) -> int:
    """Measure how fast the dashboard opens and answers keys over an engine with many entities, on a pseudo-terminal."""
    return developer_benches.run_bench_console(plan, json_line=json)


@app.command
def console_bytes(*, plan: BytesPlan = BytesPlan(), json: JsonLine = False) -> int:
    """Measure the bytes that dashboards write, each profile on a pseudo-terminal, healthy and in outages."""
    return developer_benches.run_bench_console_bytes(plan, json_line=json)


@app.command
def pipeline(*, plan: PipelinePlan = PipelinePlan(), json: JsonLine = False) -> int:
    """Measure how fast Spark makes a journal into tables, and its lag behind a live one."""
    return developer_benches.run_bench_pipeline(plan, json_line=json)


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
    return developer_benches.run_bench_added(plan, json_line=json)


@app.command
def memory(*, plan: MemoryPlan = MemoryPlan(), json: JsonLine = False) -> int:
    """Measure the growth of the syphon's memory while it moves many messages."""
    return developer_benches.run_bench_memory(plan, json_line=json)


@app.command
def failover(*, plan: FailoverPlan = FailoverPlan(), json: JsonLine = False) -> int:
    """Measure how long a send waits at a failover with failover_interval 0, and at the failback."""
    return developer_benches.run_bench_failover(plan, json_line=json)


@app.command
def gateway(*, plan: GatewayPlan = GatewayPlan(), json: JsonLine = False) -> int:
    """Measure what a gateway adds to its clients' sends, its CPU and memory, and sends during a drain."""
    return developer_benches.run_bench_gateway(plan, json_line=json)


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
