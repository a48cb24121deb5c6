"""The backlog queues of a pairing: found, created, inspected, counted (SPEC.md section 4).

A queue that is deleted meanwhile, by hand or by another host's clean-up, is created again. Senders use it again once
their probe succeeds.

One list of the namespace's queues has the counts of all, at the least cost. They are read queue by queue if listing is
refused, a queue is missing from the list, or the list takes more requests.

A pairing may start without its secondary namespace. Until that answers, it assumes the queues that it would create, all
out of the rotation: sends go to the primary as usual, and one that needs the backlog is refused immediately.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from math import inf
from typing import Final, TypeVar

from azure.core.exceptions import AzureError

from paired_servicebus.core.backlog.queue_settings import (
    BACKLOG_QUEUE,
    SEGMENT,
    BacklogQueues,
    Depth,
    QueueFacts,
    differences,
    hazards,
    queue_path,
)
from paired_servicebus.core.errors import BacklogQueueError, NamespaceUnreachableError
from paired_servicebus.core.failover.pairing_machine import ProbeQueue
from paired_servicebus.core.model.namespace_info import UNKNOWN_NAMESPACE, NamespaceInfo
from paired_servicebus.core.model.pairing_events import QueuePulled, Ticked
from paired_servicebus.core.model.snapshot import Trouble, TroubleKind
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.number_format import format_indices
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.pairing.amqp_client.endpoint import is_unknown_host, is_untrusted
from paired_servicebus.pairing.management.management_port import (
    ListTooLongError,
    Management,
    is_refusal,
    is_there_already,
    is_transient,
)
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.pairing.runtime.pairing_runtime import PairingRuntime

LIST_SECONDS: Final = 120.0
"""Seconds that listing is retried on transient errors."""
LOG_AFTER_SECONDS: Final = 5.0
"""Seconds without an answer after which the log names the wait."""
UNKNOWN_HOST_SECONDS: Final = 3.0
"""Seconds that listing is retried where the host has no address."""
CREATE_TRIES: Final = 3
CALL: Final = 30.0
"""Seconds for one management call."""
NAME_SECONDS: Final = 5.0
"""Seconds for reading a namespace's name, which a screen or a start waits for."""
RETRY_SECONDS: Final = 1.0
T = TypeVar("T")

log = logging.getLogger(__name__)


async def ensure(
    admin: Management, primary: str, count: int, *, patience: float = LIST_SECONDS, host: str = "namespace"
) -> BacklogQueues:
    """List the queues under the prefix, and create those of 0 … count-1 that are missing.

    Args:
        patience: seconds that listing is retried on transient errors.
        host: the secondary's, for sentences.

    Raises:
        NamespaceUnreachableError: no answer, or the credential was refused.
        BacklogQueueError: no queue exists or could be created, or the settings of all can lose messages.
    """
    existing = await _list(admin, f"{primary}/{SEGMENT}/", patience, host)
    found: dict[int, str] = {}
    warnings: list[str] = []
    refusals: list[str] = []
    dangers: list[str] = []
    settings: dict[int, QueueFacts] = {}
    for index in range(count):
        path = queue_path(primary, index)
        facts = existing.get(path.casefold())
        if facts is not None:
            found[index], settings[index] = path, facts
            warnings += [f"backlog queue {path} has {text}" for text in differences(facts)]
            dangers += [f"{path}: {text}" for text in hazards(facts)[:1]]
            continue
        refusal = await _create(admin, path, host)
        if refusal is None:
            found[index] = path
        else:
            refusals.append(refusal)
    if not found:
        raise BacklogQueueError(
            f"none of the {count} backlog queues under {primary}/{SEGMENT}/ exists or could be created: {refusals[0]}"
        )
    if len(dangers) == len(found):
        raise BacklogQueueError(
            f"each of the {len(found)} backlog queues under {primary}/{SEGMENT}/ can lose messages by its settings, so "
            f"nothing is sent there: {dangers[0]}"
        )
    if len(found) < count:
        warnings.append(f"{len(found)} of {count} backlog queues are ready ({format_indices(found)}): {refusals[0]}")
    return BacklogQueues(found, tuple(warnings), settings)


