"""The backlog queues of a pairing: found, made, looked at (SPEC.md section 4)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, TypeVar

from azure.core.exceptions import AzureError

from console.core.errors import BacklogQueueError, NamespaceUnreachableError
from console.core.namespaces import UNTOLD, NamespaceInfo
from console.pairing.deadlines import bounded
from console.pairing.management import (
    LOCK,
    MAX_DELIVERIES,
    MAX_SIZE_MB,
    Depth,
    Management,
    QueueFacts,
    is_refusal,
    is_there_already,
    is_transient,
)

SEGMENT: Final = "x-servicebus-transfer"
LIST_FOR: Final = 120.0
"""Seconds that listing is retried on transient errors."""
CREATE_TRIES: Final = 3
CALL: Final = 30.0
"""Seconds one management call may take."""
NAME: Final = 5.0
"""Seconds a namespace has to tell its name; only a screen waits for it, or a start."""
PAUSE: Final = 1.0
MB: Final = 1024**2

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found:
    """What stands ready: how many queues, from index 0 on, and what is to be said about them."""

    paths: tuple[str, ...]
    warnings: tuple[str, ...]
    differences: tuple[tuple[str, ...], ...] = ()
    """Of each queue, in what its settings differ from the expected ones."""
    limits: tuple[int, ...] = ()
    """Bytes that each queue may hold."""


def queue_path(primary: str, index: int) -> str:
    """`{primary}/x-servicebus-transfer/{index}`."""
    return f"{primary}/{SEGMENT}/{index}"


async def ensure(admin: Management, primary: str, count: int, *, patience: float = LIST_FOR) -> Found:
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
    settings: list[QueueFacts | None] = []
    for path in paths:
        facts = existing.get(path.casefold())
        if facts is not None:
            found.append(path)
            settings.append(facts)
            warnings += [f"backlog queue {path} has {text}" for text in differences(facts)]
            continue
        refusal = await _create(admin, path)
        if refusal is None:
            found.append(path)
            settings.append(None)  # made as we wanted it, a moment ago
        else:
            refusals.append(refusal)
    if not found:
        raise BacklogQueueError(
            f"none of the {count} backlog queues under {primary}/{SEGMENT}/ exists or could be created: {refusals[0]}"
        )
    if len(found) < count:
        warnings.append(f"{len(found)} of {count} backlog queues stand ready: {refusals[0]}")
    return Found(
        tuple(found),
        tuple(warnings),
        differences=tuple(tuple(differences(facts)) if facts is not None else () for facts in settings),
        limits=tuple(_limit(facts) for facts in settings),
    )


async def standing(admin: Management, primary: str, count: int, *, patience: float = LIST_FOR) -> tuple[str, ...]:
    """Those of the queues of 0 … count-1 that are there; nothing is made.

    Raises:
        NamespaceUnreachableError: no answer, or the credential was refused.
        BacklogQueueError: there is none.
    """
    existing = await _list(admin, f"{primary}/{SEGMENT}/", patience)
    paths = (queue_path(primary, index) for index in range(count))
    found = tuple(path for path in paths if path.casefold() in existing)
    if not found:
        raise BacklogQueueError(f"there is no backlog queue under {primary}/{SEGMENT}/: nothing was ever parked there")
    return found


def _limit(facts: QueueFacts | None) -> int:
    return (facts.max_size_mb if facts is not None and facts.max_size_mb else MAX_SIZE_MB) * MB


def differences(queue: QueueFacts) -> list[str]:
    """In what an existing queue differs from what the pairing would have created; its owner's choice, only shown."""
    expected: dict[str, tuple[object, object]] = {
        "MaxSizeInMegabytes": (queue.max_size_mb, MAX_SIZE_MB),
        "MaxDeliveryCount": (queue.max_deliveries, MAX_DELIVERIES),
        "LockDuration": (queue.lock, LOCK),
        "EnableDeadLetteringOnMessageExpiration": (queue.dead_letters_expired, True),
        "EnableBatchedOperations": (queue.batched, True),
        "RequiresSession": (queue.sessions, False),
        "Status": (queue.status, "Active"),
    }
    return [f"{name} {is_!s} instead of {should!s}" for name, (is_, should) in expected.items() if is_ != should]


async def depth(admin: Management, path: str) -> Depth:
    """What lies in a backlog queue now: everything but its dead letters, deferred messages included."""
    return await bounded(admin.depth(path), CALL, f"reading the counts of {path}")


async def told(admin: Management) -> NamespaceInfo:
    """What a namespace tells about itself; nothing where it does not, or may not be asked."""
    try:
        return await bounded(admin.namespace(), NAME, "asking a namespace about itself")
    except (AzureError, OSError, TimeoutError):
        return UNTOLD  # a name for the screen, and warnings that are missed


async def _list(admin: Management, prefix: str, patience: float) -> dict[str, QueueFacts]:
    async def listed() -> dict[str, QueueFacts]:
        return {queue.path.casefold(): queue for queue in await admin.queues(prefix)}

    return await _retried(listed, "listing the queues of the secondary namespace", patience)


async def _create(admin: Management, path: str) -> str | None:
    """Create one backlog queue; the reason when it could not be."""
    refusal = ""
    for attempt in range(CREATE_TRIES):
        if attempt:
            await asyncio.sleep(PAUSE)
        try:
            await bounded(admin.create_backlog_queue(path), CALL, f"creating {path}")
            return None
        except (AzureError, OSError, TimeoutError) as error:
            if is_there_already(error):
                return None  # another pairing was faster
            if is_refusal(error):
                raise _refused(f"creating {path}", error) from error
            refusal = _said(error)
    return f"{path}: {refusal}"


async def _retried(act: Callable[[], Awaitable[T]], what: str, patience: float) -> T:
    """`act`, again while its errors are transient and `patience` (seconds) lasts."""
    loop = asyncio.get_running_loop()
    end = loop.time() + patience
    while True:
        try:
            return await bounded(act(), min(CALL, max(1.0, end - loop.time())), what)
        except (AzureError, OSError, TimeoutError) as error:
            if is_refusal(error):
                raise _refused(what, error) from error
            if not is_transient(error):
                raise NamespaceUnreachableError(f"{what} failed: {_said(error)}") from error
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
