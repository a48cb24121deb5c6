"""Plays the fleet scenario: eight hosts, one cut off, one read-only; an order over all of them, and its release.

    t = 0      web-1 runs in the demo's process, where the console is; web-2 to web-8 start in processes of their own
    CUT        web-7 loses its network
    ORDER      the operator orders `force failover` of orders, signed with the demo's key, over the fleet
    BACK       web-7 has its network again, and takes up what stands
    RELEASE    the operator releases orders

Times are shares of the duration. Each step also waits until the one before has its answers, and was shown for a while;
so a short play takes longer.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from paired_servicebus.connection_string import parts_of, split_url
from paired_servicebus.core.errors import PairedError
from paired_servicebus.core.model.fleet_view import FleetOrder
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.demo.fleet.fleet_engine import FleetHost, fleet_host
from paired_servicebus.demo.fleet.fleet_operator import FleetConsole, OperatorKey, fleet_console, make_key
from paired_servicebus.demo.fleet.fleet_tally import FleetTally
from paired_servicebus.demo.fleet.host_protocol import HostRequest
from paired_servicebus.demo.fleet.hosts import HostProcess, host_processes, met
from paired_servicebus.demo.fleet.network_link import NetworkLink
from paired_servicebus.demo.fleet_result import CUT_OFF, HOSTS, READ_ONLY
from paired_servicebus.demo.result import DemoResult
from paired_servicebus.demo.scenario_model import DRAIN_WITHIN
from paired_servicebus.demo.worker_protocol import PlayRequest
from paired_servicebus.pairing.runtime.deadlines import end_all
from paired_servicebus.sandbox_process import AnnouncedNamespace, SandboxProcess
from paired_servicebus.workload.workload import GIVE_UP_AFTER

MINE: Final = HOSTS[0]
OTHERS: Final = HOSTS[1:]
WATCHED_WITHIN: Final = 20.0
"""Seconds until the console's engine has posted its watch."""
START_WITHIN: Final = 60.0
ANSWER_WITHIN: Final = 40.0
"""Seconds in which all answers to an order have to be known."""
STOP_WITHIN: Final = GIVE_UP_AFTER + 10.0
QUIET_SECONDS: Final = 1.0
END_WITHIN: Final = 10.0
SHOWN_SECONDS: Final = 3.0
"""Seconds between two steps at least."""
CUT, ORDER, BACK, RELEASE = 0.25, 0.35, 0.55, 0.75
"""The steps, in shares of the duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What the play needs: the hosts, the network of one, and the operator's console."""

    sandbox: SandboxProcess
    key: OperatorKey
    mine: FleetHost
    others: Mapping[str, HostProcess]
    link: NetworkLink
    console: FleetConsole


@asynccontextmanager
async def fleet_stage(
    order: PlayRequest, sandbox: SandboxProcess, say: Callable[[str], None], caption: Callable[[], str]
) -> AsyncIterator[Stage]:
    """Yield the first host with the operator's console, and processes for the others. Raises PairedError."""
    folder = Path(order.folder)
    say("eight hosts start, each with an engine of its own")
    key = await make_key(folder)
    async with (
        NetworkLink() as link,
        host_processes(OTHERS, folder) as others,
        fleet_host(
            MINE,
            sandbox,
            spool=order.journal,
            socket=Path(order.socket),
            operators=key.operators,
            seed=order.seed,
            syphon=True,
            caption=caption,
        ) as mine,
        fleet_console(Path(order.socket), key.private) as console,
    ):
        try:
            yield Stage(sandbox=sandbox, key=key, mine=mine, others=others, link=link, console=console)
        finally:
            link.mend()  # a host without a network ends slowly


async def _start_others(stage: Stage, order: PlayRequest) -> None:
    """Start the other hosts, and wait until the console sees them. Raises PairedError.

    The console's engine posts its watch before: an engine that starts later reads it, and looks fast. The host that
    will be cut off reaches the namespaces through the link.
    """
    await met(lambda: stage.console.view.watched, WATCHED_WITHIN)
    behind = [await _through(stage.link, one) for one in stage.sandbox.namespaces]
    for name, host in stage.others.items():
        host.begin(
            HostRequest(
                name=name,
                folder=order.folder,
                operators=str(stage.key.operators),
                namespaces=behind if name == CUT_OFF else stage.sandbox.namespaces,
                ca_file=stage.sandbox.ca_file,
                seed=order.seed,
                read_only=name == READ_ONLY,
            )
        )
    await _all_report(stage)


