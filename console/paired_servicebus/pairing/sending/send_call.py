"""One call of a paired sender: its messages, its attempts so far, and its final error.

`SendDriver` and the SendRouter decide on the attempts.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from azure.core.exceptions import AzureError
from azure.servicebus.exceptions import ServiceBusServerBusyError

from paired_servicebus.core.accounting.refused_calls import closed_reason
from paired_servicebus.core.errors import (
    BacklogMessageSizeError,
    BacklogUnavailableError,
    PairedClientError,
    PairedError,
    PairingClosedError,
)
from paired_servicebus.core.failover.send_router import GiveUp, Route, SendRouter
from paired_servicebus.core.model.verdict import FailureKind, Judge, Judgement
from paired_servicebus.core.operator.why_line import why
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime

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
