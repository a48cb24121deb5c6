"""The director of every play: starts, kills and freezes processes, switches faults, heals, proves, and leaves nothing.

It runs the sandbox in its own loop and keeps a list of its own, of what it did and of each promise that it saw broken.
Whatever it waits for is in the lists of the others, in the namespaces, or in what an engine's console shows.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from azure.servicebus.aio import ServiceBusClient
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.pairing import tls_context
from servicebus_sandbox import NamespaceSpec, Sandbox
from servicebus_sandbox.amqp_server.message_codec import show_message
from servicebus_sandbox.broker.message import StoredMessage
from servicebus_sandbox.faults import read_fault
from tests.stage import application, receiver
from tests.stage.console import Console
from tests.stage.course import PRIMARY, TRANSFER, Strike
from tests.stage.gate import Gate
from tests.stage.ledger import Arrived, Began, Broken, FactFile, FactReader, Found, Ledger, Recovered, Remaining, now
from tests.stage.processes import SIDES, START, Actor, Engine

LOOK: Final = 0.1
"""Seconds between two readings of the lists."""
PATIENCE: Final = 120.0
"""Seconds to wait for a condition that has no bound of its own."""
DRAINED: Final = 180.0
SILENT: Final = 60.0
"""Seconds without an arrival after which nothing more is expected, once nothing is parked."""
SETTLED: Final = 2.0
MOST_NAMED: Final = 5
_OUR_ERROR: Final = re.compile(r"^\S+( \S+)? (ERROR|CRITICAL) +(paired_servicebus|servicebus_\w+|tests)\b")


@dataclass(eq=False)
class Director:
    """One play. draw: seeded. figures: what the play measured, for its report. foreseen: an error of logs."""

    folder: Path
    sandbox: Sandbox
    seed: int
    say: Callable[[str], object]
    stack: AsyncExitStack
    ledger: Ledger = field(default_factory=Ledger)
    actors: list[Actor | Engine] = field(default_factory=list)
    figures: dict[str, Any] = field(default_factory=dict)
    episodes: int = 0
    send_timeout: float | None = None
    """Of the verdict, where a run has another than its play."""
    foreseen: str | None = None
    _proofs: int = 0

    def __post_init__(self) -> None:
        self.draw = random.Random(f"director {self.seed}")
        self.facts = FactFile(self.folder, "director")
        self._reader = FactReader(self.folder)

    # -- processes ----------------------------------------------------------------------------------------------------

    def application(
        self,
        name: str,
        *,
        home: Path | None = None,
        gates: dict[str, Gate] | None = None,
        prefix: Sequence[str] = (),
        each: Callable[[], dict[str, Any]] = dict,
        **task: Any,
    ) -> Actor:
        """Return an application with a pairing, not started. task: fields of its task; each: those of every life."""

        def make(life: str) -> application.Task:
            strings = {side: self.address(side, gates) for side in SIDES}
            fields = {"name": name, "folder": str(self.folder), "seed": self.seed, **strings} | task | each()
            return application.Task(life=life, ca_file=str(self.sandbox.ca_file), **fields)

        actor = Actor(name, "tests.stage.application", self.folder, make, home=home, gates=gates, prefix=prefix)
        self.actors.append(actor)
        return actor

    def receiver(self, name: str, entities: Iterable[str]) -> Actor:
        """Return a receiver of some entities, not started."""

        def make(life: str) -> receiver.Task:
            string = self.sandbox[PRIMARY].connection_string
            return receiver.Task(life=life, folder=str(self.folder), primary=string, entities=tuple(entities))

        actor = Actor(name, "tests.stage.receiver", self.folder, make)
        self.actors.append(actor)
        return actor

    def engine(self, name: str, *, gateway_port: int = 0, **options: Any) -> Engine:
        """Return an engine of `paired up`, not started."""
        strings = {side: self.sandbox[side].connection_string for side in SIDES}
        engine = Engine(name, self.folder, strings, self.sandbox.ca_file, options, gateway_port)
        self.actors.append(engine)
        return engine

    async def start(self, *actors: Actor, together: int = 4) -> None:
        """Start the next lives of processes, a few at a time, until each is ready. Raises Broken."""
        turns = asyncio.Semaphore(together)

        async def one(actor: Actor) -> None:
            async with turns:
                await actor.begin()
                await self.reach(actor, lambda: "ready" in self.ledger.marks[actor.life], START, "is ready")

        await asyncio.gather(*map(one, actors))

    async def restart_killed(self, **options: Any) -> None:
        """Start every process that was started before and does not run. options: of engines."""
        for actor in self.actors:
            if isinstance(actor, Engine) and not actor.is_running:
                await actor.start(**options)
            elif isinstance(actor, Actor) and actor.boot and not actor.is_running:
                await self.start(actor)

    def address(self, side: str, gates: dict[str, Gate] | None = None) -> str:
        """Return a namespace's connection string, by a gate where there is one."""
        namespace = self.sandbox[side]
        port = gates[side].port if gates else namespace.amqp_port
        return namespace.connection_string.replace(f":{namespace.amqp_port};", f":{port};")

    async def gates(self) -> dict[str, Gate]:
        return {side: await self.stack.enter_async_context(Gate(self.sandbox[side].amqp_port)) for side in SIDES}

    async def console(self, actor: Actor | Engine, **options: Any) -> Console:
        """Open a console over an engine's socket, until the end of the play."""
        console = await Console.open(actor.paths.socket, **options)
        self.stack.push_async_callback(console.close)
        return console

    # -- faults -------------------------------------------------------------------------------------------------------

    def strike(self, strike: Strike) -> None:
        """Switch a fault on."""
        self.sandbox[strike.namespace].node.faults.begin(read_fault(strike.order()))

    def mend(self) -> None:
        """Switch every fault off."""
        for namespace in self.sandbox.namespaces:
            faults = namespace.node.faults
            for fault in faults.active():
                faults.remove(fault.id)

    def begin_episode(self, title: str, *, opens: bool, at: float | None = None) -> int:
        self.episodes += 1
        self.say(f"{self.episodes}. {title}")
        self.facts.write(Began(at=at or now(), episode=self.episodes, title=title, opens=opens))
        return self.episodes

    def end_episode(self, number: int, at: float | None = None) -> None:
        self.facts.write(Recovered(at=at or now(), episode=number))

    # -- waiting ------------------------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], object], seconds: float = PATIENCE, *, look: float = LOOK) -> bool:
        """Wait for a condition of the lists; return whether it was met in time."""
        end = now() + seconds
        while True:
            self.ledger.add(self._reader.new())
            if condition():
                return True
            if now() > end:
                return False
            await asyncio.sleep(look)

    async def expect(self, condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> None:
        """Wait for a condition. Raises Broken."""
        if not await self.until(condition, seconds):
            raise Broken(f"after {seconds:.0f} s not: {what}")

    async def reach(self, actor: Actor, condition: Callable[[], object], seconds: float, what: str) -> None:
        """Wait for a condition of one process. Raises Broken, also if it ends before."""
        has_met = False

        def is_over() -> bool:
            nonlocal has_met
            has_met = bool(condition())
            return has_met or not actor.is_running

        if not await self.until(is_over, seconds) or not has_met:
            end = "" if actor.is_running else f", it has ended: {actor.log_tail()}"
            raise Broken(f"within {seconds:.0f} s not: {actor.name} {what}{end}")

    # -- contents of the namespaces -----------------------------------------------------------------------------------

    def messages(self, side: str, path: str) -> list[StoredMessage]:
        """Return all messages of a queue, in any state; none if there is no such queue."""
        namespace = self.sandbox[side].node.namespace
        if path not in {queue.path for queue in namespace.queues()}:
            return []
        return list(namespace.queue(path).messages.peek(0, 10_000_000))

    def backlog(self) -> dict[tuple[str, str], list[StoredMessage]]:
        """Return the messages of each backlog queue, by namespace and path."""
        return {
            (namespace.name, queue.path): self.messages(namespace.name, queue.path)
            for namespace in self.sandbox.namespaces
            for queue in namespace.node.namespace.queues()
            if TRANSFER in queue.path
        }

    @property
    def parked(self) -> int:
        return sum(map(len, self.backlog().values()))

    def where(self, message_id: str, entity: str) -> str:
        """Return the side on which a message is, or ""."""
        backlog = ((side, messages) for (side, _), messages in self.backlog().items())
        places = [(PRIMARY, self.messages(PRIMARY, entity)), *backlog]
        for side, messages in places:
            if any(message_id.encode() in show_message(one) for one in messages):
                return side
        return ""

    async def collect(self, *entities: str, prefix: str = "") -> None:
        """List the messages of entities that nobody receives from as arrived, those of a schedule too. prefix: of
        their ids."""
        namespace = self.sandbox[PRIMARY].node.namespace
        holders = [*namespace.queues(), *namespace.topics()]
        await self.until(lambda: not any(holder.counts().scheduled for holder in holders))
        for entity in entities:
            topics = [topic for topic in namespace.topics() if topic.path == entity]
            places = [one for topic in topics for one in topic.subscriptions.values()] or [namespace.queue(entity)]
            for one in (one for place in places for one in place.messages.peek(0, 10_000_000)):
                if (name := str(one.message.message_id)).startswith(prefix):
                    at, number = one.enqueued_at, one.sequence_number
                    self.facts.write(Arrived(at=at, entity=entity, id=name, number=number))

    def list_remaining(self) -> None:
        """List what is parked, and the dead letters of the entities and of the backlog."""
        for (_, path), messages in self.backlog().items():
            self._list_remaining(path, messages, dead=False)
        for namespace in (one.node.namespace for one in self.sandbox.namespaces):
            places = [
                *namespace.queues(),
                *(one for topic in namespace.topics() for one in topic.subscriptions.values()),
            ]
            for place in places:
                self._list_remaining(place.path, place.dead_letters.peek(0, 10_000_000), dead=True)

    def _list_remaining(self, place: str, messages: Iterable[StoredMessage], *, dead: bool) -> None:
        if ids := [str(one.message.message_id) for one in messages]:
            self.facts.write(Remaining(at=now(), place=place, dead=dead, ids=ids))

    @asynccontextmanager
    async def clients(self, side: str) -> AsyncIterator[tuple[ServiceBusClient, ServiceBusAdministrationClient]]:
        """Open the SDK's clients of a namespace."""
        string, ca_file = self.sandbox[side].connection_string, str(self.sandbox.ca_file)
        async with (
            ServiceBusClient.from_connection_string(string, ssl_context=tls_context(ca_file)) as client,
            ServiceBusAdministrationClient.from_connection_string(string, connection_verify=ca_file) as admin,
        ):
            yield client, admin

    # -- proofs -------------------------------------------------------------------------------------------------------

    async def prove(
        self, after: str, senders: Sequence[Actor], entities: Sequence[str], seconds: float,
        ill: Callable[[], list[str]] = list,
    ) -> bool:  # fmt: skip
        """Have each sender send to each entity; return whether all arrives, and nothing is ill, in time."""
        self._proofs += 1
        number, began = self._proofs, now()
        wanted = {f"proof-{number}.{actor.life}.{entity}" for actor in senders for entity in entities}
        missing: list[str] = []
        for actor in senders:
            actor.tell(f"prove {number}")

        def works() -> bool:
            left = [*sorted(wanted - self.ledger.arrived), *ill()]
            missing[:] = left or missing
            return not left

        is_proven = await self.until(works, seconds)
        self.find_fallen()
        took = now() - began
        self.figures["slowest recovery"] = max(self.figures.get("slowest recovery", 0.0), round(took, 1))
        last = ", ".join(missing[:MOST_NAMED])
        if not is_proven:
            self.found(f"DOES NOT WORK AGAIN within {seconds:g} s after {after}: {last}")
        self.say(f"   {'works' if is_proven else 'DOES NOT WORK'} after {took:.1f} s; last {last}")
        return is_proven

    async def finish(self, senders: Sequence[Actor]) -> None:
        """Send nothing new; everything drains; all processes end in order; their logs hold no error of ours."""
        for actor in senders:
            actor.tell("stop")
        for actor in senders:
            await self.reach(actor, lambda actor=actor: "stopped" in self.ledger.marks[actor.life], PATIENCE, "stops")  # type: ignore[misc]
        self.say("sending has ended")
        await self.drain()
        self.say("everything has drained")
        await self.end()

    async def drain(self, seconds: float = DRAINED) -> None:
        """Wait until all that was accepted has arrived and nothing is parked, or for long nothing has arrived; list
        what remains."""
        ledger, newest = self.ledger, (len(self.ledger.arrived), now())

        def is_over() -> bool:
            nonlocal newest
            if len(ledger.arrived) != newest[0]:
                newest = len(ledger.arrived), now()
            return not self.parked and (ledger.accepted.keys() <= ledger.arrived or now() > newest[1] + SILENT)

        await self.until(is_over, seconds)
        await asyncio.sleep(SETTLED)
        self.list_remaining()

    async def end(self) -> None:
        """End all processes in order."""
        self.find_fallen()
        for text in await asyncio.gather(*(actor.end() for actor in self.actors)):
            if text:
                self.found(text)
        for path in sorted(self.folder.rglob("*.log")):
            for line in path.read_text(errors="replace").splitlines():
                if _OUR_ERROR.search(line) and (self.foreseen is None or self.foreseen not in line):
                    self.found(f"{path.name}: {line}")

    def find_fallen(self) -> None:
        for actor in self.actors:
            if actor.has_fallen:
                self.found(f"{actor.name} ended by itself; its logs are in {self.folder}")

    def found(self, text: str) -> None:
        """List a promise that is broken, and go on."""
        self.say(f"   {text}")
        self.facts.write(Found(at=now(), text=text))

    def complete_ledger(self) -> Ledger:
        """Return the ledger with all lists read to their ends."""
        self.ledger.add(self._reader.new())
        return self.ledger


async def kill_all(director: Director) -> None:
    """Leave no process behind, whatever happened."""
    for actor in director.actors:
        await actor.kill()


@asynccontextmanager
async def direct(
    folder: Path, seed: int, specs: Sequence[NamespaceSpec], say: Callable[[str], object]
) -> AsyncIterator[Director]:
    """Open the stage of one play: the namespaces run, and every process ends with it."""
    async with Sandbox.start(specs) as sandbox, AsyncExitStack() as stack:
        director = Director(folder, sandbox, seed, say, stack)
        stack.push_async_callback(kill_all, director)
        yield director


def running_processes(folder: Path) -> list[str]:
    """Return the command lines of processes that name a folder."""
    found: Counter[str] = Counter()
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:  # it ended this instant
            continue
        found[line] += str(folder) in line
    return sorted(+found)
