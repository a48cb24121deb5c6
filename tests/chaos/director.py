"""Performs a plan: breaks, kills, mends, starts again, and proves each time that all works with no restart.

It keeps a list of its own, of what it did and of what it saw that must not be. What it waits for it reads in the
others' lists.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from paired_servicebus.core.accounting.ledger import SendOutcome
from paired_servicebus.core.errors import ControlError, PairedError
from paired_servicebus.core.model.snapshot import Snapshot
from paired_servicebus.engine.control.control_client import ControlClient
from tests.chaos import receiver, sender
from tests.chaos.actors import Actor, Engine
from tests.chaos.lists import Arrived, Attempted, Began, Found, List, Lying, Recovered, Stood, Tail, Told, now
from tests.chaos.plan import BACKLOG, ENTITIES, PRIMARY, SECONDARY, Act, Episode, Strike
from tests.chaos.sandbox import LOCK_SECONDS, Sandbox

SENDERS: Final = 2
RECEIVERS: Final = 2
CALM: Final = 3.0
"""Seconds after an episode in which nothing is wrong."""
REACHED: Final = 30.0
"""Seconds in which the moment for an act has to come."""
WORKS_AGAIN: Final = 45.0
"""Seconds after mending in which a message to each entity has to arrive and each entity has to be healthy again. The
policy's own promise is some seconds, or `throttle_wait` more; the rest is for a busy machine."""
DRAINED: Final = 120.0
LOOK: Final = 0.1
SETTLED: Final = 2.0
ENOUGH: Final = 5
"""Messages that have to be parked before something is done between send and completion."""
BY: Final = "chaos"
PUMPS: Final = ("amqp", "sdk")
SYPHONS: Final = 0.25
"""The share of senders that have a syphon as well, beside the engine's."""
_OUR_ERROR: Final = re.compile(r"^\S+( \S+)? (ERROR|CRITICAL) +(console|tests)\b")
SEND_TIMEOUT: Final = 1.0


@dataclass(slots=True)
class Seen:
    """What the director knows from the others' lists."""

    accepted: dict[str, float] = field(default_factory=dict)
    """When the attempt began that was accepted, by id."""
    entity: dict[str, str] = field(default_factory=dict)
    arrived: set[str] = field(default_factory=set)
    states: dict[str, dict[str, str]] = field(default_factory=dict)
    _attempted: dict[str, float] = field(default_factory=dict)

    def update(self, tail: Tail) -> None:
        """Read on."""
        for fact in tail.news():
            match fact:
                case Attempted():
                    self._attempted.update(dict.fromkeys(fact.ids, fact.at))
                    self.entity.update(dict.fromkeys(fact.ids, fact.entity))
                case Told(answer=SendOutcome.ACCEPTED):
                    self.accepted.update((name, self._attempted[name]) for name in fact.ids if name in self._attempted)
                case Arrived():
                    self.arrived.add(fact.id)
                case Stood():
                    self.states[fact.who] = fact.states


