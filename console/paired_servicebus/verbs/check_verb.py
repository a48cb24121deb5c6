"""`paired check`: would a failover work now? A running engine answers; without one, the check connects itself.

That connection opens links to the backlog queues, reads the management data and closes everything. It makes no queue,
sends no message and writes no file.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import msgspec
from azure.core.exceptions import AzureError

from paired_servicebus.config import PairingConfig
from paired_servicebus.core.backlog.queue_settings import queue_path
from paired_servicebus.core.errors import EngineNotRunningError
from paired_servicebus.core.model.namespace_info import first_label
from paired_servicebus.core.model.pairing_condition import PairingCondition, condition_of
from paired_servicebus.core.model.snapshot import Finding, FindingVerdict, Readiness, Snapshot, SyphonStatus, SyphonView
from paired_servicebus.core.operator.alarms import Alarm, alarms
from paired_servicebus.core.operator.failover_readiness import Evidence, judge, unreachable
from paired_servicebus.core.text.time_format import clock
from paired_servicebus.engine.clients.client_factory import NamespaceClients, open_clients
from paired_servicebus.engine.clients.start_checks import look_up_name
from paired_servicebus.engine.control.control_client import ControlClient
from paired_servicebus.engine.control.discovery import wait_for_depths
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.lock import running
from paired_servicebus.engine.readiness.readiness_check import LocalEvidence
from paired_servicebus.pairing.management.backlog_queues import told
from paired_servicebus.pairing.management.management_port import management_of
from paired_servicebus.pairing.monitoring.backlog_inspection import AT_MOST, ReadinessProbes, read_counts, validity

ANSWER_TIMEOUT: Final = 30.0
"""Seconds that a running engine has for its findings; one that has just started checks first."""
READY, NOT_READY, UNREACHABLE = 0, 1, 3
"""Exit statuses; 2 is bad input."""


@dataclass(frozen=True, slots=True)
class CheckResult:
    """What is known of the pairing, with the findings, and the source: an engine's name, or "own contact"."""

    condition: PairingCondition
    readiness: Readiness
    asked: str

    @property
    def status(self) -> int:
        """The exit status."""
        if unreachable(self.readiness):
            return UNREACHABLE
        return READY if self.readiness.ready else NOT_READY

    @property
    def alarms(self) -> tuple[Alarm, ...]:
        """The alarms of the table."""
        return alarms(replace(self.condition, readiness=self.readiness))

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
        return CheckResult(_condition_of_check(evidence), judged, "own contact")


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
    return CheckResult(condition_of(snapshot, now), snapshot.readiness, f"engine {snapshot.engine}")


def _condition_of_check(evidence: Evidence) -> PairingCondition:
    """Return the condition that a check without an engine knows."""
    unknown = SyphonView(status=SyphonStatus.OFF, text="no engine runs here")
    return PairingCondition(
        at=evidence.at,
        read_at=evidence.at,
        primary=evidence.primary,
        secondary=evidence.secondary,
        syphon=unknown,
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
