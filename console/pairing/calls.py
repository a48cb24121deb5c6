"""One call of a paired sender: its messages, what came of its attempts so far, and the error it ends with.

What is attempted, and where, is `sender`'s and the journey's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from azure.servicebus import ServiceBusMessageBatch
from azure.servicebus.exceptions import ServiceBusServerBusyError

from console.core.errors import BacklogUnavailableError
from console.core.routes import GiveUp, Journey
from console.core.verdict import Judge
from console.pairing.links import SenderLink
from console.pairing.messages import Sendable

Schedule = Callable[[SenderLink, list[Sendable], float], Awaitable[None]]
"""One attempt to schedule at the primary: the link, what is left of the call's messages, seconds."""


@dataclass(slots=True)
class Call:
    """A call under way.

    left: what no namespace has accepted yet. whole: the batch that carries them all, where they came in one. schedule:
    what is done at the primary instead of a send. failure: the latest. doubt: the latest after which messages may have
    arrived all the same.
    """

    entity: str
    messages: Sequence[Sendable]
    left: list[Sendable]
    whole: ServiceBusMessageBatch | None
    journey: Journey
    schedule: Schedule | None = None
    failure: BaseException | None = None
    doubt: BaseException | None = None

    @property
    def is_whole(self) -> bool:
        """Whether none of its messages was accepted yet."""
        return len(self.left) == len(self.messages)

    @property
    def in_doubt(self) -> bool:
        """Whether something of it has arrived, or may have."""
        return self.doubt is not None or not self.is_whole

    def told(self, error: BaseException, judge: Judge) -> BaseException:
        """What it raises instead of an error that reads as a refusal, where that would not be the whole truth."""
        if isinstance(error, BacklogUnavailableError):
            return error
        if not self.is_whole:
            return BacklogUnavailableError(f"{self._parts()}; last: {judge(error).reason}. Send those again")
        return self.doubt or error

    def given_up(self, step: GiveUp, judge: Judge, throttle_wait: float) -> BaseException:
        """The error it ends with where the journey gives up; what the SDK raised itself where it says it best."""
        if step is GiveUp.FAILED and self.failure is not None:
            return self.failure
        if step is GiveUp.BUSY:
            return ServiceBusServerBusyError(
                message=f"{self.entity} is throttled: after the namespace said it is busy, nothing is sent for "
                f"{throttle_wait:g} s. Send again later; partitioning makes it less likely."
            )
        why = f"; last: {judge(self.failure).reason}" if self.failure is not None else ""
        owned = "You still own it" if self.is_whole else self._parts()
        return BacklogUnavailableError(
            f"{self.entity} is failed over and no backlog queue of the secondary namespace took the message"
            f"{why}. {owned}: send it again later"
        )

    def _parts(self) -> str:
        all_of, left = len(self.messages), len(self.left)
        return f"{all_of - left} of {all_of} messages for {self.entity} were parked, {left} were not"
