"""Poison among good messages, in real processes: `python -m tests.poison [--fuzz SECONDS] [--seed N]`.

A namespace in a process of its own holds good messages in a backlog queue, alone or with every kind of poison among
them; an engine moves them. Fails unless all good ones arrive within twice the time that they take alone, each stranger
is delivered or dead-lettered with a reason, and the engine's loop is never busy for longer than 100 ms at a time.

--fuzz: the same with kinds damaged at random, for so many seconds. The loop's time is its processor time: what else
the machine does is not ours.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus import SendAvailabilityPairedNamespaceOptions, pair_namespaces, tls_context
from paired_servicebus.core.model.pairing_events import DeadLettered, Event, Moved

GOOD: Final = 2000
DAMAGED: Final = 400
ROUNDS: Final = 7
BEAT: Final = 0.005
LATE: Final = 0.1
"""Seconds that the loop may be busy without a pause."""
SLOWER: Final = 2.0
PATIENCE: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """seconds: until all good messages had arrived. busy: the loop's longest step, in seconds of the processor. late:
    the same by the clock."""

    strangers: int
    seconds: float
    busy: float
    late: float
    complaints: tuple[str, ...]


class Namespaces:
    """The sandbox's process."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def ask(self, name: str, **arguments: Any) -> Any:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, arguments]).encode() + b"\n")
        return await self.heard()

    async def heard(self) -> Any:
        assert self._process.stdout is not None
        async with asyncio.timeout(PATIENCE):
            return json.loads(await self._process.stdout.readline())


@asynccontextmanager
async def namespaces() -> AsyncIterator[tuple[Namespaces, dict[str, str]]]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.poison.namespace", stdin=PIPE, stdout=PIPE, limit=2**26
    )
    try:
        found = Namespaces(process)
        yield found, await found.heard()
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(PATIENCE):
                await process.wait()
        except TimeoutError:
            process.kill()


class Heart:
    """Beats in the loop; says how long the loop was busy between two beats, and how late one was."""

    def __init__(self) -> None:
        self.busy = self.late = 0.0

    async def beat(self) -> None:
        cpu, at = time.thread_time(), time.monotonic()
        while True:
            await asyncio.sleep(BEAT)
            before, began, cpu, at = cpu, at, time.thread_time(), time.monotonic()
            self.busy = max(self.busy, cpu - before)
            self.late = max(self.late, at - began - BEAT)


async def move(*, good: int, damaged: int | None, seed: int) -> Run:
    """Let an engine move these, and look at what became of them."""
    settled, arrived = asyncio.Event(), asyncio.Event()
    count = {"good": 0, "settled": 0}
    expected = 0

    def hear(event: Event) -> None:
        if isinstance(event, Moved | DeadLettered):
            count["settled"] += 1
            count["good"] += event.message_id.startswith("good-") and isinstance(event, Moved)
            if count["good"] == good:
                arrived.set()
            if count["settled"] == good + expected:
                settled.set()

    async with namespaces() as (them, where):
        shared: dict[str, Any] = {"retry_total": 0, "ssl_context": tls_context(where["ca"])}
        options = SendAvailabilityPairedNamespaceOptions(
            secondary_admin=ServiceBusAdministrationClient.from_connection_string(
                where["secondary"], connection_verify=where["ca"]
            ),
            secondary_client=ServiceBusClient.from_connection_string(where["secondary"], **shared),
            backlog_queue_count=1,
            primary_name="primary",
            enable_syphon=True,
            pump="amqp",
            undeliverable_after=1.0,  # a damaged path may be that of no entity
        )
        primary = ServiceBusClient.from_connection_string(where["primary"], **shared)
        async with await pair_namespaces(primary, options, on_event=hear) as paired:
            paired.pause_syphon(by="test")
            expected = await them.ask("fill", good=good, damaged=damaged, seed=seed)
            heart = Heart()
            beating = asyncio.create_task(heart.beat())
            began = time.monotonic()
            paired.resume_syphon(by="test")
            seconds = await _within(arrived, began)
            await _within(settled, began)
            beating.cancel()
            state = await _emptied(them)
    complaints = _complaints(state, good, expected)
    return Run(strangers=expected, seconds=seconds, busy=heart.busy, late=heart.late, complaints=complaints)


