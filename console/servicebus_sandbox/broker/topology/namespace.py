"""One namespace: its entities by path, and their agenda.

Paths compare without regard to case; queues and topics share one name space. The owner calls `run` after any input and
at `next_deadline`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import count
from typing import Any, Generic, TypeVar

from servicebus_sandbox.broker.broker_errors import (
    BrokerError,
    EntityDisabled,
    EntityExists,
    EntityNotFound,
    InvalidOperation,
    InvalidSettings,
)
from servicebus_sandbox.broker.entity_settings import (
    AS_SEEN,
    Behavior,
    EntitySettings,
    Expiry,
    Pings,
    QueueSettings,
    ReceivingSettings,
    SubscriptionSettings,
    Tier,
    TopicSettings,
    check_update,
    seconds_or_none,
)
from servicebus_sandbox.broker.message import Message, StoredMessage
from servicebus_sandbox.broker.queues.agenda import Agenda, Clock
from servicebus_sandbox.broker.queues.intake import Admission, Intake
from servicebus_sandbox.broker.queues.message_queue import Forwarder, MessageQueue, Send
from servicebus_sandbox.broker.queues.session_queue import SessionQueue
from servicebus_sandbox.broker.subscription_rules.message_properties import PropertyCodec, SystemFieldCodec
from servicebus_sandbox.broker.subscription_rules.rules import DEFAULT_RULE, ArrivingMessage, Rule, RuleSet

# Queues, topics and subscriptions: settings, counts, and the way of their messages.
#
# The namespace makes, changes and removes them. Delivery is in `message_queue`, admission in `intake`. Times are epoch
# seconds.

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


S = TypeVar("S", bound=ReceivingSettings)


class _ReceivingEntity(Generic[S]):
    """An entity that messages are received from: its message queue with two dead-letter queues."""

    created_at: float
    updated_at: float

    def __init__(self, path: str, settings: S, agenda: Agenda, forward: Send) -> None:
        self.path = path
        self.settings = settings
        self.new_number = count(1).__next__
        self.dead_letters, self.transfer_dead_letters = (
            MessageQueue(f"{path}/{name}", settings, agenda, self.new_number)
            for name in (DEAD_LETTERS, TRANSFER_DEAD_LETTERS)
        )
        kind: type[MessageQueue] = SessionQueue if settings.requires_session else MessageQueue
        self.messages = kind(path, settings, agenda, self.new_number, dead_letters=self.dead_letters)
        for queue, source in ((self.messages, None), (self.dead_letters, path)):
            queue.forwarder = Forwarder(queue, agenda, forward, self.transfer_dead_letters, source=source)
        self._aim(settings)

    @property
    def message_queues(self) -> tuple[MessageQueue, MessageQueue, MessageQueue]:
        return self.messages, self.dead_letters, self.transfer_dead_letters

    def close(self, reason: BrokerError) -> None:
        for queue in self.message_queues:
            queue.close(reason)

    def apply(self, settings: S, now: float) -> None:
        self.settings, self.updated_at = settings, now
        for queue in self.message_queues:
            queue.apply(settings)
        self._aim(settings)

    def _aim(self, settings: S) -> None:
        """Forward as the settings demand; receivers of a forwarding queue are dismissed."""
        targets = (settings.forward_to, settings.forward_dead_lettered_to)
        for queue, target in zip((self.messages, self.dead_letters), targets, strict=True):
            if queue.forwarder is not None:
                queue.forwarder.aim(target)
            if target is not None:
                queue.dismiss(InvalidOperation(f"'{queue.path}' forwards its messages to '{target}'"))

    @property
    def accessed_at(self) -> float:
        return max(self.messages.accessed_at, self.dead_letters.accessed_at)

    @property
    def size_bytes(self) -> int:
        return self.messages.size_bytes + self.dead_letters.size_bytes + self.transfer_dead_letters.size_bytes

    def counts(self) -> EntityCounts:
        return EntityCounts(
            active=len(self.messages),
            dead_letter=len(self.dead_letters),
            transfer_dead_letter=len(self.transfer_dead_letters),
        )


class Queue(_ReceivingEntity[QueueSettings]):
    """A queue. Send through `intake`, receive from `messages`, `dead_letters` or `transfer_dead_letters`."""

    def __init__(self, path: str, settings: QueueSettings, agenda: Agenda, admission: Admission, forward: Send) -> None:
        super().__init__(path, settings, agenda, forward)
        self.intake = Intake(
            path,
            settings,
            agenda,
            admission=admission,
            new_number=self.new_number,
            enter=self.messages.put,
            size=lambda: self.size_bytes,
        )
        self.messages.scheduled = self.intake.schedule
        self.created_at = self.updated_at = agenda.clock()  # a use is later

    def close(self, reason: BrokerError) -> None:
        super().close(reason)
        self.intake.clear()

    def apply(self, settings: QueueSettings, now: float) -> None:
        super().apply(settings, now)
        self.intake.apply(settings)

    @property
    def accessed_at(self) -> float:
        return max(self.intake.last_send_at, super().accessed_at)

    @property
    def size_bytes(self) -> int:
        return super().size_bytes + self.intake.schedule.size_bytes

    def counts(self) -> EntityCounts:
        return replace(super().counts(), scheduled=len(self.intake.schedule))


class Subscription(_ReceivingEntity[SubscriptionSettings]):
    """A subscription at `topic/Subscriptions/name`. It stores the messages of its topic that match its rules."""

    def __init__(
        self, topic: Topic, name: str, settings: SubscriptionSettings, agenda: Agenda, first_rule: Rule, forward: Send
    ) -> None:
        super().__init__(f"{topic.path}/{SUBSCRIPTIONS}/{name}", settings, agenda, forward)
        self.topic = topic
        self.name = name
        self.created_at = self.updated_at = agenda.clock()
        self.rules = RuleSet(self.path)
        self.rules.add(first_rule)

    def put(self, arriving: ArrivingMessage, now: float, topic_number: int) -> None:
        """Store the copies that the rules make of a message in the topic."""
        copies, error = self.rules.judge(arriving)
        if error is not None and self.settings.dead_letter_on_filter_errors:
            self._bury(arriving.message, now, FILTER_FAILED, str(error))
            return
        for message in copies:
            self._take(message, now, topic_number)

    def _take(self, message: Message, now: float, topic_number: int) -> None:
        if self.settings.requires_session and message.session_id is None:
            self._bury(message, now, "SessionIdMissing", f"'{self.path}' takes only messages with a session id")
            return
        topic_ttl = seconds_or_none(self.topic.settings.default_ttl)
        self.messages.put(message, now, ttl_limit=topic_ttl, enqueued_sequence_number=topic_number)

    def _bury(self, message: Message, now: float, reason: str, description: str) -> None:
        self.dead_letters.put_dead(StoredMessage(message, self.new_number(), now), reason, description)


class Topic:
    """A topic: it offers every message to each subscription. Scheduled messages wait in the topic."""

    def __init__(
        self, path: str, settings: TopicSettings, agenda: Agenda, admission: Admission, codec: PropertyCodec
    ) -> None:
        self.path = path
        self.settings = settings
        self._codec = codec
        self._new_id = agenda.new_id
        self.subscriptions: dict[str, Subscription] = {}
        self.subscribed_at = 0.0
        """The time at which the latest subscription was made, which counts as an access."""
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
        self.created_at = self.updated_at = agenda.clock()  # a use is later

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
        return max(self.intake.last_send_at, self.subscribed_at)

    @property
    def size_bytes(self) -> int:
        copies = sum(subscription.size_bytes for subscription in self.subscriptions.values())
        return copies + self.intake.schedule.size_bytes

    def counts(self) -> EntityCounts:
        """Return the counts; a topic holds only scheduled messages, its subscriptions hold the copies."""
        return EntityCounts(scheduled=len(self.intake.schedule))


Entity = Queue | Topic | Subscription
SendTarget = Queue | Topic


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


_NAME = re.compile(r"[\w.~-]+")
_PATH = re.compile(r"[\w.~-]+(/[\w.~-]+)*")

MAX_PATH = 260
MAX_SUBSCRIPTION_NAME = 50

Watcher = Callable[[Entity], None]
Found = TypeVar("Found")


class BrokerNamespace:
    """A Service Bus namespace with its own clock.

    `clock` returns epoch seconds. `salt` (8 random bytes) makes the lock tokens of runs differ. `codec` reads messages
    for subscription rules. Without `credits_per_second` nothing is throttled. All lookups raise EntityNotFound.
    """

    def __init__(
        self,
        name: str,
        *,
        clock: Clock,
        tier: Tier = Tier.STANDARD,
        salt: bytes = bytes(8),
        codec: PropertyCodec | None = None,
        pings: Pings = Pings.DROPPED,
        expiry: Expiry = Expiry.ON_TIME,
        credits_per_second: int | None = None,
        behaves: Behavior = AS_SEEN,
    ) -> None:
        self.name = name
        self.behaves = behaves
        self.tier = tier
        self.created_at = clock()
        self._agenda = Agenda(
            clock, namespace=name, salt=salt, expiry=expiry, credits_per_second=credits_per_second, behaves=behaves
        )
        self._codec = codec or SystemFieldCodec()
        self._admission = Admission(
            max_message_bytes=tier.max_message_bytes,
            max_batch_messages=tier.max_batch_messages,
            pings=pings,
            identify=self._codec.identify,
        )
        self._queues: dict[str, Queue] = {}
        self._topics: dict[str, Topic] = {}
        self._removal_watchers: list[Watcher] = []
        self._closing_watchers: list[Watcher] = []
        self._idle_watches: dict[Entity, AutoDelete] = {}

    # ------------------------------------------------------------------ making and changing

    def create_queue(self, path: str, settings: QueueSettings | None = None) -> Queue:
        """Create a queue. Raises EntityExists, InvalidSettings (the name)."""
        self._check_free(path)
        queue = Queue(path, settings or QueueSettings(), self._agenda, self._admission, self._forward)
        self._queues[path.lower()] = queue
        self._watch_idleness(queue, lambda: self.delete(path))
        return queue

    def create_topic(self, path: str, settings: TopicSettings | None = None) -> Topic:
        """Create a topic. Raises EntityExists, InvalidSettings (the name)."""
        self._check_free(path)
        topic = Topic(path, settings or TopicSettings(), self._agenda, self._admission, self._codec)
        self._topics[path.lower()] = topic
        self._watch_idleness(topic, lambda: self.delete(path))
        return topic

    def create_subscription(
        self, topic: str, name: str, settings: SubscriptionSettings | None = None, *, first_rule: Rule | None = None
    ) -> Subscription:
        """Create a subscription. Raises EntityNotFound (the topic), EntityExists, InvalidSettings (a name).

        `first_rule` replaces the rule that matches every message.
        """
        parent = self.topic(topic)
        _check_name(name, MAX_SUBSCRIPTION_NAME, slashes=False)
        if name.lower() in parent.subscriptions:
            raise EntityExists(f"{topic}/{SUBSCRIPTIONS}/{name}")
        rule = self._made_now(first_rule or Rule())
        subscription = Subscription(parent, name, settings or SubscriptionSettings(), self._agenda, rule, self._forward)
        parent.subscriptions[name.lower()] = subscription
        parent.subscribed_at = subscription.created_at
        self._watch_idleness(subscription, lambda: self.delete_subscription(topic, name))
        return subscription

    def create_rule(self, topic: str, subscription: str, rule: Rule) -> Rule:
        """Create a rule. Raises EntityNotFound (the subscription), EntityExists, InvalidSettings (the name)."""
        rule = self._made_now(rule)
        self.subscription(topic, subscription).rules.add(rule)
        return rule

    def update_rule(self, topic: str, subscription: str, rule: Rule) -> Rule:
        """Replace the rule of this name. Raises EntityNotFound."""
        rules = self.subscription(topic, subscription).rules
        rule = replace(rule, created_at=rules[rule.name].created_at)
        rules.replace(rule)
        return rule

    def delete_rule(self, topic: str, subscription: str, name: str) -> None:
        self.subscription(topic, subscription).rules.remove(name)

    def update(self, entity: Entity, settings: EntitySettings) -> Entity:
        """Apply new settings. Raises InvalidSettings for a change of a fixed one, EntityNotFound for another kind."""
        if type(settings) is not type(entity.settings):
            raise EntityNotFound(entity.path)
        check_update(entity.settings, settings)
        entity.apply(settings, self._agenda.clock())  # type: ignore[arg-type] # of its own kind, as was just seen
        self._idle_watches[entity].look_again()
        if not isinstance(entity, Subscription):
            self._say_if_closed(entity)
        if not isinstance(entity, Topic):
            self._dismiss_if_closed(entity)
        return entity

    def delete(self, path: str) -> None:
        """Remove a queue, or a topic with its subscriptions."""
        key = path.lower()
        if key in self._queues:
            self._say_gone(self._queues.pop(key))
            return
        topic = self.topic(path)
        del self._topics[key]
        for subscription in topic.subscriptions.values():
            self._say_gone(subscription)
        self._say_gone(topic)

    def delete_subscription(self, topic: str, name: str) -> None:
        subscription = self.subscription(topic, name)
        del subscription.topic.subscriptions[name.lower()]
        self._say_gone(subscription)

    def on_removal(self, watcher: Watcher) -> None:
        """Call `watcher` with every deleted entity, after its receivers are dismissed."""
        self._removal_watchers.append(watcher)

    def on_closing(self, watcher: Watcher) -> None:
        """Call `watcher` with every updated queue and topic that accepts no messages now."""
        self._closing_watchers.append(watcher)

    # ------------------------------------------------------------------ finding

    def queue(self, path: str) -> Queue:
        return _found(self._queues.get(path.lower()), path)

    def topic(self, path: str) -> Topic:
        return _found(self._topics.get(path.lower()), path)

    def subscription(self, topic: str, name: str) -> Subscription:
        return _found(self.topic(topic).subscriptions.get(name.lower()), f"{topic}/{SUBSCRIPTIONS}/{name}")

    def entity(self, path: str) -> Entity:
        """Return the queue, topic or subscription (`topic/Subscriptions/name`) at this path."""
        topic, separator, name = _split_subscription(path)
        if separator and topic.lower() in self._topics:
            return self.subscription(topic, name)
        return self.queue(path) if path.lower() in self._queues else self.topic(path)

    def tracker(self, path: str) -> str:
        """Return the name by which the service's own traces know the entity at this path."""
        topic, separator, name = _split_subscription(path)
        kind = "Topic" if topic.lower() in self._topics else "Queue"
        return f"{self.name}:{kind}:{topic}{'|' if separator else ''}{name}"

    def owner(self, path: str) -> Entity:
        """Return the entity at this path, or the owner of the sub-queue."""
        return self.entity(_split_sub_queue(path)[0])

    def send_target(self, path: str) -> SendTarget:
        """Return the queue or topic at this path. Raises InvalidOperation for a subscription or a dead-letter queue."""
        owner, sub_queue = _split_sub_queue(path)
        entity = self.entity(owner)
        if sub_queue or isinstance(entity, Subscription):
            raise InvalidOperation(f"nothing can be sent to '{path}'; send to the queue or topic it belongs to")
        return entity

    def message_queue(self, path: str) -> MessageQueue:
        """Return the message queue at this path: of a queue, a subscription, or a dead-letter queue.

        Raises InvalidOperation for a topic.
        """
        owner, sub_queue = _split_sub_queue(path)
        entity = self.entity(owner)
        if isinstance(entity, Topic):
            raise InvalidOperation(f"'{path}' is a topic; receive from one of its subscriptions")
        if sub_queue == DEAD_LETTERS:
            return entity.dead_letters
        return entity.transfer_dead_letters if sub_queue else entity.messages

    def queues(self) -> list[Queue]:
        return [self._queues[key] for key in sorted(self._queues)]

    def topics(self) -> list[Topic]:
        return [self._topics[key] for key in sorted(self._topics)]

    def subscriptions(self, topic: str) -> list[Subscription]:
        found = self.topic(topic).subscriptions
        return [found[key] for key in sorted(found)]

    def paths(self) -> Iterator[str]:
        """Yield the path of every queue, topic and subscription."""
        for queue in self.queues():
            yield queue.path
        for topic in self.topics():
            yield topic.path
            for subscription in topic.subscriptions.values():
                yield subscription.path

    # ------------------------------------------------------------------ being driven

    @property
    def agenda(self) -> Agenda:
        """The schedule of all that ends by itself."""
        return self._agenda

    def top_level(self, path: str) -> str:
        """Return the queue or topic to which a path belongs, in lower case: a topic's subscriptions are one with it."""
        entity = self.owner(path)
        return (entity.topic if isinstance(entity, Subscription) else entity).path.lower()

    def charge(self, cost: int) -> None:
        """Take the credits of an operation, if there is a limit. Raises Throttled."""
        self._agenda.charge(cost)

    def run(self) -> None:
        """Do the work that is due, and deliver ready messages to waiting receivers."""
        self._agenda.run_due()
        self._agenda.dispatch()

    def next_deadline(self) -> float | None:
        """Return the time of the next `run` without input, in epoch seconds; None if there is none."""
        return self._agenda.next_deadline()

    # ------------------------------------------------------------------ inside

    def _made_now(self, rule: Rule) -> Rule:
        """Return the rule with its time of creation. Raises InvalidSettings for its name."""
        if rule.name.lower() != DEFAULT_RULE.lower():
            _check_name(rule.name, MAX_SUBSCRIPTION_NAME, slashes=False)
        return replace(rule, created_at=self._agenda.clock())

    def _forward(self, target: str, message: Message) -> None:
        self.send_target(target).intake.forward(message)

    def _check_free(self, path: str) -> None:
        _check_name(path, MAX_PATH, slashes=True)
        if path.lower() in self._queues or path.lower() in self._topics:
            raise EntityExists(path)

    def _watch_idleness(self, entity: Entity, expire: Callable[[], None]) -> None:
        self._idle_watches[entity] = AutoDelete(entity, self._agenda, expire)

    def _say_gone(self, entity: Entity) -> None:
        self._idle_watches.pop(entity).end()
        entity.close(EntityNotFound(entity.path))
        for watcher in self._removal_watchers:
            watcher(entity)

    def _say_if_closed(self, entity: Queue | Topic) -> None:
        try:
            entity.intake.check_open()
        except EntityDisabled:
            for watcher in self._closing_watchers:
                watcher(entity)

    def _dismiss_if_closed(self, entity: Queue | Subscription) -> None:
        status = entity.settings.status
        if not status.can_receive:
            for messages in entity.message_queues:
                messages.dismiss(EntityDisabled(entity.path, status.value))


