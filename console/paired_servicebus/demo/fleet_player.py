"""Plays the fleet scenario: eight hosts, one cut off, one read-only; an order over all of them, and its release.

    t = 0      web-1, where the console is, then web-2 to web-8: an engine, a pairing and an application each
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
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Self

import msgspec

from paired_servicebus.connection_string import parts_of, split_url
from paired_servicebus.core.errors import ControlError, PairedError
from paired_servicebus.core.fleet.fleet_documents import Order, encode_order_text
from paired_servicebus.core.model.command import Command
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetOrder, FleetStatus, FleetView
from paired_servicebus.core.model.pairing_events import Record, StateChanged
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.core.operator.actions import FLEET_VERBS
from paired_servicebus.core.operator.fleet_question import FleetRequest, draft_order
from paired_servicebus.core.operator.targets import Scope
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.demo.player import pair_on, sum_up
from paired_servicebus.demo.result import (
    CUT_OFF,
    HOSTS,
    READ_ONLY,
    DemoResult,
    FleetResult,
    HostResult,
    what_fleet_broke,
)
from paired_servicebus.demo.scenarios import DRAIN_WITHIN, FLEET, ORDERS, POLICY
from paired_servicebus.demo.worker_protocol import PlayRequest
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.fleet.order_signatures import sign
from paired_servicebus.engine.instance.identity import EngineIdentity
from paired_servicebus.engine.instance.task_supervisor import TaskSupervisor
from paired_servicebus.engine.service.engine_host import EngineHost
from paired_servicebus.pairing import PairedServiceBusClient
from paired_servicebus.pairing.runtime.deadlines import end_all
from paired_servicebus.sandbox_process import AnnouncedNamespace, SandboxProcess
from paired_servicebus.sections.fleet_options import Fleet
from paired_servicebus.trials.workload import MessageStream, Workload

# The network between one host and the namespaces: a TCP forwarder that can be cut and mended.
#
# While it is cut, no byte passes in either direction and no connection is closed, as in a partition. Bytes that were
# under way arrive after it is mended, as TCP's retransmissions do.

CHUNK: Final = 64 * 1024
CONNECT_SECONDS: Final = 5.0
LOOPBACK: Final = "127.0.0.1"


class NetworkLink:
    """An asynchronous context manager; `forward` opens a way to a port of this machine."""

    def __init__(self) -> None:
        self._whole = asyncio.Event()
        self._whole.set()
        self._servers: list[asyncio.Server] = []
        self._crew = TaskSupervisor()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *reason: object) -> None:
        for server in self._servers:
            server.close()
        await self._crew.close()

    async def forward(self, port: int) -> int:
        """Return a new port that leads to `port`. Raises OSError."""

        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._crew.start(self._serve(port, reader, writer), name=f"a connection to port {port}")

        self._servers.append(await asyncio.start_server(accept, LOOPBACK, 0))
        return int(self._servers[-1].sockets[0].getsockname()[1])

    def cut(self) -> None:
        """Hold back every byte, also of new connections."""
        self._whole.clear()

    def mend(self) -> None:
        """Let the bytes pass again."""
        self._whole.set()

    async def _serve(self, port: int, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        try:
            await self._whole.wait()
            async with asyncio.timeout(CONNECT_SECONDS):
                far_reader, far_writer = await asyncio.open_connection(LOOPBACK, port)
            writers.append(far_writer)
            await asyncio.gather(self._copy(reader, far_writer), self._copy(far_reader, writer))
        except (OSError, TimeoutError):
            pass  # the namespace is away, and so is the connection
        finally:
            for one in writers:
                one.transport.abort()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(CHUNK):
                await self._pass(writer, data)
            await self._whole.wait()
        with suppress(OSError, RuntimeError):  # RuntimeError: it is closed already
            writer.write_eof()

    async def _pass(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        await self._whole.wait()
        writer.write(data)
        await writer.drain()


# One host of the fleet: its engine with a part in the fleet, and an application that sends to `orders`.

PAIRING: Final = "demo"
FLEET_POLICY: Final = replace(POLICY, send_timeout=3.0, failover_interval=8.0)
"""Eight engines start on one machine: a stall of a second is no outage."""
EVERY: Final = 0.5
"""Seconds between two sends of a host, on average."""
POLL_SECONDS: Final = 0.1


class FleetHost:
    """A host's engine, pairing and application. Made by `fleet_host`."""

    engine: EngineHost
    paired: PairedServiceBusClient
    application: Workload
    sending: asyncio.Task[None]
    """Ends some time after the application was ordered to stop."""

    def __init__(self) -> None:
        self.is_forced = False
        self.forced_at: float | None = None
        """When its engine first diverted by an order; None: never."""

    def note(self, record: Record, _line: bytes) -> None:
        """Note when the engine diverts by an order."""
        event = record.event
        if isinstance(event, StateChanged) and event.entity == ORDERS:
            self.is_forced = event.now == State.FORCED
            if self.is_forced:
                self.forced_at = self.forced_at or time.time()

    def result(self) -> HostResult:
        """Return the host's figures by its own account."""
        return HostResult(
            sent=len(self.application.lists.answers),
            diverted=sum(view.diverted for view in self.paired.entity_views() if view.path == ORDERS),
            forced_at=self.forced_at,
            is_forced=self.is_forced,
        )


