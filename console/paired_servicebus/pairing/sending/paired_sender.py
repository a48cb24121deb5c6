"""The calls of a paired sender, and the sender with the names of the SDK's `ServiceBusSender`.

paired_servicebus.core.failover.send_router decides where each attempt goes. A `SendCall` has one call's messages, its
attempts so far, and its final error. `SendDriver` makes the attempts, reports their outcomes and writes the receipts,
whatever the form of the messages. Its subclasses have the application's side and the attempt at the primary:
`PairedSender` for the SDK's messages, whose healthy path hands the caller's own object to the SDK, and `EncodedSender`
for bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import islice, zip_longest
from math import inf
from typing import Any, Final, Generic, Protocol, Self, TypeVar

from azure.core.exceptions import AzureError
from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import MessageSizeExceededError, ServiceBusServerBusyError

from paired_servicebus.core.accounting.refused_calls import closed_reason
from paired_servicebus.core.errors import (
    BacklogMessageSizeError,
    BacklogUnavailableError,
    ImpossibleMessageError,
    PairedClientError,
    PairedError,
    PairingClosedError,
    ScheduledInBacklogError,
)
from paired_servicebus.core.failover.send_router import (
    PRIMARY,
    RETRY_PAUSES,
    GiveUp,
    Route,
    SenderMemory,
    SendRouter,
    Try,
    Wait,
)
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.verdict import (
    DOUBTFUL,
    LOST_LINKS,
    FailureKind,
    Judge,
    Judgement,
    Verdict,
    at_backlog,
)
from paired_servicebus.core.operator.why_line import why
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pairing.envelope_codec import EncodedMessage, fault_of, park
from paired_servicebus.pairing.runtime import tracing
from paired_servicebus.pairing.runtime.deadlines import overlapped
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sdk_internals import batch_messages, send_untraced
from paired_servicebus.pairing.sending.amqp_link import ConnectionCutError
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
from paired_servicebus.pairing.sending.sender_link import Coalescer, PendingSend, SdkSenderLink

NOTE: Final = "paired namespaces: "
"""The prefix of notes on errors."""
NOTE_LENGTH: Final = 400
UNTRACED_SECONDS: Final = 1.0
"""Seconds within which a healthy send does not ask again whether there is a tracer."""
REPEAT_NOTE: Final = (
    f"{NOTE}what was sent keeps no id between two calls (a mapping, or an iterator): a repeat is a new message; send "
    "error.messages again, which have the ids of this call"
)

M = TypeVar("M")
Schedule = Callable[[Any, list[Any], float], Awaitable[None]]
"""One attempt to schedule at the primary: the link, the remaining messages, seconds."""


class OpenTransaction(Protocol):
    """A transaction of a gateway's client, as a call uses it."""

    def check(self) -> None:
        """Raise AmqpRefusal if it accepts no more acts."""


