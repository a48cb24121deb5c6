"""What a pairing asks of a namespace's management: one port, with Atom or ARM behind it.

Both speak in azure-core's errors, and both try once: how often and how long is the pairing's (SPEC.md section 4.4).
Not here: which queues are wanted, and what a refusal means for the pairing (backlog.py).
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import Any, Final, Protocol, TypeVar

from azure.core.async_paging import AsyncItemPaged
from azure.core.exceptions import ClientAuthenticationError, HttpResponseError, ResourceExistsError
from azure.servicebus.aio.management import ServiceBusAdministrationClient

from paired_servicebus.core.model.namespace_info import NamespaceInfo

MAX_SIZE_MB: Final = 5120
MAX_DELIVERIES: Final = 2147483647
LOCK: Final = timedelta(minutes=1)
"""With these, and TimeSpan.MaxValue for both of its spans, a backlog queue is made (SPEC.md section 4.2)."""

ONCE: Final[dict[str, Any]] = {"retry_total": 0}
"""For each request: azure-core would try ten times more, and the pairing counts the tries."""

T = TypeVar("T")

PROXY_REFUSED: Final = 407
"""What a proxy answers to whom it does not know; aiohttp tells it without the password."""


class QueueStatus(StrEnum):
    """What a queue lets its clients do; the two that the pairing sets."""

    ACTIVE = "Active"
    SEND_DISABLED = "SendDisabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueFacts:
    """A queue as its namespace describes it: what a backlog queue is compared by."""

    path: str
    max_size_mb: int | None
    max_deliveries: int | None
    lock: timedelta | None
    dead_letters_expired: bool
    batched: bool
    sessions: bool
    status: str
    """Active, Disabled, SendDisabled, ReceiveDisabled, or what the service has besides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Depth:
    """One queue's counts, as the namespace told them; a namespace that throttles tells zeros."""

    messages: int
    """All but dead letters; deferred and scheduled ones included."""
    dead_lettered: int
    size_bytes: int
    scheduled: int = 0
    """Of `messages`: set to appear later."""
    last_active: float | None = None
    """When it was last sent to or asked for messages, in epoch seconds; None: never, or not told."""
    created_at: float | None = None
    """In epoch seconds; None: not told."""


class ListTooLongError(Exception):
    """A namespace has so many queues that reading a few by themselves costs less than the list."""


class Management(Protocol):
    """A namespace's management. Each call raises azure-core's errors, and ends within the caller's deadline."""

    async def queues(self, prefix: str) -> list[QueueFacts]:
        """The queues whose path begins with `prefix`, case aside."""

    async def create_backlog_queue(self, path: str) -> None:
        """Make a queue with exactly the settings of SPEC.md section 4.2.

        Raises:
            ResourceExistsError: it is there already; it stays as it is.
        """

    async def depth(self, path: str) -> Depth:
        """What lies in a queue now."""

    async def depths(self, prefix: str, *, pages: int) -> dict[str, Depth]:
        """What lies in the queues whose path begins with `prefix`, by path in lower case: from one list, which does not
        tell the counts of a queue that is missing here.

        Raises:
            ListTooLongError: the list has more than `pages` pages.
        """

    async def set_status(self, path: str, status: QueueStatus) -> None:
        """Let a queue's clients send, or not; every other setting stays."""

    async def delete_queue(self, path: str) -> None:
        """Delete a queue and all that lies in it. One that is not there raises ResourceNotFoundError."""

    async def keeps_expired(self, path: str) -> str:
        """The queue at `path`, or a subscription of the topic there, if it dead-letters what expires; else ""."""

    async def namespace(self) -> NamespaceInfo:
        """What the namespace tells about itself."""

    async def close(self) -> None:
        """Ends the client behind it."""


SecondaryAdmin = ServiceBusAdministrationClient | Management
"""What a caller may hand in."""


async def limited(items: AsyncItemPaged[T], pages: int) -> AsyncIterator[AsyncIterator[T]]:
    """The pages of a list, each of which is a request. Raises ListTooLongError where there are more than `pages`."""
    asked = 0
    async for page in items.by_page():
        asked += 1
        if asked > pages:
            raise ListTooLongError
        yield page


def is_refusal(error: Exception) -> bool:
    """Whether a management request failed for want of rights: a wrong or missing credential, or a role too small.

    403 is also how Atom reports a full namespace (SubCode 40300) and operations it does not allow (40301).
    """
    if isinstance(error, ClientAuthenticationError):  # azure-identity raises it too, with no answer behind it
        return True
    return _status(error) == 401 or (_status(error) == 403 and "SubCode=403" not in str(error))


def is_transient(error: Exception) -> bool:
    """Whether the same request may succeed later: no answer, an answer of the server's trouble, or one of too much."""
    if getattr(getattr(error, "inner_exception", None), "status", None) == PROXY_REFUSED:
        return False
    status = _status(error)
    return status is None or status >= 500 or status in (408, 429) or _is_conflict(error)


def is_there_already(error: Exception) -> bool:
    """Whether creating failed since it exists; a 409 may also say that another operation is under way."""
    return (isinstance(error, ResourceExistsError) or _status(error) == 409) and not _is_conflict(error)


def _status(error: Exception) -> int | None:
    return error.status_code if isinstance(error, HttpResponseError) else None


def _is_conflict(error: Exception) -> bool:
    return "SubCode=40901" in str(error)
