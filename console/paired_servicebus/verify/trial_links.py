"""Links of our own AMQP for an experiment: a send with its outcome, a receipt with a time limit."""

from __future__ import annotations

import asyncio
from typing import Final

from paired_servicebus.core.errors import WireError
from paired_servicebus.pairing.amqp_client import ReconnectingConnection, WireReceiver, WireSender, failure_of
from servicebus_amqp.encoding.messaging_types import ACCEPTED, DeliveryState
from servicebus_amqp.protocol.protocol_events import DeliveryReceived, DispositionReceived

ANSWER_SECONDS: Final = 20.0
"""Seconds for an outcome, or the confirmation of a settlement."""


class _TrialLink:
    """The common part: the end of the link as a future."""

    def __init__(self) -> None:
        self.lost: asyncio.Future[WireError] = asyncio.get_running_loop().create_future()

    def on_lost(self, error: WireError) -> None:
        if not self.lost.done():
            self.lost.set_result(error)


class TrialSender(_TrialLink):
    """Sends encoded messages, each with its outcome."""

    link: WireSender

    def __init__(self) -> None:
        super().__init__()
        self._pending: dict[bytes, asyncio.Future[WireError | None]] = {}
        self._sent = 0
        self._path = ""

    @classmethod
    async def attach(cls, wire: ReconnectingConnection, path: str) -> TrialSender:
        """Attach a sender. Raises WireError."""
        sender = cls()
        sender._path = path
        sender.link = await wire.sender(path, on_outcome=sender._on_outcome, on_lost=sender.on_lost)
        return sender

    async def offer(self, payload: bytes, *, message_format: int = 0) -> WireError | None:
        """Send one message; return the reason why it was not accepted. Raises WireError, TimeoutError."""
        self._sent += 1
        tag = str(self._sent).encode()
        outcome: asyncio.Future[WireError | None] = asyncio.get_running_loop().create_future()
        self._pending[tag] = outcome
        self.link.send(payload, tag, message_format=message_format)
        await asyncio.wait((outcome, self.lost), timeout=ANSWER_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        if outcome.done():
            return outcome.result()
        if self.lost.done():
            return self.lost.result()
        raise TimeoutError(f"a send was not answered within {ANSWER_SECONDS:g} s")

    async def send(self, *payloads: bytes) -> None:
        """Send messages that have to be accepted. Raises WireError, TimeoutError."""
        for payload in payloads:
            refused = await self.offer(payload)
            if refused is not None:
                raise refused

    def _on_outcome(self, event: DispositionReceived) -> None:
        outcome = self._pending.pop(event.tag, None)
        if outcome is not None and not outcome.done():
            outcome.set_result(failure_of(event.state, self._path))


class TrialReceiver(_TrialLink):
    """Receives with peek-lock, one credit for each requested message."""

    link: WireReceiver

    def __init__(self) -> None:
        super().__init__()
        self._arrived: asyncio.Queue[DeliveryReceived] = asyncio.Queue()
        self._settling: dict[int, asyncio.Future[DeliveryState | None]] = {}

    @classmethod
    async def attach(cls, wire: ReconnectingConnection, path: str) -> TrialReceiver:
        """Attach a receiver without credit. Raises WireError."""
        receiver = cls()
        receiver.link = await wire.receiver(
            path,
            on_delivery=receiver._arrived.put_nowait,
            on_lost=receiver.on_lost,
            on_settled=receiver._on_settled,
        )
        return receiver

    async def receive(self, count: int, seconds: float = ANSWER_SECONDS) -> list[DeliveryReceived]:
        """Return up to `count` messages that arrive within some seconds."""
        self.link.grant(count)
        found: list[DeliveryReceived] = []
        end = asyncio.get_running_loop().time() + seconds
        while len(found) < count and (left := end - asyncio.get_running_loop().time()) > 0:
            try:
                found.append(await asyncio.wait_for(self._arrived.get(), left))
            except TimeoutError:
                break
        return found

    async def one(self, seconds: float = ANSWER_SECONDS) -> DeliveryReceived:
        """Return the next message. Raises TimeoutError."""
        found = await self.receive(1, seconds)
        if not found:
            raise TimeoutError(f"no message arrived within {seconds:g} s")
        return found[0]

    async def settle(self, delivery: DeliveryReceived, state: DeliveryState = ACCEPTED) -> None:
        """Settle a message, and wait for the confirmation. Raises TimeoutError."""
        confirmed = self._settling[delivery.delivery_id] = asyncio.get_running_loop().create_future()
        self.link.settle(delivery.delivery_id, state, settled=False)
        await asyncio.wait((confirmed,), timeout=ANSWER_SECONDS)
        if not confirmed.done():
            raise TimeoutError(f"a settlement was not confirmed within {ANSWER_SECONDS:g} s")

    def _on_settled(self, event: DispositionReceived) -> None:
        confirmed = self._settling.pop(event.delivery_id, None)
        if confirmed is not None and not confirmed.done():
            confirmed.set_result(event.state)
