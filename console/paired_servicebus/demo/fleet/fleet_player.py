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
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import msgspec

from paired_servicebus.connection_string import parts_of, split_url
from paired_servicebus.core.accounting.ledger import SendOutcome, balance
from paired_servicebus.core.errors import ControlError, PairedError
from paired_servicebus.core.fleet.fleet_documents import order_id
from paired_servicebus.core.fleet.orders.order_rules import encode_order_text
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.fleet_view import FleetOrder, FleetStatus, FleetView
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator.actions import FLEET_VERBS
from paired_servicebus.core.operator.fleet_question import FleetRequest, draft_order
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.demo.fleet.host_process import FleetHost, fleet_host
from paired_servicebus.demo.fleet.hosts import HostProcess, HostRequest, host_processes, met
from paired_servicebus.demo.player import left_behind
from paired_servicebus.demo.result import (
    CUT_OFF,
    HOSTS,
    READ_ONLY,
    DemoResult,
    EntityResult,
    FleetResult,
    HostAccount,
    HostResult,
    MessageCounts,
    PingCounts,
    SyphonResult,
    what_fleet_broke,
)
from paired_servicebus.demo.scenarios import DRAIN_WITHIN, FLEET, ORDERS
from paired_servicebus.demo.worker_protocol import PlayRequest
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.fleet.order_signatures import sign
from paired_servicebus.pairing.runtime.deadlines import end_all
from paired_servicebus.sandbox_process import AnnouncedNamespace, SandboxProcess
from paired_servicebus.workload.workload import GIVE_UP_AFTER, Workload

# The network between one host and the namespaces: a TCP forwarder that can be cut and mended.
#
# While it is cut, no byte passes in either direction and no connection is closed, as in a partition. Bytes that were
# under way arrive after it is mended, as TCP's retransmissions do.

CHUNK: Final = 64 * 1024
CONNECT_SECONDS: Final = 5.0
CLOSE_SECONDS: Final = 5.0
LOOPBACK: Final = "127.0.0.1"