async def standing(admin: Management, primary: str, count: int, *, patience: float = LIST_SECONDS) -> dict[int, str]:
    """Return the existing queues of 0 … count-1 by index; none is created.

    Raises:
        NamespaceUnreachableError: no answer, or the credential was refused.
        BacklogQueueError: none exists.
    """
    existing = await _list(admin, f"{primary}/{SEGMENT}/", patience, "namespace")
    paths = {index: queue_path(primary, index) for index in range(count)}
    found = {index: path for index, path in paths.items() if path.casefold() in existing}
    if not found:
        raise BacklogQueueError(
            f"there is no backlog queue under {primary}/{SEGMENT}/: no message was ever parked there"
        )
    return found


async def depth(admin: Management, path: str) -> Depth:
    """Read a backlog queue's counts: all messages but dead letters, deferred ones included."""
    return await bounded(admin.depth(path), CALL, f"reading the counts of {path}")


async def told(admin: Management) -> NamespaceInfo:
    """Return the namespace's description; UNKNOWN_NAMESPACE if it cannot be read."""
    try:
        return await bounded(admin.namespace(), NAME_SECONDS, "asking a namespace about itself")
    except (AzureError, OSError, TimeoutError):
        return UNKNOWN_NAMESPACE  # only the screen's name and some warnings need it


async def count_strangers(admin: Management, name: str) -> int:
    """Count the backlog queues under another name of the primary; 0 if they cannot be listed."""
    try:
        return len(await bounded(admin.queues(f"{name}/{SEGMENT}/"), CALL, "listing queues"))
    except (AzureError, OSError, TimeoutError):
        return 0  # only a warning needs it


async def _list(admin: Management, prefix: str, patience: float, host: str) -> dict[str, QueueFacts]:
    async def listed() -> dict[str, QueueFacts]:
        return {queue.path.casefold(): queue for queue in await admin.queues(prefix)}

    waiting = asyncio.get_running_loop().call_later(
        LOG_AFTER_SECONDS, log.warning, "the secondary %s does not answer; trying for up to %g s", host, patience
    )
    try:
        return await _retry(listed, f"listing the queues of the secondary {host}", patience)
    finally:
        waiting.cancel()


async def _create(admin: Management, path: str, host: str) -> str | None:
    """Create one backlog queue; return the reason if that fails, else None."""
    refusal = ""
    for attempt in range(CREATE_TRIES):
        if attempt:
            await asyncio.sleep(RETRY_SECONDS)
        try:
            await bounded(admin.create_queue(path, BACKLOG_QUEUE), CALL, f"creating {path}")
            return None
        except (AzureError, OSError, TimeoutError) as error:
            if is_there_already(error):
                return None  # another pairing was faster
            if is_refusal(error):
                raise _refused(f"creating {path} in the secondary {host}", error) from error
            refusal = first_line(error)
    return f"{path}: {refusal}"


async def _retry(act: Callable[[], Awaitable[T]], what: str, patience: float) -> T:
    """Call `act` again while its errors are transient and `patience` (seconds) lasts."""
    loop = asyncio.get_running_loop()
    began = loop.time()
    end = began + patience
    while True:
        try:
            return await bounded(act(), min(CALL, max(1.0, end - loop.time())), what)
        except (AzureError, OSError, TimeoutError) as error:
            _refuse_lasting(what, error)
            if is_unknown_host(error) and loop.time() + RETRY_SECONDS >= began + min(patience, UNKNOWN_HOST_SECONDS):
                raise NamespaceUnreachableError(
                    f"{what} failed: the host is not known ({first_line(error)}); check the host of secondary_admin"
                ) from error
            failure = error
        except ValueError as error:  # the SDK raises it after close()
            raise NamespaceUnreachableError(f"{what} failed: {first_line(error)}") from error
        if loop.time() + RETRY_SECONDS >= end:
            raise NamespaceUnreachableError(
                f"{what} failed for {patience:g} s: {first_line(failure)}", is_outage=True
            ) from failure
        await asyncio.sleep(RETRY_SECONDS)


