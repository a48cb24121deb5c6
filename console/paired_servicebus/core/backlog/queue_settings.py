"""What a queue or topic is: backlog queues' names, settings and hazards, access rules and counts.

Backlog queues are created with one set of settings; a queue that exists already is used as its owner made it, unless it
can lose an accepted message (SPEC.md sections 4.1 and 4.2).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Final

MAX_SIZE_MB: Final = 5120
MAX_DELIVERIES: Final = 2147483647
LOCK: Final = timedelta(minutes=1)
"""Settings of a backlog queue."""
SEGMENT: Final = "x-servicebus-transfer"
MB: Final = 1024**2
LONGEST: Final = timedelta(days=10675199)
"""A span of this length or more is TimeSpan.MaxValue, whose fraction of a second Python cannot hold."""
ENDLESS: Final = "no limit"
MAX_INDEX_DIGITS: Final = 9
"""Digits of an index; a longer number is not one of ours."""


def queue_path(primary: str, index: int) -> str:
    """Return `{primary}/x-servicebus-transfer/{index}`."""
    return f"{primary}/{SEGMENT}/{index}"


def queue_index(path: str) -> int | None:
    """Return the index in a backlog queue's path; None for any other path."""
    prefix, _, last = path.rpartition("/")
    if prefix.rpartition("/")[2].casefold() != SEGMENT:
        return None
    is_number = last.isascii() and last.isdecimal() and len(last) <= MAX_INDEX_DIGITS
    return int(last) if is_number and last == str(int(last)) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """A queue's description by its namespace, for comparisons. None: the namespace does not report it readably."""

    path: str
    max_size_mb: int | None = None
    max_deliveries: int | None = None
    lock: timedelta | None = None
    dead_letters_expired: bool | None = None
    batched: bool | None = None
    sessions: bool | None = None
    status: str = ""
    """Active, Disabled, SendDisabled, ReceiveDisabled, or another value of the service; empty: unknown."""
    ttl: timedelta | None = None
    idle: timedelta | None = None
    """The default time to live, and the idle time after which the queue is deleted."""
    duplicates: bool | None = None
    """Whether it detects duplicates."""
    partitioned: bool | None = None
    forwards_to: str = ""
    forwards_dead_letters_to: str = ""
    """The entities that get its messages and its dead letters; empty: none."""
    metadata: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFacts:
    """A topic's description by its namespace."""

    path: str
    metadata: str = ""
    """The topic's UserMetadata."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """One queue's counts by its namespace; a namespace that throttles reports zeros."""

    messages: int
    """All but dead letters; deferred and scheduled ones included."""
    dead_lettered: int
    size_bytes: int
    scheduled: int = 0
    """Of `messages`: scheduled for later."""
    last_active: float | None = None
    """Time of the last send or receive, in epoch seconds; None: never, or unknown."""
    created_at: float | None = None
    """In epoch seconds; None: unknown."""


class QueueStatus(StrEnum):
    """The operations that a queue permits. The pairing itself sets only the first two."""

    ACTIVE = "Active"
    SEND_DISABLED = "SendDisabled"
    DISABLED = "Disabled"
    RECEIVE_DISABLED = "ReceiveDisabled"


SEND, LISTEN, MANAGE = "Send", "Listen", "Manage"
"""The rights of rules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessRule:
    """A shared access rule: its key gives its rights at a queue, or in the whole namespace.

    key: in base64; empty: unknown here, or left to the namespace.
    """

    name: str
    rights: frozenset[str]
    key: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWanted:
    """The settings of a queue to be created; None and False leave one to the namespace. rules: those of the queue."""

    lock: timedelta | None = None
    sessions: bool = False
    duplicate_window: timedelta | None = None
    dead_letters_expired: bool = False
    rules: tuple[AccessRule, ...] = ()
    max_size_mb: int | None = None
    max_deliveries: int | None = None
    metadata: str = ""
    """The queue's UserMetadata."""
    batched: bool = False
    endless: bool = False
    """Whether neither its messages nor the queue itself expire: both spans are TimeSpan.MaxValue."""


