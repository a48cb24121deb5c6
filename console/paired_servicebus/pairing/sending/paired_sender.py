"""The sender under a pairing, with the names of the SDK's `ServiceBusSender`.

send_driver.py makes its attempts. The healthy path hands the caller's own object to the SDK.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from functools import partial
from itertools import zip_longest
from typing import Any, Final, Self

from azure.servicebus import ServiceBusMessageBatch

from paired_servicebus.core.errors import PairingClosedError
from paired_servicebus.core.failover.send_router import PRIMARY, Try
from paired_servicebus.core.model.verdict import LOST_LINKS, Verdict
from paired_servicebus.pairing.runtime import tracing
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sdk_internals import batch_messages
from paired_servicebus.pairing.sending.coalescer import Coalescer, PendingSend
from paired_servicebus.pairing.sending.pairing_links import PrimaryLinks
from paired_servicebus.pairing.sending.sdk_messages import (
    SMALL_BODY_BYTES,
    EncodedBatch,
    Messages,
    Sendable,
    batch_key,
    body_bytes,
    context_of,
    copy,
    encoded,
    fault_of,
    forget,
    has_own_id,
    id_of,
    is_scheduled,
    outgoing,
    raw_of,
    scheduled,
    seconds_to_live,
    too_large,
    with_context,
)
from paired_servicebus.pairing.sending.send_driver import Backlog, MessageForm, SendCall, SendDriver, check_timeout
from paired_servicebus.pairing.sending.sender_link import LinkUse, SdkSenderLink

SDK_FORM: Final[MessageForm[Sendable]] = MessageForm(
    id_of=id_of,
    body_bytes=body_bytes,
    is_scheduled=is_scheduled,
    seconds_to_live=seconds_to_live,
    fault_of=fault_of,
    encoded=encoded,
)


class PairedSender(SendDriver[Sendable]):
    """A sender to one entity of the primary namespace, or to the backlog while that entity is failed over.

    Made by the paired client, with the SDK's options for its link. Several callers may share it. Times are seconds.
    """

    def __init__(
        self, steering: PairingRuntime, primaries: PrimaryLinks, entity_name: str, backlog: Backlog, **options: Any
    ) -> None:
        super().__init__(steering, entity_name, backlog, SDK_FORM, retry_pauses=primaries.retry_pauses)
        self._primaries = primaries
        self._primary = primaries.link(entity_name, **options)
        self.fully_qualified_namespace = primaries.fully_qualified_namespace
        self._together = Coalescer(
            self._primary, steering.tasks, partial(steering.warn, entity_name), batch_key=batch_key
        )
        """The callers of this sender share one link: an SDK sender takes one send at a time."""
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
                if steering.judge(error).kind in LOST_LINKS:
                    return self  # the first send opens it, and counts what it meets
                if self._failed(PRIMARY, error).verdict is Verdict.CALLERS:
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
        batch = self._primary.batch(max_size_in_bytes or min(limit, 1024 * 1024))
        batch.address = (self.fully_qualified_namespace, self.entity_name)
        return batch

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

        Each has `messages`: what to send again, with the ids of this call. A message, an annotated message and a batch
        keep their ids anyway; a mapping has none, and is a new message when it is sent again.
        """
        if self._is_closed or timeout is not None:
            self._refuse_when_closed()
            check_timeout(timeout)
        messages = outgoing(message)
        if not messages:
            return
        whole = message if isinstance(message, ServiceBusMessageBatch) and messages == batch_messages(message) else None
        is_traced = tracing.is_on()
        if is_traced:
            contexts = message.contexts if isinstance(message, EncodedBatch) else ()
            messages = self._in_trace(messages, contexts)
        use = None if is_traced else self._straight()
        if use is not None:
            await self._go_straight(use, messages, whole, timeout, message)
        else:
            with self._steering.enter_call(self.entity_name, len(messages)):
                await self._deliver(self._call(messages, whole, timeout, given=message))
        forget(message)

    async def schedule_messages(
        self, messages: Any, schedule_time_utc: datetime, *, timeout: float | None = None
    ) -> list[int]:
        """Schedule messages; return the numbers for cancelling, negative for those in the backlog.

        Raises: as `send_messages`.
        """
        self._refuse_when_closed()
        check_timeout(timeout)
        singles = outgoing(messages)
        if not singles:
            return []
        with self._steering.enter_call(self.entity_name, len(singles)):
            numbers = await self._schedule(singles, schedule_time_utc, timeout, messages)
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
        self._refuse_parked(numbers)
        check_timeout(timeout)
        limit = timeout or self._steering.policy.send_timeout
        with self._steering.enter_call():
            await self._request(partial(self._cancel, numbers), limit)

    async def _cancel(self, numbers: list[int], timeout: float) -> None:
        await self._primary.call(lambda sender: sender.cancel_scheduled_messages(numbers, timeout=timeout), timeout)

    # -- one call's way ---------------------------------------------------------------------------------------

    def _straight(self) -> LinkUse | None:
        """Return the link to the primary if a send may use it directly, without a SendRouter; else None."""
        if self._together.under_way or not self._may_go_straight():
            return None
        return self._primary.claim_idle()

    async def _go_straight(
        self,
        use: LinkUse,
        messages: list[Sendable],
        whole: ServiceBusMessageBatch | None,
        timeout: float | None,
        given: Messages,
    ) -> None:
        """Send as the SDK does, and count. Handle a failure as that of any other attempt."""
        steering, in_flight = self._steering, self._steering.in_flight
        payload: Any = messages[0] if len(messages) == 1 else messages
        if whole is not None or has_own_id(given):
            payload = given
        limit = self._limit if timeout is None else min(timeout, self._limit)
        bodies = sum(map(body_bytes, messages))
        in_flight.count += 1
        try:
            try:
                use.begin(limit)
                with use:
                    await use.sender.send_messages(payload, timeout=limit)
            except Exception as error:  # noqa: BLE001 - it is judged, and raised if it is the caller's
                call = self._call(messages, whole, timeout, began=steering.clock() - use.age, given=given)
                failure = None if use.was_outdated(error) else error
            except asyncio.CancelledError:
                self._in_doubt(PRIMARY, messages, "cancelled by its caller")
                raise
            else:
                self._tally.times.add(use.age)
                self._accepted_straight(messages, whole, bodies)
                return
            await self._deliver(call, failure)
        finally:
            if in_flight.closing:
                in_flight.leave()
            else:
                in_flight.count -= 1

    def _in_trace(self, messages: list[Sendable], contexts: Sequence[tracing.Headers] = ()) -> list[Sendable]:
        """Return the messages with the caller's trace context; with `contexts` where these are known."""
        host, entity = self.fully_qualified_namespace, self.entity_name
        known = zip_longest(messages, contexts)
        return [with_context(message, host, entity, context) for message, context in known]

    async def _attempt(self, step: Try, call: SendCall[Sendable]) -> None:
        if not tracing.is_on() or (step.route == PRIMARY and call.schedule is not None):  # the SDK makes its spans
            await super()._attempt(step, call)
            return
        queue = None if step.route.queue is None else self._backlog[step.route.queue]
        host = self.fully_qualified_namespace if queue is None else queue.link.host
        with tracing.send_span(
            host, self.entity_name if queue is None else queue.link.path, map(context_of, call.left)
        ):
            await super()._attempt(step, call)

    async def _send_to_primary(self, call: SendCall[Sendable], timeout: float) -> None:
        left, whole = call.left, call.whole
        link = self._primaries.nearest(self._primary)
        if call.schedule is not None:
            await call.schedule(link, left, timeout)
            self._accepted(PRIMARY, left)
        elif link is self._primary and (link.is_busy or self._together.is_busy) and whole is None and len(left) == 1:
            await self._together.send(PendingSend(left, partial(self._accepted, PRIMARY)), timeout)
        else:
            await link.send(whole if whole is not None else left, timeout)
            self._accepted(PRIMARY, left)
        self._count_too_large(left, whole)

    def _count_too_large(self, accepted: Sequence[Sendable], whole: ServiceBusMessageBatch | None) -> None:
        lost = too_large(accepted, whole, self.entity_name, self._room)
        if lost:
            self._steering.tally(self.entity_name).too_large += lost

    async def _schedule(
        self, singles: list[Sendable], when: datetime, timeout: float | None, given: Messages
    ) -> list[int]:
        numbers: list[int] = []

        async def schedule(link: SdkSenderLink, left: list[Sendable], limit: float) -> None:
            payload: Any = singles[-len(left) :]
            if tracing.is_on():  # the SDK writes the context into the messages it gets
                payload = [copy(raw_of(single)) for single in payload]
            given = await link.call(lambda sender: sender.schedule_messages(payload, when, timeout=limit), limit)
            numbers.extend(given)

        timed = [scheduled(single, when) for single in singles]
        timed = self._in_trace(timed) if tracing.is_on() else timed
        await self._deliver(self._call(timed, None, timeout, schedule, given=given))
        parked = singles[: len(singles) - len(numbers)]
        return self._number_parked(parked) + numbers

    def _accepted_straight(
        self, messages: Sequence[Sendable], whole: ServiceBusMessageBatch | None, bodies: int
    ) -> None:
        count = len(messages)
        if not self._count_straight(count, bodies):
            self._accepted(PRIMARY, messages)
        if count > 1 or not 0 < bodies <= SMALL_BODY_BYTES:
            self._count_too_large(messages, whole)
