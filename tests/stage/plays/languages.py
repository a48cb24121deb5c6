"""Senders of four languages behind a gateway while the primary fails: all that they may see of it is slowness."""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from math import isinf
from pathlib import Path
from typing import Any, Final

from tests.conformance.checking import Unfetched, fetch
from tests.conformance.rhea.__main__ import PACKAGES
from tests.examples.any_language import SenderProcess
from tests.examples.sender_programs import FOREIGN, NODE_PACKAGE, SOURCES, SenderProgram, find_programs, python_program
from tests.ports import free_port
from tests.stage.console import Console
from tests.stage.course import PRIMARY, SECONDARY, Strike
from tests.stage.director import DRAINED, PATIENCE, Director
from tests.stage.gate import Gate
from tests.stage.ledger import Answered, Attempted, Broken, now

from paired_servicebus.core.accounting.ledger import Ledger as Balance
from paired_servicebus.core.accounting.ledger import SendOutcome
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.operator.alarms import alarms
from paired_servicebus.engine.gateway.gateway_keys import connection_string
from servicebus_sandbox import NamespaceSpec, QueueSpec

ENTITY: Final = "orders"
SPECS: Final = (NamespaceSpec(PRIMARY, queues=[QueueSpec(ENTITY)]), NamespaceSpec(SECONDARY))
SEND_TIMEOUT: Final = 10.0
"""The default of a pairing with a gateway."""
SHORT: Final = 1.0
"""Minutes below which the engine has short times."""
SHORT_TIMES: Final[Mapping[str, Any]] = {"send_timeout": 1.0, "failover_interval": 3.0, "ping_primary_interval": 2.0}
LANES: Final = 4
PAUSE: Final = 0.1
"""Seconds between two calls of a lane."""
AROUND: Final = 2.0
"""Seconds of sending before and after the outage."""
WINDOW: Final = 1.0
"""Seconds around a moment: the senders' lines need a while to get here."""
ANSWERED: Final = 150.0
"""Seconds in which every call that is under way has to return: some SDKs try four times, each for half a minute."""
FETCHING: Final = 240.0
CROWD: Final = 60
"""Senders in one process, each with a call under way as the primary falls silent."""
CROWD_PAUSE: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What was counted around the gateway at one moment. opened, closed: connections of clients, by the gate."""

    opened: int
    closed: int
    failovers: int
    diverted: int


def outage(fault: str, *, fails_over: bool = True) -> Callable[[Director, float, int], Awaitable[None]]:
    """Return a play of one fault of the primary under load."""

    async def perform(director: Director, minutes: float, _engines: int) -> None:
        with programs(director.folder) as found:
            await _play(director, found, fault, minutes, fails_over=fails_over)

    return perform


def silence(interval: float) -> Callable[[Director, float, int], Awaitable[None]]:
    """Return a play of a silent primary, with so many seconds to the failover: a crowd's calls are all in flight."""

    async def perform(director: Director, minutes: float, _engines: int) -> None:
        times = {"failover_interval": interval}
        await _play(director, [python_program()], "black-holed", minutes, times=times, lanes=CROWD, pause=CROWD_PAUSE)
        check_haste(director, interval)

    return perform


async def _play(
    director: Director,
    found: Sequence[SenderProgram],
    fault: str,
    minutes: float,
    *,
    fails_over: bool = True,
    times: Mapping[str, Any] | None = None,
    lanes: int = LANES,
    pause: float = PAUSE,
) -> None:
    if times is None:
        times = SHORT_TIMES if minutes < SHORT else {}
    director.send_timeout = times.get("send_timeout")
    engine = director.engine(
        "gateway", gateway_port=free_port(), entities=[ENTITY], backlog_queue_count=2, hold_until_failover=True, **times
    )
    await engine.start()
    gate = await director.stack.enter_async_context(Gate(engine.gateway_port))
    console = await director.console(engine)
    senders = await _start(director, found, connection_string(engine.key, gate.port), lanes, pause)
    await asyncio.sleep(AROUND)
    before = figures(gate, console)
    number = director.begin_episode(f"the primary is {fault}", opens=True, at=now() - WINDOW)
    director.end_episode(number, at=now() + WINDOW)  # a copy is excused if its call was under way as the outage began
    begun = asyncio.get_running_loop().time()
    director.strike(Strike(namespace=PRIMARY, fault=fault, entities=(ENTITY,) if fault == "disabled" else ()))
    await asyncio.sleep(minutes * 60)
    director.mend()
    during = figures(gate, console)
    director.figures["haste"] = haste(console)
    await asyncio.sleep(AROUND)
    after = figures(gate, console)
    await asyncio.gather(*(one.stop(ANSWERED) for one in senders))
    await director.expect(lambda: _state(console) is State.HEALTHY and not director.parked, "all has drained", DRAINED)
    for one in senders:
        list_answers(director, one)
    await director.collect(ENTITY)
    director.list_remaining()
    director.figures["senders"] = [summary(one) for one in senders]
    check_failover(fault, during, fails_over=fails_over)
    check_connections(before, after)
    check_senders(senders, director.complete_ledger().balance())
    if fails_over:
        check_progress(senders, begun, minutes * 60)
    await director.end()


async def _start(
    director: Director, found: Sequence[SenderProgram], string: str, lanes: int, pause: float
) -> list[SenderProcess]:
    """Start a sender of each program; return when each has accepted messages. Raises Broken."""
    senders = []
    for program in found:
        sender = SenderProcess(program, program.language.lower(), director.folder / f"{program.language}.log")
        director.stack.push_async_callback(sender.kill)
        await sender.start(string, ENTITY, lanes=lanes, pause=pause)
        senders.append(sender)
    await director.expect(lambda: all(one.accepted >= 2 * lanes for one in senders), "every sender sends", PATIENCE)
    return senders


