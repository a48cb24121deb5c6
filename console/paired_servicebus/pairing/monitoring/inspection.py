"""A pairing's evidence for whether a failover would work now, without a screen or an engine.

It leaves no trace: links are opened and closed, nothing is sent. An open link proves little, since an idle one is cut
silently after ten minutes. So each look opens AT_MOST links of its own, oldest proof first. The engine's process adds
its own evidence (other engines on this machine, settings of the primary's entities).
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from azure.core.exceptions import AzureError
from azure.servicebus.aio import ServiceBusClient

from paired_servicebus.core.model.snapshot import SyphonStatus
from paired_servicebus.core.model.verdict import FailureKind, Judge, judge
from paired_servicebus.core.operator.failover_readiness import (
    Evidence,
    ExpiryEvidence,
    QueueEvidence,
    TokenEvidence,
    TooLarge,
)
from paired_servicebus.pairing import sdk_internals
from paired_servicebus.pairing.amqp_client.endpoint import SCOPE
from paired_servicebus.pairing.management.backlog_queues import (
    CALL,
    MB,
    BacklogQueues,
    apply_hazards,
    depth,
    first_line,
    hazards,
)
from paired_servicebus.pairing.management.management_port import Management, QueueFacts
from paired_servicebus.pairing.monitoring.depth_poller import DepthPoller, PollWatchers
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime
from paired_servicebus.pairing.sending.sender_link import close_link

AT_MOST: Final = 10
"""Links that one look opens, at 23 ms of CPU each with the SDK."""
CONCURRENT_PROBES: Final = 3
ATTACH_SECONDS: Final = 10.0
"""Seconds in which a backlog queue has to answer."""
TOKEN_SECONDS: Final = 10.0
"""Seconds in which a credential has to return a token."""
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
                await close_link(sender)
        return QueueEvidence(path=path, tried_at=self.clock(), refusal=refusal, unreachable=kind in _UNREACHABLE)


async def read_counts(admin: Management, queues: Iterable[QueueEvidence]) -> list[QueueEvidence]:
    """Return the queues with their present counts and limits.

    Raises:
        AzureError, OSError, TimeoutError: management does not answer.
    """
    known = list(queues)
    settings = await read_settings(admin, [queue.path for queue in known])
    return [await _read_queue(admin, queue, settings.get(queue.path.casefold())) for queue in known]


async def _read_queue(admin: Management, queue: QueueEvidence, facts: QueueFacts | None) -> QueueEvidence:
    if facts is None:  # it is missing, and its link was refused for that
        return queue
    counts = await depth(admin, queue.path)
    return replace(
        queue,
        messages=counts.messages,
        size_bytes=counts.size_bytes,
        limit_bytes=facts.max_size_mb * MB if facts.max_size_mb else None,
        unsafe="; ".join(hazards(facts)),
        read_at=time.time(),
    )


async def read_settings(admin: Management, paths: Sequence[str]) -> dict[str, QueueFacts]:
    """Return the settings of backlog queues, by path in lower case.

    Raises:
        AzureError, OSError, TimeoutError: management does not answer.
    """
    prefix = paths[0].rpartition("/")[0] if paths else ""
    listed = await bounded(admin.queues(prefix), CALL, "listing the backlog queues")
    return {queue.path.casefold(): queue for queue in listed}


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
        return TokenEvidence(namespace=host, trouble=first_line(error)[:200])
    return TokenEvidence(namespace=host, expires_at=float(token.expires_on))


async def expiry(admin: Management, path: str) -> ExpiryEvidence:
    """Return whether a queue, or a subscription of a topic, dead-letters expired messages; None: unknown."""
    try:
        kept = await bounded(admin.keeps_expired(path), CALL, f"reading the settings of {path}")
    except (AzureError, OSError, TimeoutError):
        return ExpiryEvidence(path=path, dead_letters=None)
    return ExpiryEvidence(path=kept or path, dead_letters=None if kept is None else bool(kept))


SETTINGS_SECONDS: Final = 300.0
"""Seconds between two readings of the queues' settings, which only their owner changes."""
WAIT_SECONDS: Final = 10.0
"""Seconds that a look waits for management."""