async def _within(event: asyncio.Event, began: float) -> float:
    """Seconds until it was set; infinity if it was not in time."""
    try:
        async with asyncio.timeout(PATIENCE):
            await event.wait()
    except TimeoutError:
        return float("inf")
    return time.monotonic() - began


async def _emptied(them: Namespaces) -> dict[str, Any]:
    """The namespaces' state once the queue is empty, or after a while."""
    end = time.monotonic() + 10.0
    while True:
        state: dict[str, Any] = await them.ask("state")
        if not state["waiting"] or time.monotonic() > end:
            return state
        await asyncio.sleep(0.1)


def _complaints(state: dict[str, Any], good: int, strangers: int) -> tuple[str, ...]:
    found = []
    if state["good"] != good:
        found.append(f"{good - state['good']} of {good} good messages have not arrived")
    if state["waiting"]:
        found.append(f"{state['waiting']} messages still wait in the backlog queue")
    if state["arrived"] + len(state["dead"]) != good + strangers:
        found.append(f"{state['arrived']} delivered and {len(state['dead'])} dead-lettered are not {good + strangers}")
    if not all(state["dead"]):
        found.append("a dead letter has no reason")
    raw = [reason for reason in state["dead"] if not reason.isprintable() or len(reason) > 1000]
    if raw:
        found.append(f"{len(raw)} reasons hold foreign text, such as {raw[0][:80]!r}")
    return tuple(found)


async def every_kind(seed: int) -> int:
    """The number of checks that failed."""
    alone, mixed = [], []
    for _ in range(ROUNDS):
        alone.append(await move(good=GOOD, damaged=0, seed=seed))
        mixed.append(await move(good=GOOD, damaged=None, seed=seed))
    # Of several runs the least disturbed: each takes some tenths of a second, which other work may double.
    ratio = min(run.seconds for run in mixed) / min(run.seconds for run in alone)
    complaints = {text for run in (*alone, *mixed) for text in run.complaints}
    if ratio > SLOWER:
        complaints.add(f"{GOOD} messages took {ratio:.2f} times as long as alone")
    busy = min(run.busy for run in mixed)
    if busy > LATE:
        complaints.add(f"the loop was busy for {busy * 1000:.0f} ms at a time")
    for name, runs in (("alone", alone), (f"with {mixed[0].strangers} strangers", mixed)):
        seconds = ", ".join(f"{run.seconds:.2f}" for run in runs)
        beats = ", ".join(f"{run.busy * 1000:.0f} ({run.late * 1000:.0f})" for run in runs)
        print(f"{name}: {GOOD} delivered in {seconds} s; longest busy (and late by the clock): {beats} ms")
    medians = median(run.seconds for run in mixed) / median(run.seconds for run in alone)
    print(f"ratio of the shortest: {ratio:.2f}; of the medians: {medians:.2f}")
    return _report(complaints)


async def at_random(seconds: float, seed: int) -> int:
    """The number of rounds with a complaint."""
    end, rounds, strangers, complaints, busiest = time.monotonic() + seconds, 0, 0, set(), 0.0
    while time.monotonic() < end:
        run = await move(good=DAMAGED, damaged=DAMAGED, seed=seed + rounds)
        rounds, strangers, busiest = rounds + 1, strangers + run.strangers, max(busiest, run.busy)
        complaints |= {f"seed {seed + rounds - 1}: {text}" for text in run.complaints}
        if run.busy > LATE:
            complaints.add(f"seed {seed + rounds - 1}: the loop was busy for {run.busy * 1000:.0f} ms at a time")
    print(f"{rounds} rounds from seed {seed}, {strangers} damaged messages, longest busy {busiest * 1000:.0f} ms")
    return _report(complaints)


def _report(complaints: set[str]) -> int:
    for text in sorted(complaints):
        print(f"FAILED: {text}")
    print(f"{int(not complaints)} passed, {len(complaints)} failed")
    return min(1, len(complaints))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.poison")
    parser.add_argument("--fuzz", type=float, metavar="SECONDS", help="damage the kinds at random, for so long")
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    return asyncio.run(at_random(given.fuzz, given.seed) if given.fuzz else every_kind(given.seed))


if __name__ == "__main__":
    sys.exit(main())