@asynccontextmanager
async def fleet_host(
    name: str, sandbox: SandboxProcess, order: PlayRequest, operators: Path, *, caption: Callable[[], str] = str
) -> AsyncIterator[FleetHost]:
    """Yield a running host. The first one has the demo's journal and socket, and the only syphon.

    Args:
        sandbox: the namespaces as this host reaches them.
        operators: the file of signers.

    Raises PairedError or OSError: it cannot run.
    """
    is_mine, folder = name == MINE, Path(order.folder)
    policy = replace(FLEET_POLICY, enable_syphon=is_mine)
    this = FleetHost()
    host = EngineHost(
        EngineIdentity(
            engine=name,
            boot=uuid.uuid4().hex[:12],
            pairing=PAIRING,
            environment="demo",
            read_only=name == READ_ONLY,
        ),
        spool=order.journal if is_mine else folder / name,
        socket=Path(order.socket) if is_mine else folder / f"{name}.sock",
        policy=policy,
        caption=caption,
        fleet=Fleet(name=name, operators=operators, expect=HOSTS),
        note=this.note,
    )
    async with host, await pair_on(sandbox, policy, on_event=host.record) as paired:
        paired.watch(ORDERS)
        await host.take_up(paired)
        streams = (MessageStream(ORDERS, name, EVERY),)
        this.engine, this.paired = host, paired
        this.application = Workload(paired, seed=order.seed, record=host.record, streams=streams)
        await host.adopt(paired)
        this.sending = asyncio.create_task(this.application.send_until_stopped(), name=f"the application of {name}")
        try:
            yield this
        finally:
            await end_all([this.sending], END_WITHIN)


async def met(condition: Callable[[], object], within: float) -> bool:
    """Wait until a condition holds; return whether it did in time."""
    end = asyncio.get_running_loop().time() + within
    while not condition():
        if asyncio.get_running_loop().time() > end:
            return False
        await asyncio.sleep(POLL_SECONDS)
    return True


# The fleet scenario's evidence, collected while it is played, and the figures made from it.


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

    def fleet_result(self, hosts: Mapping[str, HostResult]) -> FleetResult:
        """Return the figures of the order, with what did not hold. hosts: each host's account, by name."""
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
            hosts=dict(hosts),
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
        order = Order(signed=signed.decode(), signature=await sign(signed, self._key))
        await self._client.post_order(order, by=OPERATOR)
        return order.id


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
QUIET_SECONDS: Final = 1.0
END_WITHIN: Final = 15.0
SHOWN_SECONDS: Final = 3.0
"""Seconds between two steps at least."""
CUT, ORDER, BACK, RELEASE = 0.25, 0.35, 0.55, 0.75
"""The steps, in shares of the duration."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What the play needs: the hosts that run, the network of one, and the operator's console."""

    order: PlayRequest
    sandbox: SandboxProcess
    key: OperatorKey
    mine: FleetHost
    link: NetworkLink
    console: FleetConsole
    hosts: dict[str, FleetHost]
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at the end of the play: the other hosts end."""


@asynccontextmanager
async def fleet_stage(
    order: PlayRequest, sandbox: SandboxProcess, say: Callable[[str], None], caption: Callable[[], str]
) -> AsyncIterator[Stage]:
    """Yield the first host with the operator's console. Raises PairedError."""
    say("eight hosts start, each with an engine of its own")
    key = await make_key(Path(order.folder))
    async with (
        NetworkLink() as link,
        fleet_host(MINE, sandbox, order, key.operators, caption=caption) as mine,
        fleet_console(Path(order.socket), key.private) as console,
    ):
        yield Stage(order=order, sandbox=sandbox, key=key, mine=mine, link=link, console=console, hosts={MINE: mine})


