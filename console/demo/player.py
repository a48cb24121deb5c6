"""Plays one scenario: the application sends, the fault comes and goes, the backlog drains, the lists are compared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from azure.servicebus import ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver

from console.core.ledger import balance
from console.demo.application import Application
from console.demo.result import EntityResult, Messages, Pings, Result, SyphonResult
from console.demo.scenarios import BEGINS, DRAIN_WITHIN, ENDS, ENTITIES, Scenario
from console.demo.stage import Faults, Stage
from console.pairing import PairedServiceBusClient
from console.pairing.backlog import queue_path

LOOK: Final = 0.25
PEEK: Final = 10.0
SETTLED: Final = 1.0
"""Seconds with nothing new after which what was received twice has been counted."""


class Player:
    """One performance.

    Args:
        say: told each caption as it changes.
    """

    def __init__(
        self, scenario: Scenario, stage: Stage, paired: PairedServiceBusClient, *, seed: int, say: Callable[[str], None]
    ) -> None:
        self._scenario = scenario
        self._stage = stage
        self._paired = paired
        self._seed = seed
        self._say = say
        self._application = Application(paired, seed=seed)

    async def play(self, duration: float) -> Result:
        """The whole scenario over `duration` seconds, and the draining after it."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._application.receive_until_stopped())
            sending = group.create_task(self._application.send_until_stopped())
            await self._script(duration)
            self._application.stop_sending()
            await sending
            await self._drain()
            self._application.stop_receiving()
        return await self._result()

    async def _script(self, duration: float) -> None:
        scenario, faults = self._scenario, Faults(self._stage.control_url)
        self._say(scenario.before)
        await asyncio.sleep(duration * BEGINS)
        switched = await faults.on(namespace="primary", fault=scenario.fault, entity=scenario.entity)
        self._say(scenario.during)
        await asyncio.sleep(duration * (ENDS - BEGINS))
        await faults.off(switched)
        self._say(scenario.after)
        await asyncio.sleep(duration * (1 - ENDS))

    async def _drain(self) -> None:
        """Wait until every accepted message has arrived and nobody is failed over, at most as long as promised."""
        clock = asyncio.get_running_loop().time
        end = clock() + DRAIN_WITHIN
        while clock() < end:
            diverting = [view for view in self._paired.entity_views() if view.failovers != view.failbacks]
            if not diverting and self._application.lists.missing == 0:
                await asyncio.sleep(SETTLED)
                return
            await asyncio.sleep(LOOK)

    async def _result(self) -> Result:
        lists = self._application.lists
        parked, dead = await self._left_behind()
        ledger = balance(answers=lists.answers, arrivals=lists.arrivals, parked=parked, dead_lettered=dead)
        views = {view.path: view for view in self._paired.entity_views() if view.path in ENTITIES}
        return Result(
            scenario=self._scenario.name,
            seed=self._seed,
            messages=Messages.of(ledger),
            entities={
                name: EntityResult(
                    failovers=view.failovers,
                    failbacks=view.failbacks,
                    seconds_failed_over=round(view.seconds_failed_over, 3),
                )
                for name, view in views.items()
            },
            pings=Pings(
                sent=sum(view.pings_sent for view in views.values()),
                accepted=sum(view.pings_accepted for view in views.values()),
            ),
            syphon=SyphonResult(moved=self._paired.syphon_view().moved),
            billed_operations=self._paired.billed().total,
            verdict=ledger.verdict,
            lost_ids=list(ledger.lost_ids),
            unexpected_ids=list(ledger.unexpected_ids),
        )

    async def _left_behind(self) -> tuple[set[str], set[str]]:
        """What still lies in the backlog queues and in their dead-letter queues, seen from outside the pairing."""
        queues = [queue_path(self._paired.primary_name, index) for index in range(self._paired.backlog_queue_count)]
        dead_letters = ServiceBusSubQueue.DEAD_LETTER
        async with ServiceBusClient.from_connection_string(self._stage.connection_string("secondary")) as client:
            found = await asyncio.gather(
                *(_peeked(client.get_queue_receiver(path)) for path in queues),
                *(_peeked(client.get_queue_receiver(path, sub_queue=dead_letters)) for path in queues),
            )
        return set().union(*found[: len(queues)]), set().union(*found[len(queues) :])


async def _peeked(receiver: ServiceBusReceiver) -> set[str]:
    """The ids of every message in a queue, whatever its state."""
    ids: set[str] = set()
    number = 1
    async with asyncio.timeout(PEEK), receiver:
        while True:
            messages = await receiver.peek_messages(250, sequence_number=number)
            for message in messages:
                ids.add(str(message.message_id))
                number = max(number, (message.sequence_number or 0) + 1)
            if not messages:
                return ids
