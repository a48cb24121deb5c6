"""`paired check`: would a failover work now? A running engine answers; without one, the check connects itself.

That connection opens links to the backlog queues, reads the management data and closes everything. It makes no queue,
sends no message and writes no file.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
from azure.core.exceptions import AzureError

from paired_servicebus.config import PairingConfig
from paired_servicebus.core.backlog.depth_readings import QueueUsage
from paired_servicebus.core.drill.drill_plan import LastDrill
from paired_servicebus.core.errors import CleanUpError, ConfigurationError, EngineNotRunningError, UnreadableError
from paired_servicebus.core.model import pairing_events as e
from paired_servicebus.core.model.namespace_info import first_label
from paired_servicebus.core.model.pairing_condition import PairingCondition, condition_of
from paired_servicebus.core.model.snapshot import Finding, FindingVerdict, Readiness, Snapshot, SyphonStatus, SyphonView
from paired_servicebus.core.operator.alarms import Alarm, alarms
from paired_servicebus.core.operator.failover_readiness import (
    Evidence,
    ExpiryEvidence,
    judge,
    unreachable,
)
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.durable_file import replace_file
from paired_servicebus.engine.clients.client_factory import NamespaceClients, open_admin, open_clients
from paired_servicebus.engine.clients.start_checks import look_up_name
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.discovery import (
    EngineStatus,
    find_socket,
    local_engines,
    query_engines,
    wait_for_depths,
)
from paired_servicebus.engine.instance.engine_paths import EnginePaths, all_drill_files
from paired_servicebus.engine.instance.lock import running
from paired_servicebus.foreign_json import read_json
from paired_servicebus.pairing.management.atom_admin import management_of
from paired_servicebus.pairing.management.backlog_queues import queue_path, told
from paired_servicebus.pairing.monitoring.inspection import AT_MOST, ReadinessProbes, expiry, read_counts, validity
from paired_servicebus.pairing.paired_client import PairedServiceBusClient
from paired_servicebus.pairing.runtime.deadlines import Clock

# Evidence about a failover from outside the pairing.
#
# Its sources are other engines of this user on this machine, and the settings of the primary's entities.
#
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
    """Adds to the evidence of one pairing's engine, or of a check that has no engine."""

    def __init__(self, config: PairingConfig, places: EnginePaths) -> None:
        self._config = config
        self._places = places
        self._clock = Clock()
        self._expiry: tuple[ExpiryEvidence, ...] | None = None
        self._expiry_at: float | None = None

    async def add(self, evidence: Evidence) -> Evidence:
        """Add other engines' syphons if this one runs none, the entities' settings, and the last drill.

        The settings are read again when management is used anyway.
        """
        if evidence.syphon in (None, SyphonStatus.OFF):
            syphons = await local_syphons(self._places, primary=evidence.primary, secondary=evidence.secondary)
            evidence = replace(evidence, syphons_elsewhere=syphons)
        if evidence.ping == "message" and evidence.asked:
            await self._read_settings()
        return add_drill(replace(evidence, expiry=self._expiry, expiry_at=self._expiry_at))

    async def _read_settings(self) -> None:
        now = self._clock()
        if self._expiry_at is not None and now - self._expiry_at < SETTINGS_INTERVAL:
            return
        try:
            async with asyncio.timeout(SETTINGS_TIMEOUT), open_admin(self._config.primary) as admin:
                found = tuple([await expiry(admin, path) for path in self._config.entities])
        except (AzureError, ConfigurationError, OSError, TimeoutError, ValueError):
            return  # no management on this side, or not now: the last reading stays, with its time
        if any(one.dead_letters is not None for one in found) or self._expiry is None:
            self._expiry, self._expiry_at = found, now


def add_drill(evidence: Evidence) -> Evidence:
    """Add the last drill that this user's files know."""
    drill = last_drill(primary=evidence.primary, secondary=evidence.secondary)
    return replace(evidence, last_drill=drill, drills_read=True)


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


MOVING_STATUSES: Final = frozenset({SyphonStatus.IDLE, SyphonStatus.WAITING, SyphonStatus.RUNNING})
BUSY_STATUSES: Final = frozenset({SyphonStatus.WAITING, SyphonStatus.RUNNING})


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


ANSWER_TIMEOUT: Final = 30.0
"""Seconds that a running engine has for its findings; one that has just started checks first."""
READY, NOT_READY, UNREACHABLE = 0, 1, 3
"""Exit statuses; 2 is bad input."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """The findings and their source: an engine's name, or "own contact"; and the alarms of that source."""

    readiness: Readiness
    asked: str
    alarms: tuple[Alarm, ...]

    @property
    def status(self) -> int:
        """The exit status."""
        if unreachable(self.readiness):
            return UNREACHABLE
        return READY if self.readiness.ready else NOT_READY

    def with_finding(self, finding: Finding) -> CheckResult:
        """Return the result with one more finding."""
        findings = (*self.readiness.findings, finding)
        return replace(self, readiness=replace(self.readiness, findings=findings))


