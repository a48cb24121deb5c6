"""Settings and authorization rules of entities as frozen values with the service's defaults.

Durations are `timedelta`; None means unlimited (TimeSpan.MaxValue on the wire). Names of sizes have their unit. Values
check their ranges when they are made; `check_update` rejects changes of fixed settings.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any

from servicebus_sandbox.broker.broker_errors import InvalidSettings

MAX_RULES = 12
"""The limit of one entity or namespace."""


class Right(StrEnum):
    """A right, by its name in claims."""

    SEND = "Send"
    LISTEN = "Listen"
    MANAGE = "Manage"


ALL_RIGHTS = frozenset(Right)


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthorizationRule:
    """A shared access rule: either of its two keys gives its rights, there and below.

    Raises InvalidSettings for no name, no right, Manage without Send and Listen, and a missing key.
    """

    name: str
    rights: frozenset[Right]
    primary_key: str = field(repr=False)
    secondary_key: str = field(repr=False)
    sent_rights: tuple[Right, ...] = field(default=(), repr=False, compare=False)
    """The rights in the order in which a client sent them; management repeats it."""

    def __post_init__(self) -> None:
        if not self.name:
            raise InvalidSettings("an authorization rule has no name; give it one")
        if not self.rights:
            raise InvalidSettings(
                f"the authorization rule '{self.name}' gives no right; allowed are {', '.join(Right)}"
            )
        if Right.MANAGE in self.rights and self.rights != ALL_RIGHTS:
            raise InvalidSettings(
                f"the authorization rule '{self.name}' gives Manage; then it has to give Send and Listen"
            )
        if not self.primary_key or not self.secondary_key:
            raise InvalidSettings(f"the authorization rule '{self.name}' needs a primary and a secondary key")

    @property
    def keys(self) -> tuple[str, str]:
        return self.primary_key, self.secondary_key

    @property
    def listed_rights(self) -> tuple[Right, ...]:
        """Return the rights as sent, else by name."""
        return self.sent_rights or tuple(sorted(self.rights))


def check_rules(rules: Iterable[AuthorizationRule]) -> None:
    """Raise InvalidSettings for more than MAX_RULES rules of one owner, or a repeated name."""
    names = [rule.name for rule in rules]
    if len(names) > MAX_RULES:
        raise InvalidSettings(f"there are {len(names)} authorization rules; allowed are up to {MAX_RULES}")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidSettings(f"there are two authorization rules named '{twice[0]}'; give each a name of its own")


MAX_LOCK_DURATION = timedelta(minutes=5)
MAX_DUPLICATE_WINDOW = timedelta(days=7)
MAX_DELIVERIES = 2**31 - 1
MAX_USER_METADATA = 1024
PARTITIONS = 16
"""The partitions of an entity with `enable_partitioning`."""


class EntityStatus(StrEnum):
    """The operations that an entity allows."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"

    @property
    def can_send(self) -> bool:
        return self in (EntityStatus.ACTIVE, EntityStatus.RECEIVE_DISABLED)

    @property
    def can_receive(self) -> bool:
        return self in (EntityStatus.ACTIVE, EntityStatus.SEND_DISABLED)


class Tier(StrEnum):
    """The namespace's tier; it decides the size limit of messages."""

    BASIC = "Basic"
    STANDARD = "Standard"
    PREMIUM = "Premium"

    @property
    def max_message_bytes(self) -> int:
        """Return the default size limit of a message: 256 KB, on Premium 1 MB."""
        return 1024 * 1024 if self is Tier.PREMIUM else 256 * 1024

    @property
    def max_batch_messages(self) -> int | None:
        """Return the most messages of a batch; None: Premium limits only its size."""
        return None if self is Tier.PREMIUM else 4500


class Pings(StrEnum):
    """The handling of ping messages, with which senders probe an entity; the service's is undocumented.

    Delivered pings are ordinary messages; AMQP marks them with an annotation (`message_codec.PING`).
    """

    DROPPED = "dropped"
    DELIVERED = "delivered"


class Expiry(StrEnum):
    """The time at which a message leaves the queue after its time to live.

    Lazy is the service's documented way: a message stays until a receiver is active. Peeks show it and counts include
    it, but no receiver gets it (the page "Message expiration").
    """

    ON_TIME = "on-time"
    LAZY = "lazy"


@dataclass(frozen=True, slots=True, kw_only=True)
class Behavior:
    """Answers that no page of the service promises; the defaults are what public sources saw.

    peek_when_send_disabled: a queue that is closed to senders can be peeked.
    peek_needs_send: a peek needs the right Send beside Listen.
    send_when_receive_disabled: an entity that is closed to receivers accepts messages.
    exact_batch_delete: a batch delete deletes all that it may, and reports their number. Otherwise it deletes half, and
        reports all.
    close_unlinked_connections: a connection without links to entities is closed, after a minute before its first such
        link and after five since its last.
    oversize_batch_detaches: a batch above 1 MB detaches its link, where single messages may be larger.
    count_dead_letter_deliveries: delivery counts rise in dead-letter queues too.
    full_entity_blocks_namespace: while an entity is full, no other accepts messages.
    tell_batch_size: a sender's attach has the property `com.microsoft:max-message-batch-size`.
    """

    peek_when_send_disabled: bool = False
    peek_needs_send: bool = False
    send_when_receive_disabled: bool = False
    exact_batch_delete: bool = True
    close_unlinked_connections: bool = True
    oversize_batch_detaches: bool = True
    count_dead_letter_deliveries: bool = False
    full_entity_blocks_namespace: bool = False
    tell_batch_size: bool = False


