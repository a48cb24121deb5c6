"""The calls of a paired sender, whatever the form of its messages.

paired_servicebus.core.failover.send_router decides where each attempt goes. A `SendCall` has one call's messages, its
attempts so far, and its final error. `SendDriver` makes the attempts, reports their outcomes and writes the receipts.
Its subclasses have the application's side and the attempt at the primary: `PairedSender` for the SDK's messages,
`EncodedSender` for bytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from math import inf
from typing import Any, Final, Generic, TypeVar

from azure.core.exceptions import AzureError
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
from paired_servicebus.core.failover.send_router import RETRY_PAUSES, GiveUp, Route, SenderMemory, SendRouter, Try, Wait
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
from paired_servicebus.pairing.envelope_codec import EncodedMessage, park
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.amqp_link import ConnectionCutError
from paired_servicebus.pairing.sending.coalescer import Coalescer, PendingSend

NOTE: Final = "paired namespaces: "
"""The prefix of notes on errors."""
NOTE_LENGTH: Final = 400
REPEAT_NOTE: Final = (
    f"{NOTE}what was sent keeps no id between two calls (a mapping, or an iterator): a repeat is a new message; send "
    "error.messages again, which have the ids of this call"
)

M = TypeVar("M")
Schedule = Callable[[Any, list[Any], float], Awaitable[None]]
"""One attempt to schedule at the primary: the link, the remaining messages, seconds."""


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
    fault_of: returns why no namespace accepts a message; empty if nothing is wrong with it.
    encoded: returns the message in its bytes, for the backlog.
    """

    id_of: Callable[[M], str]
    body_bytes: Callable[[M], int]
    is_scheduled: Callable[[M], bool]
    seconds_to_live: Callable[[M], float | None]
    fault_of: Callable[[M], str]
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
        steering = self._steering
        return self._folded_name in steering.settled and not self._memory.busy and not steering.in_flight.closing

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
            self._steering.throttled_calls.end(self.entity_name, id(call))
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
                    self._in_doubt(step.route, call.left, "cancelled by its caller")
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
        self._report_failure(route, judgement, error, ids=left)
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
        fault = next(filter(None, map(self._form.fault_of, call.left)), "")
        if not fault and route.queue is not None and call.unexplained is not None:
            fault = f"two backlog queues answered it alike: {judgement.reason}"
        reason = f"{FailureKind.IMPOSSIBLE}: {fault}"
        return Judgement(FailureKind.IMPOSSIBLE, Verdict.CALLERS, reason) if fault else judgement

    async def _request(self, act: Callable[[float], Awaitable[T]], timeout: float) -> T:
        """Run a request to the primary within `timeout` seconds.

        It is repeated over a fresh link as the SDK would, and after the wait for a busy namespace.
        """
        loop, pauses = asyncio.get_running_loop(), iter(self._memory.retry_pauses)
        ends = loop.time() + timeout
        while True:
            try:
                return await act(ends - loop.time())
            except Exception as error:
                pause = self._pause_after(error, pauses)
                if pause is None or loop.time() + pause >= ends:
                    raise
            await asyncio.sleep(pause)

    def _pause_after(self, error: Exception, pauses: Iterator[float]) -> float | None:
        """Return the seconds until a failed request is repeated; None: it is not."""
        kind = self._steering.judge(error).kind
        if kind is FailureKind.BUSY:
            return self._steering.policy.throttle_wait
        return next(pauses, None) if kind in LOST_LINKS else None

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
        form = self._form
        for message in left:
            if fault := form.fault_of(message):  # in its envelope the backlog would accept it
                raise ImpossibleMessageError(message_id=form.id_of(message), fault=fault)
        parked = [park(form.encoded(message), self.entity_name) for message in left]
        for one in parked:
            if len(one.data) > limit:
                raise BacklogMessageSizeError(size=len(one.data), limit=limit, message_id=one.message_id)
        unreported = iter(tuple(left))
        pending = PendingSend(parked, lambda accepted: self._accepted(route, list(islice(unreported, len(accepted)))))
        try:
            await queue.send(pending, timeout)
        except MessageSizeExceededError as error:
            one = parked[pending.accepted]
            raise BacklogMessageSizeError(size=len(one.data), limit=limit, message_id=one.message_id) from error
        finally:
            del left[: pending.accepted]

    # -- messages scheduled into the backlog ------------------------------------------------------------------

    def _number_parked(self, parked: Sequence[M]) -> list[int]:
        """Return the numbers of messages that were scheduled into the backlog: negative, as no queue gives them."""
        first = -len(self._numbers) - 1
        negative = [first - index for index in range(len(parked))]
        self._numbers.update(zip(negative, map(self._form.id_of, parked), strict=True))
        return negative

    def _refuse_parked(self, numbers: Sequence[int]) -> None:
        """Raise ScheduledInBacklogError for the number of a message that went into the backlog."""
        for number in numbers:
            if number < 0:
                name = self._numbers.get(number, "one that another sender scheduled")
                raise ScheduledInBacklogError(
                    f"message {name!r} was scheduled while {self.entity_name} was failed over; it goes through the "
                    f"backlog and cannot be cancelled by number: let its receiver drop it by its message_id"
                )

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

    def _failed(self, route: Route, error: BaseException) -> Judgement:
        """Report and count a failure without messages."""
        judgement = self._steering.judge(error)
        self._report_failure(route, judgement, error)
        self._count(route, judgement, messages=0)
        return judgement

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
        steering, name, where = self._steering, self.entity_name, str(route)
        now = steering.clock()
        for message in messages:
            named = self._form.id_of(message)
            steering.announce(
                e.InDoubt(at=now, entity=name, message_id=named, route=where, reason=reason, key=self.key)
            )

    def _refused(self, messages: Sequence[Any], doubt: BaseException | None, reason: str) -> None:
        """Write receipts for messages that certainly did not arrive."""
        if doubt is not None or self._steering.policy.journal != "all":
            return
        name, now = self.entity_name, self._steering.clock()
        for message in messages:
            named = self._form.id_of(message)
            self._steering.announce(e.Refused(at=now, entity=name, message_id=named, reason=reason, key=self.key))


def check_timeout(timeout: float | None) -> None:
    """Raise ValueError for a caller's limit that is no number of seconds."""
    if timeout is not None and not 0 < timeout < inf:
        raise ValueError(f"timeout is {timeout}; it must be a finite number greater than 0, in seconds")


def _is_doubtful(judgement: Judgement, error: BaseException) -> bool:
    """Return whether sent messages may have arrived despite the failure."""
    return judgement.kind in DOUBTFUL or (isinstance(error, PairingClosedError) and error.in_doubt)
