"""The backlog queues of a pairing: found, made, looked at (SPEC.md section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeVar

from azure.core.exceptions import (
    AzureError,
    ClientAuthenticationError,
    HttpResponseError,
    ResourceExistsError,
)
from azure.servicebus.aio.management import ServiceBusAdministrationClient
from azure.servicebus.management import QueueProperties

from console.core.errors import BacklogQueueError, NamespaceUnreachableError
from console.pairing.deadlines import bounded

SEGMENT: Final = "x-servicebus-transfer"
MAX_SIZE_MB: Final = 5120
MAX_DELIVERIES: Final = 2147483647
TIMESPAN_MAX: Final = timedelta(days=10675199, hours=2, minutes=48, seconds=5, microseconds=477581)
LOCK: Final = timedelta(minutes=1)
LIST_FOR: Final = 120.0
"""Seconds that listing is retried on transient errors."""
CREATE_TRIES: Final = 3
CALL: Final = 30.0
"""Seconds one management call may take."""
NAME: Final = 5.0
"""Seconds a namespace has to tell its name; only a screen waits for it, or a start."""
PAUSE: Final = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found:
    """What stands ready: how many queues, from index 0 on, and what is to be said about them."""

    paths: tuple[str, ...]
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Depth:
    """One backlog queue's counts, as the namespace told them."""

    messages: int
    dead_lettered: int
    size_bytes: int


def queue_path(primary: str, index: int) -> str:
    """`{primary}/x-servicebus-transfer/{index}`."""
    return f"{primary}/{SEGMENT}/{index}"


async def ensure(
    admin: ServiceBusAdministrationClient, primary: str, count: int, *, patience: float = LIST_FOR
) -> Found:
    """List the queues under the prefix, and create those of 0 … count-1 that are missing.

    Args:
        patience: seconds that listing is retried on transient errors.

    Raises:
        NamespaceUnreachableError: no answer, or the credential was refused.
        BacklogQueueError: not one queue in the end.
    """
    existing = await _list(admin, f"{primary}/{SEGMENT}/", patience)
    paths = [queue_path(primary, index) for index in range(count)]
    found: list[str] = []
    warnings: list[str] = []
    refusals: list[str] = []
    for path in paths:
        settings = existing.get(path.casefold())
        if settings is not None:
            found.append(path)
            warnings += [f"backlog queue {path} has {text}" for text in differences(settings)]
            continue
        refusal = await _create(admin, path)
        if refusal is None:
            found.append(path)
        else:
            refusals.append(refusal)
    if not found:
        raise BacklogQueueError(
            f"none of the {count} backlog queues under {primary}/{SEGMENT}/ exists or could be created: {refusals[0]}"
        )
    if len(found) < count:
        warnings.append(f"{len(found)} of {count} backlog queues stand ready: {refusals[0]}")
    return Found(tuple(found), tuple(warnings))


def differences(queue: QueueProperties) -> list[str]:
    """In what an existing queue differs from what the pairing would have created; its owner's choice, only shown."""
    expected: dict[str, tuple[object, object]] = {
        "MaxSizeInMegabytes": (queue.max_size_in_megabytes, MAX_SIZE_MB),
        "MaxDeliveryCount": (queue.max_delivery_count, MAX_DELIVERIES),
        "LockDuration": (_span(queue.lock_duration), LOCK),
        "EnableDeadLetteringOnMessageExpiration": (queue.dead_lettering_on_message_expiration, True),
        "EnableBatchedOperations": (queue.enable_batched_operations, True),
        "RequiresSession": (bool(queue.requires_session), False),
    }
    return [f"{name} {is_!s} instead of {should!s}" for name, (is_, should) in expected.items() if is_ != should]


def _span(value: object) -> object:
    """The SDK gives durations as ISO 8601 text; one minute is all that is compared."""
    return LOCK if value in ("PT1M", "PT60S") else value


async def depth(admin: ServiceBusAdministrationClient, path: str) -> Depth:
    """What lies in a backlog queue now: everything but its dead letters, deferred messages included."""
    told = await bounded(admin.get_queue_runtime_properties(path), CALL, f"reading the counts of {path}")
    dead = told.dead_letter_message_count or 0
    return Depth(
        messages=max(0, (told.total_message_count or 0) - dead),
        dead_lettered=dead,
        size_bytes=told.size_in_bytes or 0,
    )


async def told_name(admin: ServiceBusAdministrationClient) -> str:
    """A namespace's name as it tells it; empty where it does not."""
    try:
        told = await bounded(admin.get_namespace_properties(), NAME, "reading a namespace's name")
    except (AzureError, OSError, TimeoutError):
        return ""  # only a name for the screen
    return told.name or ""


async def _list(admin: ServiceBusAdministrationClient, prefix: str, patience: float) -> dict[str, QueueProperties]:
    async def listed() -> dict[str, QueueProperties]:
        return {
            queue.name.casefold(): queue
            async for queue in admin.list_queues()
            if queue.name.casefold().startswith(prefix.casefold())
        }

    return await _retried(listed, "listing the queues of the secondary namespace", patience)


async def _create(admin: ServiceBusAdministrationClient, path: str) -> str | None:
    """Create one backlog queue; the reason when it could not be."""
    refusal = ""
    for attempt in range(CREATE_TRIES):
        if attempt:
            await asyncio.sleep(PAUSE)
        try:
            await bounded(_created(admin, path), CALL, f"creating {path}")
            return None
        except ResourceExistsError:
            return None  # another pairing was faster
        except ClientAuthenticationError as error:
            raise _refused(f"creating {path}", error) from error
        except (AzureError, OSError, TimeoutError) as error:
            refusal = _said(error)
    return f"{path}: {refusal}"


async def _created(admin: ServiceBusAdministrationClient, path: str) -> None:
    await admin.create_queue(
        path,
        max_size_in_megabytes=MAX_SIZE_MB,
        max_delivery_count=MAX_DELIVERIES,
        default_message_time_to_live=TIMESPAN_MAX,
        auto_delete_on_idle=TIMESPAN_MAX,
        lock_duration=LOCK,
        dead_lettering_on_message_expiration=True,
        enable_batched_operations=True,
    )


async def _retried(act: Callable[[], Awaitable[T]], what: str, patience: float) -> T:
    """`act`, again while its errors are transient and `patience` (seconds) lasts."""
    loop = asyncio.get_running_loop()
    end = loop.time() + patience
    while True:
        try:
            return await bounded(act(), min(CALL, max(1.0, end - loop.time())), what)
        except ClientAuthenticationError as error:
            raise _refused(what, error) from error
        except HttpResponseError as error:
            if error.status_code is not None and error.status_code < 500 and error.status_code not in (408, 429):
                raise NamespaceUnreachableError(f"{what} failed: {_said(error)}") from error
            failure: Exception = error
        except (AzureError, OSError, TimeoutError) as error:
            failure = error
        if loop.time() + PAUSE >= end:
            raise NamespaceUnreachableError(f"{what} failed for {patience:g} s: {_said(failure)}") from failure
        await asyncio.sleep(PAUSE)


def _refused(what: str, error: Exception) -> NamespaceUnreachableError:
    return NamespaceUnreachableError(
        f"{what} was refused ({_said(error)}): check the key or the role; pairing needs Manage on the secondary"
    )


def _said(error: Exception) -> str:
    """The first line of what an error says, without the SDK's dump of the response."""
    lines = str(error).strip().splitlines()
    return lines[0][:200] if lines else type(error).__name__