@dataclass(slots=True)
class SendCall(Generic[M]):
    """A call under way.

    left: messages that no namespace has accepted yet. whole: the caller's batch of all messages, if any. schedule:
    replaces the send at the primary. began: seconds since the epoch. failure: the latest. gave_up: why the router gave
    up. doubt: the latest failure after which messages may have arrived. was_cut: whether the shared connection to the
    backlog ended during it.
    """

    entity: str
    messages: Sequence[M]
    left: list[M]
    whole: Any
    router: SendRouter
    schedule: Schedule | None = None
    began: float = 0.0
    failure: BaseException | None = None
    gave_up: GiveUp | None = None
    doubt: BaseException | None = None
    was_cut: bool = False
    lost_link: bool = False
    """Whether the latest attempt lost its link, or a fresh link after one was refused for an internal error."""
    unexplained: tuple[Route, Judgement] | None = None
    """A backlog queue's internal error, which counts unless another queue answers the same."""
    given: Any = None
    """The caller's argument; None: it has no objects of the SDK."""
    transaction: OpenTransaction | None = None
    """That of a gateway's client: an act, accepted or held until the commit. It leaves no message in doubt."""

    @property
    def uncertain(self) -> Sequence[M]:
        """The messages that an attempt without an answer leaves in doubt."""
        return self.left if self.transaction is None else ()

    @property
    def is_whole(self) -> bool:
        """Whether none of its messages was accepted yet."""
        return len(self.left) == len(self.messages)

    @property
    def in_doubt(self) -> bool:
        """Whether messages of it have arrived, or may have."""
        return self.doubt is not None or not self.is_whole

    def final_error(self, error: BaseException, judge: Judge) -> BaseException:
        """Return the error to raise: another one if a refusal would hide that messages may have arrived."""
        if isinstance(error, BacklogUnavailableError):
            return error
        if not self.is_whole:
            return BacklogUnavailableError(f"{self._parts()}; last: {judge(error).reason}. Send those again")
        return self.doubt or error

    def give_up_error(self, step: GiveUp, judge: Judge, throttle_wait: float) -> BaseException:
        """Return the error of a call on which the router gives up; the SDK's own where one is known."""
        if step is GiveUp.FAILED and self.failure is not None:
            return self.failure
        if step is GiveUp.BUSY:
            return ServiceBusServerBusyError(
                message=f"{self.entity} is throttled: its namespace is busy, and nothing is sent for "
                f"{throttle_wait:g} s. Send again later; partitioning makes it less likely."
            )
        why = f"; it waited {self.router.waited:.1f} s for another call's try" if self.router.waited else ""
        why += f"; last: {judge(self.failure).reason}" if self.failure is not None else ""
        owned = "You still own it" if self.is_whole else self._parts()
        return BacklogUnavailableError(
            f"{self.entity} is failed over and no backlog queue of the secondary namespace took the message"
            f"{why}. {owned}: send it again later"
        )

    def _parts(self) -> str:
        all_of, left = len(self.messages), len(self.left)
        return f"{all_of - left} of {all_of} messages for {self.entity} were parked, {left} were not"


def count_refusal(error: Exception, call: SendCall[Any], steering: PairingRuntime) -> Exception:
    """Count a call that ends in an error; return the error to raise, with the pairing's knowledge.

    Its `messages` are those to send again. An argument that the SDK refused before anything was sent is the
    application's mistake, and is not counted.
    """
    if hasattr(error, "messages"):  # callers that sent together get the same error
        error = _copied(error)
    if call.given is not None:
        error.messages = list(call.left)  # type: ignore[attr-defined]
    reason = _refusal(error, call, steering.judge)
    if reason:
        steering.refuse(call.entity, len(call.left), reason)
        steering.tally(call.entity).times.add(steering.clock() - call.began)
        _add_note(error, call, steering)
        if _has_no_ids(call.given):
            error.add_note(REPEAT_NOTE)
    call.failure = call.doubt = None  # break the reference cycle of an error and its call
    return error


def _copied(error: Exception) -> Exception:
    """Return a copy of an error that another call has raised."""
    copied: Exception = type(error).__new__(type(error), *error.args)
    copied.args = error.args
    vars(copied).update(vars(error))
    copied.__notes__ = []
    copied.__cause__, copied.__suppress_context__ = error.__cause__, error.__suppress_context__
    return copied


def _has_no_ids(given: object) -> bool:
    """Return whether a caller's argument is sent with new ids each time."""
    if isinstance(given, Sequence):
        return any(isinstance(single, Mapping) for single in given)
    return isinstance(given, Mapping | Iterator)


def _refusal(error: Exception, call: SendCall[Any], judge: Judge) -> str:
    """Return a short reason why the call ends; empty for an application's mistake."""
    if isinstance(error, PairingClosedError | PairedClientError):
        return closed_reason(error)
    if call.gave_up is not None and call.gave_up is not GiveUp.FAILED:
        return str(call.gave_up)
    cause = error if call.failure is None else call.failure
    if isinstance(cause, BacklogMessageSizeError):
        return str(FailureKind.TOO_LARGE)
    if isinstance(cause, ValueError | TypeError) and not isinstance(cause, AzureError | PairedError):
        return ""
    kind = judge(cause).kind
    return "" if kind in _OF_ONE_MESSAGE else str(kind)