def figures(gate: Gate, console: Console) -> Figures:
    view = console.entity(ENTITY)
    failovers, diverted = (view.failovers, view.diverted) if view is not None else (0, 0)
    return Figures(opened=gate.opened, closed=gate.closed, failovers=failovers, diverted=diverted)


def _state(console: Console) -> State | None:
    view = console.entity(ENTITY)
    return view.state if view is not None else None


def haste(console: Console) -> dict[str, list[str]]:
    """Return what the engine shows of its own haste: queues out of the rotation, alarms."""
    shown = console.snapshot
    if shown is None:
        raise Broken("the engine shows nothing")
    pulled = [f"{queue.path}: {queue.pulled_reason}" for queue in shown.queues if not queue.in_rotation]
    found = [one.text for one in alarms(condition_of(shown)) if one.name.startswith("backlog_")]
    return {"pulled": pulled, "alarms": found}


def check_haste(director: Director, interval: float) -> None:
    """Raise Broken if a message arrived twice, or if a healthy backlog queue was pulled or alarmed about."""
    twice = [name for name, life in director.complete_ledger().lives.items() if len(life.numbers) > 1]
    director.figures["twice"] = len(twice)
    found = director.figures["haste"]
    if twice or found["pulled"] or found["alarms"]:
        raise Broken(f"interval {interval:g} s: {len(twice)} twice, {found}")


def summary(one: SenderProcess) -> str:
    counts = f"{one.accepted} accepted, {len(one.errors)} errors, slowest {one.slowest_ms / 1000:.1f} s"
    return f"{one.program.language} ({one.program.sdk}): {counts}"


def list_answers(director: Director, sender: SenderProcess) -> None:
    """Add a sender's own list to the ledger's, in seconds since the epoch."""
    offset = now() - asyncio.get_running_loop().time()
    for name, (begun, answered) in sender.calls.items():
        director.facts.write(Attempted(at=begun + offset, entity=ENTITY, ids=[name]))
        if not isinf(answered):
            director.facts.write(
                Answered(
                    at=answered + offset, ids=[name], answer=sender.answers[name], error=sender.errors.get(name, "")
                )
            )


def check_failover(fault: str, during: Figures, *, fails_over: bool) -> None:
    """Raise Broken unless the outage did what it is for: else the rest proves nothing."""
    if bool(during.failovers) != fails_over or bool(during.diverted) != fails_over:
        raise Broken(f"{fault}: {during.failovers} failovers, {during.diverted} diverted")


def check_connections(before: Figures, after: Figures) -> None:
    """Raise Broken if a client lost its connection: it would also have opened another."""
    if after.closed or after.opened != before.opened:
        raise Broken(f"clients lost {after.closed} connections and opened {after.opened - before.opened} more")


def check_senders(senders: Sequence[SenderProcess], balance: Balance) -> None:
    """Raise Broken unless every call returned, and none with an error. The ledger judges the rest."""
    if hanging := [one.program.language for one in senders if not one.has_ended]:
        raise Broken(f"{', '.join(hanging)}: ended by itself, or calls did not return within {ANSWERED:.0f} s")
    if errors := {name: text for one in senders for name, text in one.errors.items()}:
        name, text = next(iter(errors.items()))
        raise Broken(f"{len(errors)} errors from send, the first for {name}: {text}")
    if balance.in_doubt:
        raise Broken(f"{balance.in_doubt} in doubt")


def check_progress(senders: Sequence[SenderProcess], begun: float, seconds: float) -> None:
    """Raise Broken unless each sender had messages accepted in the last part of the outage."""
    for one in senders:
        late = [
            name
            for name, (_, answered) in one.calls.items()
            if begun + 0.8 * seconds <= answered <= begun + seconds and one.answers[name] is SendOutcome.ACCEPTED
        ]
        if not late:
            raise Broken(f"{one.program.language} had none of {one.accepted} accepted late in the outage")


# -- the SDKs, fetched by the registries' own clients ------------------------------------------------------------------


@contextmanager
def programs(folder: Path) -> Iterator[list[SenderProgram]]:
    """Yield the senders that run here, and print why others do not. npm's packages are in the folder."""
    before = os.environ.get("NODE_PATH")
    os.environ["NODE_PATH"] = os.pathsep.join(filter(None, (str(folder / "node_modules"), before)))
    try:
        with ThreadPoolExecutor(len(FOREIGN)) as threads:
            found = [program for each in threads.map(lambda one: _programs(one, folder), FOREIGN) for program in each]
        yield [*found, python_program()]
    finally:
        os.environ.pop("NODE_PATH", None)
        if before is not None:
            os.environ["NODE_PATH"] = before


def _programs(language: str, folder: Path) -> list[SenderProgram]:
    """Return the sender in a language, fetched if need be; none if it cannot be had."""
    found, missing = find_programs(folder, [language])
    if missing:
        _fetch(language, folder)
        found, missing = find_programs(folder, [language])
    for reason in missing.values():
        print(f"no {language}: {reason}", file=sys.stderr)
    return found


def _fetch(language: str, folder: Path) -> None:
    package = next(one for one in PACKAGES if one.startswith(NODE_PACKAGE))
    npm = ("install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix", str(folder), package)
    tool, arguments = {
        "JavaScript": ("npm", npm),
        "Java": ("mvn", ("-B", "-q", "-f", str(SOURCES / "pom.xml"), "dependency:build-classpath")),
        "Go": ("go", ("-C", str(SOURCES / "go"), "mod", "download")),
    }[language]
    if (found := shutil.which(tool)) is None:
        return
    try:
        fetch([found, *arguments], f"the SDK for {language}", seconds=FETCHING)
    except Unfetched as reason:
        print(reason, file=sys.stderr)
