"""`python -m tests.bench drain`: does a drain grow with its tasks, where a namespace takes its time to answer?

Two sandbox namespaces answer late; a task has few messages in hand, as a namespace's credit would have it, so that
waiting and not the processor bounds it. One, two and four tasks drain in turn, in one Spark session of a process of
its own (drain_process.py), each task a backlog queue. A rate is that of the time in which all tasks of a lap were at
work, by their receipts: what Spark and links take to start is nobody's.
"""

from __future__ import annotations

import asyncio
import tempfile
from asyncio.subprocess import DEVNULL
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from paired_servicebus.bench.amqp_loads import SampleMessages
from paired_servicebus.bench.bench_namespaces import BenchNamespaces, delay_answers, open_namespaces
from paired_servicebus.bench.bench_plans import BenchError
from paired_servicebus.bench.rounds import Figures, Targets
from paired_servicebus.bench.syphon_bench import fill
from paired_servicebus.core.backlog.queue_settings import queue_path
from paired_servicebus.interpreter import python_command
from tests.bench.child_process import child_environment
from tests.bench.developer_plans import DrainPlan

TASKS: Final = (1, 2, 4)
QUEUES: Final = tuple(queue_path("bench-drain", index) for index in range(max(TASKS)))
TARGET: Final = "bench-target"
IN_HAND: Final = 20
LAP: Final = 12.0
"""Seconds that a task drains."""
LONGEST: Final = 900.0
LEAST: Final = 0.8
"""Of linear."""


class DrainLap(msgspec.Struct, frozen=True, kw_only=True):
    """One wave of `tasks` tasks. seconds: in which all of them were at work; messages: moved in those."""

    tasks: int
    messages: int
    seconds: float

    @property
    def per_second(self) -> float:
        """Messages."""
        return self.messages / self.seconds


class LapOrders(msgspec.Struct, frozen=True, kw_only=True):
    """What the process with Spark is to do."""

    config: str
    spool: str
    queues: list[str]
    laps: list[int]
    in_hand: int
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskScaling:
    """per_second: the median of the rounds. of_linear: against as many times the rate of one task."""

    tasks: int
    per_second: float
    of_linear: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DrainFigures(Figures):
    """Everything that `python -m tests.bench drain` measures."""

    latency_ms: float
    size: int
    in_hand: int
    rounds: int
    tasks: tuple[TaskScaling, ...]

    @property
    def targets(self) -> Targets:
        """By the number of tasks."""
        return {f"of_linear_{one.tasks}": (LEAST, one.of_linear >= LEAST) for one in self.tasks}


async def measure_drain(plan: DrainPlan) -> DrainFigures:
    """Raises BenchError."""
    if find_spec("pyspark") is None:
        raise BenchError("Spark is not installed: pip install 'servicebus-paired-console[spark]' installs it")
    with tempfile.TemporaryDirectory(prefix="paired-bench-") as folder:
        async with open_namespaces(None, primary=[TARGET], secondary=QUEUES, latency_ms=0) as where:
            await _fill(where, plan)
            assert where.sandbox is not None
            await delay_answers(where.sandbox, plan.latency_ms)
            laps = await _laps(Path(folder), where, plan)
    return _figures(plan, laps)


async def _fill(where: BenchNamespaces, plan: DrainPlan) -> None:
    """As much into each queue as a task can move in all of its laps."""
    most = IN_HAND / (plan.latency_ms / 1000 or 0.001) * LAP * plan.rounds * len(TASKS)
    letters = SampleMessages(plan.size, TARGET)
    for queue in QUEUES:
        await fill(where, queue, letters, int(most))


async def _laps(folder: Path, where: BenchNamespaces, plan: DrainPlan) -> list[DrainLap]:
    assert where.sandbox is not None
    config = folder / "pairing.toml"
    config.write_text(
        '[pairing]\nname = "bench"\n'
        + "".join(
            f'[{side.name}]\nname = "{side.name}"\nca_file = "{where.sandbox.ca_file}"\n'
            f'connection_string = "{side.connection_string}"\n'
            for side in where.sandbox.namespaces
        )
    )
    laps = [tasks for _ in range(plan.rounds) for tasks in TASKS]
    orders = LapOrders(
        config=str(config), spool=str(folder / "spool"), queues=list(QUEUES), laps=laps, in_hand=IN_HAND, seconds=LAP
    )
    (folder / "orders.json").write_bytes(msgspec.json.encode(orders))
    log = folder / "log"
    with log.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *python_command("tests.bench.spark.drain_process", str(folder)),
            stdin=DEVNULL,
            stdout=out,
            stderr=out,
            env=child_environment(),
        )
    try:
        async with asyncio.timeout(LONGEST):
            status = await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if status:
        raise BenchError(f"the drain failed: {log.read_text(errors='replace').strip().splitlines()[-1][:400]}")
    return msgspec.json.decode((folder / "laps.json").read_bytes(), type=list[DrainLap])


def _figures(plan: DrainPlan, laps: list[DrainLap]) -> DrainFigures:
    rates = {tasks: median(lap.per_second for lap in laps if lap.tasks == tasks) for tasks in TASKS}
    alone = rates[1]
    return DrainFigures(
        latency_ms=plan.latency_ms,
        size=plan.size,
        in_hand=IN_HAND,
        rounds=plan.rounds,
        tasks=tuple(
            TaskScaling(
                tasks=tasks,
                per_second=round(rate, 1),
                of_linear=round(rate / (tasks * alone), 3),
            )
            for tasks, rate in rates.items()
        ),
    )
