"""Chaos: every kind of fault in any order, and engines and senders killed or frozen at their worst moments."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final

from tests.stage.console import Console
from tests.stage.course import (
    BACKLOG,
    DEDUP,
    ENTITIES,
    LOCK,
    PLAIN,
    PRIMARY,
    SECONDARY,
    SESSIONS,
    TOPIC,
    Act,
    Episode,
    Strike,
    episodes,
)
from tests.stage.director import Director
from tests.stage.ledger import now
from tests.stage.processes import Actor, Engine
from tests.stage.receiver import SUBSCRIPTION

from paired_servicebus.core.errors import ControlError
from servicebus_sandbox import (
    NamespaceSpec,
    QueueSettings,
    QueueSpec,
    SubscriptionSettings,
    SubscriptionSpec,
    TopicSpec,
)
from servicebus_sandbox.faults import FaultKind

SENDERS: Final = 2
RECEIVERS: Final = 2
CALM: Final = 3.0
"""Seconds after an episode in which nothing is wrong."""
REACHED: Final = 30.0
"""Seconds in which the moment for an act has to come."""
WORKS_AGAIN: Final = 90.0
"""Seconds after healing in which a message to each entity has to arrive and each entity has to be healthy again. The
policy's own promise is some seconds, or `throttle_wait` more; the rest is for a busy machine."""
ENOUGH: Final = 5
"""Messages that have to be parked before something is done between send and completion."""
PUMPS: Final = ("amqp", "sdk")
SYPHONS: Final = 0.25
"""The share of senders that have a syphon as well, beside the engine's."""
SEND_TIMEOUT: Final = 1.0

_KEPT: Final[dict[str, Any]] = {"lock_duration": LOCK, "max_delivery_count": 2**31 - 1}
SPECS: Final = (
    NamespaceSpec(
        PRIMARY,
        queues=(
            QueueSpec(DEDUP, QueueSettings(requires_duplicate_detection=True, **_KEPT)),
            QueueSpec(SESSIONS, QueueSettings(requires_session=True, **_KEPT)),
            QueueSpec(PLAIN, QueueSettings(**_KEPT)),
        ),
        topics=(TopicSpec(TOPIC, (SubscriptionSpec(SUBSCRIPTION, SubscriptionSettings(**_KEPT)),)),),
    ),
    NamespaceSpec(SECONDARY, queues=tuple(QueueSpec(path, QueueSettings(**_KEPT)) for path in BACKLOG)),
)


async def start_receivers(director: Director) -> None:
    receivers = [director.receiver(f"receiver-{index}", ENTITIES[index::RECEIVERS]) for index in range(RECEIVERS)]
    await director.start(*receivers)


async def chaos(director: Director, minutes: float, _engines: int) -> None:
    """Break everything for some minutes."""
    run = Chaos(director)
    await run.start()
    end = now() + minutes * 60
    for episode in episodes(director.seed):
        if now() > end:
            break
        await run.perform(episode)
    await director.finish(run.senders)
    director.figures["acts"] = {str(act): count for act, count in run.reached.items()}