class Inspection:
    """The collector of the evidence.

    Args:
        primary, secondary: the namespaces' clients.
        admin: the secondary's management.
        queues: the backlog queues' paths by index.
        poller: the counts, read again on request.
        looks: the watchers; without any, management is not queried.
        found: returns the queues as the pairing knows them; their settings are read again, and applied.
    """

    def __init__(
        self,
        steering: PairingRuntime,
        primary: ServiceBusClient,
        secondary: ServiceBusClient,
        admin: Management,
        queues: Mapping[int, str],
        poller: DepthPoller,
        looks: PollWatchers,
        found: Callable[[], BacklogQueues],
    ) -> None:
        self._steering = steering
        self._clients = (primary, secondary)
        self._admin = admin
        self._poller = poller
        self._looks = looks
        self._found = found
        self._queues = queues
        self._proofs = ReadinessProbes(secondary, tuple(queues.values()), steering.judge, steering.clock)
        self._settings_at = 0.0

    async def look(self, names: tuple[str, str], syphon: SyphonStatus, limit: int | None, *, ask: bool) -> Evidence:
        """Collect the evidence; opens links to backlog queues.

        Args:
            names: the primary's and the secondary's.
            limit: the bytes of the largest message that the backlog accepts.
            ask: read the counts again, even without watchers.
        """
        steering = self._steering
        if ask:
            self._looks.ask()
        waits = (self._read_settings(), self._fresh_counts()) if ask or self._looks.attended else ()
        began = steering.clock()
        proofs, *_ = await asyncio.gather(self._proofs.look(), *waits)
        for index, proof in zip(self._queues, proofs, strict=True):
            if not proof.refusal and (proof.tried_at or 0.0) >= began:
                steering.queue_answered(index)
        return Evidence(
            at=steering.clock(),
            primary=names[0],
            secondary=names[1],
            queues=tuple(self._with_counts(index, proof) for index, proof in zip(self._queues, proofs, strict=True)),
            queues_wanted=steering.policy.backlog_queue_count,
            tokens=tuple([await validity(client) for client in self._clients]),
            syphon=syphon,
            too_large=self._too_large(),
            limit_bytes=limit,
            ping=steering.policy.ping,
            trouble=self._poller.trouble,
            asked=bool(waits),
        )

    def recounted(self, evidence: Evidence) -> Evidence:
        """Return the evidence with the present counts."""
        queues = zip(self._queues, evidence.queues, strict=True)
        return replace(
            evidence,
            queues=tuple(self._with_counts(index, proof) for index, proof in queues),
            trouble=self._poller.trouble,
        )

    def _too_large(self) -> tuple[TooLarge, ...] | None:
        """Return the too large messages by entity; None if no sent message could be measured."""
        tallies = [(one.path, self._steering.tally(one.path)) for one in self._steering.machine.entities()]
        if not any(sends.accepted for _, tally in tallies for sends in tally.routes.values()):
            return None
        return tuple(TooLarge(entity=path, messages=tally.too_large) for path, tally in tallies)

    def _with_counts(self, index: int, proof: QueueEvidence) -> QueueEvidence:
        sample = self._poller.found.get(index)
        place = next(place for place in self._steering.machine.rotation.places if place.index == index)
        proof = replace(proof, limit_bytes=self._found().limit(index), unsafe=place.reason if place.withheld else "")
        if sample is None:
            return proof
        return replace(
            proof,
            messages=sample.depth.messages,
            size_bytes=sample.depth.size_bytes,
            read_at=sample.read_at,
        )

    async def _fresh_counts(self) -> None:
        with suppress(TimeoutError):  # counts not read by then are unknown
            async with asyncio.timeout(WAIT_SECONDS):
                await self._poller.settled()

    async def _read_settings(self) -> None:
        now = self._steering.clock()
        if now - self._settings_at < SETTINGS_SECONDS:
            return
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                settings = await read_settings(self._admin, tuple(self._queues.values()))
        except (AzureError, OSError, TimeoutError):
            return  # the counts' own failure is reported
        self._settings_at = now
        found = self._found()
        found.settings.update(
            {index: facts for index, path in self._queues.items() if (facts := settings.get(path.casefold()))}
        )
        apply_hazards(self._steering, found)
