"""Delivers through the SDK: one link and one try for each destination, without the SDK's retries.

Takes messages of one destination, in order, and yields what happened to each run of them; the pump's machine decides
what follows, and whether the destination may be tried.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.model.envelope import EnvelopeProperties
from paired_servicebus.core.model.verdict import Judgement
from paired_servicebus.core.pump.dead_letter_rules import is_messages_fault
from paired_servicebus.core.pump.pump_events import DeliveryFailed, DeliveryWithheld, MessagesAccepted, PumpMessage
from paired_servicebus.pairing.runtime import tracing
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.sdk_messages import Sendable, body_bytes, context_of, unpark
from paired_servicebus.pairing.sending.sender_link import SdkSenderLink, packed


class SdkBacklogMessage(PumpMessage):
    """A backlog message with its envelope's content; None: it is unreadable."""

    __slots__ = ("enclosed", "received")

    def __init__(
        self,
        received: ServiceBusReceivedMessage,
        enclosed: EnvelopeProperties | None,
        *,
        message_id: str,
        is_recalled: bool,
    ) -> None:
        path = enclosed.path if enclosed is not None else ""
        number = received.sequence_number or -id(received)
        super().__init__(path, path.casefold(), number, message_id, 0, 0.0, is_recalled=is_recalled)
        self.received = received
        self.enclosed = enclosed


SdkDelivered = (
    MessagesAccepted[SdkBacklogMessage] | DeliveryFailed[SdkBacklogMessage] | DeliveryWithheld[SdkBacklogMessage]
)


class SdkDelivery:
    """Delivers to the primary namespace for all pumps of one syphon."""

    def __init__(self, steering: PairingRuntime, primary: ServiceBusClient) -> None:
        self._steering = steering
        self._primary = primary
        self._links: dict[str, SdkSenderLink] = {}

    async def deliver(self, path: str, load: Sequence[SdkBacklogMessage]) -> AsyncIterator[SdkDelivered]:
        """Send the messages in order, in as few batches as possible, until the destination fails."""
        link = self._link(path)
        messages: list[Sendable] = [
            unpark(one.received.raw_amqp_message, one.enclosed) for one in load if one.enclosed is not None
        ]
        done = 0
        for pack in packed(messages, link.limit()):
            async for event in self._deliver_pack(link, path, pack, load[done : done + len(pack)]):
                yield event
                if isinstance(event, DeliveryWithheld):  # the rest of the load waits with it
                    yield DeliveryWithheld(load[done + len(pack) :], self._steering.clock())
                    return
            done += len(pack)

    async def _deliver_pack(
        self, link: SdkSenderLink, path: str, pack: list[Sendable], part: Sequence[SdkBacklogMessage]
    ) -> AsyncIterator[SdkDelivered]:
        """Send one batch. One that is refused for one message, or for its mixture, is sent message by message."""
        tries = [(pack, part)]
        while tries:
            messages, tried = tries.pop(0)
            waiting = [*tried, *(one for _, later in tries for one in later)]
            if not self._steering.machine.may_deliver(path, at=self._steering.clock()):  # another pump failed there
                yield DeliveryWithheld(waiting, self._steering.clock())
                return
            failure = await self._try(link, messages, tried)
            now, alone = self._steering.clock(), len(tried) == 1
            if failure is None:
                yield MessagesAccepted(tried, now)
            elif is_messages_fault(failure.kind, alone=True):
                if alone:
                    yield DeliveryFailed(path, tried, failure, now, alone=True)
                else:
                    tries = [([message], [one]) for message, one in zip(messages, tried, strict=True)]
            else:
                yield DeliveryFailed(path, tried, failure, now, alone=alone)
                yield DeliveryWithheld(waiting[len(tried) :], now)
                return

    async def close(self) -> None:
        """Close every link."""
        for link in self._links.values():
            await link.close()

    async def _try(
        self, link: SdkSenderLink, pack: list[Sendable], tried: Sequence[SdkBacklogMessage]
    ) -> Judgement | None:
        self._steering.meter.moves += len(pack)
        size = sum(map(body_bytes, pack))
        self._steering.meter.moved_bytes += size
        self._steering.meter.received_bytes += size
        for one in tried:
            one.sent_at = self._steering.clock()
        try:
            with tracing.send_span(link.host, link.path, map(context_of, pack)):
                await link.send(pack, self._steering.policy.send_timeout)
        except Exception as error:  # noqa: BLE001 - after any error nothing is completed
            return self._steering.judge(error)
        return None

    def _link(self, path: str) -> SdkSenderLink:
        key = path.casefold()
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = SdkSenderLink(self._primary, path, self._steering.tasks, retry=False)
        return link
