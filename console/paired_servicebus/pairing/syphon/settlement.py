"""How the outcome of a backlog message reaches its queue: on its link while that lives, else by its lock token.

On a link each outcome is asked to be confirmed, and neighbours of equal outcome leave as one frame. Over `$management`
many lock tokens leave in one request, which holds for all of them or for none; one that is refused is taken apart
until it is known whose lock was lost. What an outcome means for a message is the pump's.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Final, TypeVar
from uuid import UUID

from paired_servicebus.core.errors import WireError, WireRequestError
from paired_servicebus.pairing.amqp_client import ReconnectingConnection
from paired_servicebus.pairing.amqp_client.entity_management import (
    Status,
    receive_deferred,
    renew_locks,
    update_disposition,
)
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon import outcomes
from paired_servicebus.pairing.syphon.backlog_message import BacklogMessage
from servicebus_amqp import ACCEPTED, Error, Modified, Rejected
from servicebus_amqp.encoding.delivery_states import DeliveryState
from servicebus_amqp.protocol.protocol_events import DispositionReceived

COMPLETED: Final = "completed"
DEFERRED: Final = "defered"
BURIED: Final = "suspended"
"""The service's own words for them in requests."""
AT_ONCE: Final = 250
"""Lock tokens in one request."""
REASON: Final = "Undeliverable"
_ASIDE: Final = Modified(undeliverable_here=True)
_DEAD_LETTER: Final = "com.microsoft:dead-letter"
_ONE_OF_THEM: Final = frozenset(
    {"com.microsoft:message-lock-lost", "com.microsoft:message-not-found", "amqp:not-found"}
)
"""Conditions that speak of one message of a request, and not of the queue."""

T = TypeVar("T")
OnSettled = Callable[[BacklogMessage, str, bool | None], None]
"""The parcel, what was said, and whether it holds; None where nobody can know."""