_OF_ONE_MESSAGE: Final = (FailureKind.ARGUMENT, FailureKind.TOO_LARGE)
"""Failures that a namespace answers to a wrong message: no trouble of the entity."""


def _add_note(error: Exception, call: SendCall[Any], steering: PairingRuntime) -> None:
    """Add a note once: callers that sent together may get the same error."""
    if any(note.startswith(NOTE) for note in getattr(error, "__notes__", ())):
        return
    entity = steering.machine.entity(call.entity, at=steering.clock())
    judged = f"the latest attempt ended with {steering.judge(call.failure).reason}; " if call.failure else ""
    text = f"{NOTE}{judged}{entity.path} is {entity.state}: {why(entity)}"
    error.add_note(one_line(masked(text), most=NOTE_LENGTH))


T = TypeVar("T")
Backlog = Mapping[int, Coalescer]


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageForm(Generic[M]):
    """What a call needs to know of messages of one form.

    is_scheduled: whether a message names a time for receivers to get it.
    seconds_to_live: returns a message's own time to live; None: it has its entity's.
    encoded: returns the message in its bytes, for the backlog.
    """

    id_of: Callable[[M], str]
    body_bytes: Callable[[M], int]
    is_scheduled: Callable[[M], bool]
    seconds_to_live: Callable[[M], float | None]
    encoded: Callable[[M], EncodedMessage]