async def check(config: PairingConfig, places: EnginePaths) -> CheckResult:
    """Query the engine, or check without one.

    Raises:
        EngineNotRunningError: an engine runs and does not answer.
        ConfigurationError: settings that cannot be used.
    """
    holder = running(places.lock)
    if holder is not None:
        return await check_engine(Path(holder.socket))
    async with open_clients(config) as clients:
        evidence = await _collect_evidence(config, places, clients)
        judged = judge(await LocalEvidence(config, places).add(evidence))
        return CheckResult(judged, "own contact", alarms(condition_of_check(evidence, judged)))


async def check_engine(socket: Path) -> CheckResult:
    """Query the running engine behind a socket.

    Raises:
        EngineNotRunningError: it does not answer.
    """
    client = await ControlClient.connect(socket)
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT):
            found = await wait_for_depths(client)  # judged with depths of now
            if found is not None and (result := result_of(found)) is not None:
                return result
            async for update in client.updates():
                if isinstance(update, Snapshot) and (result := result_of(update)) is not None:
                    return result
    except TimeoutError as error:
        raise EngineNotRunningError(
            f"the engine at {socket} did not report its readiness within {ANSWER_TIMEOUT:g} s; its log has the reason"
        ) from error
    finally:
        await client.close()
    raise EngineNotRunningError(f"the engine at {socket} ended before it reported its readiness")


def result_of(snapshot: Snapshot, now: float | None = None) -> CheckResult | None:
    """Return the result of a running engine's snapshot that is read now; None: it has not checked yet."""
    if snapshot.readiness is None:
        return None
    return CheckResult(snapshot.readiness, f"engine {snapshot.engine}", alarms(condition_of(snapshot, now)))


def condition_of_check(evidence: Evidence, readiness: Readiness) -> PairingCondition:
    """Return the condition that a check without an engine knows."""
    unknown = SyphonView(status=SyphonStatus.OFF, text="no engine runs here")
    return PairingCondition(
        at=evidence.at,
        read_at=evidence.at,
        primary=evidence.primary,
        secondary=evidence.secondary,
        syphon=unknown,
        readiness=readiness,
    )


async def _collect_evidence(config: PairingConfig, places: EnginePaths, clients: NamespaceClients) -> Evidence:
    admin = management_of(clients.secondary_admin)
    primary, info = await asyncio.gather(look_up_name(config.primary, places), told(admin))
    count = config.policy.backlog_queue_count
    proofs = ReadinessProbes(clients.secondary, [queue_path(primary, index) for index in range(count)])
    for _ in range(0, count, AT_MOST):
        queues = await proofs.look()
    trouble = ""
    try:
        queues = tuple(await read_counts(admin, queues))
    except (AzureError, OSError, TimeoutError) as error:
        trouble = proofs.judge(error).reason
    return Evidence(
        at=proofs.clock(),
        primary=primary,
        secondary=info.name or first_label(config.secondary.host),
        queues=queues,
        queues_wanted=count,
        tokens=(await validity(clients.primary), await validity(clients.secondary)),
        ping=config.policy.ping,
        trouble=trouble,
    )


def as_lines(checked: CheckResult, pairing: str) -> list[str]:
    """Format as lines: the answer, then a line for each precondition of a failover."""
    found = checked.readiness
    warnings, unknown = len(found.of(FindingVerdict.WARN)), len(found.of(FindingVerdict.UNKNOWN))
    notes = [f"{number} {word}" for number, word in ((warnings, "to look at"), (unknown, "not known")) if number]
    answer = "a failover would work" if found.ready else "NOT READY to fail over"
    lines = [f"{pairing}: {answer}{'; ' if notes else ''}{', '.join(notes)} ({checked.asked}, {clock(found.at)} UTC)"]
    for one in found.findings:
        read = f" ({clock(one.read_at)})" if one.read_at is not None else ""
        lines.append(f"  {one.verdict:<8} {one.what:<20} {one.evidence}{read}")
        if one.todo:
            lines.append(f"  {'':<8} {'':<20} -> {one.todo}")
    return [*lines, *(f"  {alarm.mark} {alarm}" for alarm in checked.alarms)]


def as_json(checked: CheckResult, pairing: str) -> str:
    """Format as one JSON object; times are seconds since the epoch."""
    found = checked.readiness
    said: dict[str, Any] = {
        "pairing": pairing,
        "ready": found.ready,
        "asked": checked.asked,
        "at": found.at,
        "findings": found.findings,
        "alarms": checked.alarms,
    }
    return msgspec.json.encode(said).decode()
