"""The verbs of `paired bench NAME`. Each parses its plan from the command line and calls paired_servicebus.bench.

Importing this module is cheap: it imports the benchmarks on demand.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from paired_servicebus.bench.bench_plans import (
    DrainPlan,
    EnginePlan,
    FailoverPlan,
    PipelinePlan,
    SandboxPlan,
    ScreenPlan,
    SendPlan,
    SyphonPlan,
)
from paired_servicebus.config import PairingConfig, find_config, load_config
from paired_servicebus.verbs.parameters import JsonLine

Elsewhere = Annotated[
    Path | None,
    Parameter(name="--config", help="Measure on the namespaces of this pairing.toml, in queues made for it."),
]

bench = App(name="bench", help="The project's own measurements, on this machine.")


@bench.command(name="sandbox")
def bench_sandbox(*, plan: SandboxPlan = SandboxPlan(), json: JsonLine = False) -> int:
    """Measure the sandbox: throughput, memory, idle cost, and other clients' waits in a flood."""
    from paired_servicebus.bench.bench_command import run_bench_sandbox  # with the SDK and the sandbox behind it

    return run_bench_sandbox(plan, json_line=json)


@bench.command(name="syphon")
def bench_syphon(*, plan: SyphonPlan = SyphonPlan(), config: Elsewhere = None, json: JsonLine = False) -> int:
    """Measure how fast a backlog is moved, beside two loops on the SDK and a plain copy on our AMQP."""
    from paired_servicebus.bench.bench_command import run_bench_syphon  # with the SDK and the sandbox behind it

    return run_bench_syphon(plan, _pairing(config), json_line=json)


@bench.command(name="send")
def bench_send(*, plan: SendPlan = SendPlan(), config: Elsewhere = None, json: JsonLine = False) -> int:
    """Measure the cost of a healthy send under a pairing, beside the plain SDK."""
    from paired_servicebus.bench.bench_command import run_bench_send  # with the SDK and the sandbox behind it

    return run_bench_send(plan, _pairing(config), json_line=json)


@bench.command(name="drain")
def bench_drain(*, plan: DrainPlan = DrainPlan(), json: JsonLine = False) -> int:
    """Measure how a drain grows with its tasks over a slow namespace; needs Spark."""
    from paired_servicebus.bench.bench_command import run_bench_drain  # with the SDK and the sandbox behind it

    return run_bench_drain(plan, json_line=json)


@bench.command(name="engine")
def bench_engine(*, plan: EnginePlan = EnginePlan(), json: JsonLine = False) -> int:
    """Measure the cost of consoles for the engine: lateness of pings and times of sends with none, one and five."""
    from paired_servicebus.bench.bench_command import run_bench_engine  # with the SDK and the sandbox behind it

    return run_bench_engine(plan, json_line=json)


@bench.command(name="console")
def bench_console(*, plan: ScreenPlan = ScreenPlan(), json: JsonLine = False) -> int:
    """Measure how fast the dashboard opens and answers keys over an engine with many entities, on a pseudo-terminal."""
    from paired_servicebus.bench.bench_command import run_bench_console  # with the SDK behind it

    return run_bench_console(plan, json_line=json)


@bench.command(name="pipeline")
def bench_pipeline(*, plan: PipelinePlan = PipelinePlan(), json: JsonLine = False) -> int:
    """Measure how fast Spark makes a journal into tables, in two sizes and on a cluster, and its lag behind a live one."""
    from paired_servicebus.bench.bench_command import run_bench_pipeline  # with the SDK and the sandbox behind it

    return run_bench_pipeline(plan, json_line=json)


@bench.command(name="failover")
def bench_failover(*, plan: FailoverPlan = FailoverPlan(), json: JsonLine = False) -> int:
    """Measure how long a send waits at a failover with failover_interval 0, and at the failback."""
    from paired_servicebus.bench.bench_command import run_bench_failover  # with the SDK and the sandbox behind it

    return run_bench_failover(plan, json_line=json)


def _pairing(config: Path | None) -> PairingConfig | None:
    """Load the named pairing.toml; None without a name."""
    return None if config is None else load_config(find_config(config))
