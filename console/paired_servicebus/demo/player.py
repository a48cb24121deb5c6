"""Plays one scenario: the application sends, faults come and go, the backlog drains, the lists are compared."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
from azure.servicebus import ServiceBusMessage

from paired_servicebus.core.accounting.ledger import SendOutcome, balance
from paired_servicebus.core.backlog.queue_settings import BACKLOG_QUEUE, queue_path
from paired_servicebus.core.model.envelope import PATH
from paired_servicebus.core.model.pairing_events import Event
from paired_servicebus.core.model.policy import Policy
from paired_servicebus.demo.result import DemoResult, EntityResult, MessageCounts, PingCounts, SyphonResult, what_broke
from paired_servicebus.demo.scenarios import (
    AUDIT,
    BACKLOG_IN_USE,
    DRAIN_WITHIN,
    ENTITIES,
    MALFORMED,
    ORDERS,
    PAYMENTS,
    PRIMARY,
    QUEUES,
    SECONDARY,
    SUBSCRIPTION,
    Caption,
    FaultWindow,
    Scenario,
)
from paired_servicebus.pairing import PairedServiceBusClient, SendAvailabilityPairedNamespaceOptions, pair_namespaces
from paired_servicebus.pairing.management.management_port import management_of
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.sandbox_process import SandboxProcess
from paired_servicebus.trials.workload import MessageStream, Workload, WorkloadLists, peek_ids

# The pairing of a demo on the sandbox, and the remains of an earlier, larger one: unused backlog queues.
#
# One of them is not empty, so that clean-up refuses it and "move stranded" has a message to move. Its messages are for
# a separate queue without receivers, and not in the demo's ledger.

EMPTY: Final = (QUEUES, QUEUES + 1)
STRANDED: Final = QUEUES + 2
MESSAGES: Final = 3
DESTINATION: Final = "returns"
SETUP_TIMEOUT: Final = 20.0


async def pair_on(
    sandbox: SandboxProcess, policy: Policy, *, on_event: Callable[[Event], object]
) -> PairedServiceBusClient:
    """Return the pairing of the sandbox's two namespaces. Raises PairedError."""
    options = SendAvailabilityPairedNamespaceOptions(
        secondary_admin=sandbox.admin(SECONDARY),
        secondary_client=sandbox.client(SECONDARY),
        primary_name=PRIMARY,
        **{name: getattr(policy, name) for name in policy.__dataclass_fields__},
    )
    return await pair_namespaces(sandbox.client(PRIMARY), options, on_event=on_event)


async def leave_unused_queues(sandbox: SandboxProcess) -> None:
    """Make them, before anything is paired."""
    await bounded(_make_queues(sandbox), SETUP_TIMEOUT, "making the unused queues")
    await bounded(_strand_messages(sandbox), SETUP_TIMEOUT, "stranding messages in one of them")


async def _make_queues(sandbox: SandboxProcess) -> None:
    async with sandbox.admin(PRIMARY) as admin:
        await admin.create_queue(DESTINATION)
    async with sandbox.admin(SECONDARY) as admin:
        for index in (*EMPTY, STRANDED):
            await management_of(admin).create_queue(queue_path(PRIMARY, index), BACKLOG_QUEUE)


async def _strand_messages(sandbox: SandboxProcess) -> None:
    async with sandbox.client(SECONDARY) as client, client.get_queue_sender(queue_path(PRIMARY, STRANDED)) as sender:
        for number in range(MESSAGES):
            message = ServiceBusMessage(
                b"left behind", message_id=f"stranded-{number}", application_properties={PATH: DESTINATION}
            )
            await sender.send_messages(message)


# The messages that the demo's application sends.

SESSIONS: Final = ("amsterdam", "bergen", "cork")
STREAMS: Final = (
    MessageStream(ORDERS, "orders-web", 0.08),
    MessageStream(ORDERS, "orders-shop", 0.12),
    *(MessageStream(PAYMENTS, f"payments-{name}", 0.2, session_id=name) for name in SESSIONS),
    MessageStream(AUDIT, "audit-login", 0.15, subscription=SUBSCRIPTION),
    MessageStream(AUDIT, "audit-batch", 0.5, batch=4, subscription=SUBSCRIPTION),
)


POLL_SECONDS: Final = 0.25
QUIET_SECONDS: Final = 1.0
"""Seconds without a new message after which duplicates have been counted."""


