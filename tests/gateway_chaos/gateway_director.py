"""Performs the chaos at a gateway: breaks, kills, mends, and proves each time that all works with no restart."""

from __future__ import annotations

import asyncio
import random
import resource
import socket
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, Final

from paired_servicebus.engine.gateway.keys.gateway_keys import connection_string, keys_of
from paired_servicebus.engine.instance.engine_paths import engine_paths
from servicebus_sandbox.faults import FaultKind
from tests.chaos import receiver, sender
from tests.chaos.actors import PAIRING, Actor, Engine
from tests.chaos.director import _OUR_ERROR, Seen
from tests.chaos.lists import Began, Found, List, Lying, Recovered, Tail, now
from tests.chaos.plan import BACKLOG, ENTITIES, PRIMARY, SECONDARY, Strike
from tests.chaos.sandbox import Sandbox
from tests.gateway_chaos.crowd import Crowd, Entry, Flood, be_deaf, be_silent, send_half

CLIENTS: Final = 2
RECEIVERS: Final = 2
SEND_TIMEOUT: Final = 3.0
"""Between the gateway's default, 10 s, and the shortest: 64 MB go to the backlog in less."""
WORKS_AGAIN: Final = 90.0
"""Seconds after mending in which each client's message has to arrive and the crowd has to be whole again. An SDK's own
retries wait up to 6.4 s between two tries, and all clients connect again at the same time on a busy machine."""
DRAINED: Final = 180.0
LOOK: Final = 0.1
MAX_MEGABYTES: Final = 700
"""Of the engine: 64 MB of sends in hand, each in the client's bytes and in its envelope, and what a read adds."""
GROWTH: Final = 1.5
"""The most that the engine's calm memory may grow from the first round to the last."""
FEWEST: Final = 5
"""Episodes at either end, for growth to be judged: not in a run of a minute."""
DOWN: Final = (FaultKind.REFUSED, FaultKind.RESET, FaultKind.BLACK_HOLED)


class GatewayEngine(Engine):
    """An engine with a gateway on the same port in each of its lives."""

    def __init__(self, folder: Path, sandbox: Sandbox, options: dict[str, Any]) -> None:
        super().__init__(folder, sandbox, options)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]

    def _write(self, pump: str) -> None:
        super()._write(pump)
        with self._config.open("a") as file:
            file.write(f"[gateway]\nport = {self.port}\n")

    def entry(self) -> Entry:
        """Return the way in; the keys outlive an engine."""
        (key,) = keys_of(engine_paths(PAIRING).gateway_keys).keys
        return Entry(self.port, key)

    @property
    def megabytes(self) -> int:
        """Return what the process has resident; 0 if it is gone."""
        assert self._ready is not None
        with suppress(OSError):
            return int(Path(f"/proc/{self._ready.pid}/statm").read_text().split()[1]) * resource.getpagesize() // 2**20
        return 0


