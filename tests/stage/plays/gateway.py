"""Chaos at a gateway: an engine is killed in transfers, namespaces fail, clients die, send half or never read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from statistics import median
from typing import Any, Final

from tests.ports import free_port
from tests.stage.course import BACKLOG, DOWN, ENTITIES, PRIMARY, SECONDARY, Strike
from tests.stage.crowd import Crowd, Entry, Flood, be_deaf, be_silent, send_half
from tests.stage.director import Director
from tests.stage.ledger import now
from tests.stage.plays.chaos import start_receivers
from tests.stage.processes import resident_megabytes

from paired_servicebus.engine.gateway.gateway_keys import connection_string
from servicebus_sandbox.faults import FaultKind

CLIENTS: Final = 2
SEND_TIMEOUT: Final = 3.0
"""Between the gateway's default, 10 s, and the shortest: 64 MB go to the backlog in less."""
WORKS_AGAIN: Final = 120.0
"""Seconds after healing in which each client's message has to arrive and the crowd has to be complete again. An SDK's
own retries wait up to 6.4 s between two tries, and all clients connect again at the same time on a busy machine."""
MAX_MEGABYTES: Final = 700
"""Of the engine: 64 MB of sends in hand, each in the client's bytes and in its envelope, and what a read adds."""
QUICK: Final = (FaultKind.REFUSED, FaultKind.RESET)
"""Faults that a sender sees at once."""
GROWTH: Final = 1.5
"""The most that the engine's calm memory may grow from the first round to the last."""
FEWEST: Final = 5
"""Episodes at either end, for growth to be judged: not in a run of a minute."""
OPTIONS: Final[dict[str, Any]] = {
    "backlog_queue_count": len(BACKLOG),
    "send_timeout": SEND_TIMEOUT,
    "failover_interval": 1.0,
    "ping_primary_interval": 1.0,
    "ping_timeout": 2.0,
    "close_grace": 2.0,
}


async def gateway_chaos(director: Director, minutes: float, _engines: int) -> None:
    """Break a gateway and all around it for some minutes."""
    run = GatewayChaos(director, connections=1000 if minutes >= 5 else 150 if minutes >= 0.5 else 20)
    try:
        await run.start()
        await run.go_on(minutes * 60)
        await run.finish()
    finally:
        await run.stop_crowd()


