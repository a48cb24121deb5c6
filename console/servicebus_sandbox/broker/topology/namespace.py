"""One namespace: its entities by path, and their agenda.

Paths compare without regard to case; queues and topics share one name space. The owner calls `run` after any input and
at `next_deadline`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from servicebus_sandbox.broker.broker_errors import (
    EntityDisabled,
    EntityExists,
    EntityNotFound,
    InvalidOperation,
    InvalidSettings,
)
from servicebus_sandbox.broker.entity_settings import (
    AS_SEEN,
    Behavior,
    Expiry,
    Pings,
    QueueSettings,
    SubscriptionSettings,
    Tier,
    TopicSettings,
    check_update,
    seconds_or_none,
)
from servicebus_sandbox.broker.message import Message
from servicebus_sandbox.broker.queues.agenda import Agenda, Clock
from servicebus_sandbox.broker.queues.intake import Admission
from servicebus_sandbox.broker.queues.message_queue import MessageQueue
from servicebus_sandbox.broker.subscription_rules.message_properties import PropertyCodec, SystemFieldCodec
from servicebus_sandbox.broker.subscription_rules.rules import DEFAULT_RULE, Rule
from servicebus_sandbox.broker.topology.messaging_entities import (
    DEAD_LETTERS,
    SUBSCRIPTIONS,
    TRANSFER_DEAD_LETTERS,
    Entity,
    Queue,
    SendTarget,
    Subscription,
    Topic,
)


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
        self._agenda = Agenda(clock, salt=salt, expiry=expiry, credits_per_second=credits_per_second, behaves=behaves)
        self._codec = codec or SystemFieldCodec()
        self._admission = Admission(
            max_message_bytes=tier.max_message_bytes, pings=pings, identify=self._codec.identify
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

    def update_queue(self, path: str, settings: QueueSettings) -> Queue:
        """Apply new settings. Raises InvalidSettings for a change of a fixed setting."""
        queue = self.queue(path)
        check_update(queue.settings, settings)
        queue.apply(settings, self._agenda.clock())
        self._idle_watches[queue].look_again()
        self._say_if_closed(queue)
        self._dismiss_if_closed(queue)
        return queue

    def update_topic(self, path: str, settings: TopicSettings) -> Topic:
        topic = self.topic(path)
        check_update(topic.settings, settings)
        topic.apply(settings, self._agenda.clock())
        self._idle_watches[topic].look_again()
        self._say_if_closed(topic)
        return topic

    def update_subscription(self, topic: str, name: str, settings: SubscriptionSettings) -> Subscription:
        subscription = self.subscription(topic, name)
        check_update(subscription.settings, settings)
        subscription.apply(settings, self._agenda.clock())
        self._idle_watches[subscription].look_again()
        self._dismiss_if_closed(subscription)
        return subscription

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
                messages.dismiss(EntityDisabled(entity.path, status.value, "receivers"))


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
