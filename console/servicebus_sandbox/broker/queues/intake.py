"""What may enter a queue or a topic: status, size, quota, sessions, duplicates, pings, and what is for later.

All of it is decided before a message is stored, so that a batch enters whole or not at all.

A message without id gets one here, 32 hexadecimal digits, unlike any other. So the service does: "ServiceBus sets an ID
as default, only if the application doesn't set its own ID" (azure-service-bus-java issue 69). Clients rely on it:
@azure/service-bus 7.9 settles no message without id, and the examples in its README set none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from servicebus_sandbox.broker.broker_errors import EntityDisabled, InvalidOperation, MessageTooLarge, QuotaExceeded
from servicebus_sandbox.broker.entity_settings import Pings, QueueSettings, TopicSettings
from servicebus_sandbox.broker.message import PING_CONTENT_TYPE, Message
from servicebus_sandbox.broker.queues.agenda import Agenda
from servicebus_sandbox.broker.queues.delayed_messages import DelayedMessages
from servicebus_sandbox.broker.queues.duplicates import DuplicateWindow
from servicebus_sandbox.broker.queues.schedule import Schedule

NO_NUMBER = 0
"""The sequence number of what was accepted and dropped, a ping or a duplicate, or is yet to be seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What a namespace says of all that enters it; `max_message_bytes` holds where an entity sets no limit itself.

    `identify` gives an id to a message that has none.
    """

    max_message_bytes: int
    pings: Pings = Pings.DROPPED
    identify: Callable[[Message, str], Message]


class Intake:
    """The way into one entity. `enter` stores a message and returns its sequence number; `size` is in bytes."""

    def __init__(
        self,
        path: str,
        settings: QueueSettings | TopicSettings,
        agenda: Agenda,
        *,
        admission: Admission,
        new_number: Callable[[], int],
        enter: Callable[[Message, float], int],
        size: Callable[[], int],
    ) -> None:
        self.path = path
        self.schedule = Schedule(path, agenda, new_number, enter)
        self._agenda = agenda
        self._admission = admission
        self._drops_pings = admission.pings is Pings.DROPPED
        self._enter = enter
        self._size = size
        self._duplicates: DuplicateWindow | None = None
        self._latecomers = DelayedMessages(agenda, self._arrive)
        self.last_send_at = agenda.clock()
        self.apply(settings)

    def apply(self, settings: QueueSettings | TopicSettings) -> None:
        """Follow changed settings; what is known of duplicates stays."""
        self._status = settings.status
        self._can_send = settings.status.can_send
        self._is_topic = isinstance(settings, TopicSettings)
        self._room = 0  # bytes that fit for certain: counting what is there for every message would cost too much
        self._quota_bytes = settings.max_size_mb * 1024 * 1024
        self._needs_session = isinstance(settings, QueueSettings) and settings.requires_session
        own_limit = settings.max_message_size_kb
        self.max_message_bytes = own_limit * 1024 if own_limit else self._admission.max_message_bytes
        window = settings.duplicate_window.total_seconds()
        if not settings.requires_duplicate_detection:
            self._duplicates = None
        elif self._duplicates is None:
            self._duplicates = DuplicateWindow(window)
        else:
            self._duplicates.seconds = window

    def clear(self) -> None:
        """The entity is gone, and what was to come into it."""
        self.schedule.clear()
        self._latecomers.clear()

    def check_open(self) -> None:
        """Raise EntityDisabled unless the entity's status lets it take messages."""
        if not self._can_send:
            raise EntityDisabled(self.path, self._status.value, "messages")

    def send(self, messages: Sequence[Message], *, late: float = 0.0) -> list[int]:
        """Take all these messages or none; returns their sequence numbers (0 for a ping or a duplicate).

        With `late` they are accepted now and there only that many seconds later; their numbers are not known yet, 0.
        Raises EntityDisabled, MessageTooLarge, InvalidOperation (no session id), QuotaExceeded.
        """
        self.check_open()
        arriving = 0
        for message in messages:
            if message.content_type != PING_CONTENT_TYPE or not self._drops_pings:
                if message.size > self.max_message_bytes or self._needs_session:
                    self._check(message)
                arriving += message.size
        self._make_room(arriving)
        now = self.last_send_at = self._agenda.clock()
        if late:
            self._latecomers.hold(messages, now + late, now)
            return [NO_NUMBER] * len(messages)
        if len(messages) == 1:
            return [self._store(messages[0], now)]
        return [self._store(message, now) for message in messages]

    def forward(self, message: Message) -> None:
        """Take a message that another entity passes on, whatever the status.

        Raises MessageTooLarge, InvalidOperation (no session id), QuotaExceeded.
        """
        self._check(message)
        self._make_room(message.size)
        self.last_send_at = self._agenda.clock()
        self._store(message, self.last_send_at)

    def _make_room(self, arriving: int) -> None:
        """Count on so many bytes more. Raises QuotaExceeded."""
        if arriving > self._room or self._is_topic:  # what a topic holds grows by every copy
            self._room = self._quota_bytes - self._size()
            if arriving > max(0, self._room):
                raise QuotaExceeded(self.path, self._quota_bytes)
        self._room -= arriving

    def _arrive(self, message: Message, accepted_at: float) -> None:
        """A message that was late is there: only now does it count among what the entity holds."""
        self._room = 0
        self._store(message, accepted_at)

    def _check(self, message: Message) -> None:
        if message.size > self.max_message_bytes:
            raise MessageTooLarge(self.path, message.size, self.max_message_bytes)
        if self._needs_session and message.session_id is None:
            raise InvalidOperation(f"'{self.path}' requires sessions and the message has no session id; set one")

    def _store(self, message: Message, now: float) -> int:
        if message.content_type == PING_CONTENT_TYPE and self._drops_pings:
            return NO_NUMBER
        if message.message_id is None:
            message = self._admission.identify(message, self._agenda.new_id().hex)
        if self._duplicates is not None and not self._duplicates.is_new(message.message_id, now):
            return NO_NUMBER
        if message.scheduled_at is not None and message.scheduled_at > now:
            return self.schedule.add(message, message.scheduled_at, now)
        return self._enter(message, now)
