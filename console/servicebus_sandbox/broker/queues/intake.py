"""Admission to a queue or topic: status, size, quota, sessions, duplicates, pings and schedules.

All checks precede storing, so that a batch enters completely or not at all.

A message without id gets a unique one here, 32 hexadecimal digits, as in the service: "ServiceBus sets an ID as
default, only if the application doesn't set its own ID" (azure-service-bus-java issue 69). Clients rely on it:
@azure/service-bus 7.9 settles no message without id, and the examples in its README set none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from uuid import UUID

from servicebus_sandbox.broker.broker_errors import (
    BatchTooLong,
    EntityDisabled,
    EntityNotFound,
    InvalidOperation,
    MessageTooLarge,
    QuotaExceeded,
)
from servicebus_sandbox.broker.entity_settings import EntityStatus, Pings, QueueSettings, TopicSettings
from servicebus_sandbox.broker.message import PING_CONTENT_TYPE, Message, MessageId
from servicebus_sandbox.broker.queues.agenda import FILTER_COST, MESSAGE_COST, Agenda
from servicebus_sandbox.broker.queues.message_queue import DelayedMessages, Schedule
from servicebus_sandbox.broker.transaction import Act


class DuplicateWindow:
    """The ids of the last `seconds`, counted from the first use; a repetition does not extend it."""

    __slots__ = ("_arrivals", "_known", "seconds")

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._known: set[MessageId] = set()
        self._arrivals: deque[tuple[float, MessageId]] = deque()

    def __len__(self) -> int:
        return len(self._known)

    def is_new(self, message_id: MessageId, now: float) -> bool:
        """Remember an id and return whether it is new in the window. A message without id is always new."""
        self._forget(now - self.seconds)
        if message_id is None:
            return True
        if isinstance(message_id, UUID):
            message_id = ("uuid", message_id.bytes)  # a sender can choose a UUID's hash, but not that of its bytes
        if message_id in self._known:
            return False
        self._known.add(message_id)
        self._arrivals.append((now, message_id))
        return True

    def _forget(self, until: float) -> None:
        while self._arrivals and self._arrivals[0][0] <= until:
            self._known.discard(self._arrivals.popleft()[1])


NO_NUMBER = 0
"""The sequence number of a dropped ping or duplicate, and of a message that is not visible yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The namespace's rules for messages; `max_message_bytes` is the default for entities without a limit.

    `identify` returns a message with an id.
    """

    max_message_bytes: int
    max_batch_messages: int | None
    pings: Pings = Pings.DROPPED
    identify: Callable[[Message, str], Message]


class Intake:
    """The entry of one entity. `enter` stores a message and returns its sequence number; `size` is in bytes.

    `filters` is the number of filters that each message is compared with, for the namespace's credits.
    """

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
        filters: Callable[[], int] = int,
    ) -> None:
        self.path = path
        self.schedule = Schedule(path, agenda, new_number, enter)
        self._agenda = agenda
        self._admission = admission
        self._drops_pings = admission.pings is Pings.DROPPED
        self._enter = enter
        self._size = size
        self._filters = filters
        self._is_limited = agenda.credits is not None
        self._duplicates: DuplicateWindow | None = None
        self._latecomers = DelayedMessages(agenda, self._arrive)
        self._held = 0
        """Bytes of messages in transactions."""
        self._is_gone = False
        self.last_send_at = agenda.clock()
        self.apply(settings)

    def apply(self, settings: QueueSettings | TopicSettings) -> None:
        """Apply changed settings; known ids of duplicates stay."""
        self._status = settings.status
        is_spared = self._agenda.behaves.send_when_receive_disabled or self._status is not EntityStatus.RECEIVE_DISABLED
        self._can_send = settings.status.can_send and is_spared
        self._is_topic = isinstance(settings, TopicSettings)
        self._room = 0  # bytes that fit for certain; counting for every message costs too much
        self._quota_bytes = settings.total_size_mb * 1024 * 1024
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
        """Drop the scheduled and delayed messages of a deleted entity, which accepts no more."""
        self._is_gone, self._can_send = True, False
        self.schedule.clear()
        self._latecomers.clear()

    def check_open(self) -> None:
        """Raise EntityDisabled if the entity's status forbids sending."""
        if not self._can_send:
            if self._is_gone:
                raise EntityNotFound(self.path)
            raise EntityDisabled(self.path, self._status.value)

    def send(self, messages: Sequence[Message], *, late: float = 0.0) -> list[int]:
        """Accept all messages or none; return their sequence numbers (0 for a ping or a duplicate).

        With `late` they become visible after that many seconds; their numbers are unknown, 0. Raises EntityDisabled,
        MessageTooLarge, BatchTooLong, InvalidOperation (no session id), QuotaExceeded, Throttled.
        """
        self._admit(messages)
        now = self.last_send_at = self._agenda.clock()
        if late:
            self._latecomers.hold(messages, now + late, now)
            return [NO_NUMBER] * len(messages)
        if len(messages) == 1:
            return [self._store(messages[0], now)]
        return [self._store(message, now) for message in messages]

    def hold(self, messages: Sequence[Message], *, late: float = 0.0, numbers: Sequence[int] = ()) -> Act:
        """Check messages as `send` does, and keep room for them until their transaction ends. Raises as `send`.

        late: as of `send`. numbers: of scheduled messages, from `schedule.new_number`; default: new ones at the commit.
        """
        size = self._admit(messages)
        self._held += size

        def release() -> None:
            self._held -= size

        def perform() -> None:
            release()
            now = self.last_send_at = self._agenda.clock()
            if late:
                self._latecomers.hold(messages, now + late, now)
                return
            for message, number in zip_longest(messages, numbers):
                self._store(message, now, number)

        return Act(check=self.check_open, perform=perform, release=release, size=size, messages=len(messages))

    def _admit(self, messages: Sequence[Message]) -> int:
        """Check messages and make room for them; return their bytes."""
        self.check_open()
        most = self._admission.max_batch_messages
        if most is not None and len(messages) > most:
            raise BatchTooLong(self.path, len(messages), most)
        if self._is_limited:
            self._agenda.charge(len(messages) * (MESSAGE_COST + FILTER_COST * self._filters()))
        arriving = 0
        for message in messages:
            if message.content_type != PING_CONTENT_TYPE or not self._drops_pings:
                if message.size > self.max_message_bytes or self._needs_session:
                    self._check(message)
                arriving += message.size
        self._make_room(arriving)
        return arriving

    def forward(self, message: Message) -> None:
        """Accept a message that another entity forwards, regardless of the status.

        Raises MessageTooLarge, InvalidOperation (no session id), QuotaExceeded.
        """
        self._check(message)
        self._make_room(message.size)
        self.last_send_at = self._agenda.clock()
        self._store(message, self.last_send_at)

    def _make_room(self, arriving: int) -> None:
        """Reserve this many bytes. Raises QuotaExceeded."""
        if self._agenda.full and (blocked_by := self._agenda.full_entity()) is not None:
            raise QuotaExceeded(blocked_by, self._quota_bytes)
        if arriving > self._room or self._is_topic:  # every copy counts for a topic
            self._room = self._quota_bytes - self._held - self._size()
            if arriving > max(0, self._room):
                self._agenda.full[self.path] = lambda: self._held + self._size() + arriving > self._quota_bytes
                raise QuotaExceeded(self.path, self._quota_bytes, self._size())
        self._room -= arriving

    def _arrive(self, message: Message, accepted_at: float) -> None:
        """Store a delayed message, which counts for the quota from now on."""
        self._room = 0
        self._store(message, accepted_at)

    def _check(self, message: Message) -> None:
        if message.size > self.max_message_bytes:
            raise MessageTooLarge(self.path, message.size, self.max_message_bytes)
        if self._needs_session and message.session_id is None:
            raise InvalidOperation(f"'{self.path}' requires sessions and the message has no session id; set one")

    def _store(self, message: Message, now: float, number: int | None = None) -> int:
        if message.content_type == PING_CONTENT_TYPE and self._drops_pings:
            return NO_NUMBER
        if message.message_id is None:
            message = self._admission.identify(message, self._agenda.new_id().hex)
        if self._duplicates is not None and not self._duplicates.is_new(message.message_id, now):
            return NO_NUMBER
        if message.scheduled_at is not None and message.scheduled_at > now:
            return self.schedule.add(message, message.scheduled_at, now, number)
        return self._enter(message, now)