class Director:
    """One run."""

    def __init__(self, folder: Path, sandbox: Sandbox, seed: int, say: Callable[[str], object]) -> None:
        self._folder = folder
        self._sandbox = sandbox
        self._rng = random.Random(f"director {seed}")
        self._seed = seed
        self._say = say
        self._list = List(folder, "director")
        self._tail = Tail(folder)
        self._seen = Seen()
        self._senders = [Actor("tests.chaos.sender", folder) for _ in range(SENDERS)]
        self._receivers = [Actor("tests.chaos.receiver", folder) for _ in range(RECEIVERS)]
        self._options = _options(self._rng)
        self._engine = Engine(folder, sandbox, self._options)
        self._proofs = 0
        self._lives = 0
        self.reached: dict[Act, int] = dict.fromkeys((act for act in Act if act is not Act.NOTHING), 0)
        """How often the moment for each act came."""
        self.episodes = 0
        self.slowest = 0.0
        """Seconds of the longest recovery."""

    # -- from start to end --------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """All processes, and proof that everything works before anything is broken."""
        self._say(f"options {self._options}")
        for index, actor in enumerate(self._receivers):
            order = receiver.Order(
                name=f"receiver-{index}",
                folder=str(self._folder),
                primary=self._sandbox.connection_string[PRIMARY],
                entities=list(ENTITIES[index::RECEIVERS]),
            )
            await actor.start(order, order.name)
        await asyncio.gather(self._start_engine(), *(self._start_sender(actor) for actor in self._senders))
        await self._prove("the start")

    async def perform(self, episode: Episode) -> None:
        """One episode, and proof that all works after it."""
        self.episodes += 1
        number = self.episodes
        self._say(f"{number}. {episode.title}")
        self._list.write(Began(at=now(), episode=number, title=episode.title, opens=episode.opens))
        match episode.act:
            case Act.PINGING:
                await self._kill_pinging(episode)
            case Act.BETWEEN | Act.STALLED | Act.AGED:
                await self._between(episode)
            case _:
                await self._strike(episode)
                if episode.act is Act.SENDING:
                    self.reached[Act.SENDING] += 1
                    await self._rng.choice(self._senders).kill()
        await self._sandbox.mend()
        await self._start_the_killed()
        if episode.act is Act.PINGING:
            await self._release(episode.entity)
        if await self._prove(f"episode {number} ({episode.title})"):
            self._list.write(Recovered(at=now(), episode=number))
        await asyncio.sleep(CALM)

    async def finish(self) -> None:
        """No new messages; everything drains; all processes end in order."""
        for actor in self._senders:
            await self._ask(actor.tell("stop"), actor.name)
        for actor in self._senders:
            await self._ask(actor.hear("stopped", sender.GIVE_UP_AFTER + 20.0), actor.name)
        self._say("sending has ended")
        await self._drain()
        self._say("everything has drained")
        actors = (*self._senders, *self._receivers)
        in_time, *statuses = await asyncio.gather(self._engine.end(), *(actor.end() for actor in actors))
        if not in_time:
            self._found("the engine did not end in time")
        for actor, status in zip(actors, statuses, strict=True):
            if status:
                self._found(f"{actor.name} ended with status {status}")
        self._look_into_logs()

    async def abandon(self) -> None:
        """Leave no process behind, whatever happened."""
        for actor in (*self._senders, *self._receivers):
            if actor.is_running:
                await actor.kill()
        await self._engine.kill()

    # -- episodes -----------------------------------------------------------------------------------------------------

    async def _strike(self, episode: Episode) -> None:
        began = now()
        happens: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (strike.after, partial(self._sandbox.strike, strike)) for strike in episode.strikes
        ]
        if episode.dies:
            victim = self._engine if episode.dies == "engine" else self._rng.choice(self._senders)
            happens.append((episode.dies_after, victim.kill))
        for after, act in sorted(happens, key=lambda one: one[0]):
            await asyncio.sleep(max(0.0, began + after - now()))
            await act()
        await asyncio.sleep(max(0.0, began + episode.seconds - now()))

    async def _kill_pinging(self, episode: Episode) -> None:
        """The primary is silent, an operator forces an entity in the engine: both the engine and a sender ping."""
        await self._sandbox.strike(Strike(namespace=PRIMARY, fault="black-holed"))
        control = await self._engine.control()
        await control.order("force", targets=(episode.entity,), typed=episode.entity, by=BY)
        victim = self._rng.choice(self._senders)
        pinging = await self._until(lambda: "failed over" in self._seen.states.get(victim.name, {}).values(), REACHED)
        if pinging and await _pings(control, episode.entity):
            self.reached[Act.PINGING] += 1
        await asyncio.sleep(episode.seconds)
        await asyncio.gather(self._engine.kill(), victim.kill())
        await control.close()

    async def _release(self, entity: str) -> None:
        """The operator takes back what the killed engine was told: it stands in the one after it, too."""
        control = await self._engine.control()
        try:
            await control.order("release", targets=(entity,), typed=entity, by=BY)
        except ControlError as error:
            self._found(f"the order to force {entity} did not outlive its engine: {error}")
        finally:
            await control.close()

    async def _between(self, episode: Episode) -> None:
        """Messages of one entity are parked while all syphons are paused; when they go on, the backlog queues swallow
        their completions: what arrived then has been sent and is not completed."""
        await self._emptied()  # else what comes again from before may be in the way of what is to be held
        victims: list[Actor | Engine] = [self._engine, *(actor for actor in self._senders if actor.has_syphon)]
        controls = [await victim.control() for victim in victims]
        for control in controls:
            await control.command("pause-syphon", by=BY)
        await self._sandbox.strike(Strike(namespace=PRIMARY, fault="black-holed", entities=(episode.entity,)))
        held = await self._parked(episode.entity)
        await self._sandbox.mend()
        await self._sandbox.strike(
            Strike(namespace=SECONDARY, fault="black-holed", entities=BACKLOG, operations=("settle",))
        )
        for control in controls:
            await control.command("resume-syphon", by=BY)
        if await self._until(lambda: bool(held & self._seen.arrived), REACHED):
            self.reached[episode.act] += 1
        await self._do(episode.act, victims)
        for control in controls:
            await control.close()

    async def _parked(self, entity: str) -> set[str]:
        """Messages that were accepted, and not by the entity, which is silent from now on."""
        began = now() + SEND_TIMEOUT

        def parked() -> set[str]:
            of = self._seen.entity
            return {name for name, at in self._seen.accepted.items() if at > began and of[name] == entity}

        await self._until(lambda: len(parked()) >= ENOUGH, REACHED)
        return parked()

    async def _do(self, act: Act, victims: Sequence[Actor | Engine]) -> None:
        if act is Act.BETWEEN:
            await asyncio.gather(*(victim.kill() for victim in victims))
            return
        if act is Act.STALLED:
            for victim in victims:
                victim.stall(on=True)
        await self._sandbox.mend()
        if act is Act.STALLED:
            await asyncio.sleep(LOCK_SECONDS + 1)
            for victim in victims:
                victim.stall(on=False)
        else:
            await self._sandbox.age(LOCK_SECONDS + 1)

    # -- afterwards ---------------------------------------------------------------------------------------------------

    async def _prove(self, after: str) -> bool:
        """A message to each entity from each sender arrives, and every entity is healthy."""
        self._proofs += 1
        number, began = self._proofs, now()
        for actor in self._senders:
            await self._ask(actor.tell(f"prove {number}"), actor.name)
        wanted = {f"proof-{number}.{actor.name}.{entity}" for actor in self._senders for entity in ENTITIES}
        waited_for: list[str] = []

        def works() -> bool:
            missing = [*sorted(wanted - self._seen.arrived), *self._ill()]
            waited_for[:] = missing or waited_for
            return not missing

        proven = await self._until(works, WORKS_AGAIN)
        self._look_for_the_fallen()
        if not proven:
            self._found(f"DOES NOT WORK AGAIN within {WORKS_AGAIN:g} s after {after}: {', '.join(waited_for)}")
        took = now() - began
        self.slowest = max(self.slowest, took)
        self._say(f"   {'works again' if proven else 'DOES NOT WORK'} after {took:.1f} s; last {waited_for[:3]}")
        return proven

    def _ill(self) -> list[str]:
        """Entities that are not healthy."""
        return [
            f"{entity} of {actor.name} is {state}"
            for actor in self._senders
            for entity in ENTITIES
            if (state := self._seen.states.get(actor.name, {}).get(entity, "unknown")) != "healthy"
        ]

    async def _drain(self) -> None:
        """Wait until all that was accepted has arrived and the backlog is empty; then write down what lies where."""
        await self._until(lambda: self._seen.accepted.keys() <= self._seen.arrived, DRAINED)
        parked = await self._emptied()
        await asyncio.sleep(SETTLED)
        for is_dead, lying in ((False, parked), (True, await self._sandbox.dead())):
            for place, ids in lying.items():
                if ids:
                    self._list.write(Lying(at=now(), place=place, dead=is_dead, ids=ids))
        self._look_for_the_fallen()

    async def _emptied(self) -> dict[str, list[str]]:
        """Wait until nothing is parked; what is all the same."""
        end = now() + DRAINED
        while any((parked := await self._sandbox.parked()).values()) and now() < end:
            await asyncio.sleep(1.0)
        return parked

    def _look_for_the_fallen(self) -> None:
        for actor in (*self._senders, *self._receivers):
            if actor.has_fallen:
                self._found(f"{actor.name} ended by itself; its log is {self._folder}/{actor.name}.log")
        if not self._engine.is_running:
            self._found("the engine ended by itself")

    def _look_into_logs(self) -> None:
        """What our own code calls an error is one."""
        for path in sorted(self._folder.rglob("*.log")):
            for line in path.read_text(errors="replace").splitlines():
                if _OUR_ERROR.search(line):
                    self._found(f"{path.name}: {line}")

    # -- processes ----------------------------------------------------------------------------------------------------

    async def _start_engine(self) -> None:
        pump = self._rng.choice(PUMPS)
        await self._engine.start(pump)
        self._say(f"   the engine runs, its pump is {pump}")

    async def _start_sender(self, actor: Actor) -> None:
        self._lives += 1
        actor.has_syphon = self._rng.random() < SYPHONS
        order = sender.Order(
            name=f"sender-{self._lives}",
            folder=str(self._folder),
            primary=self._sandbox.connection_string[PRIMARY],
            secondary=self._sandbox.connection_string[SECONDARY],
            ca_file=self._sandbox.ca_file,
            retry_total=self._rng.choice((0, 0, 3)),
            seed=self._seed,
            options=self._options | {"enable_syphon": actor.has_syphon, "pump": self._rng.choice(PUMPS)},
        )
        await actor.start(order, order.name)

    async def _start_the_killed(self) -> None:
        if not self._engine.is_running:
            await self._start_engine()
        for actor in self._senders:
            if not actor.is_running:
                await self._start_sender(actor)

    async def _ask(self, asking: Any, name: str) -> None:
        try:
            await asking
        except (OSError, RuntimeError) as error:
            self._found(f"{name} does not answer: {error}")

    async def _until(self, condition: Callable[[], bool], seconds: float) -> bool:
        """Whether it came true in time."""
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


async def _pings(control: ControlClient, entity: str) -> bool:
    """Whether the engine pings the entity before long."""
    try:
        async with asyncio.timeout(REACHED):
            async for update in control.updates():
                if isinstance(update, Snapshot) and any(e.path == entity and e.pings for e in update.entities):
                    return True
    except (TimeoutError, PairedError):
        pass
    return False


def _options(rng: random.Random) -> dict[str, Any]:
    """The pairing's options, as short as they may be, the rest by chance."""
    return {
        "backlog_queue_count": len(BACKLOG),
        "send_timeout": SEND_TIMEOUT,
        "failover_interval": rng.choice((0.0, 1.0, 2.0)),
        "ping_primary_interval": 1.0,
        "ping_timeout": 2.0,
        "ping": rng.choice(("message", "link")),
        "failback_pings": rng.choice((1, 2)),
        "hold_until_failover": rng.choice((True, False)),
        "close_grace": 2.0,
    }