class Settlement:
    """Outcomes of one pump's messages; `on_settled` is told what became of each."""

    def __init__(
        self,
        steering: PairingRuntime,
        wire: ReconnectingConnection,
        path: str,
        on_settled: OnSettled,
        progress: outcomes.PumpProgress,
    ) -> None:
        progress.unconfirmed = self.leaving
        self._steering = steering
        self._wire = wire
        self._path = path
        self._on_settled = on_settled
        self._said: dict[int, tuple[BacklogMessage, str, str]] = {}
        self._by_token: defaultdict[tuple[str, str, bool], list[BacklogMessage]] = defaultdict(list)
        self._answers = 0
        self._seen = 0
        self._quiet_since = 0.0
        self._asked: set[int] = set()
        self._is_asking = False

    @property
    def is_busy(self) -> bool:
        """Whether something is said and not confirmed."""
        return bool(self._said) or bool(self._by_token) or self._is_asking

    def quiet(self, now: float) -> float:
        """For how many seconds nothing was confirmed, as far as whoever asks now and then can know, though something is
        said."""
        if not self._said or self._answers != self._seen:
            self._seen, self._quiet_since = self._answers, now
        return now - self._quiet_since

    def leaving(self) -> int:
        """How many messages are said to leave the queue, which has not confirmed it."""
        waiting = sum(len(parcels) for (how, *_), parcels in self._by_token.items() if how != DEFERRED)
        return waiting + sum(how != DEFERRED for _, how, _ in self._said.values())

    def numbers(self) -> set[int]:
        """The messages of which something is said and not confirmed."""
        waiting = {parcel.number for parcels in self._by_token.values() for parcel in parcels}
        return waiting | self._asked | {parcel.number for parcel, *_ in self._said.values()}

    def complete(self, parcels: list[BacklogMessage]) -> None:
        """Their destinations have them."""
        if len(parcels) > 1:
            parcels.sort(key=_by_delivery)  # neighbours leave together
        for parcel in parcels:
            self._say(parcel, COMPLETED, ACCEPTED)

    def defer(self, parcel: BacklogMessage) -> None:
        """Set it aside."""
        self._say(parcel, DEFERRED, _ASIDE)

    def bury(self, parcel: BacklogMessage, reason: str) -> None:
        """Dead-letter it."""
        info = {"DeadLetterReason": REASON, "DeadLetterErrorDescription": reason}
        self._say(parcel, BURIED, Rejected(error=Error(condition=_DEAD_LETTER, description=reason, info=info)), reason)

    def on_settled(self, event: DispositionReceived) -> None:
        """The queue's answer to an outcome on the link."""
        said = self._said.pop(event.delivery_id, None)
        if said is not None:
            self._answers += 1
            state = event.state
            is_done = state is ACCEPTED or not (isinstance(state, Rejected) and state.error is not None)
            self._on_settled(said[0], said[1], is_done)

    def lost(self) -> None:
        """The link is gone: what was not confirmed on it is said again, by lock token."""
        said, self._said = self._said, {}
        for parcel, how, reason in said.values():
            self._by_token[how, reason, True].append(parcel)
        if said:
            self._ask()

    def _say(self, parcel: BacklogMessage, how: str, state: DeliveryState, reason: str = "") -> None:
        self._steering.meter.settlements += 1
        receiver = parcel.receiver
        if receiver is None or not receiver.is_up:
            self._by_token[how, reason, False].append(parcel)
            self._ask()
            return
        self._said[parcel.delivery_id] = (parcel, how, reason)
        receiver.settle(parcel.delivery_id, state, settled=False)

    # -- by lock token ------------------------------------------------------------------------------------------------

    async def finish(self, within: float) -> None:
        """Say by lock token what is to be said so, for some seconds: once the pairing's tasks have ended nobody else
        does."""
        if self._by_token and not self._is_asking:
            self._is_asking = True
            try:
                await bounded(self._ask_for_all(), within, f"settling messages of {self._path}")
            except TimeoutError:
                return  # their locks end by themselves

    def _ask(self) -> None:
        if not self._is_asking:
            work = self._ask_for_all()
            self._is_asking = self._steering.tasks.start(work, name=f"settle messages of {self._path}") is not None

    async def _ask_for_all(self) -> None:
        try:
            while self._by_token:
                how, reason, is_again = kind = next(iter(self._by_token))
                parcels = self._by_token.pop(kind)
                portion, rest = parcels[:AT_ONCE], parcels[AT_ONCE:]
                if rest:
                    self._by_token[kind] = rest
                self._asked = {parcel.number for parcel in portion}
                try:
                    await self._settle(portion, how, reason, is_again=is_again)
                except asyncio.CancelledError:
                    self._by_token[how, reason, True] += portion  # it may have been heard, or not
                    raise
        finally:
            self._asked = set()
            self._is_asking = False

    async def _settle(self, parcels: list[BacklogMessage], how: str, reason: str, *, is_again: bool) -> None:
        """Settle these. Of those that were said before many are settled already, and only large parts are looked at:
        what stays locked comes again when its lock ends."""

        async def act(part: Sequence[BacklogMessage]) -> None:
            tokens = [parcel.token for parcel in part]
            status: Status = how  # type: ignore[assignment] # one of the three
            text = REASON if how == BURIED else ""
            await update_disposition(
                self._wire, self._path, tokens, status, reason=text, description=reason, timeout=outcomes.MANAGED
            )

        async for part, is_done, _ in _in_parts(parcels, act, least=AT_ONCE // 8 if is_again else 1):
            for parcel in part:
                self._on_settled(parcel, how, None if is_again and not is_done else is_done)


def _by_delivery(parcel: BacklogMessage) -> int:
    return parcel.delivery_id


async def received_again(
    wire: ReconnectingConnection, path: str, numbers: Sequence[int]
) -> AsyncIterator[tuple[bytes, UUID]]:
    """Deferred messages by number, with their lock tokens; those that are gone, or locked by others, are left out.

    Raises:
        WireError: it is not known which are there.
    """
    async for _, is_done, found in _in_parts(
        list(numbers), lambda part: receive_deferred(wire, path, part, timeout=outcomes.MANAGED), strict=True
    ):
        if is_done and found is not None:
            for one in found:
                yield one.payload, one.lock_token


async def renewed(
    wire: ReconnectingConnection, path: str, parcels: list[BacklogMessage]
) -> AsyncIterator[tuple[BacklogMessage, int]]:
    """Renew locks; the parcels whose lock still held, and until when it does, in milliseconds since 1970.

    Raises:
        WireError: the namespace did not do it.
    """
    for at in range(0, len(parcels), AT_ONCE):
        portion = parcels[at : at + AT_ONCE]

        async def act(part: Sequence[BacklogMessage]) -> list[int]:
            return await renew_locks(wire, path, [parcel.token for parcel in part], timeout=outcomes.MANAGED)

        async for part, is_done, ends in _in_parts(portion, act, strict=True):
            if is_done and ends is not None:
                for parcel, until in zip(part, ends, strict=False):
                    yield parcel, until


Item = TypeVar("Item")


async def _in_parts(
    items: list[Item], act: Callable[[Sequence[Item]], Awaitable[T]], *, strict: bool = False, least: int = 1
) -> AsyncIterator[tuple[list[Item], bool, T | None]]:
    """Do something with all items at once or, where one of them stands in the way, with the halves, and so on.

    Gives each part, whether it was done, and what came of it. strict: failures that are not of single items are raised.
    least: smaller parts are not looked for.
    """
    parts = [items]
    while parts:
        part = parts.pop()
        if not part:
            continue
        try:
            result = await act(part)
        except WireError as error:
            is_of_one = isinstance(error, WireRequestError) and error.condition in _ONE_OF_THEM
            if is_of_one and len(part) > least:
                half = len(part) // 2
                parts += [part[half:], part[:half]]
                continue
            if strict and not is_of_one:
                raise
            yield part, False, None
        else:
            yield part, True, result