async def _through(link: NetworkLink, namespace: AnnouncedNamespace) -> AnnouncedNamespace:
    """Return the namespace by its address behind the link."""
    url = split_url(parts_of(namespace.connection_string)["endpoint"])
    if url is None or url.port is None:
        raise PairedError(f"the sandbox announces no port of {namespace.name}")
    port = await link.forward(url.port)
    text = namespace.connection_string.replace(f":{url.port}", f":{port}", 1)
    return AnnouncedNamespace(namespace.name, text)


async def _all_report(stage: Stage) -> None:
    """Wait until the console sees every engine. Raises PairedError."""

    def is_met() -> bool:
        for host in stage.others.values():
            host.check()
        return all(host.is_ready for host in stage.others.values()) and stage.console.reporting == set(HOSTS)

    if not await met(is_met, START_WITHIN):
        missing = ", ".join(sorted(set(HOSTS) - stage.console.reporting)) or "none"
        raise PairedError(f"not all engines of the fleet reported within {START_WITHIN:.0f} s; missing: {missing}")


async def play_fleet(stage: Stage, order: PlayRequest, say: Callable[[str], None]) -> DemoResult:
    """Play the scenario and return its result. Raises PairedError."""
    application = stage.mine.application
    receiving = asyncio.create_task(application.receive_until_stopped(), name="the receivers")
    sending = asyncio.create_task(application.send_until_stopped(), name="the application of web-1")
    try:
        tally = await _script(stage, order, say)
        application.stop_sending()
        accounts = await asyncio.gather(*(host.stop_sending(STOP_WITHIN) for host in stage.others.values()))
        await sending
        hosts = {MINE: stage.mine.account(), **dict(zip(stage.others, accounts, strict=True))}
        tally.note_sent(application, accounts)
        if await met(lambda: not application.lists.missing, DRAIN_WITHIN):
            await asyncio.sleep(QUIET_SECONDS)  # for duplicates
        application.stop_receiving()
        await receiving
        return await tally.result(stage.sandbox, stage.mine, hosts, seed=order.seed)
    finally:
        await end_all([receiving, sending], END_WITHIN)


async def _script(stage: Stage, order: PlayRequest, say: Callable[[str], None]) -> FleetTally:
    """Perform the steps; return the answers to both orders."""
    loop, console, tally = asyncio.get_running_loop(), stage.console, FleetTally()
    begun, others = loop.time(), len(HOSTS) - 1

    async def until(share: float) -> None:
        await asyncio.sleep(max(SHOWN_SECONDS, begun + share * order.duration - loop.time()))

    await _start_others(stage, order)
    say("eight engines, eight hosts; soon web-7 loses its network")
    await until(CUT)
    tally.cut_at = time.time()
    stage.link.cut()
    say("web-7 is cut off: it can neither send nor read orders")
    await until(ORDER)
    force = await console.order("force", "drill: the primary is to be left")
    say("the operator forces failover of orders, on all 8 engines")
    tally.forced = await console.answered(force, lambda one: len(one.done) + len(one.refused) >= others, ANSWER_WITHIN)
    say(answers_caption(tally.forced))
    await until(BACK)
    tally.forced = await console.answered(force, lambda _: True, 0.0)
    tally.back_at = time.time()
    stage.link.mend()
    say("web-7 has its network again, and reads what stands")
    tally.taken_up = await console.answered(force, lambda one: CUT_OFF in one.done, ANSWER_WITHIN)
    say(taken_up_caption(tally.forced, tally.taken_up, time.time()))
    await until(RELEASE)
    release = await console.order("release", "drill over")
    say("the operator releases orders, on all 8 engines")
    tally.released = await console.answered(release, lambda one: len(one.done) == len(HOSTS), ANSWER_WITHIN)
    await met(lambda: not any(host.is_forced for host in stage.others.values()), ANSWER_WITHIN)
    say(f"{len(tally.released.done)} released: sends return, the backlog drains")
    await until(1.0)
    return tally


def answers_caption(order: FleetOrder) -> str:
    """Return how many engines did it, refused it and are silent, with the names of the few."""
    refused, silent = ([name for name, _ in some] for some in (order.refused, order.silent))
    return f"{len(order.done)} done · {_few('refused', refused)} · {_few('silent', silent)}"


def _few(word: str, names: list[str]) -> str:
    shown = f" ({', '.join(names)})" if 0 < len(names) < 3 else ""
    return f"{len(names)} {word}{shown}"


def taken_up_caption(before: FleetOrder, order: FleetOrder, at: float) -> str:
    """Return which engines have done it since, at a time."""
    names = [name for name in order.done if name not in before.done]
    return f"{', '.join(names) or 'no engine'} took the order up, by itself: {clock(at)}"