class GatewayDirector:
    """One run."""

    def __init__(self, folder: Path, namespaces: Sandbox, seed: int, count: int, say: Callable[[str], object]) -> None:
        self._folder = folder
        self._sandbox = namespaces
        self._rng = random.Random(f"gateway {seed}")
        self._seed = seed
        self._count = count
        self._say = say
        self._list = List(folder, "director")
        self._tail = Tail(folder)
        self._seen = Seen()
        self._engine = GatewayEngine(folder, namespaces, _OPTIONS)
        self._clients = [Actor("tests.gateway_chaos.client", folder) for _ in range(CLIENTS)]
        self._receivers = [Actor("tests.chaos.receiver", folder) for _ in range(RECEIVERS)]
        self._crowd: Crowd
        self._entry: Entry
        self._rude: set[asyncio.Task[None]] = set()
        self._watching: asyncio.Task[None] | None = None
        self._lives = 0
        self.episodes = 0
        self.slowest = 0.0
        self.most_memory = 0
        self.memories: list[int] = []
        """Megabytes of the engine after each proof."""

    # -- from start to end --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start all processes, and prove that everything works before anything is broken."""
        for index, actor in enumerate(self._receivers):
            order = receiver.Order(
                name=f"receiver-{index}",
                folder=str(self._folder),
                primary=self._sandbox.connection_string[PRIMARY],
                entities=list(ENTITIES[index::RECEIVERS]),
            )
            await actor.start(order, order.name)
        await self._engine.start("amqp")
        self._entry = self._engine.entry()
        self._watching = asyncio.create_task(self._watch())
        await asyncio.gather(*(self._start_client(actor) for actor in self._clients))
        self._crowd = Crowd(self._entry, self._count)
        self._crowd.start()
        await self._prove("the start")

    async def go_on(self, seconds: float) -> None:
        """Perform rounds of all episodes in any order, until the time is over."""
        end = now() + seconds
        acts = [self._kill_engine, self._kill_client, self._fill, *(self._outage(fault) for fault in DOWN), self._both]
        while now() < end:
            for act in self._rng.sample(acts, len(acts)):
                if now() > end:
                    return
                await self._perform(act)

    async def _perform(self, act: Callable[[], Awaitable[None]]) -> None:
        self.episodes += 1
        title = getattr(act, "__doc__", "") or ""
        self._say(f"{self.episodes}. {title}")
        self._list.write(Began(at=now(), episode=self.episodes, title=title, opens=True))
        self._be_rude()
        await act()
        await self._sandbox.mend()
        if not self._engine.is_running:
            await self._engine.start("amqp")
        for actor in self._clients:
            if not actor.is_running:
                await self._start_client(actor)
        if await self._prove(f"episode {self.episodes}, {title}"):
            self._list.write(Recovered(at=now(), episode=self.episodes))

    async def finish(self) -> None:
        """Send nothing new; everything drains; all processes end in order."""
        for actor in self._clients:
            await self._ask(actor.tell("stop"), actor.name)
        for actor in self._clients:
            await self._ask(actor.hear("stopped", sender.GIVE_UP_AFTER + 60.0), actor.name)
        await asyncio.wait_for(asyncio.gather(*self._rude, return_exceptions=True), 90)
        await self._crowd.end()
        self._say("sending has ended")
        await self._drain()
        self._say("everything has drained")
        if not await self._engine.end():
            self._found("the engine did not end in time")
        for actor in (*self._clients, *self._receivers):
            if status := await actor.end():
                self._found(f"{actor.name} ended with status {status}")
        self._judge_memory()
        self._look_into_logs()

    async def abandon(self) -> None:
        """Leave no process behind, whatever happened."""
        if self._watching is not None:
            self._watching.cancel()
        for actor in (*self._clients, *self._receivers):
            if actor.is_running:
                await actor.kill()
        await self._engine.kill()

    # -- episodes -----------------------------------------------------------------------------------------------------

    async def _kill_engine(self) -> None:
        """the engine is killed with -9 in the middle of transfers"""
        await asyncio.sleep(self._rng.uniform(1, 3))
        await self._sandbox.strike(Strike(namespace=PRIMARY, fault=FaultKind.BLACK_HOLED))
        await asyncio.sleep(0.5)  # what it has in hand now is nowhere else
        await self._engine.kill()

    async def _kill_client(self) -> None:
        """a client is killed with -9 in the middle of a transfer"""
        await asyncio.sleep(self._rng.uniform(1, 3))
        await self._rng.choice(self._clients).kill()

    async def _fill(self) -> None:
        """the primary is silent, and more than 64 MB come for it"""
        await self._sandbox.strike(Strike(namespace=PRIMARY, fault=FaultKind.BLACK_HOLED))
        await Flood(self._entry, self._list, str(self.episodes)).run()

    def _outage(self, fault: FaultKind) -> Callable[[], Awaitable[None]]:
        async def act() -> None:
            await self._sandbox.strike(Strike(namespace=PRIMARY, fault=fault))
            await asyncio.sleep(self._rng.uniform(3, 7))

        act.__doc__ = f"the primary is {fault}"
        return act

    async def _both(self) -> None:
        """both namespaces fail, then the engine with its hands full"""
        for namespace in (PRIMARY, SECONDARY):
            await self._sandbox.strike(Strike(namespace=namespace, fault=self._rng.choice(DOWN)))
        self._start_beside(Flood(self._entry, self._list, str(self.episodes)).run())
        await asyncio.sleep(self._rng.uniform(2, 4))
        await self._engine.kill()

    def _be_rude(self) -> None:
        """Start clients beside the episode that read nothing, vanish in a transfer, or have no key."""
        number = self.episodes
        rude = [be_deaf(self._entry, self._list, f"{number}-{index}", 8.0) for index in range(5)]
        rude += [send_half(self._entry, f"{number}-{index}") for index in range(5)]
        for work in [*rude, be_silent(self._entry, 50, 8.0)]:
            self._start_beside(work)

    def _start_beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._rude.add(task)
        task.add_done_callback(self._rude.discard)

    # -- afterwards ---------------------------------------------------------------------------------------------------

    async def _prove(self, after: str) -> bool | None:
        """Wait until a message of each client arrived at each entity and the crowd is whole."""
        began, number = now(), self.episodes
        for actor in self._clients:
            await self._ask(actor.tell(f"prove {number}"), actor.name)
        wanted = {f"proof-{number}.{actor.name}.{entity}" for actor in self._clients for entity in ENTITIES}
        works = await self._until(lambda: wanted <= self._seen.arrived and self._crowd.is_whole, WORKS_AGAIN)
        if not works:
            missing = sorted(wanted - self._seen.arrived)
            self._found(f"DOES NOT WORK AGAIN after {after}: {missing}, {self._crowd.up} of the crowd")
        self.slowest = max(self.slowest, now() - began)
        self.memories.append(self._engine.megabytes)
        self._say(f"   {'works' if works else 'DOES NOT WORK'} after {now() - began:.1f} s, {self.memories[-1]} MB")
        for actor in (*self._clients, *self._receivers):
            if actor.has_fallen:
                self._found(f"{actor.name} ended by itself; its log is {self._folder}/{actor.name}.log")
        return works

    async def _drain(self) -> None:
        await self._until(lambda: self._seen.accepted.keys() <= self._seen.arrived, DRAINED)
        end = now() + DRAINED
        while any((parked := await self._sandbox.parked()).values()) and now() < end:
            await asyncio.sleep(1.0)
        await asyncio.sleep(2.0)
        for is_dead, lying in ((False, parked), (True, await self._sandbox.dead())):
            for place, ids in lying.items():
                if ids:
                    self._list.write(Lying(at=now(), place=place, dead=is_dead, ids=ids))

    def _judge_memory(self) -> None:
        if self.most_memory > MAX_MEGABYTES:
            self._found(f"the engine had {self.most_memory} MB; {MAX_MEGABYTES} are allowed")
        third = len(self.memories) // 3  # medians: for a while after 64 MB in hand more is in use
        if third >= FEWEST and median(self.memories[-third:]) > GROWTH * median(self.memories[:third]):
            self._found(f"the engine's memory grows: {self.memories} MB")

    def _look_into_logs(self) -> None:
        for path in sorted(self._folder.rglob("*.log")):
            for line in path.read_text(errors="replace").splitlines():
                if _OUR_ERROR.search(line):
                    self._found(f"{path.name}: {line}")

    # -- inside -------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            self.most_memory = max(self.most_memory, self._engine.megabytes)
            await asyncio.sleep(0.25)

    async def _start_client(self, actor: Actor) -> None:
        self._lives += 1
        order = sender.Order(
            name=f"client-{self._lives}",
            folder=str(self._folder),
            primary=connection_string(self._entry.key, self._entry.port),
            secondary="",
            ca_file="",
            retry_total=3,
            seed=self._seed,
            options={},
        )
        await actor.start(order, order.name)

    async def _ask(self, asking: Awaitable[Any], name: str) -> None:
        try:
            await asking
        except (OSError, RuntimeError) as error:
            self._found(f"{name} does not answer: {error}")

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        end = now() + seconds
        while True:
            self._seen.update(self._tail)
            if condition():
                return True
            if now() > end:
                return False
            await asyncio.sleep(LOOK)

    def _found(self, text: str) -> None:
        self._say(f"   {text}")
        self._list.write(Found(at=now(), text=text))


_OPTIONS: Final[dict[str, Any]] = {
    "backlog_queue_count": len(BACKLOG),
    "send_timeout": SEND_TIMEOUT,
    "failover_interval": 1.0,
    "ping_primary_interval": 1.0,
    "ping_timeout": 2.0,
    "close_grace": 2.0,
}