AS_SEEN = Behavior()
"""As public sources saw the service."""


def _require(good: bool, name: str, value: object, allowed: str) -> None:
    if not good:
        raise InvalidSettings(f"{name} is {value}; allowed is {allowed}", name, value)


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """The settings of every entity. Raises InvalidSettings for a value out of range, as do all settings."""

    default_ttl: timedelta | None = None
    enable_batched_operations: bool = True
    auto_delete_on_idle: timedelta | None = None
    status: EntityStatus = EntityStatus.ACTIVE
    user_metadata: str | None = None
    echo: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    """What management repeats from the last description, and the broker does not use."""

    def __post_init__(self) -> None:
        ttl, idle, length = self.default_ttl, self.auto_delete_on_idle, len(self.user_metadata or "")
        allowed = f"at most {MAX_USER_METADATA} characters"
        _require(ttl is None or ttl > timedelta(0), "default_ttl", ttl, "more than 0")
        _require(idle is None or idle > timedelta(0), "auto_delete_on_idle", idle, "more than 0")
        if length > MAX_USER_METADATA:
            raise InvalidSettings(f"user_metadata has {length} characters; allowed is {allowed}", "user_metadata")


@dataclass(frozen=True, kw_only=True)
class ReceivingSettings(_Settings):
    """The settings of an entity that messages are received from."""

    lock_duration: timedelta = timedelta(minutes=1)
    requires_session: bool = False
    dead_letter_on_expiration: bool = False
    max_delivery_count: int = 10
    forward_to: str | None = None
    forward_dead_lettered_to: str | None = None

    def __post_init__(self) -> None:
        lock, deliveries = self.lock_duration, self.max_delivery_count
        in_range = timedelta(0) < lock <= MAX_LOCK_DURATION
        _require(in_range, "lock_duration", lock, f"more than 0, at most {MAX_LOCK_DURATION}")
        _require(1 <= deliveries <= MAX_DELIVERIES, "max_delivery_count", deliveries, f"1 to {MAX_DELIVERIES}")
        super().__post_init__()


@dataclass(frozen=True, kw_only=True)
class SendingSettings(_Settings):
    """The settings of an entity that messages are sent to."""

    max_size_mb: int = 1024
    requires_duplicate_detection: bool = False
    duplicate_window: timedelta = timedelta(minutes=10)
    enable_partitioning: bool = False
    enable_express: bool = False
    max_message_size_kb: int | None = None
    authorization_rules: tuple[AuthorizationRule, ...] = ()

    def __post_init__(self) -> None:
        window, message_kb = self.duplicate_window, self.max_message_size_kb
        in_range = timedelta(0) < window <= MAX_DUPLICATE_WINDOW
        _require(self.max_size_mb >= 1, "max_size_mb", self.max_size_mb, "1 or more")
        _require(in_range, "duplicate_window", window, f"more than 0, at most {MAX_DUPLICATE_WINDOW}")
        is_allowed = message_kb is None or 1 <= message_kb <= 100 * 1024
        _require(is_allowed, "max_message_size_kb", message_kb, "1 to 102400")
        super().__post_init__()
        check_rules(self.authorization_rules)

    @property
    def total_size_mb(self) -> int:
        """Return the quota: `max_size_mb` in each of a partitioned entity's partitions."""
        return self.max_size_mb * (PARTITIONS if self.enable_partitioning else 1)


@dataclass(frozen=True, kw_only=True)
class QueueSettings(ReceivingSettings, SendingSettings):
    """The settings of a queue."""


@dataclass(frozen=True, kw_only=True)
class TopicSettings(SendingSettings):
    """The settings of a topic."""

    support_ordering: bool = True
    filtering_messages_before_publishing: bool = False


@dataclass(frozen=True, kw_only=True)
class SubscriptionSettings(ReceivingSettings):
    """The settings of a subscription."""

    dead_letter_on_filter_errors: bool = True


EntitySettings = QueueSettings | TopicSettings | SubscriptionSettings


FIXED = ("requires_session", "requires_duplicate_detection", "enable_partitioning")
"""Settings that no update changes."""


def check_update(old: EntitySettings, new: EntitySettings) -> None:
    """Raise InvalidSettings if an update changes a setting that is fixed at creation."""
    kind = type(new).__name__.removesuffix("Settings")
    for name in FIXED:
        before, after = getattr(old, name, None), getattr(new, name, None)
        if before != after:
            if name == "enable_partitioning":
                raise InvalidSettings(f"Partitioning cannot be changed for {kind}. Create the entity anew", name)
            sentence = f"The value for the {name} property of an existing {kind} cannot be changed"
            raise InvalidSettings(f"{sentence}; it is {before}: create the entity anew with {after}", name)


def seconds_or_none(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