def _refuse_lasting(what: str, error: Exception) -> None:
    """Raise NamespaceUnreachableError for an error that no retry mends."""
    if is_refusal(error):
        raise _refused(what, error) from error
    if is_untrusted(error):
        raise NamespaceUnreachableError(
            f"{what} failed: its certificate is not trusted ({first_line(error)}); name the authority to trust: "
            "connection_verify of secondary_admin, or ca_file in pairing.toml"
        ) from error
    if not is_transient(error):
        raise NamespaceUnreachableError(f"{what} failed: {first_line(error)}") from error


def _refused(what: str, error: Exception) -> NamespaceUnreachableError:
    return NamespaceUnreachableError(
        f"{what} was refused ({first_line(error)}): check the key or the role; pairing needs Manage on the secondary"
    )


def first_line(error: Exception) -> str:
    """Return the first line of an error, without the SDK's dump of the response."""
    lines = str(error).strip().splitlines()
    return repeated(masked(lines[0])) if lines else type(error).__name__


def apply_hazards(steering: PairingRuntime, found: BacklogQueues) -> None:
    """Keep the queues out of the rotation whose settings can lose messages; probe those that were mended."""
    now, rotation = steering.clock(), steering.machine.rotation
    changed = False
    for index in found.paths:
        reason = found.hazards(index)
        if reason and rotation.withhold(index, at=now, reason=reason):
            steering.announce(QueuePulled(at=now, queue=index, reason=reason))
            changed = True
        elif not reason and rotation.admit(index, at=now):
            changed = True
    if changed:
        steering.tell(Ticked(at=now))  # sets the timer for the probes


MIN_RETRY_SECONDS: Final = 60.0
"""Minimum seconds between two attempts for one queue."""


class QueueRecreator:
    """The creation of missing backlog queues of one pairing.

    Args:
        admin: the secondary namespace's management; needs Manage.
        found: the queues in use; a queue that is created again gets the expected settings there.
    """

    def __init__(self, steering: PairingRuntime, admin: Management, found: BacklogQueues) -> None:
        self._steering = steering
        self._admin = admin
        self._found = found
        self._next: dict[int, float] = {}
        """When each queue may be tried again."""
        self._troubles: dict[int, str] = {}

    async def remake(self, index: int) -> str:
        """Create a queue that its pump did not find. Does not raise the namespace's errors.

        Returns: why it is still missing, and the remedy; empty if it exists.
        """
        now = self._steering.clock()
        if now < self._next.get(index, 0.0):
            return self._troubles.get(index, "")
        self._next[index] = now + MIN_RETRY_SECONDS
        path = self._found.paths[index]
        try:
            await bounded(self._admin.create_queue(path, BACKLOG_QUEUE), CALL, f"creating {path}")
        except (AzureError, OSError, TimeoutError) as error:
            return self._failed(index, path, error)
        self._troubles.pop(index, None)
        self._found.settings.pop(index, None)  # it has the expected ones now
        apply_hazards(self._steering, self._found)
        remade = f"{path} was gone and was made again, with the settings of a new backlog queue"
        self._steering.warn("backlog queues", remade)
        return ""

    def _failed(self, index: int, path: str, error: Exception) -> str:
        if is_there_already(error):  # another engine was faster, or the namespace hides it for now
            self._troubles.pop(index, None)
            return ""
        reason = self._steering.judge(error).reason
        todo = "give the pairing's credential Manage on the secondary, or make" if is_refusal(error) else "else make"
        how = "" if is_refusal(error) else "; tried again each minute"
        trouble = f"{path} is gone and cannot be made again ({reason}){how}; {todo} the queue by hand"
        if trouble != self._troubles.get(index):
            self._troubles[index] = trouble
            self._steering.warn("backlog queues", trouble)
        return trouble


LIST_RETRY_SECONDS: Final = 3600.0
"""Seconds until a list that was refused or too long is tried again."""

CountResult = Depth | Exception
"""A queue's counts, or the failure to read them."""