BACKLOG_QUEUE: Final = QueueWanted(
    max_size_mb=MAX_SIZE_MB,
    max_deliveries=MAX_DELIVERIES,
    endless=True,
    lock=LOCK,
    dead_letters_expired=True,
    batched=True,
)
"""A backlog queue is created with exactly these settings (SPEC.md section 4.2)."""


def differences(queue: QueueFacts) -> list[str]:
    """Return the settings that differ from a created queue's; all but the `hazards` are the owner's choice."""
    expected: dict[str, tuple[object, object]] = {
        "MaxSizeInMegabytes": (queue.max_size_mb, MAX_SIZE_MB),
        "MaxDeliveryCount": (queue.max_deliveries, MAX_DELIVERIES),
        "LockDuration": (queue.lock, LOCK),
        "DefaultMessageTimeToLive": (_span(queue.ttl), ENDLESS),
        "AutoDeleteOnIdle": (_span(queue.idle), ENDLESS),
        "EnableDeadLetteringOnMessageExpiration": (queue.dead_letters_expired, True),
        "EnableBatchedOperations": (queue.batched, True),
        "RequiresDuplicateDetection": (queue.duplicates, False),
        "RequiresSession": (queue.sessions, False),
        "EnablePartitioning": (queue.partitioned, False),
        "ForwardTo": (queue.forwards_to or "none", "none"),
        "ForwardDeadLetteredMessagesTo": (queue.forwards_dead_letters_to or "none", "none"),
        "Status": (queue.status or None, "Active"),
    }
    return [
        f"{name} {'unknown' if is_ is None else is_!s} instead of {should!s}"
        for name, (is_, should) in expected.items()
        if is_ != should
    ]


def hazards(queue: QueueFacts) -> list[str]:
    """Return the settings by which a queue can lose an accepted message, each with its remedy (SPEC.md section 4.2).

    A session queue refuses every parked message, since the envelope holds its session.
    """
    found = []
    if queue.duplicates:
        found.append("RequiresDuplicateDetection drops a message whose id it has seen: delete the empty queue")
    if queue.sessions:
        found.append("RequiresSession refuses parked messages: delete the empty queue")
    if _is_finite(queue.ttl) and queue.dead_letters_expired is False:
        found.append(
            f"DefaultMessageTimeToLive {queue.ttl} deletes what it holds longer: set it to the maximum, or set "
            "EnableDeadLetteringOnMessageExpiration"
        )
    if _is_finite(queue.idle):
        found.append(f"AutoDeleteOnIdle {queue.idle} deletes the queue with its messages: set it to the maximum")
    if queue.forwards_to:
        found.append(f"ForwardTo moves its messages to {queue.forwards_to}: remove it")
    if queue.forwards_dead_letters_to:
        found.append(
            f"ForwardDeadLetteredMessagesTo moves its dead letters to {queue.forwards_dead_letters_to}: remove it"
        )
    return found


def _is_finite(span: timedelta | None) -> bool:
    return span is not None and span < LONGEST


def _span(span: timedelta | None) -> object:
    return ENDLESS if span is not None and span >= LONGEST else span


@dataclass(frozen=True, slots=True)
class BacklogQueues:
    """The usable queues by index, with gaps where creation failed, and warnings about them."""

    paths: Mapping[int, str]
    warnings: tuple[str, ...]
    settings: dict[int, QueueFacts] = field(default_factory=dict)
    """Of the queues that existed before: created ones have the expected settings."""

    def differences(self, index: int) -> tuple[str, ...]:
        """Return the differences between a queue's settings and the expected ones."""
        facts = self.settings.get(index)
        return tuple(differences(facts)) if facts is not None else ()

    def hazards(self, index: int) -> str:
        """Return why a queue must get no messages, with the remedies; empty if it may."""
        facts = self.settings.get(index)
        return "; ".join(hazards(facts)) if facts is not None else ""

    def limit(self, index: int) -> int:
        """Return the bytes that a queue may hold."""
        facts = self.settings.get(index)
        return (facts.max_size_mb if facts is not None and facts.max_size_mb else MAX_SIZE_MB) * MB
