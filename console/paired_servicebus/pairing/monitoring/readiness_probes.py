"""The evidence for a failover, which leaves no trace: links are opened and closed, nothing is sent.

An open link proves little, since an idle one is cut silently after ten minutes. So each look opens AT_MOST links of
its own, CONCURRENT_PROBES in parallel, oldest proof first. paired_servicebus.core.operator.failover_readiness judges
the evidence.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from azure.core.exceptions import AzureError
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.model.verdict import FailureKind, Judge, judge
from paired_servicebus.core.operator.failover_readiness import ExpiryEvidence, QueueEvidence, TokenEvidence
from paired_servicebus.core.text.masking import masked
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.management.backlog_queues import CALL, depth
from paired_servicebus.pairing.management.management_port import Management
from paired_servicebus.pairing.runtime.deadlines import CLOSING, bounded

AT_MOST: Final = 10
"""Links that one look opens, at 23 ms of CPU each with the SDK."""
CONCURRENT_PROBES: Final = 3
ATTACH_SECONDS: Final = 10.0
"""Seconds in which a backlog queue has to answer."""
TOKEN_SECONDS: Final = 10.0
"""Seconds in which a credential has to return a token."""
SCOPE: Final = "https://servicebus.azure.net//.default"
MB: Final = 1024 * 1024
_SIGNED_UNTIL: Final = re.compile(r"\bse=(\d+)")
_UNREACHABLE: Final = frozenset({FailureKind.TIMEOUT, FailureKind.CONNECTION, FailureKind.COMMUNICATION})


@dataclass(slots=True)
class ReadinessProbes:
    """The latest proof of each backlog queue: whether a link to it could be opened.

    Args:
        client: the secondary namespace's; not closed here.
        paths: the backlog queues by index.
        judge: the verdict on exceptions.
        clock: seconds since the epoch.
    """

    client: ServiceBusClient
    paths: Sequence[str]
    judge: Judge = judge
    clock: Callable[[], float] = time.time
    _found: dict[str, QueueEvidence] | None = None

    async def look(self) -> tuple[QueueEvidence, ...]:
        """Open links to the queues with the oldest proofs; return the evidence of all queues."""
        found = self._found = self._found or {path: QueueEvidence(path=path) for path in self.paths}
        due = sorted(found.values(), key=lambda one: one.tried_at or 0.0)[:AT_MOST]
        gate = asyncio.Semaphore(CONCURRENT_PROBES)
        for proof in await asyncio.gather(*(self._try(one.path, gate) for one in due)):
            found[proof.path] = proof
        return tuple(found.values())

    async def _try(self, path: str, gate: asyncio.Semaphore) -> QueueEvidence:
        async with gate:
            refusal, kind = "", None
            sender = self.client.get_queue_sender(path)
            try:
                await bounded(sender.__aenter__(), ATTACH_SECONDS, f"opening a link to {path}")
            except Exception as error:  # noqa: BLE001 - any error means that no link could be opened
                judgement = self.judge(error)
                refusal, kind = judgement.reason, judgement.kind
            finally:
                await _close(sender, path)
        return QueueEvidence(path=path, tried_at=self.clock(), refusal=refusal, unreachable=kind in _UNREACHABLE)


async def read_counts(admin: Management, queues: Iterable[QueueEvidence]) -> list[QueueEvidence]:
    """Return the queues with their present counts and limits.

    Raises:
        AzureError, OSError, TimeoutError: management does not answer.
    """
    known = list(queues)
    limits = await size_limits(admin, [queue.path for queue in known])
    return [await _read_queue(admin, queue, limits.get(queue.path.casefold())) for queue in known]


async def _read_queue(admin: Management, queue: QueueEvidence, limit: int | None) -> QueueEvidence:
    if limit is None:  # it is missing, and its link was refused for that
        return queue
    counts = await depth(admin, queue.path)
    return replace(
        queue, messages=counts.messages, size_bytes=counts.size_bytes, limit_bytes=limit, read_at=time.time()
    )


async def size_limits(admin: Management, paths: Sequence[str]) -> dict[str, int]:
    """Return the bytes that each queue may hold, by its path in lower case.

    Raises:
        AzureError, OSError, TimeoutError: management does not answer.
    """
    prefix = paths[0].rpartition("/")[0] if paths else ""
    listed = await bounded(admin.queues(prefix), CALL, "listing the backlog queues")
    return {queue.path.casefold(): queue.max_size_mb * MB for queue in listed if queue.max_size_mb}


async def validity(client: ServiceBusClient) -> TokenEvidence:
    """Return a credential's expiry. A key signs again each time; a ready signature cannot be renewed."""
    host = client.fully_qualified_namespace
    credential = sdk_internals.client_credential(client)
    if sdk_internals.is_key(credential):
        return TokenEvidence(namespace=host)
    signature = sdk_internals.signature_of(credential)
    if signature:
        ends = _SIGNED_UNTIL.search(signature)
        return TokenEvidence(namespace=host, expires_at=float(ends[1]) if ends else None, renewable=False)
    try:
        token = await bounded(credential.get_token(SCOPE), TOKEN_SECONDS, f"getting a token for {host}")
    except Exception as error:  # noqa: BLE001 - a credential may raise anything; the evidence has it
        return TokenEvidence(namespace=host, trouble=_first_line(error))
    return TokenEvidence(namespace=host, expires_at=float(token.expires_on))


async def expiry(admin: Management, path: str) -> ExpiryEvidence:
    """Return whether a queue, or a subscription of a topic, dead-letters expired messages; None: unknown."""
    try:
        kept = await bounded(admin.keeps_expired(path), CALL, f"reading the settings of {path}")
    except (AzureError, OSError, TimeoutError):
        return ExpiryEvidence(path=path, dead_letters=None)
    return ExpiryEvidence(path=kept or path, dead_letters=bool(kept))


async def _close(sender: Any, path: str) -> None:
    try:
        await bounded(sender.close(), CLOSING, f"closing the link to {path}")
    except Exception:  # noqa: BLE001 - the SDK fails in many ways to close an unopened link
        return


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return masked(lines[0])[:200] if lines else type(error).__name__