class CountReader:
    """The reader of the counts.

    Args:
        queues: the paths of at least one queue by index, all under one prefix.
    """

    def __init__(self, admin: Management, queues: Mapping[int, str]) -> None:
        self._admin = admin
        self._queues = queues
        self._prefix = next(iter(queues.values())).rpartition("/")[0] + "/"
        self._no_list_before = -inf

    async def read(self) -> dict[int, CountResult]:
        """Read every queue's counts, by index."""
        try:
            listed = await self._list()
        except (AzureError, OSError, TimeoutError) as error:
            return dict.fromkeys(self._queues, error)
        found: dict[int, CountResult] = {}
        refusal: Exception | None = None
        for index, path in self._queues.items():
            result = listed.get(path.casefold()) or refusal or await self._read_single(path)
            if isinstance(result, Exception) and is_refusal(result):
                refusal = result  # the others would be refused as well
            found[index] = result
        return found

    async def _list(self) -> dict[str, Depth]:
        """Return the listed counts by path in lower case; empty if the list is of no use.

        Raises:
            AzureError, OSError, TimeoutError: nothing can be read now.
        """
        now = asyncio.get_running_loop().time()
        if now < self._no_list_before:
            return {}
        try:
            listing = self._admin.depths(self._prefix, pages=len(self._queues))
            return await bounded(listing, CALL, "listing the backlog queues")
        except ListTooLongError:
            pass
        except AzureError as error:
            if is_transient(error):
                raise
        self._no_list_before = now + LIST_RETRY_SECONDS
        return {}

    async def _read_single(self, path: str) -> CountResult:
        try:
            return await depth(self._admin, path)
        except (AzureError, OSError, TimeoutError) as error:
            return error


START_SECONDS: Final = 4.0
"""Seconds in which the secondary has to answer at the start."""
COMPLETION_SECONDS: Final = 5.0
"""Seconds between two tries to complete the pairing."""
TRY_SECONDS: Final = 10.0
"""Seconds for one try."""

OnComplete = Callable[[BacklogQueues, NamespaceInfo], object]


class DegradedStart:
    """The background completion of one pairing.

    Args:
        admin: the secondary's management.
        primary: the primary namespace's name.
        host: the secondary's.
        reason: why the secondary could not be paired at the start.
    """

    def __init__(self, steering: PairingRuntime, admin: Management, *, primary: str, host: str, reason: str) -> None:
        self._steering = steering
        self._admin = admin
        self._primary = primary
        self._host = host
        self._reason = reason
        self.found: Mapping[int, str] = {}
        """The backlog queues that were found or created so far, by index."""

    @property
    def trouble(self) -> Trouble | None:
        """The reason why the pairing is incomplete; None once it is complete."""
        trouble = Trouble(kind=TroubleKind.STARTED_DEGRADED, what=self._host, reason=self._reason)
        return trouble if self._reason else None

    def take_out(self) -> None:
        """Remove every backlog queue from the rotation: a probe that succeeds returns it."""
        steering, reason = self._steering, f"{self._host} was not paired at the start"
        now, rotation = steering.clock(), steering.machine.rotation
        for index in rotation.indices:
            rotation.pull(index, at=now, reason=reason)
            steering.announce(QueuePulled(at=now, queue=index, reason=reason))
        steering.tell(Ticked(at=now))  # sets the timer for the probes
        steering.warn("secondary", f"the pairing started degraded: {self._reason}")

    async def run(self, on_complete: OnComplete) -> None:
        """Try until every backlog queue exists."""
        policy = self._steering.policy
        while True:
            await asyncio.sleep(COMPLETION_SECONDS)
            try:
                found = await ensure(
                    self._admin, self._primary, policy.backlog_queue_count, patience=TRY_SECONDS, host=self._host
                )
            except Exception as error:  # noqa: BLE001 - the alarm shows any error, and the next try follows
                self._reason = str(error) or type(error).__name__
                continue
            self.found = found.paths
            if len(found.paths) == policy.backlog_queue_count:
                break
            self._reason = found.warnings[-1]
        self._reason = ""
        on_complete(found, await told(self._admin))
        self._steering.warn("secondary", "the secondary answers: the pairing is complete")
        await self._probe()

    async def _probe(self) -> None:
        """Probe the removed queues now, before their next regular probe."""
        steering = self._steering
        pulled = [place.index for place in steering.machine.rotation.places if place.pulled]
        if steering.perform is not None:
            await asyncio.gather(*(steering.perform(ProbeQueue(index)) for index in pulled))