class NetworkLink:
    """An asynchronous context manager; `forward` opens a way to a port of this machine."""

    def __init__(self) -> None:
        self._whole = asyncio.Event()
        self._whole.set()
        self._stack = AsyncExitStack()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        for task in self._tasks:
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*self._tasks, return_exceptions=True)

    async def forward(self, port: int) -> int:
        """Return a new port that leads to `port`. Raises OSError."""
        server = await asyncio.start_server(partial(self._accept, port), LOOPBACK, 0)
        self._stack.callback(server.close)
        return int(server.sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Hold back every byte, also of new connections."""
        self._whole.clear()

    def mend(self) -> None:
        """Let the bytes pass again."""
        self._whole.set()

    def _accept(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(port, reader, writer), name=f"a connection to port {port}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._connect(port, reader, writer)
        finally:
            writer.transport.abort()

    async def _connect(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._whole.wait()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                far_reader, far_writer = await asyncio.open_connection(LOOPBACK, port)
        except (OSError, TimeoutError):
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._copy(reader, far_writer))
                group.create_task(self._copy(far_reader, writer))
        finally:
            far_writer.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._whole.wait()
                writer.write(data)
                await writer.drain()
            await self._whole.wait()
        with suppress(OSError, RuntimeError):  # RuntimeError: it is closed already
            writer.write_eof()


# The fleet scenario's evidence, collected while it is played, and the result made from it.


@dataclass(slots=True)
class FleetTally:
    """The times of the steps, and the answers to the orders at three times."""

    cut_at: float = 0.0
    back_at: float = 0.0
    forced: FleetOrder | None = None
    """The order while one host was cut off."""
    taken_up: FleetOrder | None = None
    """The same order after the network was back."""
    released: FleetOrder | None = None

    def note_sent(self, application: Workload, accounts: Iterable[HostAccount]) -> None:
        """Add the other hosts' messages to the application that receives them."""
        for account in accounts:
            application.lists.answers |= {name: SendOutcome(answer) for name, answer in account.answers.items()}

    async def result(
        self, sandbox: SandboxProcess, mine: FleetHost, hosts: Mapping[str, HostAccount], *, seed: int
    ) -> DemoResult:
        """Return the result. `hosts`: each host's account, by name."""
        lists = mine.application.lists
        parked, dead = await left_behind(sandbox, mine.paired)
        ledger = balance(answers=lists.answers, arrivals=lists.arrivals, parked=parked, dead_lettered=dead)
        fleet = self.fleet_result(hosts)
        messages = MessageCounts.of(ledger)
        stays = [f"{messages.parked} messages are still parked"] if messages.parked else []
        accounts = hosts.values()
        return DemoResult(
            scenario=FLEET.name,
            seed=seed,
            messages=messages,
            entities={
                ORDERS: EntityResult(
                    failovers=sum(one.failovers for one in accounts),
                    failbacks=sum(one.failbacks for one in accounts),
                    seconds_failed_over=round(sum(one.seconds_failed_over for one in accounts), 3),
                )
            },
            pings=PingCounts(
                sent=sum(one.pings_sent for one in accounts), accepted=sum(one.pings_accepted for one in accounts)
            ),
            syphon=SyphonResult(moved=sum(one.moved for one in accounts)),
            billed_operations=sum(one.billed for one in accounts),
            verdict=ledger.verdict,
            lost_ids=list(ledger.lost_ids),
            unexpected_ids=list(ledger.unexpected_ids),
            broken=[*fleet.broken, *stays],
            fleet=fleet,
        )

    def fleet_result(self, hosts: Mapping[str, HostAccount]) -> FleetResult:
        """Return the figures of the order, with what did not hold."""
        done = self.forced.done if self.forced is not None else ()
        later = [name for name in (self.taken_up.done if self.taken_up is not None else ()) if name not in done]
        result = FleetResult(
            done=sorted(done),
            refused=dict(self.forced.refused) if self.forced is not None else {},
            silent=[name for name, _ in self.forced.silent] if self.forced is not None else [],
            taken_up={name: (hosts[name].forced_at or 0.0) if name in hosts else 0.0 for name in later},
            released=sorted(self.released.done) if self.released is not None else [],
            cut_at=self.cut_at,
            back_at=self.back_at,
            hosts={
                name: HostResult(
                    sent=len(one.answers), diverted=one.diverted, forced_at=one.forced_at, is_forced=one.is_forced
                )
                for name, one in hosts.items()
            },
        )
        return msgspec.structs.replace(result, broken=what_fleet_broke(result))


# The demo's operator: a key of its own, and a console on one engine that posts signed orders over the fleet.

OPERATOR: Final = "operator"
KEY_SECONDS: Final = 20.0
STANDS_FOR: Final = 3600.0


@dataclass(frozen=True, slots=True)
class OperatorKey:
    """A key pair for one demo: the private key's file, and the file of signers that has the public one."""

    private: Path
    operators: Path


async def make_key(folder: Path) -> OperatorKey:
    """Generate the key pair in the demo's folder. Raises PairedError."""
    private, operators = folder / "operator-key", folder / "operators"
    command = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", OPERATOR, "-f", str(private))
    try:
        await asyncio.to_thread(
            subprocess.run, command, check=True, capture_output=True, stdin=subprocess.DEVNULL, timeout=KEY_SECONDS
        )
        operators.write_text(f"{OPERATOR} {private.with_suffix('.pub').read_text()}")
        operators.chmod(0o600)
    except FileNotFoundError as error:
        raise PairedError("the fleet scenario needs ssh-keygen (package openssh-client), which signs orders") from error
    except (OSError, subprocess.SubprocessError) as error:
        raise PairedError(f"ssh-keygen made no key for the demo: {error}") from error
    return OperatorKey(private, operators)


class FleetConsole:
    """A console on one engine that shows the fleet. Made by `fleet_console`."""

    def __init__(self, client: ControlClient, key: Path) -> None:
        self._client = client
        self._key = key
        self._latest: Snapshot | None = None

    async def follow(self) -> None:
        """Keep the newest snapshot."""
        async for update in self._client.updates():
            if isinstance(update, Snapshot):
                self._latest = update

    @property
    def view(self) -> FleetView:
        """The fleet as the engine knows it; empty before the first snapshot."""
        view = self._latest.fleet if self._latest is not None else None
        return view or FleetView(me="")

    @property
    def reporting(self) -> set[str]:
        """The names of the engines that report."""
        return {one.engine for one in self.view.engines if one.status is FleetStatus.REPORTING}

    def answers(self, order_id: str) -> FleetOrder | None:
        """Return an order with its answers; None: it was not read yet."""
        return next((one for one in self.view.orders if one.id == order_id), None)

    async def answered(self, order_id: str, condition: Callable[[FleetOrder], bool], within: float) -> FleetOrder:
        """Return the order as soon as its answers meet a condition, at the latest after `within` seconds.

        Raises PairedError: it is not on the board.
        """

        def is_met() -> bool:
            order = self.answers(order_id)
            return order is not None and condition(order)

        await met(is_met, within)
        order = self.answers(order_id)
        if order is None:
            raise PairedError("the order does not count: it is not on the board")
        return order

    async def order(self, verb: str, why: str) -> str:
        """Sign and post an order about `orders` for all engines; return its id. Raises PairedError."""
        snapshot = self._latest
        if snapshot is None or snapshot.fleet is None:
            raise ControlError("the engine has not reported the fleet")
        draft = draft_order(
            snapshot.fleet,
            FleetRequest(
                command=Command(action_id=verb, scope=Scope.ENTITY, targets=(ORDERS,), why=why),
                stands_for=STANDS_FOR if FLEET_VERBS[verb].stands else None,
            ),
            primary=snapshot.primary,
            secondary=snapshot.secondary,
            now=time.time(),
        )
        text = draft.confirm(draft.to_type)
        signed = encode_order_text(text)
        await self._client.post_order(signed=signed, signature=await sign(signed, self._key), by=OPERATOR)
        return order_id(signed)


@asynccontextmanager
async def fleet_console(socket: Path, key: Path) -> AsyncIterator[FleetConsole]:
    """Yield a console on the engine behind a socket; while it is open, all engines look fast. Raises ControlError."""
    client = await ControlClient.connect(socket, watches=False, fleet=True)
    console = FleetConsole(client, key)
    following = asyncio.create_task(console.follow(), name="the operator's console")
    try:
        yield console
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await client.close()


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
