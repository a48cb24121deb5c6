"""Evidence about a failover from outside the pairing, and the engine's periodic check (SPEC.md section 12).

Its sources are other engines of this user on this machine, the settings of the primary's entities, and the last drill.
Not here: `paired check` (verbs/check_verb.py), and what the evidence means (core/operator/failover_readiness.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import msgspec
from azure.core.exceptions import AzureError

from paired_servicebus.config import PairingConfig
from paired_servicebus.core.backlog.depth_readings import QueueUsage
from paired_servicebus.core.drill.drill_plan import LastDrill
from paired_servicebus.core.errors import CleanUpError, ConfigurationError, UnreadableError
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.snapshot import BUSY_STATUSES, MOVING_STATUSES, Readiness, Snapshot, SyphonStatus
from paired_servicebus.core.operator.failover_readiness import (
    Evidence,
    judge,
)
from paired_servicebus.durable_file import replace_file
from paired_servicebus.engine.clients.client_factory import open_admin
from paired_servicebus.engine.control.discovery import (
    EngineStatus,
    find_socket,
    local_engines,
    query_engines,
)
from paired_servicebus.engine.instance.engine_paths import EnginePaths, all_drill_files
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pairing.monitoring.backlog_inspection import expiry
from paired_servicebus.pairing.paired_client import PairedServiceBusClient
from paired_servicebus.pairing.runtime.deadlines import Clock

# Other engines are asked before any deletion. A queue's index identifies it.

# The file with a pairing's last drill, in its state folder: written by `paired drill`, read by checks and engines.
#
# Names identify the namespaces, because an application's engine has another state folder than its pairing.toml.

MAX_BYTES: Final = 64 * 1024


class DrillFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file's content. run: the drill's id; primary, secondary: the names of the namespaces."""

    run: str
    primary: str
    secondary: str
    drill: LastDrill


_DECODER: Final = msgspec.json.Decoder(DrillFile)


def write_drill(places: EnginePaths, content: DrillFile) -> None:
    """Replace the pairing's file. Raises OSError."""
    places.drill.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    replace_file(places.drill, msgspec.json.encode(content))


def last_drill(*, primary: str, secondary: str) -> LastDrill | None:
    """Return the last drill on these namespaces by this user on this machine; None if none is known."""
    wanted = (primary.casefold(), secondary.casefold())
    found = [one.drill for one in _files() if (one.primary.casefold(), one.secondary.casefold()) == wanted]
    return max(found, key=lambda drill: drill.began, default=None)


def _files() -> Iterator[DrillFile]:
    for path in all_drill_files():
        found = _read(path)
        if found is not None:
            yield found


def _read(path: Path) -> DrillFile | None:
    try:
        with path.open("rb") as file:
            return read_json(_DECODER, file.read(MAX_BYTES))
    except (OSError, UnreadableError) as error:
        log.warning("the last drill in %s cannot be read: %s", path, error)
        return None


SETTINGS_INTERVAL: Final = 3600.0
"""Seconds between two readings of the entities' settings, which only their owner changes."""
SETTINGS_TIMEOUT: Final = 60.0
"""Seconds for all entities' settings together."""


class LocalEvidence:
    """Adds to the evidence of one pairing's engine, or of a check that has no engine.

    config: None: an application's engine, which knows no entities and no management of the primary.
    """

    def __init__(self, config: PairingConfig | None, places: EnginePaths) -> None:
        self._config = config
        self._places = places
        self._clock = Clock()
        self._expiry: tuple[tuple[str, bool | None], ...] | None = None
        self._expiry_at: float | None = None

    async def add(self, evidence: Evidence) -> Evidence:
        """Add other engines' syphons if this one runs none, the entities' settings, and the last drill.

        The settings are read again when management is used anyway.
        """
        if evidence.syphon in (None, SyphonStatus.OFF):
            syphons = await local_syphons(self._places, primary=evidence.primary, secondary=evidence.secondary)
            evidence = replace(evidence, syphons_elsewhere=syphons)
        if evidence.ping == "message" and evidence.asked and self._config is not None:
            await self._read_settings(self._config)
        drill = last_drill(primary=evidence.primary, secondary=evidence.secondary)
        read = replace(evidence, last_drill=drill, drills_read=True)
        return read if self._config is None else replace(read, expiry=self._expiry, expiry_at=self._expiry_at)

    async def _read_settings(self, config: PairingConfig) -> None:
        now = self._clock()
        if self._expiry_at is not None and now - self._expiry_at < SETTINGS_INTERVAL:
            return
        try:
            async with asyncio.timeout(SETTINGS_TIMEOUT), open_admin(config.primary) as admin:
                found = tuple([await expiry(admin, path) for path in config.entities])
        except (AzureError, ConfigurationError, OSError, TimeoutError, ValueError):
            return  # no management on this side, or not now: the last reading stays, with its time
        if any(is_kept is not None for _, is_kept in found) or self._expiry is None:
            self._expiry, self._expiry_at = found, now


async def local_syphons(places: EnginePaths, *, primary: str, secondary: str) -> tuple[str, ...]:
    """Return the other engines of this user on this machine that run a syphon for the same namespaces."""
    others = await query_engines(other for other in local_engines() if other.lock != places.lock)
    return tuple(
        one.engine
        for one in (other.snapshot for other in others)
        if one is not None
        and same_namespaces(one, primary=primary, secondary=secondary)
        and one.syphon.status in MOVING_STATUSES
    )