def _found(entity: Found | None, path: str) -> Found:
    if entity is None:
        raise EntityNotFound(path)
    return entity


def _check_name(name: str, longest: int, *, slashes: bool) -> None:
    """Raise InvalidSettings unless the name is letters, digits and `._-`, in paths with single slashes between."""
    pattern = _PATH if slashes else _NAME
    if len(name) > longest or not pattern.fullmatch(name):
        also = " and single slashes" if slashes else ""
        raise InvalidSettings(
            f"'{name}' is no name for an entity; allowed are up to {longest} letters, digits, '.', '_', '-'{also}"
        )


def _split_subscription(path: str) -> tuple[str, str, str]:
    """Split `topic/Subscriptions/name` into (topic, separator, name); separator is empty for another path."""
    marker = f"/{SUBSCRIPTIONS.lower()}/"
    at = path.lower().find(marker)
    if at < 0:
        return path, "", ""
    return path[:at], marker, path[at + len(marker) :]


def _split_sub_queue(path: str) -> tuple[str, str]:
    """Split a path into (owner, sub-queue); the sub-queue is DEAD_LETTERS, TRANSFER_DEAD_LETTERS or empty."""
    lower = path.lower()
    for sub_queue in (TRANSFER_DEAD_LETTERS, DEAD_LETTERS):
        if lower.endswith("/" + sub_queue.lower()):
            return path[: -len(sub_queue) - 1], sub_queue
    return path, ""


