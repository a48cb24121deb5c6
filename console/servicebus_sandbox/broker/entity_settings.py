"""Settings of entities as frozen values with the service's defaults.

Durations are `timedelta`; None means unlimited (TimeSpan.MaxValue on the wire). Names of sizes have their unit. Values
check their ranges when they are made; `check_update` rejects changes of fixed settings. Queues read `DeliveryRules`,
which are derived once for each change.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum

from servicebus_sandbox.broker.authorization_rules import AuthorizationRule, check_rules
from servicebus_sandbox.broker.broker_errors import InvalidSettings

MAX_LOCK_DURATION = timedelta(minutes=5)
MAX_DUPLICATE_WINDOW = timedelta(days=7)
MAX_DELIVERIES = 2**31 - 1
MAX_USER_METADATA = 1024


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


class Pings(StrEnum):
    """The handling of ping messages, with which senders probe an entity; the service's is undocumented.

    Delivered pings are ordinary messages; AMQP marks them with an annotation (`message_codec.PING`).
    """

    DROPPED = "dropped"
    DELIVERED = "delivered"


def _require(good: bool, name: str, value: object, allowed: str) -> None:
    if not good:
        raise InvalidSettings(f"{name} is {value}; allowed is {allowed}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The settings of a queue. Raises InvalidSettings for a value out of range."""

    lock_duration: timedelta = timedelta(minutes=1)
    max_size_mb: int = 1024
    requires_duplicate_detection: bool = False
    duplicate_window: timedelta = timedelta(minutes=10)
    requires_session: bool = False
    default_ttl: timedelta | None = None
    dead_letter_on_expiration: bool = False
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    auto_delete_on_idle: timedelta | None = None
    status: EntityStatus = EntityStatus.ACTIVE
    forward_to: str | None = None
    forward_dead_lettered_to: str | None = None
    user_metadata: str | None = None
    enable_partitioning: bool = False
    enable_express: bool = False
    max_message_size_kb: int | None = None
    authorization_rules: tuple[AuthorizationRule, ...] = ()

    def __post_init__(self) -> None:
        _check_receiving(self.lock_duration, self.max_delivery_count)
        _check_sending(self.max_size_mb, self.duplicate_window, self.max_message_size_kb)
        _check_common(self.default_ttl, self.auto_delete_on_idle, self.user_metadata)
        check_rules(self.authorization_rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """The settings of a topic. Raises InvalidSettings for a value out of range."""

    max_size_mb: int = 1024
    requires_duplicate_detection: bool = False
    duplicate_window: timedelta = timedelta(minutes=10)
    default_ttl: timedelta | None = None
    enable_batched_operations: bool = True
    auto_delete_on_idle: timedelta | None = None
    status: EntityStatus = EntityStatus.ACTIVE
    user_metadata: str | None = None
    support_ordering: bool = True
    enable_partitioning: bool = False
    enable_express: bool = False
    filtering_messages_before_publishing: bool = False
    max_message_size_kb: int | None = None
    authorization_rules: tuple[AuthorizationRule, ...] = ()

    def __post_init__(self) -> None:
        _check_sending(self.max_size_mb, self.duplicate_window, self.max_message_size_kb)
        _check_common(self.default_ttl, self.auto_delete_on_idle, self.user_metadata)
        check_rules(self.authorization_rules)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionSettings:
    """The settings of a subscription. Raises InvalidSettings for a value out of range."""

    lock_duration: timedelta = timedelta(minutes=1)
    requires_session: bool = False
    default_ttl: timedelta | None = None
    dead_letter_on_expiration: bool = False
    dead_letter_on_filter_errors: bool = True
    max_delivery_count: int = 10
    enable_batched_operations: bool = True
    auto_delete_on_idle: timedelta | None = None
    status: EntityStatus = EntityStatus.ACTIVE
    forward_to: str | None = None
    forward_dead_lettered_to: str | None = None
    user_metadata: str | None = None

    def __post_init__(self) -> None:
        _check_receiving(self.lock_duration, self.max_delivery_count)
        _check_common(self.default_ttl, self.auto_delete_on_idle, self.user_metadata)


EntitySettings = QueueSettings | TopicSettings | SubscriptionSettings
ReceivingSettings = QueueSettings | SubscriptionSettings


def _check_receiving(lock_duration: timedelta, max_delivery_count: int) -> None:
    in_range = timedelta(0) < lock_duration <= MAX_LOCK_DURATION
    _require(in_range, "lock_duration", lock_duration, f"more than 0, at most {MAX_LOCK_DURATION}")
    _require(
        1 <= max_delivery_count <= MAX_DELIVERIES,
        "max_delivery_count",
        max_delivery_count,
        f"1 to {MAX_DELIVERIES}",
    )


def _check_sending(max_size_mb: int, window: timedelta, max_message_size_kb: int | None) -> None:
    _require(max_size_mb >= 1, "max_size_mb", max_size_mb, "1 or more")
    in_range = timedelta(0) < window <= MAX_DUPLICATE_WINDOW
    _require(in_range, "duplicate_window", window, f"more than 0, at most {MAX_DUPLICATE_WINDOW}")
    if max_message_size_kb is not None:
        in_range = 1 <= max_message_size_kb <= 100 * 1024
        _require(in_range, "max_message_size_kb", max_message_size_kb, "1 to 102400")


def _check_common(ttl: timedelta | None, idle: timedelta | None, metadata: str | None) -> None:
    _require(ttl is None or ttl > timedelta(0), "default_ttl", ttl, "more than 0")
    _require(idle is None or idle > timedelta(0), "auto_delete_on_idle", idle, "more than 0")
    length = len(metadata or "")
    _require(length <= MAX_USER_METADATA, "length of user_metadata", length, f"at most {MAX_USER_METADATA} characters")


_FIXED = ("requires_session", "requires_duplicate_detection", "enable_partitioning")


def check_update(old: EntitySettings, new: EntitySettings) -> None:
    """Raise InvalidSettings if an update changes a setting that is fixed at creation."""
    for name in _FIXED:
        before, after = getattr(old, name, None), getattr(new, name, None)
        if before != after:
            raise InvalidSettings(f"{name} is {before} and cannot be changed; create the entity anew with {after}")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryRules:
    """The rules of a message queue, in seconds; None means no limit.

    A dead-letter queue has no expiry, no delivery limit and no sessions.
    """

    lock_seconds: float
    ttl_seconds: float | None = None
    dead_letter_on_expiration: bool = False
    max_deliveries: int | None = None
    requires_session: bool = False
    can_receive: bool = True

    @classmethod
    def of(cls, settings: ReceivingSettings) -> DeliveryRules:
        return cls(
            lock_seconds=settings.lock_duration.total_seconds(),
            ttl_seconds=seconds_or_none(settings.default_ttl),
            dead_letter_on_expiration=settings.dead_letter_on_expiration,
            max_deliveries=settings.max_delivery_count,
            requires_session=settings.requires_session,
            can_receive=settings.status.can_receive,
        )

    @classmethod
    def for_dead_letters(cls, settings: ReceivingSettings) -> DeliveryRules:
        return cls(lock_seconds=settings.lock_duration.total_seconds(), can_receive=settings.status.can_receive)


def seconds_or_none(duration: timedelta | None) -> float | None:
    return None if duration is None else duration.total_seconds()
