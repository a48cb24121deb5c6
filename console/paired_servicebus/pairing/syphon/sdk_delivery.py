"""Delivers through the SDK: one link and one try for each destination.

Takes messages of one destination, in order, and reports the outcome of each run of them. The core's circuit decides
whether a destination may be tried, and gets every failure and success.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from azure.servicebus import ServiceBusReceivedMessage
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.model.envelope import EnvelopeProperties
from paired_servicebus.core.model.verdict import Judgement
from paired_servicebus.core.pump.destination_circuits import FATES, Fate
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.sdk_messages import Sendable, body_bytes, unpark
from paired_servicebus.pairing.sending.sender_link import SdkSenderLink, packed
from paired_servicebus.pairing.syphon.outcomes import pending_ruling, record_failure, record_success


@dataclass(frozen=True, slots=True)
class Load:
    """A backlog message and its envelope's content."""

    message: ServiceBusReceivedMessage
    enclosed: EnvelopeProperties


@dataclass(frozen=True, slots=True)
class DeliveryOutcome:
    """The outcome of some messages: accepted, undeliverable for good, or neither: they wait."""

    load: Sequence[Load]
    accepted: bool
    undeliverable: bool = False
    reason: str = ""


class SdkDelivery:
    """Delivers to the primary namespace for all pumps of one syphon."""

    def __init__(self, steering: PairingRuntime, primary: ServiceBusClient) -> None:
        self._steering = steering
        self._primary = primary
        self._links: dict[str, SdkSenderLink] = {}

    async def deliver(self, path: str, load: Sequence[Load]) -> AsyncIterator[DeliveryOutcome]:
        """Send the messages in order, in as few batches as possible, until the destination fails."""
        link = self._link(path)
        messages: list[Sendable] = [unpark(one.message.raw_amqp_message, one.enclosed) for one in load]
        done = 0
        for pack in packed(messages, link.limit()):
            if not self._steering.machine.may_deliver(path, at=self._steering.clock()):  # another pump failed there
                ruling = pending_ruling(self._steering, path)
                yield DeliveryOutcome(load[done:], False, undeliverable=ruling.undeliverable, reason=ruling.reason)
                return
            part = load[done : done + len(pack)]
            failure = await self._try(link, pack)
            if failure is not None and _messages_fault(failure) and len(pack) > 1:
                # A batch may be refused for one message, or for its mixture: try each message separately.
                for message, one in zip(pack, part, strict=True):
                    failure = await self._try(link, [message])
                    if failure is not None and not _messages_fault(failure):
                        break
                    yield self._outcome(path, [one], failure)
                    done += 1
                else:
                    continue
            elif failure is None or _messages_fault(failure):
                yield self._outcome(path, part, failure)
                done += len(pack)
                continue
            yield self._outcome(path, load[done:], failure)
            return

    async def close(self) -> None:
        """Close every link."""
        for link in self._links.values():
            await link.close()

    async def _try(self, link: SdkSenderLink, pack: list[Sendable]) -> Judgement | None:
        self._steering.meter.moves += len(pack)
        size = sum(map(body_bytes, pack))
        self._steering.meter.moved_bytes += size
        self._steering.meter.received_bytes += size
        try:
            await link.send(pack, self._steering.policy.send_timeout)
        except Exception as error:  # noqa: BLE001 - after any error nothing is completed
            return self._steering.judge(error)
        return None

    def _outcome(self, path: str, load: Sequence[Load], failure: Judgement | None) -> DeliveryOutcome:
        if failure is None:
            record_success(self._steering, path, self._steering.clock())
            return DeliveryOutcome(load, accepted=True)
        ruling = record_failure(self._steering, path, failure)
        return DeliveryOutcome(load, False, undeliverable=ruling.undeliverable, reason=ruling.reason)

    def _link(self, path: str) -> SdkSenderLink:
        key = path.casefold()
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = SdkSenderLink(self._primary, path, self._steering.tasks)
        return link


def _messages_fault(failure: Judgement) -> bool:
    """Return whether the destination will never accept this message; other failures are the destination's."""
    return FATES[failure.kind] is Fate.DEAD_LETTERED
