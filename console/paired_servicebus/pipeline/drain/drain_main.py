"""The process of a drain that holds Spark; drain_command runs it with the arguments RUN and WORK.

Its output is a log file, its reports are in the run's progress.json. The first line of standard input holds the
operator's Spark settings, which may be secret. The end of the input means the parent has ended, and ends the drain
cleanly. Its tasks are in drain_task, its decisions in waves.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from azure.core.exceptions import AzureError

from paired_servicebus.config import PairingConfig, load_config
from paired_servicebus.core.errors import DrainError, PairedError
from paired_servicebus.core.text.masking import masked
from paired_servicebus.engine.clients.client_factory import open_admin
from paired_servicebus.engine.instance.logs import log_to
from paired_servicebus.pairing.management import backlog_queues
from paired_servicebus.pipeline.drain import drain_task as drain_task
from paired_servicebus.pipeline.drain.drain_files import (
    AttemptProgress,
    DrainOrder,
    DrainOutcome,
    TaskReport,
    Told,
    is_stopped,
    read_order,
    write,
)
from paired_servicebus.pipeline.drain.waves import Depths, QueueDepth, WaveActions, Waves
from paired_servicebus.pipeline.spark.java import find_java
from paired_servicebus.pipeline.spark.spark_session import first_line, open_session
from paired_servicebus.pipeline.spark_processes import watch_parent

LAST_RESORT: Final = 120.0
"""Seconds that a drain without a parent has to end cleanly."""

log = logging.getLogger("paired_servicebus.pipeline.drain.drain_main")


def main(folder: Path, work: Path) -> int:
    """Run the order in `folder`; return the exit status."""
    log_to(sys.stderr)
    private = msgspec.json.decode(sys.stdin.buffer.readline() or b"{}", type=dict[str, str])
    watch_parent((folder / "stop").touch, within=LAST_RESORT)
    began = time.time()
    told = _Teller(folder)
    try:
        waves, reason = _drain(read_order(folder), private, work, told)
    except PairedError as error:
        log.exception("the drain failed")
        told.tell("failed", trouble=masked(str(error)))
        return 2
    moved = sum(one.moved for one in told.reports)
    dead = sum(one.dead_lettered for one in told.reports)
    outcome = DrainOutcome(
        moved=moved,
        dead_lettered=dead,
        set_aside=waves.set_aside,
        seconds=time.time() - began,
        waves=waves.count,
        complete=not reason,
        text=reason,
    )
    told.tell("ended", outcome=outcome)
    return 0


class _Teller:
    """The report of a run in its progress.json."""

    def __init__(self, folder: Path) -> None:
        self.reports: list[TaskReport] = []
        self._folder = folder
        self._wave = 0

    def wave(self, number: int, text: str) -> None:
        """Report the beginning of a wave."""
        self._wave = number
        self.tell(text)

    def heard(self, reports: list[TaskReport]) -> list[TaskReport]:
        """Collect the reports of a wave, and return them."""
        self.reports += reports
        for one in reports:
            log.info("queue %d: %s", one.queue, one)
        return reports

    def tell(self, phase: str, *, outcome: DrainOutcome | None = None, trouble: str = "") -> None:
        """Report the present step, or the end with its outcome or its trouble."""
        log.info("wave %d: %s", self._wave, outcome or phase)
        told = Told(phase=phase, wave=self._wave, progress=AttemptProgress(), outcome=outcome, trouble=trouble)
        write(self._folder / "progress.json", told)


def _drain(order: DrainOrder, private: dict[str, str], work: Path, told: _Teller) -> tuple[Waves, str]:
    """Run the waves. Raises PairedError if the drain cannot begin or go on."""
    config = load_config(Path(order.config))
    told.tell(f"starting Spark on {order.master}")
    java = find_java(shims=work)
    with open_session(
        app="drain",
        work=work,
        java=java,
        master=order.master,
        settings=_cluster_settings(order),
        private=private,
        whole_environment=order.master.startswith("local"),
    ) as spark:
        world = WaveActions(
            run=lambda deals: told.heard(wave(spark, order, deals)),
            depths=lambda: _depths(config, order.by_index),
            clock=time.time,
            sleep=time.sleep,
            is_stopped=lambda: is_stopped(order.folder),
            tell=told.wave,
        )
        waves = Waves(world, queues=order.by_index, parallelism=order.parallelism)
        return waves, waves.run()


def wave(spark: Any, order: DrainOrder, deals: tuple[int, ...]) -> list[TaskReport]:
    """One Spark job, a task for each of `deals`.

    Raises DrainError: a task failed as often as Spark tries it, or the executors are gone.
    """
    work = partial(drain_task.partition, str(order.folder), deals)
    count = len(deals)
    try:
        rows = spark.range(0, count, 1, count).mapInArrow(work, drain_task.ROWS).collect()
    except Exception as error:  # whatever py4j, the JVM or a task said
        raise DrainError(f"a wave of {count} tasks failed: {_said(error)}") from error
    return [msgspec.json.decode(bytes(row["report"]), type=TaskReport) for row in rows]


def _said(error: Exception) -> str:
    """Return the last traceback line of a failed task; otherwise the first line of Spark's error."""
    lines = [line.strip() for line in str(error).splitlines()]
    ours = [line for line in lines if ": " in line and line.split(":", 1)[0].endswith(("Error", "Exception"))]
    of_python = [line for line in ours if not line.startswith(("org.", "py4j.", "java.", "Caused"))]
    return masked((of_python or [first_line(error)])[-1][:400])


def _depths(config: PairingConfig, queues: Mapping[int, str]) -> Depths:
    """Return the depths; an unknown one is None. Raises nothing."""

    async def asked() -> list[QueueDepth | None]:
        async with open_admin(config.secondary) as admin:
            return list(
                await asyncio.gather(*(_depth(partial(backlog_queues.depth, admin, path)) for path in queues.values()))
            )

    try:
        return dict(zip(queues, asyncio.run(asked()), strict=True))
    except (PairedError, ValueError, OSError) as error:
        log.warning("the counts of the queues cannot be read: %s", error)
        return dict.fromkeys(queues)


async def _depth(ask: Callable[[], Any]) -> QueueDepth | None:
    try:
        found = await ask()
    except (AzureError, OSError, TimeoutError) as error:
        log.warning("%s", masked(str(error)))
        return None
    return QueueDepth(found.messages, found.scheduled)


def _cluster_settings(order: DrainOrder) -> dict[str, object]:
    """Spark settings for a cluster's executors: their size."""
    if order.master.startswith("local"):
        return {}
    return {"spark.cores.max": order.parallelism, "spark.task.maxFailures": 4}


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
