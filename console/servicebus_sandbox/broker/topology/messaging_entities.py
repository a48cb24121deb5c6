"""Queues, topics and subscriptions: settings, counts, and the way of their messages.

The namespace makes, changes and removes them. Delivery is in `message_queue`, admission in `intake`. Times are epoch
seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from servicebus_sandbox.broker.broker_errors import BrokerError, InvalidOperation
from servicebus_sandbox.broker.entity_settings import (
    DeliveryRules,
    QueueSettings,
    ReceivingSettings,
    SubscriptionSettings,
    TopicSettings,
    seconds_or_none,
)
from servicebus_sandbox.broker.message import Message, StoredMessage
from servicebus_sandbox.broker.queues.agenda import Agenda
from servicebus_sandbox.broker.queues.forwarding import Forwarder, Send
from servicebus_sandbox.broker.queues.intake import Admission, Intake
from servicebus_sandbox.broker.queues.message_queue import MessageQueue
from servicebus_sandbox.broker.queues.session_queue import SessionQueue
from servicebus_sandbox.broker.subscription_rules.message_properties import PropertyCodec
from servicebus_sandbox.broker.subscription_rules.rules import ArrivingMessage, Rule, RuleSet

DEAD_LETTERS = "$DeadLetterQueue"
TRANSFER_DEAD_LETTERS = "$Transfer/$DeadLetterQueue"
SUBSCRIPTIONS = "Subscriptions"
FILTER_FAILED = "FilterException"
"""The reason of a message that was dead-lettered because a rule failed on its properties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntityCounts:
    """The numbers of an entity's messages by state; active includes locked and deferred ones."""

    active: int = 0
    dead_letter: int = 0
    scheduled: int = 0
    transfer: int = 0
    transfer_dead_letter: int = 0

    @property
    def total(self) -> int:
        return self.active + self.dead_letter + self.scheduled + self.transfer + self.transfer_dead_letter


class _MessageQueues:
    """The message queue of an entity with its two dead-letter queues."""

    def __init__(self, path: str, settings: ReceivingSettings, agenda: Agenda, forward: Send) -> None:
        self.new_number = count(1).__next__
        dead_rules = DeliveryRules.for_dead_letters(settings)
        self.dead_letters = MessageQueue(f"{path}/{DEAD_LETTERS}", dead_rules, agenda, self.new_number)
        self.transfer_dead_letters = MessageQueue(
            f"{path}/{TRANSFER_DEAD_LETTERS}", dead_rules, agenda, self.new_number
        )
        kind: type[MessageQueue] = SessionQueue if settings.requires_session else MessageQueue
        self.messages = kind(path, DeliveryRules.of(settings), agenda, self.new_number, dead_letters=self.dead_letters)
        failed = self.transfer_dead_letters
        self._forwarder = self.messages.forwarder = Forwarder(self.messages, agenda, forward, failed)
        self._dead_forwarder = self.dead_letters.forwarder = Forwarder(
            self.dead_letters, agenda, forward, failed, source=path
        )
        self._aim(settings)

    def __iter__(self) -> Iterator[MessageQueue]:
        return iter((self.messages, self.dead_letters, self.transfer_dead_letters))

    def close(self, reason: BrokerError) -> None:
        for queue in self:
            queue.close(reason)

    def apply(self, settings: ReceivingSettings) -> None:
        self.messages.rules = DeliveryRules.of(settings)
        self.dead_letters.rules = self.transfer_dead_letters.rules = DeliveryRules.for_dead_letters(settings)
        self._aim(settings)

    def _aim(self, settings: ReceivingSettings) -> None:
        """Forward as the settings demand; receivers of a forwarding queue are dismissed."""
        self._forwarder.aim(settings.forward_to)
        self._dead_forwarder.aim(settings.forward_dead_lettered_to)
        for queue in (self.messages, self.dead_letters):
            if queue.forwarder is not None and queue.forwarder.target is not None:
                queue.dismiss(InvalidOperation(f"'{queue.path}' forwards its messages to '{queue.forwarder.target}'"))

    @property
    def size_bytes(self) -> int:
        return self.messages.size_bytes + self.dead_letters.size_bytes + self.transfer_dead_letters.size_bytes


class Queue:
    """A queue. Send through `intake`, receive from `messages`, `dead_letters` or `transfer_dead_letters`."""

    def __init__(self, path: str, settings: QueueSettings, agenda: Agenda, admission: Admission, forward: Send) -> None:
        self.path = path
        self.settings = settings
        self.created_at = self.updated_at = agenda.clock()
        self.message_queues = _MessageQueues(path, settings, agenda, forward)
        self.messages = self.message_queues.messages
        self.dead_letters = self.message_queues.dead_letters
        self.transfer_dead_letters = self.message_queues.transfer_dead_letters
        self.intake = Intake(
            path,
            settings,
            agenda,
            admission=admission,
            new_number=self.message_queues.new_number,
            enter=self.messages.put,
            size=lambda: self.size_bytes,
        )
        self.messages.scheduled = self.intake.schedule

    def close(self, reason: BrokerError) -> None:
        self.message_queues.close(reason)
        self.intake.clear()

    def apply(self, settings: QueueSettings, now: float) -> None:
        self.settings, self.updated_at = settings, now
        self.message_queues.apply(settings)
        self.intake.apply(settings)

    @property
    def accessed_at(self) -> float:
        return max(self.intake.last_send_at, self.messages.accessed_at, self.dead_letters.accessed_at)

    @property
    def size_bytes(self) -> int:
        return self.message_queues.size_bytes + self.intake.schedule.size_bytes

    def counts(self) -> EntityCounts:
        return EntityCounts(
            active=len(self.messages),
            dead_letter=len(self.dead_letters),
            scheduled=len(self.intake.schedule),
            transfer_dead_letter=len(self.transfer_dead_letters),
        )