# The service's limits on an entity beyond the ranges of its settings: tiers, sizes, targets.
#
# Atom and ARM call it before they store settings. An entity may keep its present settings.

PREMIUM_MESSAGE_KB = range(1024, 102400 + 1)
_SIZES_MB = tuple(1024 * size for size in (1, 2, 3, 4, 5))
_PREMIUM_SIZES_MB = (*_SIZES_MB, *(1024 * size for size in (10, 20, 40, 80)))
_TARGETS = ("forward_to", "forward_dead_lettered_to")
_NOT_BASIC = {
    "requires_duplicate_detection": False,
    "requires_session": False,
    "auto_delete_on_idle": None,
    "default_ttl": None,
    "duplicate_window": timedelta(minutes=10),
    "forward_to": None,
    "forward_dead_lettered_to": None,
    "enable_express": False,
}
"""Settings that are fixed on the Basic tier, from the page "Service Bus Resource Manager exceptions".

The fixed value itself is accepted here; the service's behaviour is undocumented.
"""


class TargetMissing(BrokerError):
    """A forwarding target that does not exist."""


def check_settings(namespace: BrokerNamespace, settings: EntitySettings, *, present: Entity | None = None) -> None:
    """Raise InvalidSettings or TargetMissing for settings that the service would refuse for this entity.

    `present` is the entity to change, None for a new one.
    """
    for name, wanted in _chosen(settings, present):
        check = _CHECKS.get(name)
        if check is not None:
            check(namespace, wanted)
    check_tier(namespace, settings)
    if getattr(settings, "requires_duplicate_detection", False) and getattr(settings, "enable_express", False):
        raise InvalidSettings("an express entity cannot detect duplicates; choose one of the two")
    for name in _TARGETS:
        _check_target(namespace, getattr(settings, name, None))


