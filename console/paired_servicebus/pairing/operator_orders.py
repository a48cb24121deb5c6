"""The orders of an operator to a paired client: state changes by hand, the syphon's pauses, work on backlog queues."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping

from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.model.message_view import MAX_ROWS, MessageContent, MessageKind, MessagePage
from paired_servicebus.core.model.pairing_events import EntityReleased, Forced, Pinned, SyphonPaused, SyphonResumed
from paired_servicebus.core.operator.targets import PAUSED_HERE
from paired_servicebus.pairing.monitoring import snapshot_views
from paired_servicebus.pairing.monitoring.message_looks import MessageLooks
from paired_servicebus.pairing.monitoring.unused_queues import Elsewhere, UnusedQueues, nowhere
from paired_servicebus.pairing.options import SendAvailabilityPairedNamespaceOptions
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.syphon.syphon import Syphon


class OperatorOrders:
    """The part of `PairedServiceBusClient` for operators; each order returns a sentence with its outcome."""

    _steering: PairingRuntime
    _syphon: Syphon | None
    _unused: UnusedQueues
    _carried: set[str]
    _options: SendAvailabilityPairedNamespaceOptions
    _queues: Mapping[int, str]
    _afterwards: list[Callable[[], Awaitable[None]]]
    _message_looks: MessageLooks

    def force(self, path: str, *, by: str, why: str = "") -> str:
        """Fail an entity over by hand: to the backlog until it is released (SPEC.md section 6).

        Args:
            path: the entity's, compared without case; it has been sent to or watched.
            by, why: for the audit.

        Returns: a sentence with its new state.

        Raises:
            IllegalEventError: it is forced already, or unknown; nothing has changed.
        """
        self._steering.tell(Forced(at=self._steering.clock(), entity=path, by=by, why=why))
        return self._stands(path)

    def pin(self, path: str, *, by: str, why: str = "") -> str:
        """Keep an entity on the primary despite failures. Arguments, returns and raises as `force`."""
        self._steering.tell(Pinned(at=self._steering.clock(), entity=path, by=by, why=why))
        return self._stands(path)

    def release(self, path: str, *, by: str, why: str = "") -> str:
        """End an order by hand.

        The entity returns to the primary if its last ping was accepted or it failed over by itself. Else it stays
        failed over with automatic failback.
        """
        self._steering.tell(EntityReleased(at=self._steering.clock(), entity=path, by=by, why=why))
        return self._stands(path)

    def pause_syphon(self, *, by: str, why: str = "", queue: int | None = None, destination: str = "") -> str:
        """Stop moving messages, of one backlog queue (by index), of one destination (by path), or all.

        Parked messages stay.
        """
        steering = self._steering
        steering.tell(SyphonPaused(at=steering.clock(), by=by, why=why, queue=queue, destination=destination))
        if queue is not None:
            return f"backlog queue {queue} is {PAUSED_HERE}"
        if destination:
            return f"the syphon to {destination} is {PAUSED_HERE}"
        return f"the syphon is {PAUSED_HERE}"

    def resume_syphon(self, *, by: str, why: str = "", queue: int | None = None, destination: str = "") -> str:
        """Move messages again; arguments as `pause_syphon`.

        Returns a sentence. Raises IllegalEventError: it is not paused.
        """
        steering = self._steering
        steering.tell(SyphonResumed(at=steering.clock(), by=by, why=why, queue=queue, destination=destination))
        if queue is not None:
            return f"the syphon moves messages out of backlog queue {queue} again"
        return f"the syphon moves messages{f' to {destination}' if destination else ''} again"

    async def redrive(self, queue: int) -> str:
        """Put a backlog queue's dead letters back to work; return a sentence with the outcome.

        Raises as `Syphon.redrive`, and IllegalEventError without a syphon.
        """
        return await self._with_syphon().redrive(queue)

    async def redrive_letters(self, queue: int, numbers: Collection[int]) -> str:
        """Put some dead letters of a backlog queue back to work, by their sequence numbers; return a sentence.

        Raises as `Syphon.redrive`, and IllegalEventError without a syphon.
        """
        return await self._with_syphon().redrive(queue, numbers)

    async def move_stranded(self, path: str) -> str:
        """Move an unused backlog queue's messages home; return a sentence. Raises IllegalEventError."""
        try:
            return await self._with_syphon().move_stranded(path)
        finally:
            await self._unused.look()

    async def clean_up(self, path: str, *, elsewhere: Elsewhere = nowhere) -> str:
        """Delete an unused backlog queue, if it is proven to be empty (SPEC.md section 4.3); return a sentence.

        `elsewhere`: returns the indices in use by other known engines. Raises CleanUpError with the reason why it
        stays.
        """
        return await self._unused.clean_up(path, elsewhere=elsewhere)

    async def look_at_messages(
        self, path: str, kind: MessageKind, *, from_number: int = 1, count: int = MAX_ROWS, wanted_id: str = ""
    ) -> MessagePage:
        """Return messages of a backlog queue of this pairing, by peek; arguments and raises as `MessageLooks.page`.

        Raises IllegalEventError: it is no backlog queue of this pairing.
        """
        looks = self._looks_into(path)
        return await looks.page(path, kind, from_number=from_number, count=count, wanted_id=wanted_id)

    async def look_at_message(self, path: str, kind: MessageKind, number: int) -> MessageContent:
        """Return one message with the start of its body, by peek; raises as `look_at_messages`, and if it is gone."""
        return await self._looks_into(path).message(path, kind, number)

    def _looks_into(self, path: str) -> MessageLooks:
        self._steering.refuse_when_ended()
        if path not in (*self._queues.values(), *(queue.path for queue in self._unused.view.queues)):
            raise IllegalEventError(f"{path} is not a backlog queue of this pairing")
        return self._message_looks

    def _with_syphon(self) -> Syphon:
        if self._syphon is None:
            raise IllegalEventError("this engine runs no syphon: order it from one that does")
        return self._syphon

    def _stands(self, path: str) -> str:
        entity = self._steering.machine.entity(path, at=self._steering.clock())
        view = next(one for one in snapshot_views.entities(self._steering, self._carried) if one.path == entity.path)
        return f"{entity.path} is {entity.state}: {view.why}"