class Subscription:
    """A subscription at `topic/Subscriptions/name`. It stores the messages of its topic that match its rules."""

    def __init__(
        self, topic: Topic, name: str, settings: SubscriptionSettings, agenda: Agenda, first_rule: Rule, forward: Send
    ) -> None:
        self.topic = topic
        self.name = name
        self.path = f"{topic.path}/{SUBSCRIPTIONS}/{name}"
        self.settings = settings
        self.created_at = self.updated_at = agenda.clock()
        self.rules = RuleSet(self.path)
        self.rules.add(first_rule)
        self.message_queues = _MessageQueues(self.path, settings, agenda, forward)
        self.messages = self.message_queues.messages
        self.dead_letters = self.message_queues.dead_letters
        self.transfer_dead_letters = self.message_queues.transfer_dead_letters

    def apply(self, settings: SubscriptionSettings, now: float) -> None:
        self.settings, self.updated_at = settings, now
        self.message_queues.apply(settings)

    def close(self, reason: BrokerError) -> None:
        self.message_queues.close(reason)

    def put(self, arriving: ArrivingMessage, now: float, topic_number: int) -> None:
        """Store the copies that the rules make of a message in the topic."""
        verdict = self.rules.judge(arriving)
        if verdict.error is not None and self.settings.dead_letter_on_filter_errors:
            self._bury(arriving.message, now, FILTER_FAILED, str(verdict.error))
            return
        for message in verdict.copies:
            self._take(message, now, topic_number)

    def _take(self, message: Message, now: float, topic_number: int) -> None:
        if self.settings.requires_session and message.session_id is None:
            self._bury(message, now, "SessionIdMissing", f"'{self.path}' takes only messages with a session id")
            return
        topic_ttl = seconds_or_none(self.topic.settings.default_ttl)
        self.messages.put(message, now, ttl_limit=topic_ttl, enqueued_sequence_number=topic_number)

    def _bury(self, message: Message, now: float, reason: str, description: str) -> None:
        dead = StoredMessage(message, self.message_queues.new_number(), now)
        self.dead_letters.put_dead(dead, reason, description)

    @property
    def accessed_at(self) -> float:
        return max(self.messages.accessed_at, self.dead_letters.accessed_at)

    @property
    def size_bytes(self) -> int:
        return self.message_queues.size_bytes

    def counts(self) -> EntityCounts:
        return EntityCounts(
            active=len(self.messages),
            dead_letter=len(self.dead_letters),
            transfer_dead_letter=len(self.transfer_dead_letters),
        )


class Topic:
    """A topic: it offers every message to each subscription. Scheduled messages wait in the topic."""

    def __init__(
        self, path: str, settings: TopicSettings, agenda: Agenda, admission: Admission, codec: PropertyCodec
    ) -> None:
        self.path = path
        self.settings = settings
        self.created_at = self.updated_at = agenda.clock()
        self._codec = codec
        self._new_id = agenda.new_id
        self.subscriptions: dict[str, Subscription] = {}
        self._new_number = count(1).__next__
        self.intake = Intake(
            path,
            settings,
            agenda,
            admission=admission,
            new_number=self._new_number,
            enter=self._copy,
            size=lambda: self.size_bytes,
            filters=lambda: sum(len(subscription.rules) for subscription in self.subscriptions.values()),
        )

    def apply(self, settings: TopicSettings, now: float) -> None:
        self.settings, self.updated_at = settings, now
        self.intake.apply(settings)

    def close(self, reason: BrokerError) -> None:
        """Drop scheduled messages; the namespace closes the subscriptions."""
        self.intake.clear()

    def _copy(self, message: Message, now: float) -> int:
        number = self._new_number()
        arriving = ArrivingMessage(message, self._codec, self._new_id)
        for subscription in self.subscriptions.values():
            subscription.put(arriving, now, number)
        return number

    @property
    def accessed_at(self) -> float:
        return self.intake.last_send_at

    @property
    def size_bytes(self) -> int:
        copies = sum(subscription.size_bytes for subscription in self.subscriptions.values())
        return copies + self.intake.schedule.size_bytes

    def counts(self) -> EntityCounts:
        """Return the counts; a topic holds only scheduled messages, its subscriptions hold the copies."""
        return EntityCounts(scheduled=len(self.intake.schedule))


Entity = Queue | Topic | Subscription
SendTarget = Queue | Topic