class SendDriver(Generic[M]):
    """The calls to one entity of the primary namespace, or to the backlog while that entity is failed over.

    retry_pauses: seconds before an attempt over a lost link is made again.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        entity_name: str,
        backlog: Backlog,
        form: MessageForm[M],
        *,
        retry_pauses: tuple[float, ...] = RETRY_PAUSES,
    ) -> None:
        self._steering = steering
        self.entity_name = entity_name
        self._form = form
        self._backlog = backlog
        self._memory = SenderMemory(trial=steering.machine.trial(entity_name), retry_pauses=retry_pauses)
        self._folded_name = entity_name.casefold()
        self._tally = steering.tally(entity_name)
        self._limit = steering.policy.send_timeout
        self.key: str | None = None
        """The name of the key that a gateway's client signed with, for receipts."""
        self._numbers: dict[int, str] = {}
        """message_ids of messages scheduled into the backlog, by the number given to the caller."""

    # -- the straight path ------------------------------------------------------------------------------------

    def _may_go_straight(self) -> bool:
        """Return whether a send may use the primary's link directly, without a SendRouter."""
        return self._folded_name in self._steering.settled and not self._memory.busy

    def _count_straight(self, messages: int, bodies: int) -> bool:
        """Count accepted messages whose acceptance needs no event and no receipt; return False if it does."""
        steering, tally = self._steering, self._tally
        sends = tally.sent
        if sends is None or self._folded_name not in steering.settled or tally.last_route.queue is not None:
            return False  # it changed in the meantime, or has not changed yet
        meter = steering.meter
        meter.sends += messages
        meter.sent_bytes += bodies
        sends.accepted += messages
        sends.new_accepted += messages
        return True

    # -- one call's way ---------------------------------------------------------------------------------------

    def _call(
        self,
        messages: Sequence[M],
        whole: Any,
        timeout: float | None,
        schedule: Schedule | None = None,
        *,
        began: float | None = None,
        given: Any = None,
    ) -> SendCall[M]:
        at = self._steering.clock() if began is None else began
        router = SendRouter(self._memory, self._steering.policy, at=at, timeout=timeout)
        return SendCall(self.entity_name, messages, list(messages), whole, router, schedule, at, given=given)

    async def _deliver(self, call: SendCall[M], failure: Exception | None = None) -> None:
        """Complete a call; count one that ends in an error, and add the pairing's knowledge to the error.

        failure: of the first attempt at the primary; None: it was not made.
        """
        try:
            if failure is not None:
                self._meet(call, call.router.first(), failure)
            await self._travel(call)
        except Exception as error:
            own = count_refusal(error, call, self._steering)
            if own is error:
                raise
            raise own from own.__cause__
        finally:
            gave_up_at = self._steering.clock() if call.gave_up is GiveUp.BUSY else None
            self._steering.throttled_calls.end(self.entity_name, id(call), gave_up_at=gave_up_at)
            if call.unexplained is not None:
                route, judgement = call.unexplained
                self._count(route, judgement, messages=len(call.messages))
            if call.router.leave(self._steering.machine.rotation):
                self._steering.changed()
        self._tally.times.add(self._steering.clock() - call.began)

    async def _travel(self, call: SendCall[M]) -> None:
        """Try, wait and divert as the router decides until the messages are accepted or it gives up."""
        steering = self._steering
        machine = steering.machine
        while True:
            steering.refuse_when_ended(in_doubt=call.in_doubt)
            if call.transaction is not None:
                call.transaction.check()
            now = steering.clock()
            entity = machine.entity(self.entity_name, at=now)
            step = call.router.next(entity, machine.rotation, at=now, draw=steering.draw())
            if isinstance(step, Wait):
                if call.router.waits_for_busy(now):
                    steering.throttled_calls.wait(self.entity_name, id(call), at=now)
                await steering.change(step.until)
            elif isinstance(step, Try):
                try:
                    await self._attempt(step, call)
                except Exception as error:  # noqa: BLE001 - it is judged, and raised if it is the caller's
                    self._meet(call, step, error)
                except asyncio.CancelledError:
                    self._in_doubt(step.route, call.uncertain, "cancelled by its caller")
                    raise
                else:
                    return
            else:
                call.gave_up = step
                given_up = call.give_up_error(step, steering.judge, steering.policy.throttle_wait)
                self._refused(call.left, call.doubt, str(given_up))
                raise call.final_error(given_up, steering.judge) from call.failure

    def _meet(self, call: SendCall[M], step: Try, error: Exception) -> None:
        """Handle a failed attempt. Raises the caller's error where the call ends."""
        steering, left, route = self._steering, call.left, step.route
        if isinstance(error, ConnectionCutError) and route.queue is not None and not call.was_cut:
            call.was_cut, call.doubt, call.failure = True, error, error  # no failure of this queue: it gets it again
            self._in_doubt(route, left, steering.judge(error).reason)
            return
        judgement = self._explain(call, route, steering.judge(error))
        self._report_failure(route, judgement, error, ids=call.uncertain)
        if judgement.kind is FailureKind.INTERNAL and route.queue is not None and call.unexplained is None:
            call.unexplained = route, judgement
            call.router.avoid(route)
        elif judgement.kind is not FailureKind.IMPOSSIBLE:
            self._count(route, judgement, messages=len(left), is_short=step.is_short)
        if isinstance(steering.ended, PairedClientError):
            steering.refuse_when_ended()
        call.doubt = error if _is_doubtful(judgement, error) else call.doubt
        verdict = judgement.verdict if route.queue is None else at_backlog(judgement)
        if verdict is Verdict.CALLERS:
            call.failure = error
            self._refused(left, call.doubt, judgement.reason)
            ended = call.final_error(error, steering.judge)
            if judgement.kind is FailureKind.IMPOSSIBLE:
                call.unexplained = None
                ended.add_note(f"{NOTE}{judgement.reason}")
            if ended is error:
                raise error
            raise ended from error
        call.lost_link = judgement.kind in LOST_LINKS or (call.lost_link and judgement.kind is FailureKind.INTERNAL)
        call.router.ended(route, verdict, at=steering.clock(), is_cut=call.lost_link)
        call.failure = error
        call.whole = call.whole if call.is_whole else None

    def _explain(self, call: SendCall[M], route: Route, judgement: Judgement) -> Judgement:
        """Return the judgement of an internal error that the messages themselves explain (SPEC.md section 5)."""
        if judgement.kind is not FailureKind.INTERNAL:
            return judgement
        fault = next(filter(None, (fault_of(self._form.encoded(message)) for message in call.left)), "")
        if not fault and route.queue is not None and call.unexplained is not None:
            fault = f"two backlog queues answered it alike: {judgement.reason}"
        reason = f"{FailureKind.IMPOSSIBLE}: {fault}"
        return Judgement(FailureKind.IMPOSSIBLE, Verdict.CALLERS, reason) if fault else judgement

    async def _request(self, act: Callable[[float], Awaitable[T]], timeout: float) -> T:
        """Run a request to the primary within `timeout` seconds.

        It is repeated over a fresh link as the SDK would. After "server busy" it waits, and raises at its timeout.
        """
        loop, pauses = asyncio.get_running_loop(), iter(self._memory.retry_pauses)
        ends = loop.time() + timeout
        while True:
            try:
                return await act(ends - loop.time())
            except Exception as error:
                kind, left = self._steering.judge(error).kind, ends - loop.time()
                pause = next(pauses, inf) if kind in LOST_LINKS else inf
                if kind is FailureKind.BUSY:
                    pause = self._steering.policy.throttle_wait
                    await asyncio.sleep(max(0.0, min(pause, left)))
                elif pause < left:
                    await asyncio.sleep(pause)
                if pause >= left:
                    raise

    async def _attempt(self, step: Try, call: SendCall[M]) -> None:
        if step.route.queue is not None:
            await self._divert(step.route, call.left, step.timeout)
        else:
            await self._send_to_primary(call, step.timeout)

    async def _send_to_primary(self, call: SendCall[M], timeout: float) -> None:
        """Make one attempt at the primary, and report what it accepted."""
        raise NotImplementedError

    def _room(self) -> int:
        """Return the bytes of the largest message that every backlog queue accepts."""
        return min(queue.link.limit() for queue in self._backlog.values())

    async def _divert(self, route: Route, left: list[M], timeout: float) -> None:
        """Park the remaining messages, in as many batches as they need; accepted ones leave `left`."""
        assert route.queue is not None
        queue = self._backlog[route.queue]
        limit = queue.link.limit()
        parked = self._parked(left, limit)
        unreported = iter(tuple(left))
        pending = PendingSend(parked, lambda accepted: self._accepted(route, list(islice(unreported, len(accepted)))))
        try:
            await queue.send(pending, timeout)
        except MessageSizeExceededError as error:
            one = parked[pending.accepted]
            raise BacklogMessageSizeError(size=len(one.data), limit=limit, message_id=one.message_id) from error
        finally:
            del left[: pending.accepted]

    def _parked(self, messages: Sequence[M], limit: int) -> list[EncodedMessage]:
        """Return messages for the backlog. Raises ImpossibleMessageError, BacklogMessageSizeError."""
        singles = [self._form.encoded(message) for message in messages]
        for one in singles:
            if fault := fault_of(one):  # in its envelope the backlog would accept it
                raise ImpossibleMessageError(message_id=one.message_id, fault=fault)
        parked = [park(one, self.entity_name) for one in singles]
        for one in parked:
            if len(one.data) > limit:
                raise BacklogMessageSizeError(size=len(one.data), limit=limit, message_id=one.message_id)
        return parked

    # -- messages scheduled into the backlog ------------------------------------------------------------------

    def _number_parked(self, parked: Sequence[M]) -> list[int]:
        """Return the numbers of messages that were scheduled into the backlog: negative, as no queue gives them."""
        first = -len(self._numbers) - 1
        negative = [first - index for index in range(len(parked))]
        self._numbers.update(zip(negative, map(self._form.id_of, parked), strict=True))
        return negative

    async def _cancel(
        self, numbers: Sequence[int], timeout: float | None, act: Callable[[float], Awaitable[object]]
    ) -> None:
        """Cancel scheduled messages by a request to the primary. Raises ScheduledInBacklogError: one is negative."""
        for number in numbers:
            if number < 0:
                name = self._numbers.get(number, "one that another sender scheduled")
                raise ScheduledInBacklogError(
                    f"message {name!r} was scheduled while {self.entity_name} was failed over; it goes through the "
                    f"backlog and cannot be cancelled by number: let its receiver drop it by its message_id"
                )
        check_timeout(timeout)
        with self._steering.enter_call():
            await self._request(act, timeout or self._steering.policy.send_timeout)

    # -- what came of it --------------------------------------------------------------------------------------

    def _accepted(self, route: Route, messages: Sequence[Any]) -> None:
        steering, name = self._steering, self.entity_name
        now = steering.clock()
        steering.meter.carried(route.queue, sum(map(self._form.body_bytes, messages)))
        if route.queue is not None or steering.policy.journal == "all":
            for message in messages:
                self._announce_accepted(route, message, now)
        steering.tell(e.SendAccepted(at=now, entity=name, queue=route.queue, messages=len(messages)))

    def _announce_accepted(self, route: Route, message: Any, at: float) -> None:
        name, named, key = self.entity_name, self._form.id_of(message), self.key
        more: dict[str, Any] = {
            "at": at, "entity": name, "message_id": named, "key": key,
            "is_scheduled": self._form.is_scheduled(message) or None,
            "time_to_live": self._form.seconds_to_live(message),
        }  # fmt: skip
        event = e.Delivered(**more) if route.queue is None else e.Diverted(**more, queue=route.queue)
        self._steering.announce(event)

    def _report_failure(
        self, route: Route, judgement: Judgement, error: BaseException, *, ids: Sequence[Any] = ()
    ) -> None:
        """Report a refused credential, and messages in doubt."""
        side = "primary" if route.queue is None else "secondary"
        self._steering.refuse_credential(side, self.entity_name, judgement)
        if _is_doubtful(judgement, error):
            self._in_doubt(route, ids, judgement.reason)

    def _count(self, route: Route, judgement: Judgement, *, messages: int, is_short: bool = False) -> None:
        """Let a failure count for the entity or the backlog queue. is_short: the route had no time to answer."""
        if is_short and judgement.kind is FailureKind.TIMEOUT:
            return
        self._steering.tell(
            e.SendFailed(
                at=self._steering.clock(),
                entity=self.entity_name,
                queue=route.queue,
                failure=judgement.kind,
                reason=judgement.reason,
                messages=messages,
            )
        )

    def _in_doubt(self, route: Route, messages: Sequence[Any], reason: str) -> None:
        self._announce_each(messages, partial(e.InDoubt, route=str(route), reason=reason))

    def _refused(self, messages: Sequence[Any], doubt: BaseException | None, reason: str) -> None:
        """Write receipts for messages that certainly did not arrive."""
        if doubt is None and self._steering.policy.journal == "all":
            self._announce_each(messages, partial(e.Refused, reason=reason))

    def _announce_each(self, messages: Sequence[Any], receipt: Callable[..., e.Event]) -> None:
        now = self._steering.clock()
        for message in messages:
            named = self._form.id_of(message)
            self._steering.announce(receipt(at=now, entity=self.entity_name, message_id=named, key=self.key))


