"""The verbs that measure: `paired bench NAME`. Each reads its plan from the command line; console.bench does the rest.

Importing this is cheap: what measures is imported when it is asked for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from console.config import PairingConfig, find_config, load_config
from console.verbs.parameters import JsonLine

Size = Annotated[int, Parameter(help="Bytes of a message's body.")]
LatencyMs = Annotated[float, Parameter(help="Milliseconds that a round trip takes longer, in the sandbox.")]
Elsewhere = Annotated[
    Path | None,
    Parameter(name="--config", help="Measure on the namespaces of this pairing.toml, in queues made for it."),
]

bench = App(name="bench", help="The project's own measurements, on this machine.")


@bench.command(name="sandbox")
def bench_sandbox(
    *,
    json: JsonLine = False,
    messages: Annotated[int, Parameter(help="How many are held in the end; a round takes 20,000 at most.")] = 100_000,
    size: Annotated[int, Parameter(help="Bytes of a message's body.")] = 1024,
) -> int:
    """What the sandbox takes in, moves, holds, costs idle, and how long others wait in a flood."""
    from console.bench.command import run_bench_sandbox  # with the SDK and the sandbox behind it

    return run_bench_sandbox(messages=messages, size=size, json_line=json)


@bench.command(name="syphon")
def bench_syphon(
    *,
    json: JsonLine = False,
    messages: Annotated[int, Parameter(help="How many the syphon moves in a round.")] = 20_000,
    size: Size = 1024,
    latency_ms: LatencyMs = 0.0,
    rounds: Annotated[int, Parameter(help="How often each way takes its turn.")] = 3,
    peer: Annotated[str | None, Parameter(help="rabbitmq: a shovel beside it, where rabbitmq-server is there.")] = None,
    destinations: Annotated[int, Parameter(help="More than 1: also a backlog for so many destinations.")] = 1,
    memory: Annotated[int, Parameter(help="Also how far memory grows while so many messages are moved.")] = 0,
    config: Elsewhere = None,
) -> int:
    """How fast a backlog is moved, beside two loops on the SDK and a plain copy on our AMQP."""
    from console.bench.command import run_bench_syphon  # with the SDK and the sandbox behind it
    from console.bench.syphon import SyphonPlan

    plan = SyphonPlan(
        messages=messages,
        size=size,
        latency_ms=latency_ms,
        rounds=rounds,
        peer=peer,
        destinations=destinations,
        memory=memory,
        config=_pairing(config),
    )
    return run_bench_syphon(plan, json_line=json)


@bench.command(name="send")
def bench_send(
    *,
    json: JsonLine = False,
    messages: Annotated[int, Parameter(help="How many one caller sends in a round.")] = 300,
    size: Size = 1024,
    latency_ms: LatencyMs = 0.0,
    rounds: Annotated[int, Parameter(help="How often each way takes its turn.")] = 7,
    config: Elsewhere = None,
) -> int:
    """What a healthy send costs under a pairing, beside the plain SDK."""
    from console.bench.command import run_bench_send  # with the SDK and the sandbox behind it
    from console.bench.send import SendPlan

    plan = SendPlan(messages=messages, size=size, latency_ms=latency_ms, rounds=rounds, config=_pairing(config))
    return run_bench_send(plan, json_line=json)


@bench.command(name="drain")
def bench_drain(
    *,
    json: JsonLine = False,
    size: Size = 1024,
    latency_ms: LatencyMs = 20.0,
    rounds: Annotated[int, Parameter(help="How often each number of tasks takes its turn.")] = 2,
) -> int:
    """How a drain grows with its tasks, where a namespace takes its time to answer; needs Spark."""
    from console.bench.command import run_bench_drain  # with the SDK and the sandbox behind it
    from console.bench.drain import DrainBenchPlan

    return run_bench_drain(DrainBenchPlan(size=size, latency_ms=latency_ms, rounds=rounds), json_line=json)


@bench.command(name="engine")
def bench_engine(
    *,
    json: JsonLine = False,
    seconds: Annotated[float, Parameter(help="Of a lap; there are four a round.")] = 60.0,
    rounds: Annotated[int, Parameter(help="How often each way takes its turn.")] = 1,
) -> int:
    """What consoles cost the engine: lateness of pings and times of sends with none, one and five."""
    from console.bench.command import run_bench_engine  # with the SDK and the sandbox behind it
    from console.bench.engine import EnginePlan

    return run_bench_engine(EnginePlan(seconds=seconds, rounds=rounds), json_line=json)


@bench.command(name="console")
def bench_console(
    *,
    json: JsonLine = False,
    entities: Annotated[int, Parameter(help="How many the engine has.")] = 1000,
    keys: Annotated[int, Parameter(help="How often each key is typed in a run.")] = 20,
    runs: Annotated[int, Parameter(help="How often the dashboard is opened.")] = 3,
) -> int:
    """How fast the dashboard opens and answers keys over an engine with many entities, on a pseudo-terminal."""
    from console.bench.command import run_bench_console  # with the SDK behind it
    from console.bench.screen import ScreenPlan

    return run_bench_console(ScreenPlan(entities=entities, keys=keys, runs=runs), json_line=json)


@bench.command(name="pipeline")
def bench_pipeline(
    *,
    json: JsonLine = False,
    events: Annotated[int, Parameter(help="Of the large journal; the small one has a tenth.")] = 1_000_000,
    seconds: Annotated[float, Parameter(help="For which a journal is followed; forty more to warm up.")] = 60.0,
    only: Annotated[str | None, Parameter(help="Of it: once, cluster or live.")] = None,
) -> int:
    """How fast Spark makes a journal into tables, in two sizes and on a cluster, and how far behind it follows one."""
    from console.bench.command import run_bench_pipeline  # with the SDK and the sandbox behind it

    return run_bench_pipeline(events=events, seconds=seconds, only=only, json_line=json)


@bench.command(name="failover")
def bench_failover(
    *,
    json: JsonLine = False,
    messages: Annotated[int, Parameter(help="How many failovers; each takes a second or two.")] = 100,
    size: Size = 1024,
    latency_ms: LatencyMs = 0.0,
) -> int:
    """How long a send waits at a failover with failover_interval 0, and at the failback."""
    from console.bench.command import run_bench_failover  # with the SDK and the sandbox behind it

    return run_bench_failover(messages=messages, size=size, latency_ms=latency_ms, json_line=json)


def _pairing(config: Path | None) -> PairingConfig | None:
    """The pairing.toml that was named; none is looked for."""
    return None if config is None else load_config(find_config(config))
