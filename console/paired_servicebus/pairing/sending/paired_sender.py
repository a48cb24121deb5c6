"""The sender under a pairing, with the names of the SDK's `ServiceBusSender`.

paired_servicebus.core.failover.send_router decides where each attempt goes. This module makes the attempts, reports
their outcomes and writes the receipts. The healthy path hands the caller's own object to the SDK.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from math import inf
from typing import Any, Self

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import MessageSizeExceededError

from paired_servicebus.core.errors import (
    BacklogMessageSizeError,
    PairedClientError,
    PairingClosedError,
    ScheduledInBacklogError,
)
from paired_servicebus.core.failover.send_router import PRIMARY, Route, SenderMemory, SendRouter, Try, Wait
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.verdict import DOUBTFUL, Judgement, Verdict, at_backlog
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sdk_internals import batch_messages
from paired_servicebus.pairing.sending.backlog_fit import SMALL_BODY_BYTES, refuse_too_large, too_large
from paired_servicebus.pairing.sending.coalescer import Coalescer, PendingSend
from paired_servicebus.pairing.sending.primary_links import PrimaryLinks
from paired_servicebus.pairing.sending.sdk_messages import (
    Messages,
    Sendable,
    batch_key,
    body_bytes,
    forget,
    id_of,
    outgoing,
    park,
    scheduled,
)
from paired_servicebus.pairing.sending.send_call import Schedule, SendCall, count_refusal
from paired_servicebus.pairing.sending.sender_link import LinkUse, SdkSenderLink, size_of
from paired_servicebus.pairing.sending.shared_link import ConnectionCutError

Backlog = Mapping[int, Coalescer]


class PairedSender:
    """A sender to one entity of the primary namespace, or to the backlog while that entity is failed over.

    Made by the paired client, with the SDK's options for its link. Several callers may share it. Times are seconds.
    """

    def __init__(
        self, steering: PairingRuntime, primaries: PrimaryLinks, entity_name: str, backlog: Backlog, **options: Any
    ) -> None:
        self._steering = steering
        self._primaries = primaries
        self._primary = primaries.link(entity_name, **options)
        self.entity_name = entity_name
        self.fully_qualified_namespace = primaries.fully_qualified_namespace
        self._together = Coalescer(
            self._primary, steering.tasks, partial(steering.warn, entity_name), batch_key=batch_key
        )
        """The callers of this sender share one link: an SDK sender takes one send at a time."""
        self._backlog = backlog
        self._memory = SenderMemory()
        self._key = entity_name.casefold()
        self._tally = steering.tally(entity_name)
        self._limit = steering.policy.send_timeout
        self._numbers: dict[int, str] = {}
        """message_ids of messages scheduled into the backlog, by the number given to the caller."""
        self._is_closed = False

    @property
    def client_identifier(self) -> str:
        """The identifier of the sender's link in the primary's errors: the caller's, or the present link's."""
        return self._primary.client_identifier

    def __str__(self) -> str:
        return f"paired sender to {self.entity_name}, client id {self.client_identifier}"

    async def __aenter__(self) -> Self:
        """Open the link to the primary; a failure counts as a send's and does not raise."""
        self._refuse_when_closed()
        steering = self._steering
        if not steering.machine.entity(self.entity_name, at=steering.clock()).diverting:
            try:
                await self._primary.open(steering.policy.send_timeout)
            except Exception as error:
                if self._failed(PRIMARY, error, messages=0).verdict is Verdict.CALLERS:
                    raise
        return self

    async def __aexit__(self, *reason: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Detach from the primary. The backlog's links belong to the pairing and stay open."""
        self._is_closed = True
        await self._primary.close()

    def _refuse_when_closed(self) -> None:
        if self._is_closed:
            raise PairingClosedError(
                f"the sender for {self.entity_name} is closed; get another one from the paired client"
            )

    async def create_message_batch(self, max_size_in_bytes: int | None = None) -> ServiceBusMessageBatch:
        """Return a batch of the entity's size; of the Standard tier's while the primary is unreachable."""
        limit = self._primary.limit()
        if max_size_in_bytes is not None and max_size_in_bytes > limit:
            raise ValueError(f"max_size_in_bytes is {max_size_in_bytes}; {self.entity_name} takes at most {limit}")
        return self._primary.batch(max_size_in_bytes or min(limit, 1024 * 1024))

    async def send_messages(self, message: Messages, *, timeout: float | None = None) -> None:
        """Send a message, a list of them, or a batch; on return, a namespace has accepted them.

        Args:
            message: a value that the SDK's sender accepts. It is not changed, and stays the caller's when an error is
                raised.
            timeout: for the whole call; None: `send_timeout` at the primary, and then twice that at the backlog.

        Raises:
            ReservedPropertyError: before anything is sent.
            BacklogMessageSizeError, BacklogUnavailableError: while failed over.
            PairingClosedError: this sender, or the pairing, was closed.
            ServiceBusError, TimeoutError: the failure of the attempt on the primary. After a refusal, such as "server
                busy", no message of the call has arrived.
        """
        if self._is_closed or timeout is not None:
            self._refuse_when_closed()
            _check(timeout)
        messages = outgoing(message)
        if not messages:
            return
        whole = message if isinstance(message, ServiceBusMessageBatch) and messages == batch_messages(message) else None
        use = self._straight()
        if use is not None:
            await self._go_straight(use, messages, whole, timeout)
        else:
            with self._steering.enter_call(self.entity_name, len(messages)):
                await self._deliver(self._call(messages, whole, timeout))
        if messages[0] is not message:
            forget(message)

    async def schedule_messages(
        self, messages: Any, schedule_time_utc: datetime, *, timeout: float | None = None
    ) -> list[int]:
        """Schedule messages; return the numbers for cancelling, negative for those in the backlog.

        Raises: as `send_messages`.
        """
        self._refuse_when_closed()
        _check(timeout)
        singles = outgoing(messages)
        if not singles:
            return []
        with self._steering.enter_call(self.entity_name, len(singles)):
            numbers = await self._schedule(singles, schedule_time_utc, timeout)
        forget(messages)
        return numbers

    async def cancel_scheduled_messages(
        self, sequence_numbers: int | list[int], *, timeout: float | None = None
    ) -> None:
        """Cancel scheduled messages by the numbers the primary gave.

        Raises:
            ScheduledInBacklogError: a number is negative: its message is, or was, in the backlog.
        """
        self._refuse_when_closed()
        numbers = [sequence_numbers] if isinstance(sequence_numbers, int) else list(sequence_numbers)
        for number in numbers:
            if number < 0:
                name = self._numbers.get(number, "one that another sender scheduled")
                raise ScheduledInBacklogError(
                    f"message {name!r} was scheduled while {self.entity_name} was failed over; it goes through the "
                    f"backlog and cannot be cancelled by number: let its receiver drop it by its message_id"
                )
        _check(timeout)
        limit = timeout or self._steering.policy.send_timeout
        with self._steering.enter_call():
            await self._primary.call(lambda sender: sender.cancel_scheduled_messages(numbers, timeout=limit), limit)

    # -- one call's way ---------------------------------------------------------------------------------------

    def _straight(self) -> LinkUse | None:
        """Return the link to the primary if a send may use it directly, without a SendRouter; else None."""
        steering = self._steering
        if (
            self._key not in steering.settled
            or self._memory.busy
            or self._together.under_way
            or steering.in_flight.closing
        ):
            return None
        return self._primary.claim_idle()

    async def _go_straight(
        self, use: LinkUse, messages: list[Sendable], whole: ServiceBusMessageBatch | None, timeout: float | None
    ) -> None:
        """Send as the SDK does, and count. Handle a failure as that of any other attempt."""
        steering, in_flight = self._steering, self._steering.in_flight
        payload: Any = whole if whole is not None else messages[0] if len(messages) == 1 else messages
        limit = self._limit if timeout is None else min(timeout, self._limit)
        bodies = sum(map(body_bytes, messages))
        in_flight.count += 1
        try:
            try:
                use.begin(limit)
                with use:
                    await use.sender.send_messages(payload, timeout=limit)
            except Exception as error:  # noqa: BLE001 - it is judged, and raised if it is the caller's
                call = self._call(messages, whole, timeout, began=steering.clock() - use.age)
                failure = None if use.was_cut(error) else error
            except asyncio.CancelledError:
                self._in_doubt(PRIMARY, messages, "cancelled by its caller")
                raise
            else:
                self._accepted_straight(messages, whole, bodies)
                return
            await self._deliver(call, failure)
        finally:
            if in_flight.closing:
                in_flight.leave()
            else:
                in_flight.count -= 1

    def _call(
        self,
        messages: Sequence[Sendable],
        whole: ServiceBusMessageBatch | None,
        timeout: float | None,
        schedule: Schedule | None = None,
        *,
        began: float | None = None,
    ) -> SendCall:
        at = self._steering.clock() if began is None else began
        router = SendRouter(self._memory, self._steering.policy, at=at, timeout=timeout)
        return SendCall(self.entity_name, messages, list(messages), whole, router, schedule)

    async def _deliver(self, call: SendCall, failure: Exception | None = None) -> None:
        """Complete a call; count one that ends in an error, and add the pairing's knowledge to the error.

        failure: of the first attempt at the primary; None: it was not made.
        """
        try:
            if failure is not None:
                self._meet(call, PRIMARY, failure)
            await self._travel(call)
        except Exception as error:
            count_refusal(error, call, self._steering)
            raise

    async def _travel(self, call: SendCall) -> None:
        """Try, wait and divert as the router decides until the messages are accepted or it gives up."""
        steering = self._steering
        machine = steering.machine
        while True:
            steering.refuse_when_ended(in_doubt=call.in_doubt)
            now = steering.clock()
            entity = machine.entity(self.entity_name, at=now)
            step = call.router.next(entity, machine.rotation, at=now, draw=steering.draw())
            if isinstance(step, Wait):
                await steering.change(step.until)
            elif isinstance(step, Try):
                try:
                    await self._attempt(step, call.left, call.whole, call.schedule)
                except Exception as error:  # noqa: BLE001 - it is judged, and raised if it is the caller's
                    self._meet(call, step.route, error)
                except asyncio.CancelledError:
                    self._in_doubt(step.route, call.left, "cancelled by its caller")
                    raise
                else:
                    return
            else:
                call.gave_up = step
                given_up = call.give_up_error(step, steering.judge, steering.policy.throttle_wait)
                self._refused(call.left, call.doubt, str(given_up))
                raise call.final_error(given_up, steering.judge) from call.failure

    def _meet(self, call: SendCall, route: Route, error: Exception) -> None:
        """Handle a failed attempt on `route`. Raises the caller's error where the call ends."""
        steering, left = self._steering, call.left
        if isinstance(error, ConnectionCutError) and not call.was_cut:  # no failure of this queue, which gets it again
            call.was_cut, call.doubt, call.failure = True, error, error
            self._in_doubt(route, left, steering.judge(error).reason)
            return
        judgement = self._failed(route, error, messages=len(left), ids=left)
        if isinstance(steering.ended, PairedClientError):
            steering.refuse_when_ended()
        call.doubt = error if _is_doubtful(judgement, error) else call.doubt
        verdict = judgement.verdict if route.queue is None else at_backlog(judgement)
        if verdict is Verdict.CALLERS:
            call.failure = error
            self._refused(left, call.doubt, judgement.reason)
            ended = call.final_error(error, steering.judge)
            if ended is error:
                raise error
            raise ended from error
        call.router.ended(route, verdict, at=steering.clock())
        call.failure = error
        call.whole = call.whole if call.is_whole else None

    async def _attempt(
        self, step: Try, left: list[Sendable], whole: ServiceBusMessageBatch | None, schedule: Schedule | None
    ) -> None:
        if step.route.queue is not None:
            await self._divert(step.route, left, step.timeout)
            return
        link = self._primaries.nearest(self._primary)
        if schedule is not None:
            await schedule(link, left, step.timeout)
            self._accepted(PRIMARY, left)
        elif link is self._primary and (link.is_busy or self._together.is_busy) and whole is None and len(left) == 1:
            await self._together.send(PendingSend(left, partial(self._accepted, PRIMARY)), step.timeout)
        else:
            await link.send(whole if whole is not None else left, step.timeout)
            self._accepted(PRIMARY, left)
        self._count_too_large(left, whole)

    def _count_too_large(
        self, accepted: Sequence[Sendable], whole: ServiceBusMessageBatch | None, bodies: int | None = None
    ) -> None:
        lost = too_large(accepted, whole, self.entity_name, self._room, bodies=bodies)
        if lost:
            self._steering.tally(self.entity_name).too_large += lost

    def _room(self) -> int:
        """Return the bytes of the largest message that every backlog queue accepts."""
        return min(queue.link.limit() for queue in self._backlog.values())

    async def _divert(self, route: Route, left: list[Sendable], timeout: float) -> None:
        """Park the remaining messages, in as many batches as they need; accepted ones leave `left`."""
        assert route.queue is not None
        queue = self._backlog[route.queue]
        limit = queue.link.limit()
        parked: list[Sendable] = [park(message, self.entity_name) for message in left]
        for message in parked:
            refuse_too_large(message, limit)
        pending = PendingSend(parked, on_accepted=lambda accepted: self._accepted(route, accepted))
        try:
            await queue.send(pending, timeout)
        except MessageSizeExceededError as error:
            culprit = parked[pending.accepted]
            raise BacklogMessageSizeError(size=size_of(culprit), limit=limit, message_id=id_of(culprit)) from error
        finally:
            del left[: pending.accepted]

    async def _schedule(self, singles: list[Sendable], when: datetime, timeout: float | None) -> list[int]:
        numbers: list[int] = []

        async def schedule(link: SdkSenderLink, left: list[Sendable], limit: float) -> None:
            payload: Any = singles[-len(left) :]
            given = await link.call(lambda sender: sender.schedule_messages(payload, when, timeout=limit), limit)
            numbers.extend(given)

        await self._deliver(self._call([scheduled(single, when) for single in singles], None, timeout, schedule))
        parked = singles[: len(singles) - len(numbers)]
        first = -len(self._numbers) - 1
        negative = [first - index for index in range(len(parked))]
        self._numbers.update(zip(negative, map(id_of, parked), strict=True))
        return negative + numbers

    # -- what came of it --------------------------------------------------------------------------------------

    def _accepted(self, route: Route, messages: Sequence[Sendable]) -> None:
        steering, name = self._steering, self.entity_name
        now = steering.clock()
        steering.meter.carried(route.queue, sum(map(body_bytes, messages)))
        if route.queue is not None:
            for message in messages:
                steering.announce(e.Diverted(at=now, entity=name, message_id=id_of(message), queue=route.queue))
        elif steering.policy.journal == "all":
            for message in messages:
                steering.announce(e.Delivered(at=now, entity=name, message_id=id_of(message)))
        steering.tell(e.SendAccepted(at=now, entity=name, queue=route.queue, messages=len(messages)))

    def _accepted_straight(
        self, messages: Sequence[Sendable], whole: ServiceBusMessageBatch | None, bodies: int
    ) -> None:
        """Count accepted messages whose acceptance needs no event and no receipt."""
        steering, tally, count = self._steering, self._tally, len(messages)
        sends = tally.sent
        if sends is None or self._key not in steering.settled or tally.last_route.queue is not None:
            self._accepted(PRIMARY, messages)  # it changed in the meantime, or has not changed yet
        else:
            meter = steering.meter
            meter.sends += count
            meter.sent_bytes += bodies
            sends.accepted += count
            sends.new_accepted += count
        if count > 1 or not 0 < bodies <= SMALL_BODY_BYTES:
            self._count_too_large(messages, whole, bodies)

    def _failed(self, route: Route, error: BaseException, *, messages: int, ids: Sequence[Sendable] = ()) -> Judgement:
        steering, name = self._steering, self.entity_name
        judgement = steering.judge(error)
        now = steering.clock()
        if _is_doubtful(judgement, error):
            self._in_doubt(route, ids, judgement.reason)
        steering.tell(
            e.SendFailed(
                at=now,
                entity=name,
                queue=route.queue,
                failure=judgement.kind,
                reason=judgement.reason,
                messages=messages,
            )
        )
        return judgement

    def _in_doubt(self, route: Route, messages: Sequence[Sendable], reason: str) -> None:
        steering, name, where = self._steering, self.entity_name, str(route)
        now = steering.clock()
        for message in messages:
            steering.announce(e.InDoubt(at=now, entity=name, message_id=id_of(message), route=where, reason=reason))

    def _refused(self, messages: Sequence[Sendable], doubt: BaseException | None, reason: str) -> None:
        """Write receipts for messages that certainly did not arrive."""
        if doubt is not None or self._steering.policy.journal != "all":
            return
        name, now = self.entity_name, self._steering.clock()
        for message in messages:
            self._steering.announce(e.Refused(at=now, entity=name, message_id=id_of(message), reason=reason))


def _check(timeout: float | None) -> None:
    if timeout is not None and not 0 < timeout < inf:
        raise ValueError(f"timeout is {timeout}; it must be a finite number greater than 0, in seconds")


def _is_doubtful(judgement: Judgement, error: BaseException) -> bool:
    """Return whether sent messages may have arrived despite the failure."""
    return judgement.kind in DOUBTFUL or (isinstance(error, PairingClosedError) and error.in_doubt)
