"""Auto-delete on idle: unused entities delete themselves."""

from __future__ import annotations

from collections.abc import Callable

from servicebus_sandbox.broker.entity_settings import TopicSettings, seconds_or_none
from servicebus_sandbox.broker.queues.agenda import Agenda
from servicebus_sandbox.broker.topology.messaging_entities import Entity, Topic


class AutoDelete:
    """The watch of one entity; `expire` is called after the idle time of its settings.

    Sending, receiving and changing count as use, waiting receivers and scheduled messages too. A topic is used when a
    subscription is. As in the service, entities that forward are never idle.
    """

    def __init__(self, entity: Entity, agenda: Agenda, expire: Callable[[], None]) -> None:
        self.alarm: float | None = None
        self._entity = entity
        self._agenda = agenda
        self._expire = expire
        self._is_over = False
        self.look_again()

    def look_again(self) -> None:
        """Apply changed settings."""
        deadline = self._deadline()
        if deadline is not None:
            self._agenda.call_at(deadline, self)

    def end(self) -> None:
        """Stop watching a deleted entity."""
        self._is_over = True

    def run_due(self, now: float) -> float | None:
        deadline = self._deadline()
        if self._is_over or deadline is None or deadline > now:
            return None if self._is_over else deadline
        self._expire()
        return None

    def _deadline(self) -> float | None:
        settings = self._entity.settings
        limit = seconds_or_none(settings.auto_delete_on_idle)
        if limit is None or (not isinstance(settings, TopicSettings) and settings.forward_to is not None):
            return None
        return (self._agenda.clock() if _is_in_use(self._entity) else _used_at(self._entity)) + limit


def _is_in_use(entity: Entity) -> bool:
    """Return whether receivers wait for messages, or messages are scheduled."""
    if isinstance(entity, Topic):
        return bool(entity.counts().scheduled) or any(map(_is_in_use, entity.subscriptions.values()))
    return bool(entity.counts().scheduled) or any(queue.consumers for queue in entity.message_queues)


def _used_at(entity: Entity) -> float:
    own = max(entity.accessed_at, entity.updated_at)
    if isinstance(entity, Topic):
        return max([own, *map(_used_at, entity.subscriptions.values())])
    return own
