"""What is held back of the syphon, by whoever ordered it: all of it, a backlog queue, a destination."""

from __future__ import annotations

from paired_servicebus.core.errors import IllegalEventError
from paired_servicebus.core.model.pairing_events import SyphonPaused, SyphonResumed


class SyphonPauses:
    """Each is paused and resumed by itself: who resumes all of the syphon leaves what was paused one by one."""

    def __init__(self) -> None:
        self.whole: SyphonPaused | None = None
        """What holds back all of it; None: nothing does."""
        self.queues: set[int] = set()
        self.destinations: dict[str, str] = {}
        """By path without case: the path as it was named."""

    @property
    def all(self) -> bool:
        """Whether all of the syphon is held back."""
        return self.whole is not None

    def pause(self, event: SyphonPaused) -> None:
        """From now on it stands. Raises IllegalEventError: it does already."""
        if self._has(event):
            raise IllegalEventError(f"{_named(event)} is paused already")
        if event.queue is not None:
            self.queues.add(event.queue)
        elif event.destination:
            self.destinations[event.destination.casefold()] = event.destination
        else:
            self.whole = event

    def resume(self, event: SyphonResumed) -> None:
        """From now on it goes on. Raises IllegalEventError: it does already."""
        if not self._has(event):
            raise IllegalEventError(f"{_named(event)} is not paused")
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


def _named(event: SyphonPaused | SyphonResumed) -> str:
    """What was paused or resumed."""
    if event.queue is not None:
        return f"backlog queue {event.queue}"
    return f"the syphon to {event.destination}" if event.destination else "the syphon"