class Chaos:
    """One run. reached: how often the moment for each act came."""

    def __init__(self, director: Director) -> None:
        self._director = director
        self._draw = director.draw
        options = _options(director)
        director.say(f"options {options}")
        self._syphons: set[Actor] = set()
        self.engine = director.engine("chaos", entities=list(ENTITIES), **options)
        self.senders = [self._sender(f"sender-{index}", options) for index in range(SENDERS)]
        self.reached: dict[Act, int] = dict.fromkeys((act for act in Act if act is not Act.NOTHING), 0)

    def _sender(self, name: str, options: dict[str, Any]) -> Actor:
        def each() -> dict[str, Any]:
            has_syphon = self._draw.random() < SYPHONS
            (self._syphons.add if has_syphon else self._syphons.discard)(sender)
            chosen = {"enable_syphon": has_syphon, "pump": self._draw.choice(PUMPS)}
            return {"options": options | chosen, "retry_total": self._draw.choice((0, 0, 3))}

        sender = self._director.application(name, entities=ENTITIES, each=each)
        return sender

    async def start(self) -> None:
        """Start all processes, and prove that everything works before anything is broken."""
        await start_receivers(self._director)
        await asyncio.gather(self.engine.start(pump=self._draw.choice(PUMPS)), self._director.start(*self.senders))
        await self._prove("the start")

    async def perform(self, episode: Episode) -> None:
        """Perform an episode, and prove that all works after it with no restart but of the killed."""
        number = self._director.begin_episode(episode.title, opens=episode.opens)
        match episode.act:
            case Act.PINGING:
                await self._kill_pinging(episode)
            case Act.BETWEEN | Act.STALLED | Act.AGED:
                await self._act_between(episode)
            case _:
                await self._strike(episode)
                if episode.act is Act.SENDING:
                    self.reached[Act.SENDING] += 1
                    await self._draw.choice(self.senders).kill()
        self._director.mend()
        await self._director.restart_killed(pump=self._draw.choice(PUMPS))
        if episode.act is Act.PINGING:
            await self._release(episode.entity)
        if await self._prove(f"episode {number} ({episode.title})"):
            self._director.end_episode(number)
        await asyncio.sleep(CALM)

    async def _prove(self, after: str) -> bool:
        return await self._director.prove(after, self.senders, ENTITIES, WORKS_AGAIN, self._ill)

    def _ill(self) -> list[str]:
        """Return the entities that are not healthy."""
        return [
            f"{entity} of {actor.life} is {state or 'unknown'}"
            for actor in self.senders
            for entity in ENTITIES
            if (state := self._director.ledger.state(actor.life, entity)) != "healthy"
        ]

    async def _strike(self, episode: Episode) -> None:
        began = now()

        async def strike(one: Strike) -> None:
            self._director.strike(one)

        happens: list[tuple[float, Callable[[], Awaitable[None]]]] = [
            (one.after, partial(strike, one)) for one in episode.strikes
        ]
        if episode.dies:
            victim = self.engine if episode.dies == "engine" else self._draw.choice(self.senders)
            happens.append((episode.dies_after, victim.kill))
        for after, act in sorted(happens, key=lambda one: one[0]):
            await asyncio.sleep(max(0.0, began + after - now()))
            await act()
        await asyncio.sleep(max(0.0, began + episode.seconds - now()))

    async def _kill_pinging(self, episode: Episode) -> None:
        """The primary is silent, an operator forces an entity in the engine: both the engine and a sender ping."""
        self._director.strike(Strike(namespace=PRIMARY, fault=FaultKind.BLACK_HOLED))
        console = await self._director.console(self.engine)
        await console.command("force", episode.entity)
        victim = self._draw.choice(self.senders)

        def is_pinging() -> bool:
            stood, view = self._director.ledger.stood[victim.life], console.entity(episode.entity)
            is_failed_over = bool(stood) and "failed over" in stood[-1].states.values()
            return is_failed_over and view is not None and view.pings > 0

        self.reached[Act.PINGING] += await self._director.until(is_pinging, REACHED)
        await asyncio.sleep(episode.seconds)
        await asyncio.gather(self.engine.kill(), victim.kill())
        await console.close()

    async def _release(self, entity: str) -> None:
        """Release what the killed engine was ordered to force: the order is in force in the next engine too."""
        console = await self._director.console(self.engine)
        try:
            await console.command("release", entity)
        except ControlError as error:
            self._director.found(f"the order to force {entity} did not outlive its engine: {error}")
        await console.close()

    async def _act_between(self, episode: Episode) -> None:
        """Park messages of one entity while all syphons are paused; when they go on, the backlog queues swallow their
        completions: whatever arrived then has been sent and is not completed."""
        director = self._director
        await director.until(lambda: not director.parked)  # else earlier messages may precede those to be held
        victims: list[Actor | Engine] = [self.engine, *(one for one in self.senders if one in self._syphons)]
        consoles: list[Console] = [await director.console(victim) for victim in victims]
        for console in consoles:
            await console.command("pause-syphon")
        director.strike(Strike(namespace=PRIMARY, fault=FaultKind.BLACK_HOLED, entities=(episode.entity,)))
        held = await self._hold(episode.entity)
        director.mend()
        director.strike(
            Strike(namespace=SECONDARY, fault=FaultKind.BLACK_HOLED, entities=BACKLOG, operations=("settle",))
        )
        for console in consoles:
            await console.command("resume-syphon")
        self.reached[episode.act] += await director.until(lambda: held & director.ledger.arrived, REACHED)
        await self._act(episode.act, victims)
        for console in consoles:
            await console.close()

    async def _hold(self, entity: str) -> set[str]:
        """Return messages that were accepted, and not by the entity, which is silent from now on."""
        began, ledger = now() + SEND_TIMEOUT, self._director.ledger

        def held() -> set[str]:
            return {name for name, at in ledger.accepted.items() if at > began and ledger.lives[name].entity == entity}

        await self._director.until(lambda: len(held()) >= ENOUGH, REACHED)
        return held()

    async def _act(self, act: Act, victims: list[Actor | Engine]) -> None:
        if act is Act.BETWEEN:
            await asyncio.gather(*(victim.kill() for victim in victims))
            return
        if act is Act.STALLED:
            for victim in victims:
                victim.stall(on=True)
        self._director.mend()
        if act is Act.STALLED:
            await asyncio.sleep(LOCK.total_seconds() + 1)
            for victim in victims:
                victim.stall(on=False)
        else:
            self._director.sandbox.advance(LOCK.total_seconds() + 1)


def _options(director: Director) -> dict[str, Any]:
    """Return the pairing's options, as short as they may be, the rest by chance."""
    draw = director.draw
    return {
        "backlog_queue_count": len(BACKLOG),
        "send_timeout": SEND_TIMEOUT,
        "failover_interval": draw.choice((0.0, 1.0, 2.0)),
        "ping_primary_interval": 1.0,
        "ping_timeout": 2.0,
        "ping": draw.choice(("message", "link")),
        "failback_pings": draw.choice((1, 2)),
        "hold_until_failover": draw.choice((True, False)),
        "close_grace": 2.0,
    }