class Player:
    """One performance of a scenario. `say` gets each new caption, `record` the receivers' receipts."""

    def __init__(
        self,
        scenario: Scenario,
        sandbox: SandboxProcess,
        paired: PairedServiceBusClient,
        *,
        seed: int,
        say: Callable[[str], None],
        pace: float = 1.0,
        record: Callable[[Event], object] = lambda _: None,
    ) -> None:
        self._scenario = scenario
        self._sandbox = sandbox
        self._paired = paired
        self._seed = seed
        self._say = say
        self._application = Workload(paired, seed=seed, streams=STREAMS, pace=pace, record=record)
        self._queue_in_use: str | None = None

    async def play(self, duration: float) -> DemoResult:
        """Play the whole scenario over `duration` seconds, then drain."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._application.receive_until_stopped())
            sending = group.create_task(self._application.send_until_stopped())
            await self._script(duration)
            self._application.stop_sending()
            await sending
            await self._drain()
            self._application.stop_receiving()
        return await self._result()

    # -- the script -------------------------------------------------------------------------------------------

    async def _script(self, duration: float) -> None:
        script = self._scenario
        async with asyncio.TaskGroup() as group:
            for broken in script.breaks:
                group.create_task(self._break(broken, duration), name=f"{broken.fault} of {broken.namespace}")
            for caption in script.captions:
                group.create_task(self._caption(caption, duration), name="a caption")
            for number, at in enumerate(script.poison):
                group.create_task(self._poison(number, at * duration), name="a stranger")
            group.create_task(asyncio.sleep(duration), name="the end of sending")

    async def _caption(self, caption: Caption, duration: float) -> None:
        await asyncio.sleep(caption.at * duration)
        self._say(caption.text)

    async def _break(self, broken: FaultWindow, duration: float) -> None:
        await asyncio.sleep(broken.begins * duration)
        fault = await self._sandbox.add_fault(
            broken.fault,
            namespace=broken.namespace,
            entities=[self._path(name) for name in broken.entities],
            operations=list(broken.operations),
            delay_s=broken.delay,
        )
        await asyncio.sleep((broken.ends - broken.begins) * duration)
        await self._sandbox.remove_fault(fault)

    async def _poison(self, round_: int, after: float) -> None:
        """Send messages that no sender of a pairing would send, as a foreign program: one of each kind."""
        await asyncio.sleep(after)
        queues = self._paired.backlog_queue_indices
        async with self._sandbox.client(SECONDARY) as client:
            for number, (kind, properties) in enumerate(MALFORMED.items()):
                name = f"stranger-{round_}-{kind}"
                path = queue_path(self._paired.primary_name, queues[number % len(queues)])
                async with client.get_queue_sender(path) as sender:
                    message = ServiceBusMessage(b"?", message_id=name, application_properties={**properties})
                    await sender.send_messages(message)
                self._application.lists.answers[name] = SendOutcome.ACCEPTED
                self._application.lists.leads_nowhere.add(name)

    def _path(self, name: str) -> str:
        """Return the path of an entity of the script."""
        if name != BACKLOG_IN_USE:
            return name
        if self._queue_in_use is None:
            route = next(view.route for view in self._paired.entity_views() if view.path == ORDERS)
            index = int(route.removeprefix("backlog/")) if route.startswith("backlog/") else 0
            self._queue_in_use = queue_path(self._paired.primary_name, index)
        return self._queue_in_use

    # -- the end ----------------------------------------------------------------------------------------------

    async def _drain(self) -> None:
        """Wait until the run has settled, within the promised time.

        Every accepted message has then arrived, or was dead-lettered if its destination is missing. No entity is failed
        over. Depths are not polled: a backlog that looks empty need not be drained.
        """
        clock = asyncio.get_running_loop().time
        end = clock() + DRAIN_WITHIN
        while clock() < end:
            if self._is_at_rest():
                await asyncio.sleep(QUIET_SECONDS)
                return
            await asyncio.sleep(POLL_SECONDS)

    def _is_at_rest(self) -> bool:
        lists = self._application.lists
        diverting = any(view.failovers != view.failbacks for view in self._paired.entity_views())
        dead = self._paired.syphon_view().dead_lettered
        return not diverting and lists.missing == 0 and dead >= len(lists.leads_nowhere)

    async def _result(self) -> DemoResult:
        scenario, lists = self._scenario, self._application.lists
        result = await sum_up(
            self._sandbox, [self._paired], lists, scenario=scenario, seed=self._seed, entities=ENTITIES
        )
        return msgspec.structs.replace(result, broken=what_broke(scenario, result.entities, result.messages))


async def sum_up(
    sandbox: SandboxProcess,
    pairings: Sequence[PairedServiceBusClient],
    lists: WorkloadLists,
    *,
    scenario: Scenario,
    seed: int,
    entities: Sequence[str],
) -> DemoResult:
    """Return the result by the application's lists and the counts of all pairings, without expectations.

    The messages in backlog queues and their dead-letter queues are read without the pairings.
    """
    queues = [queue_path(pairings[0].primary_name, index) for index in pairings[0].backlog_queue_indices]
    async with sandbox.client(SECONDARY) as client:
        parked, dead = await peek_ids(client, queues)
    ledger = balance(answers=lists.answers, arrivals=lists.arrivals, parked=parked, dead_lettered=dead)
    views = [view for paired in pairings for view in paired.entity_views() if view.path in entities]
    return DemoResult(
        scenario=scenario.name,
        seed=seed,
        messages=MessageCounts.of(ledger),
        entities={name: EntityResult.of([view for view in views if view.path == name]) for name in entities},
        pings=PingCounts(
            sent=sum(view.pings_sent for view in views), accepted=sum(view.pings_accepted for view in views)
        ),
        syphon=SyphonResult(moved=sum(paired.syphon_view().moved for paired in pairings)),
        billed_operations=sum(paired.billed().total for paired in pairings),
        verdict=ledger.verdict,
        lost_ids=list(ledger.lost_ids),
        unexpected_ids=list(ledger.unexpected_ids),
    )
