"""A ledger of messages that are handled in transactions through an outage, as NServiceBus handles them by default.

Four workers each receive from one queue, complete the message and send two others in one transaction. A commit that is
refused leaves its message for the next try.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest

from paired_servicebus.core.model.pairing_events import InDoubt
from servicebus_amqp.encoding.message_sections import read_properties, split
from servicebus_amqp.encoding.performatives import ACCEPTED, TransactionalState
from servicebus_amqp.protocol.links import DeliveryReceived, Detached
from servicebus_amqp.protocol_errors import StateError
from servicebus_sandbox.broker.entity_settings import QueueSettings
from servicebus_sandbox.faults import Operation
from servicebus_sandbox.specs import NamespaceSpec, QueueSpec
from tests.engine.gateway.relay_setting import relay_setting
from tests.engine.gateway.test_gateway_transactions import ANY, BACKLOG, Place, words
from tests.pairing.conftest import until
from tests.sandbox.amqp_server.conftest import Peer, Refused
from tests.sandbox.amqp_server.test_transactions import Tx, new_session, sender_to

LOCK = QueueSettings(lock_duration=timedelta(seconds=5))
SPECS = (
    NamespaceSpec("primary", queues=(QueueSpec("in", LOCK), QueueSpec("first"), QueueSpec("second"))),
    NamespaceSpec("secondary"),
)
SENT = ("first", "second")
PATIENCE = 3.0
"""Seconds without a message after which a worker connects again, as an SDK that has lost its receiver does."""
WORKERS = 4
HANDLING = 0.03
DEAF = ("refused", "silent")
"""Outages in which nothing is handled."""


class AlertPeer(Peer):
    """A client that connects again when one of its links has ended, as it would attach again."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if any(isinstance(event, Detached) and event.error for event in self.events):
            self.transport.abort()


class Workers:
    """The workers, and what their commits were answered. refused: the words, by message."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.committed: Counter[str] = Counter()
        self.refused: dict[str, str] = {}

    async def work(self) -> None:
        while True:
            peer: Peer | None = None
            try:
                peer = await self.place.connect(kind=AlertPeer, properties=ANY)
                await self._handle_those_of(peer)
            except (AssertionError, OSError, Refused, StateError, TimeoutError):
                await asyncio.sleep(0.2)
            finally:
                if peer is not None:
                    peer.transport.abort()
                    self.place.peers.remove(peer)

    async def _handle_those_of(self, peer: Peer) -> None:
        await new_session(peer)
        tx = await Tx(peer).attach()
        receiver = await peer.attached(peer.receiver("in"))
        senders = {name: await sender_to(tx, name) for name in SENT}
        while True:
            receiver.flow(1)
            peer.flush()
            delivery = await peer.next(DeliveryReceived, PATIENCE)
            name = str(read_properties(split(delivery.payload).properties).message_id)
            await asyncio.sleep(HANDLING)
            await tx.declare()
            done = TransactionalState(txn_id=tx.id, outcome=ACCEPTED)
            assert await tx.settle(receiver, delivery, ACCEPTED) == done
            for to, sender in senders.items():
                assert await tx.send(sender, f"{name}-{to}") == done
            answer = await tx.discharge()
            if answer != ACCEPTED:
                self.refused[name] = words(answer)
                raise StateError("the commit was refused")
            self.committed[name] += 1


FAULTS: dict[str, Callable[[Place], list[Callable[[], None]]]] = {
    "refused": lambda place: [place.world.fault("refused")],
    "silent": lambda place: [place.world.fault("black-holed")],
    "one entity disabled": lambda place: [place.world.fault("disabled", entity="second")],
    "commits without an answer": lambda place: [place.fault("acknowledgement-lost", Operation.DISCHARGE)],
    "refused commits": lambda place: [
        place.world.fault("disabled", entity="second"), place.fault("busy", Operation.DISCHARGE)
    ],
}  # fmt: skip
OUTAGES = ("refused", "silent", "one entity disabled")


@pytest.mark.parametrize(
    ("kind", "seconds"),
    [
        *(pytest.param(kind, 4.0, marks=pytest.mark.slow) for kind in FAULTS),
        *(pytest.param(kind, 45.0, marks=pytest.mark.long) for kind in OUTAGES),
    ],
)
async def test_nothing_is_lost_and_only_what_was_in_doubt_comes_twice(kind: str, seconds: float) -> None:
    """0 lost; twice only what was in doubt, each named in the journal; 0 messages in an error queue."""
    options = {"journal": "diverted", "send_timeout": 2.0, "failover_interval": 1.0, "hold_until_failover": True}
    async with relay_setting(*SPECS, **options) as setting:
        place = Place(setting)
        workers = Workers(place)
        names = [f"m{number}" for number in range(round(WORKERS / HANDLING * (3 if kind in DEAF else seconds)))]
        for start in range(0, len(names), 1000):
            await setting.put(*names[start : start + 1000], queue="in")
        working = [asyncio.ensure_future(workers.work()) for _ in range(WORKERS)]
        await until(lambda: len(workers.committed) >= len(names) // 3)
        heal = FAULTS[kind](place)
        await asyncio.sleep(seconds)
        for each in heal:
            each()
        await until(lambda: not place.world.ids_in("in"), 600)
        for one in working:
            one.cancel()
        await asyncio.gather(*working, return_exceptions=True)
        check(place, workers, names)
        assert bool(workers.refused) is kind.startswith(("commits", "refused commits"))
        assert bool(place.backlog) is (kind in ("one entity disabled", "refused commits"))


def check(place: Place, workers: Workers, names: list[str]) -> None:
    parked = place.world.ids_in(BACKLOG, namespace="secondary")
    came = Counter([*place.world.ids_in("first"), *place.world.ids_in("second"), *parked])
    lost = [each for name in names for to in SENT if (each := f"{name}-{to}") not in came]
    assert not lost
    doubted = set(place.journal(InDoubt))
    unanswered = {f"{name}-{to}" for name, text in workers.refused.items() if "in doubt" in text for to in SENT}
    assert unanswered <= doubted
    twice = {name for name, count in came.items() if count > 1}
    said = {f"{name}-{to}" for name, text in workers.refused.items() if "may come twice" in text for to in SENT}
    assert twice <= doubted | said
    assert not place.world.sandbox["primary"].node.namespace.message_queue("in/$DeadLetterQueue").peek(0, 1)
    print(f"{len(names)} handled, {len(workers.refused)} commits refused, {len(twice)} twice, {len(parked)} parked")