def _chosen(settings: EntitySettings, present: Entity | None) -> Iterator[tuple[str, Any]]:
    """Yield the settings that differ from the entity's, or from the defaults."""
    before = type(settings)() if present is None else present.settings
    for name in _CHECKS:
        wanted = getattr(settings, name, None)
        if wanted is not None and wanted != getattr(before, name, None):
            yield name, wanted


def _check_size(namespace: BrokerNamespace, size: int) -> None:
    tier = namespace.tier
    allowed = _PREMIUM_SIZES_MB if tier is Tier.PREMIUM else _SIZES_MB
    if size not in allowed:
        sizes = ", ".join(map(str, allowed))
        raise InvalidSettings(f"max_size_mb is {size}; on the tier {tier} it is one of {sizes}", "max_size_mb", size)


def _check_message_size(namespace: BrokerNamespace, size: int) -> None:
    tier = namespace.tier
    if tier is not Tier.PREMIUM and size != tier.max_message_bytes // 1024:
        sentence = f"max_message_size_kb cannot be chosen on the tier {tier}; choose Premium for that"
        raise InvalidSettings(sentence, "max_message_size_kb", size)
    if tier is Tier.PREMIUM and size not in PREMIUM_MESSAGE_KB:
        allowed = f"{PREMIUM_MESSAGE_KB.start} and {PREMIUM_MESSAGE_KB.stop - 1}"
        sentence = (
            f"'max_message_size_kb' is not between {allowed}, which '{namespace.name}' of the tier '{tier}' allows"
        )
        raise InvalidSettings(sentence, "max_message_size_kb", size)