def check_timeout(timeout: float | None) -> None:
    """Raise ValueError for a caller's limit that is no number of seconds."""
    if timeout is not None and not 0 < timeout < inf:
        raise ValueError(f"timeout is {timeout}; it must be a finite number greater than 0, in seconds")


def _is_doubtful(judgement: Judgement, error: BaseException) -> bool:
    """Return whether sent messages may have arrived despite the failure."""
    return judgement.kind in DOUBTFUL or (isinstance(error, PairingClosedError) and error.in_doubt)


SDK_FORM: Final[MessageForm[Sendable]] = MessageForm(
    id_of=id_of,
    body_bytes=body_bytes,
    is_scheduled=is_scheduled,
    seconds_to_live=seconds_to_live,
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
        self._untraced_until = 0.0

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
                judgement = steering.judge(error)
                if judgement.kind in LOST_LINKS:
                    return self  # the first send opens it, and counts what it meets
                self._report_failure(PRIMARY, judgement, error)
                self._count(PRIMARY, judgement, messages=0)
                if judgement.verdict is Verdict.CALLERS:
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
        link = self._primary
        is_free = link.is_idle and not self._together.under_way and self._may_go_straight()
        if is_free and self._is_untraced() and has_own_id(message):
            await self._go_straight(message, timeout)
            return
        messages = outgoing(message)
        if not messages:
            return
        whole = message if isinstance(message, ServiceBusMessageBatch) and messages == batch_messages(message) else None
        is_traced = tracing.is_on()
        if is_traced:
            contexts = message.contexts if isinstance(message, EncodedBatch) else ()
            messages = self._in_trace(messages, contexts)
        if is_free and not is_traced:
            await self._go_straight(message, timeout, messages, whole)
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

        async def cancel(seconds: float) -> None:
            await self._primary.call(lambda sdk: sdk.cancel_scheduled_messages(numbers, timeout=seconds), seconds)

        await self._cancel(numbers, timeout, cancel)

    # -- one call's way ---------------------------------------------------------------------------------------

    def _is_untraced(self) -> bool:
        """Return whether there is no tracer, or was none in a send of the latest UNTRACED_SECONDS."""
        return asyncio.get_running_loop().time() < self._untraced_until or not tracing.is_on()

    async def _go_straight(
        self,
        given: Messages,
        timeout: float | None,
        messages: list[Sendable] | None = None,
        whole: ServiceBusMessageBatch | None = None,
    ) -> None:
        """Send over the idle link as the SDK does, without a SendRouter, and count.

        Handle a failure as that of any other attempt. Work that only a failure needs is done while the SDK waits.

        messages: None: the SDK gets the caller's object, which is copied before another task can change it.
        """
        steering, in_flight, link = self._steering, self._steering.in_flight, self._primary
        payload: Any = whole
        if messages is not None and whole is None:
            payload = messages[0] if len(messages) == 1 else messages
        limit = self._limit if timeout is None else min(timeout, self._limit)
        bodies = 0

        def prepare() -> None:
            nonlocal messages, bodies
            link.limit_use(limit)
            messages = messages or outgoing(given)
            bodies = sum(map(body_bytes, messages))
            self._untraced_until = 0.0 if tracing.is_on() else link.began + UNTRACED_SECONDS

        in_flight.count += 1
        try:
            try:
                with link as sender:
                    if messages is None:
                        sending = send_untraced(sender, given, limit)
                    else:
                        sending = sender.send_messages(payload, timeout=limit)
                    await overlapped(sending, prepare)
            except Exception as error:  # noqa: BLE001 - it is judged, and raised if it is the caller's
                sent = messages or outgoing(given)
                call = self._call(sent, whole, timeout, began=steering.clock() - link.took, given=given)
                failure = None if link.was_outdated(error) else error
            except asyncio.CancelledError:
                self._in_doubt(PRIMARY, messages or outgoing(given), "cancelled by its caller")
                raise
            else:
                self._tally.times.add(link.took)
                sent = messages or outgoing(given)
                count = len(sent)
                if not self._count_straight(count, bodies):
                    self._accepted(PRIMARY, sent)
                if count > 1 or not 0 < bodies <= SMALL_BODY_BYTES:
                    self._count_too_large(sent, whole)
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
        self._tally.too_large += too_large(accepted, whole, self.entity_name, self._room)

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