async def _start_others(stage: Stage) -> list[asyncio.Task[None]]:
    """Start the other hosts, and wait until the console sees them; return their tasks. Raises PairedError.

    The console's engine posts its watch before: an engine that starts later reads it, and looks fast. The host that
    will be cut off reaches the namespaces through the link.
    """
    await met(lambda: stage.console.view.watched, WATCHED_WITHIN)
    behind = [await _through(stage.link, one) for one in stage.sandbox.namespaces]
    sandboxes = {CUT_OFF: msgspec.structs.replace(stage.sandbox, namespaces=behind)}
    works = {name: _be_host(stage, name, sandboxes.get(name, stage.sandbox)) for name in OTHERS}
    return [asyncio.create_task(work, name=f"the host {name}") for name, work in works.items()]


async def _be_host(stage: Stage, name: str, sandbox: SandboxProcess) -> None:
    """Run one of the other hosts until the play is over."""
    async with fleet_host(name, sandbox, stage.order, stage.key.operators) as host:
        stage.hosts[name] = host
        await stage.over.wait()


async def _through(link: NetworkLink, namespace: AnnouncedNamespace) -> AnnouncedNamespace:
    """Return the namespace by its address behind the link."""
    url = split_url(parts_of(namespace.connection_string)["endpoint"])
    if url is None or url.port is None:
        raise PairedError(f"the sandbox announces no port of {namespace.name}")
    port = await link.forward(url.port)
    text = namespace.connection_string.replace(f":{url.port}", f":{port}", 1)
    return AnnouncedNamespace(namespace.name, text)


async def _all_report(stage: Stage, others: list[asyncio.Task[None]]) -> None:
    """Wait until the console sees every engine. Raises PairedError."""

    def is_met() -> bool:
        for task in others:
            if task.done():
                task.result()
        return len(stage.hosts) == len(HOSTS) and stage.console.reporting == set(HOSTS)

    if not await met(is_met, START_WITHIN):
        missing = ", ".join(sorted(set(HOSTS) - stage.console.reporting)) or "none"
        raise PairedError(f"not all engines of the fleet reported within {START_WITHIN:.0f} s; missing: {missing}")


async def play_fleet(stage: Stage, say: Callable[[str], None]) -> DemoResult:
    """Play the scenario and return its result. Raises PairedError."""
    application = stage.mine.application
    receiving = asyncio.create_task(application.receive_until_stopped(), name="the receivers")
    others: list[asyncio.Task[None]] = []
    try:
        others = await _start_others(stage)
        await _all_report(stage, others)
        tally = await _script(stage, say)
        for host in stage.hosts.values():
            host.application.stop_sending()
        await asyncio.gather(*(host.sending for host in stage.hosts.values()))
        hosts = {name: stage.hosts[name].result() for name in HOSTS}
        for host in stage.hosts.values():
            application.lists.answers |= host.application.lists.answers
        if await met(lambda: not application.lists.missing, DRAIN_WITHIN):
            await asyncio.sleep(QUIET_SECONDS)  # for duplicates
        application.stop_receiving()
        await receiving
        return await _result(stage, tally.fleet_result(hosts))
    finally:
        stage.link.mend()  # a host without a network ends slowly
        stage.over.set()
        await end_all([receiving], END_WITHIN)
        if others:
            await asyncio.wait(others, timeout=END_WITHIN)
        await end_all(others, END_WITHIN)


async def _result(stage: Stage, fleet: FleetResult) -> DemoResult:
    pairings = [stage.hosts[name].paired for name in HOSTS]
    lists = stage.mine.application.lists
    result = await sum_up(stage.sandbox, pairings, lists, scenario=FLEET, seed=stage.order.seed, entities=(ORDERS,))
    parked = result.messages.parked
    stays = [f"{parked} messages are still parked"] if parked else []
    return msgspec.structs.replace(result, broken=[*fleet.broken, *stays], fleet=fleet)


async def _script(stage: Stage, say: Callable[[str], None]) -> FleetTally:
    """Perform the steps; return the answers to both orders."""
    loop, console, tally = asyncio.get_running_loop(), stage.console, FleetTally()
    begun, others = loop.time(), len(HOSTS) - 1

    async def until(share: float) -> None:
        await asyncio.sleep(max(SHOWN_SECONDS, begun + share * stage.order.duration - loop.time()))

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
    await met(lambda: not any(host.is_forced for host in stage.hosts.values()), ANSWER_WITHIN)
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