class GatewayChaos:
    """One run. connections: idle ones."""

    def __init__(self, director: Director, connections: int) -> None:
        self._director = director
        self._draw = director.draw
        self._connections = connections
        self._engine = director.engine("gateway", gateway_port=free_port(), entities=list(ENTITIES), **OPTIONS)
        self._clients = [
            director.application(f"client-{number}", entities=ENTITIES, secondary="", each=self._address)
            for number in range(CLIENTS)
        ]
        self._beside: set[asyncio.Task[None]] = set()
        self._crowd: Crowd | None = None
        self._entry: Entry
        self._memories: list[int] = []
        """Megabytes of the engine after each proof."""
        self._most_memory = 0

    def _address(self) -> dict[str, str]:
        return {"primary": connection_string(self._entry.key, self._entry.port)}

    async def start(self) -> None:
        """Start all processes, and prove that everything works before anything is broken."""
        await start_receivers(self._director)
        await self._engine.start()
        self._entry = Entry(self._engine.gateway_port, self._engine.key)
        await self._director.start(*self._clients)
        self._crowd = Crowd(self._entry, self._connections)
        self._crowd.start()
        self._begin_beside(self._watch())
        await self._prove("the start")

    async def go_on(self, seconds: float) -> None:
        """Perform rounds of all episodes in any order, until the time is over."""
        end = now() + seconds
        acts = [self._kill_engine, self._kill_client, self._fill, *map(self._outage, DOWN), self._both, self._lose_both]
        while now() < end:
            for act in self._draw.sample(acts, len(acts)):
                if now() > end:
                    return
                await self._perform(act)

    async def _perform(self, act: Callable[[], Awaitable[None]]) -> None:
        title = act.__doc__ or ""
        number = self._director.begin_episode(title, opens=True)
        self._be_rude()
        await act()
        self._director.mend()
        await self._director.restart_killed()
        if await self._prove(f"episode {number}, {title}"):
            self._director.end_episode(number)

    async def finish(self) -> None:
        await self.stop_crowd()
        await self._director.finish(self._clients)
        if self._most_memory > MAX_MEGABYTES:
            self._director.found(f"the engine had {self._most_memory} MB; {MAX_MEGABYTES} are allowed")
        third = len(self._memories) // 3  # medians: for a while after 64 MB in hand more is in use
        if third >= FEWEST and median(self._memories[-third:]) > GROWTH * median(self._memories[:third]):
            self._director.found(f"the engine's memory grows: {self._memories} MB")
        self._director.figures |= {"most memory, MB": self._most_memory, "memory after each episode": self._memories}

    async def stop_crowd(self) -> None:
        """End all connections of this process; those beside an episode have an end of their own."""
        for task in self._beside:
            if task.get_name() == "memory":
                task.cancel()
        await asyncio.wait_for(asyncio.gather(*self._beside, return_exceptions=True), 90)
        if self._crowd is not None:
            await self._crowd.end()

    # -- episodes -----------------------------------------------------------------------------------------------------

    async def _kill_engine(self) -> None:
        """the engine is killed with -9 in the middle of transfers"""
        await asyncio.sleep(self._draw.uniform(1, 3))
        self._director.strike(Strike(namespace=PRIMARY, fault=FaultKind.BLACK_HOLED))
        await asyncio.sleep(0.5)  # what it has in hand now is nowhere else
        await self._engine.kill()

    async def _kill_client(self) -> None:
        """a client is killed with -9 in the middle of a transfer"""
        await asyncio.sleep(self._draw.uniform(1, 3))
        await self._draw.choice(self._clients).kill()

    async def _fill(self) -> None:
        """the primary is silent, and more than 64 MB are sent to it"""
        self._director.strike(Strike(namespace=PRIMARY, fault=FaultKind.BLACK_HOLED))
        await self._flood().run()

    def _outage(self, fault: FaultKind) -> Callable[[], Awaitable[None]]:
        async def act() -> None:
            self._director.strike(Strike(namespace=PRIMARY, fault=fault))
            await asyncio.sleep(self._draw.uniform(3, 7))

        act.__doc__ = f"the primary is {fault}"
        return act

    async def _both(self) -> None:
        """both namespaces fail, then the engine with its hands full"""
        for namespace in (PRIMARY, SECONDARY):
            self._director.strike(Strike(namespace=namespace, fault=self._draw.choice(DOWN)))
        self._begin_beside(self._flood().run())
        await asyncio.sleep(self._draw.uniform(2, 4))
        await self._engine.kill()

    async def _lose_both(self) -> None:
        """both namespaces fail for longer than a send may last: the gateway refuses"""
        for namespace in (PRIMARY, SECONDARY):
            self._director.strike(Strike(namespace=namespace, fault=self._draw.choice(QUICK)))
        await asyncio.sleep(2 * SEND_TIMEOUT + self._draw.uniform(2, 4))

    def _flood(self) -> Flood:
        return Flood(self._entry, self._director.facts, str(self._director.episodes))

    def _be_rude(self) -> None:
        """Start clients beside the episode that read nothing, vanish in a transfer, or have no key."""
        number = self._director.episodes
        for index in range(5):
            self._begin_beside(be_deaf(self._entry, self._director.facts, f"{number}-{index}", 8.0))
            self._begin_beside(send_half(self._entry, f"{number}-{index}"))
        self._begin_beside(be_silent(self._entry, 50, 8.0))

    def _begin_beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work, name="memory" if work.__name__ == "_watch" else "")
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    # -- proofs -------------------------------------------------------------------------------------------------------

    async def _prove(self, after: str) -> bool:
        works = await self._director.prove(after, self._clients, ENTITIES, WORKS_AGAIN, self._missing)
        self._memories.append(resident_megabytes(self._engine.pid))
        return works

    def _missing(self) -> list[str]:
        assert self._crowd is not None
        return [] if self._crowd.is_whole else [f"{self._crowd.up} of {self._connections} idle connections"]

    async def _watch(self) -> None:
        while True:
            self._most_memory = max(self._most_memory, resident_megabytes(self._engine.pid))
            await asyncio.sleep(0.25)
