"""An operator's pauses of the syphon: all of it, a backlog queue, a destination."""

from __future__ import annotations

from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.model.pairing_events import SyphonPaused, SyphonResumed


class SyphonPauses:
    """The pauses in force. Resuming the whole syphon keeps the pauses of single queues and destinations."""

    def __init__(self) -> None:
        self.whole: SyphonPaused | None = None
        """The pause of the whole syphon; None: it is not paused."""
        self.queues: set[int] = set()
        self.destinations: dict[str, str] = {}
        """The path as the operator wrote it, by casefolded path."""

    @property
    def all(self) -> bool:
        """Return whether the whole syphon is paused."""
        return self.whole is not None

    def pause(self, event: SyphonPaused) -> None:
        """Add a pause. Raises IllegalEventError: already paused."""
        if self._has(event):
            raise IllegalEventError(f"{_target(event)} is paused already")
        if event.queue is not None:
            self.queues.add(event.queue)
        elif event.destination:
            self.destinations[event.destination.casefold()] = event.destination
        else:
            self.whole = event

    def resume(self, event: SyphonResumed) -> None:
        """Remove a pause. Raises IllegalEventError: not paused."""
        if not self._has(event):
            raise IllegalEventError(f"{_target(event)} is not paused")
        if event.queue is not None:
            self.queues.discard(event.queue)
        elif event.destination:
            del self.destinations[event.destination.casefold()]
        else:
            self.whole = None

    def _has(self, event: SyphonPaused | SyphonResumed) -> bool:
        if event.queue is not None:
            return event.queue in self.queues
        if event.destination:
            return event.destination.casefold() in self.destinations
        return self.all


def _target(event: SyphonPaused | SyphonResumed) -> str:
    if event.queue is not None:
        return f"backlog queue {event.queue}"
    return f"the syphon to {event.destination}" if event.destination else "the syphon"