async def queues_in_use(paired: PairedServiceBusClient, *, besides: Path) -> frozenset[int]:
    """Return the indices of the backlog queues that other engines here use of the same namespaces.

    Args:
        besides: the socket of the calling engine.

    Raises:
        CleanUpError: an engine runs and its queues are unknown.
    """
    used: set[int] = set()
    for standing in await _others(besides):
        if standing.snapshot is None:
            raise CleanUpError(f"nothing is deleted: the engine of {standing.pairing} may use it ({standing.trouble})")
        if _is_of(paired, standing.snapshot):
            used |= _indices(standing.snapshot)
    return frozenset(used)


async def read_local_usage(paired: PairedServiceBusClient, *, besides: Path) -> QueueUsage:
    """Return the usage that other engines here report; one that does not answer is left out. Arguments as above."""
    used: set[int] = set()
    moved: set[int] = set()
    busy: set[int] = set()
    for standing in await _others(besides):
        snapshot = standing.snapshot
        if snapshot is None or not _is_of(paired, snapshot):
            continue
        indices = _indices(snapshot)
        used |= indices
        if snapshot.syphon.status in MOVING_STATUSES:
            moved |= indices
            busy |= indices if snapshot.syphon.status in BUSY_STATUSES else frozenset()
    return QueueUsage(frozenset(used), frozenset(moved), frozenset(busy))


async def _others(besides: Path) -> tuple[EngineStatus, ...]:
    running = [
        places for places in local_engines() if (socket := find_socket(places)) is not None and socket != besides
    ]
    return await query_engines(running)


def same_namespaces(snapshot: Snapshot, *, primary: str, secondary: str) -> bool:
    """Return whether an engine's namespaces are these; names compare without case."""
    theirs = (snapshot.primary.casefold(), snapshot.secondary.casefold())
    return theirs == (primary.casefold(), secondary.casefold())


def _is_of(paired: PairedServiceBusClient, snapshot: Snapshot) -> bool:
    return same_namespaces(snapshot, primary=paired.primary_name, secondary=paired.secondary_name)


def _indices(snapshot: Snapshot) -> frozenset[int]:
    return frozenset(queue.index for queue in snapshot.queues)


# Would a failover work now? Checked periodically while the engine runs, and soon after a relevant change.
#
# One check opens a link to each backlog queue (ten at most) and closes it: 10 × 23 ms of CPU a minute with the SDK, and
# no billed message. Each snapshot has the latest answer.

CHECK_INTERVAL: Final = 60.0
"""Seconds between two checks without changes."""
MIN_CHECK_INTERVAL: Final = 10.0
"""Minimum seconds between two checks."""
CHECK_TIMEOUT: Final = 120.0
"""Seconds that one check may last; each of its waits ends sooner by itself."""
CHANGES: Final = (
    e.StateChanged,
    e.QueuePulled,
    e.QueueRestored,
    e.PumpStopped,
    e.SyphonPaused,
    e.SyphonResumed,
)
"""Events that may change the answer."""

EvidenceSource = Callable[[Evidence], Awaitable[Evidence]]
"""Adds evidence that only the engine's process has."""

log = logging.getLogger(__name__)


async def no_local_evidence(evidence: Evidence) -> Evidence:
    """Return the evidence unchanged: for a process without further evidence."""
    return evidence


class ReadinessWatch:
    """Keeps `latest` up to date while `run` runs.

    Args:
        surroundings: adds evidence in each check.
    """

    def __init__(self, surroundings: EvidenceSource) -> None:
        self.latest: Readiness | None = None
        """None: not looked yet."""
        self._surroundings = surroundings
        self._nudged = asyncio.Event()
        self._evidence: Evidence | None = None

    def note(self, event: e.Event) -> None:
        """Check soon if the event may change the answer."""
        if isinstance(event, CHANGES):
            self._nudged.set()

    def recount(self, paired: PairedServiceBusClient) -> None:
        """Judge the latest evidence again with the queues' current counts; check soon if some was not read."""
        if self._evidence is None:
            return
        if paired.looks.attended and not self._evidence.asked:
            self._nudged.set()
        self._update(paired.recounted(self._evidence))

    async def run(self, paired: PairedServiceBusClient) -> None:
        """Check until cancelled; a failed check is logged."""
        while True:
            self._nudged.clear()
            try:
                async with asyncio.timeout(CHECK_TIMEOUT):
                    await self._check(paired)
            except Exception:
                log.exception("whether a failover would work is unknown: the check failed")
            await asyncio.sleep(MIN_CHECK_INTERVAL)
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_INTERVAL - MIN_CHECK_INTERVAL):
                    await self._nudged.wait()

    async def _check(self, paired: PairedServiceBusClient) -> None:
        evidence = await self._add_local_evidence(await paired.inspect())
        paired.know_syphons(evidence.syphons_elsewhere)
        self._update(evidence)

    def _update(self, evidence: Evidence) -> None:
        self._evidence, self.latest = evidence, judge(evidence)

    async def _add_local_evidence(self, evidence: Evidence) -> Evidence:
        try:
            return await self._surroundings(evidence)
        except Exception:  # the pairing's own evidence is still valid
            log.exception("the engine's surroundings could not be looked at")
            return evidence
