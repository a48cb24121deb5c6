"""The port to a namespace's management, implemented for Atom and ARM.

Both raise azure-core's errors and try once; the pairing decides on retries (SPEC.md section 4.4). backlog_queues.py
selects the queues and interprets refusals.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, Protocol, TypeVar

import isodate
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceExistsError
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.model.namespace_info import NamespaceInfo

MAX_SIZE_MB: Final = 5120
MAX_DELIVERIES: Final = 2147483647
LOCK: Final = timedelta(minutes=1)
"""Settings of a backlog queue."""
TIMESPAN_MAX: Final = "P10675199DT2H48M5.4775807S"
"""TimeSpan.MaxValue; text, since Python's timedelta ends at microseconds."""

ONCE: Final[dict[str, Any]] = {"retry_total": 0}
"""Options of each request: azure-core would retry ten times, and the pairing counts the tries."""

T = TypeVar("T")

PROXY_REFUSED: Final = 407
"""A proxy's answer to a missing or wrong password."""


class QueueStatus(StrEnum):
    """The operations that a queue permits. The pairing itself sets only the first two."""

    ACTIVE = "Active"
    SEND_DISABLED = "SendDisabled"
    DISABLED = "Disabled"
    RECEIVE_DISABLED = "ReceiveDisabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWanted:
    """The settings of a queue to be created; None and False leave one to the namespace.

    key: name and key of a rule of the queue that gives `right` alone, Send or Listen.
    """

    lock: timedelta | None = None
    sessions: bool = False
    duplicate_window: timedelta | None = None
    dead_letters_expired: bool = False
    key: tuple[str, str] | None = field(default=None, repr=False)
    right: str = "Send"
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


class ListTooLongError(Exception):
    """The list of a namespace's queues costs more than reading a few queues singly."""


class Management(Protocol):
    """A namespace's management. Each call raises azure-core's errors, and ends within the caller's deadline."""

    async def queues(self, prefix: str) -> list[QueueFacts]:
        """List the queues whose path begins with `prefix`, case aside."""

    async def create_queue(self, path: str, wanted: QueueWanted) -> None:
        """Create a queue with exactly these settings.

        Raises:
            ResourceExistsError: it exists already, and is unchanged.
        """

    async def depth(self, path: str) -> Depth:
        """Read a queue's counts."""

    async def depths(self, prefix: str, *, pages: int) -> dict[str, Depth]:
        """Read the counts of the queues whose path begins with `prefix`, by path in lower case, from one list.

        A queue whose counts the list lacks is missing from the result.

        Raises:
            ListTooLongError: the list has more than `pages` pages.
        """

    async def set_status(self, path: str, status: QueueStatus) -> None:
        """Set a queue's status; every other setting stays."""

    async def delete_queue(self, path: str) -> None:
        """Delete a queue and its messages. A missing queue raises ResourceNotFoundError."""

    async def keeps_expired(self, path: str) -> str | None:
        """Return the queue or subscription at `path` that dead-letters expired messages.

        Empty: none does. None: unknown, since no such entity is described.
        """

    async def namespace(self) -> NamespaceInfo:
        """Return the namespace's description."""

    async def close(self) -> None:
        """Close the client behind it."""


class TopicManagement(Management, Protocol):
    """Management of topics too. Each call raises azure-core's errors, and ends within the caller's deadline."""

    async def topics(self, prefix: str) -> list[TopicFacts]:
        """List the topics whose path begins with `prefix`, case aside."""

    async def create_topic(self, path: str, *, metadata: str) -> None:
        """Create a topic with this UserMetadata. Raises ResourceExistsError."""

    async def create_subscription(self, topic: str, name: str) -> None:
        """Create a subscription that gets all messages of its topic. Raises ResourceExistsError."""

    async def delete_topic(self, path: str) -> None:
        """Delete a topic with its subscriptions. A missing topic raises ResourceNotFoundError."""


SecondaryAdmin = ServiceBusAdministrationClient | Management
"""The management clients that callers may pass."""


async def limit_pages(pages: AsyncIterator[T], most: int | None) -> AsyncIterator[T]:
    """Yield the pages of a list, each of which is a request. Raises ListTooLongError after `most` pages; None: all."""
    read = 0
    async for page in pages:
        read += 1
        if most is not None and read > most:
            raise ListTooLongError
        yield page


def settings_of(wanted: QueueWanted) -> dict[str, Any]:
    """Return the settings to be written, by the service's names; the others are the namespace's choice."""
    span = TIMESPAN_MAX if wanted.endless else None
    settings = {
        "LockDuration": format_span(wanted.lock),
        "MaxSizeInMegabytes": wanted.max_size_mb,
        "RequiresDuplicateDetection": wanted.duplicate_window is not None,
        "RequiresSession": wanted.sessions,
        "DefaultMessageTimeToLive": span,
        "DeadLetteringOnMessageExpiration": wanted.dead_letters_expired,
        "DuplicateDetectionHistoryTimeWindow": format_span(wanted.duplicate_window),
        "MaxDeliveryCount": wanted.max_deliveries,
        "EnableBatchedOperations": wanted.batched,
        "UserMetadata": wanted.metadata,
        "AutoDeleteOnIdle": span,
    }
    return {name: value for name, value in settings.items() if value}


def format_span(span: timedelta | None) -> str | None:
    """Format a duration as the service reads it."""
    return None if span is None else str(isodate.duration_isoformat(span))


def is_refusal(error: Exception) -> bool:
    """Return whether a management request failed for lack of rights.

    The credential is wrong or missing, or its role too small.

    403 is also how Atom reports a full namespace (SubCode 40300) and operations it does not allow (40301).
    """
    if isinstance(error, ClientAuthenticationError):  # azure-identity raises it too, without a response
        return True
    return _status(error) == 401 or (_status(error) == 403 and "SubCode=403" not in str(error))


def is_transient(error: Exception) -> bool:
    """Return whether the same request may succeed later: no answer, a failure of the server, or throttling."""
    if getattr(getattr(error, "inner_exception", None), "status", None) == PROXY_REFUSED:
        return False
    status = _status(error)
    return status is None or status >= 500 or status in (408, 429) or (status == 409 and not is_there_already(error))


def is_there_already(error: Exception) -> bool:
    """Return whether creation failed because the queue exists; SubCode 40901 is another operation under way."""
    return isinstance(error, ResourceExistsError) and "SubCode=40901" not in str(error)


def _status(error: Exception) -> int | None:
    return error.status_code if isinstance(error, HttpResponseError) else None