def _at_least(name: str, shortest: timedelta) -> Callable[[BrokerNamespace, timedelta], None]:
    def check(_: BrokerNamespace, value: timedelta) -> None:
        if value < shortest:
            raise InvalidSettings(f"{name} is {value}; allowed is {shortest} or more", name, value)

    return check


_CHECKS: Mapping[str, Callable[[BrokerNamespace, Any], None]] = {
    "max_size_mb": _check_size,
    "max_message_size_kb": _check_message_size,
    "auto_delete_on_idle": _at_least("auto_delete_on_idle", timedelta(minutes=5)),
    "default_ttl": _at_least("default_ttl", timedelta(seconds=1)),
    "duplicate_window": _at_least("duplicate_window", timedelta(seconds=20)),
}


def check_tier(namespace: BrokerNamespace, settings: EntitySettings) -> None:
    """Raise InvalidSettings for features above the Basic tier: topics, sessions, duplicate detection, forwarding."""
    if namespace.tier is not Tier.BASIC:
        return
    if not isinstance(settings, QueueSettings):
        kind = "topics" if isinstance(settings, TopicSettings) else "subscriptions"
        raise InvalidSettings(f"'{namespace.name}' is of the tier Basic, which has no {kind}; use Standard or Premium")
    for name, only in _NOT_BASIC.items():
        if getattr(settings, name) != only:
            raise InvalidSettings(
                f"{name} cannot be set on the tier Basic of '{namespace.name}'; use Standard or Premium", name
            )


def _check_target(namespace: BrokerNamespace, target: str | None) -> None:
    if target is None:
        return
    try:
        entity: Entity | None = namespace.entity(target)
    except EntityNotFound:
        entity = None
    if entity is None or isinstance(entity, Subscription):
        raise TargetMissing(f"messages are to be forwarded to '{target}', which is no queue or topic; create it first")
