"""`paired verify`: experiments on the configured namespaces, their results, and the removal of leftovers.

The experiments run some at a time, each within its deadline; one that fails stops no other.
"""

from __future__ import annotations

import asyncio
import json
import re
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from textwrap import wrap
from typing import Final

from azure.core.exceptions import AzureError, ResourceNotFoundError

from paired_servicebus.config import NamespaceConfig, PairingConfig
from paired_servicebus.connection_string import parts_of
from paired_servicebus.core.backlog.queue_settings import queue_path
from paired_servicebus.core.errors import ConfigurationError, NamespaceUnreachableError, WireError
from paired_servicebus.core.model.namespace_info import ServiceTier, first_label
from paired_servicebus.core.model.verdict import CREDENTIALS, kind_of
from paired_servicebus.core.text.masking import MASK, masked
from paired_servicebus.core.text.untrusted_text import one_line
from paired_servicebus.engine.clients.client_factory import open_admin, open_clients
from paired_servicebus.engine.clients.start_checks import look_up_name
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.engine.instance.identity import program_version
from paired_servicebus.pairing.amqp_client import Endpoint
from paired_servicebus.pairing.management.backlog_queues import told
from paired_servicebus.pairing.management.management_port import is_refusal
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.printing import print_lines
from paired_servicebus.trials.access_experiments import ACCESS_EXPERIMENTS, FIDELITY_EXPERIMENTS, offered_mechanisms
from paired_servicebus.trials.delivery_experiments import DELIVERY_EXPERIMENTS
from paired_servicebus.trials.entity_experiments import ENTITY_EXPERIMENTS
from paired_servicebus.trials.management_experiments import MANAGEMENT_EXPERIMENTS
from paired_servicebus.trials.temporary_entities import (
    MANAGING,
    EndedBySignalError,
    NotPermittedError,
    RecordKind,
    RunRecord,
    Side,
    known_runs,
    past_records,
    until_signalled,
)
from paired_servicebus.trials.transaction_experiments import TRANSACTION_EXPERIMENTS
from paired_servicebus.trials.trial import (
    Experiment,
    ExperimentReport,
    ExperimentResult,
    Observation,
    SkippedError,
    Trial,
    TrialNamespace,
)

# The queues that a killed run left: found by its record, and by their names in both namespaces; deleted.
#
# Only names of exactly the pattern `paired-verify-RUN-NUMBER` are touched. A queue of a living run of this machine
# stays. One without a record here may belong to a run elsewhere, and stays until it is an hour old.

# The names of the experiments' queues: `paired-verify-RUN-NUMBER`, and the record of their runs.

PREFIX: Final = "paired-verify-"
_NAME: Final = re.compile(rf"{PREFIX}([0-9a-f]{{12}})-[0-9]+")


def run_of(path: str) -> str:
    """Return the run that made a queue; "" for a queue of any other origin."""
    found = _NAME.fullmatch(path)
    return found[1] if found is not None else ""


def without_queues(text: str, word: str) -> str:
    """Replace the names of our queues in a text by one word."""
    return _NAME.sub(word, text)


RECORDS: Final = RecordKind(folder="verify", prefix=PREFIX, run_of=run_of)


FOREIGN_SECONDS: Final = 3600.0
"""The age at which a queue without a record is a leftover; the longest run takes a quarter of it."""


async def remove_recorded(namespaces: Mapping[Side, TrialNamespace], record: RunRecord) -> list[str]:
    """Delete the queues of a record; return a sentence for each that remains."""
    remains = []
    for queue in record.entities:
        namespace = namespaces.get(Side(queue.side)) if queue.side in {*Side} else None
        if namespace is None or namespace.host != queue.host:
            remains.append(f"{queue.path} is in another namespace than pairing.toml has now")
        elif namespace.refused or await namespace.delete(queue.path):
            record.forget(queue.path)
        else:
            remains.append(f"{queue.path} in the {namespace.side} namespace cannot be deleted")
    return remains


async def remove_run(namespace: TrialNamespace, run: str) -> None:
    """Delete the listed queues of one run. Raises azure-core's errors, OSError, TimeoutError."""
    for queue in await bounded(namespace.admin.queues(f"{PREFIX}{run}-"), MANAGING, "listing queues"):
        if run_of(queue.path) == run:
            await namespace.delete(queue.path)


async def clean(namespaces: Mapping[Side, TrialNamespace], state: Path) -> tuple[int, list[str]]:
    """Delete the queues of killed runs; return the number of deleted ones, and a sentence for each that remains."""
    deleted, remains = 0, []
    for record in past_records(RECORDS, state):
        before = len(record.entities)
        try:
            found = await remove_recorded(namespaces, record)
        finally:
            record.end()
        deleted += before - len(found)
        remains += found
    for namespace in namespaces.values():
        number, found = await _remove_unrecorded(namespace, known_runs(RECORDS, state))
        deleted += number
        remains += found
    return deleted, remains


async def _remove_unrecorded(namespace: TrialNamespace, known: set[str]) -> tuple[int, list[str]]:
    """Delete the listed queues of runs without a record, if they are old."""
    try:
        listed = await bounded(namespace.admin.queues(PREFIX), MANAGING, "listing queues")
    except (AzureError, OSError, TimeoutError) as error:
        if isinstance(error, AzureError) and is_refusal(error):
            return 0, []  # a credential without Manage has made no queue
        return 0, [f"the queues of the {namespace.side} namespace cannot be listed: {type(error).__name__}"]
    deleted, remains = 0, []
    for path in (queue.path for queue in listed):
        run = run_of(path)
        if not run or run in known:
            continue
        if not await _is_old(namespace, path):
            remains.append(f"{path} is less than an hour old and may belong to a run on another machine")
        elif await namespace.delete(path):
            deleted += 1
        else:
            remains.append(f"{path} in the {namespace.side} namespace cannot be deleted")
    return deleted, remains


async def _is_old(namespace: TrialNamespace, path: str) -> bool:
    try:
        created = (await bounded(namespace.admin.depth(path), MANAGING, "reading a queue")).created_at
    except ResourceNotFoundError:
        return True  # deleted meanwhile
    except (AzureError, OSError, TimeoutError):
        return False
    return created is not None and created < time.time() - FOREIGN_SECONDS


# All experiments. A row is an experiment.

EXPERIMENTS: Final[tuple[Experiment, ...]] = (
    *ACCESS_EXPERIMENTS,
    *ENTITY_EXPERIMENTS,
    *TRANSACTION_EXPERIMENTS,
    *MANAGEMENT_EXPERIMENTS,
    *DELIVERY_EXPERIMENTS,
    *FIDELITY_EXPERIMENTS,
)


# Results without secrets, hosts and names of namespaces, so that a file can be attached to a public issue.
#
# Namespaces become "primary" and "secondary". Texts of the service lose their tracking ids, which name hosts too.

MAX_TEXT: Final = 600
"""Characters of one sentence."""
_TRACKING: Final = re.compile(r"\b(?:TrackingId|SystemTracker|Tracking|Reference|Timestamp)\s*[:=]", re.IGNORECASE)
"""Where the end of a text of the service begins, which has its tracking id."""
_DOMAIN: Final = re.compile(r"[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)*\.servicebus\.[A-Za-z.]+[A-Za-z]", re.IGNORECASE)
_ADDRESS: Final = re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?::\d+)?(?![\w.])|\[[0-9a-fA-F:]+\](?::\d+)?")
_HOST: Final = "HOST"
_QUEUE: Final = "QUEUE"
_SECRET_PARTS: Final = ("sharedaccesskey", "sharedaccesssignature")
_ROOT: Final = "RootManageSharedAccessKey"


def _untracked(text: str) -> str:
    found = _TRACKING.search(text)
    return text if found is None else text[: found.start()].rstrip(" \t\r\n,;.")


class Redactor:
    """Removes the names and secrets of a pairing's namespaces from texts.

    Args:
        names: further names of each namespace, as it reports them.
    """

    def __init__(self, config: PairingConfig, names: Mapping[Side, Iterable[str]]) -> None:
        self._secrets: set[str] = set()
        self._hosts: dict[str, str] = {}
        self._names: dict[str, str] = {}
        for side, namespace in ((Side.PRIMARY, config.primary), (Side.SECONDARY, config.secondary)):
            self._secrets |= _secrets_of(namespace)
            for host in _hosts_of(namespace):
                self._hosts[host.casefold()] = str(side)
            for name in (namespace.name, first_label(namespace.host), *names[side]):
                if name and name.casefold() not in (Side.PRIMARY, Side.SECONDARY) and not name.isdigit():
                    self._names[name.casefold()] = str(side)

    def clean(self, text: str) -> str:
        """Return one line without secrets, hosts and names of namespaces."""
        for secret in sorted(self._secrets, key=len, reverse=True):
            text = text.replace(secret, MASK)
        text = _untracked(masked(text))
        for table, bounds in ((self._hosts, r"[\w.-]"), (self._names, r"[A-Za-z0-9-]")):
            for name in sorted(table, key=len, reverse=True):
                pattern = rf"(?<!{bounds}){re.escape(name)}(?!{bounds})" if table is self._names else re.escape(name)
                text = re.sub(pattern, table[name], text, flags=re.IGNORECASE)
        text = _ADDRESS.sub(_HOST, _DOMAIN.sub(_HOST, text))
        return one_line(without_queues(text, _QUEUE), most=MAX_TEXT)


def _secrets_of(namespace: NamespaceConfig) -> set[str]:
    found = {namespace.tenant, namespace.client_id, namespace.subscription, namespace.resource_group}
    for secret in (namespace.connection_string, namespace.client_secret, namespace.proxy):
        if secret is not None:
            found.add(secret.reveal())
    if namespace.connection_string is not None:
        parts = parts_of(namespace.connection_string.reveal())
        found |= {parts.get(name) for name in _SECRET_PARTS}
        found.add(None if parts.get("sharedaccesskeyname") == _ROOT else parts.get("sharedaccesskeyname"))
    return {secret for secret in found if secret}


def _hosts_of(namespace: NamespaceConfig) -> set[str]:
    """Return the host as it may appear in texts: with and without its port, and as the SDK is given it."""
    given = {namespace.host, *_addresses((namespace.custom_endpoint, namespace.arm_url, namespace.authority))}
    return (
        given | {host.rpartition(":")[0] for host in given if ":" in host} | {host.replace(":", "-") for host in given}
    )


def _addresses(urls: Iterable[str | None]) -> set[str]:
    return {url.split("://")[-1].split("/")[0] for url in urls if url}


CONCURRENT: Final = 6
"""Experiments at a time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyReport:
    """All results of a run, and the versions that they are about."""

    date: str
    paired: str
    sdk: str
    python: str
    tiers: Mapping[str, str]
    results: tuple[ExperimentReport, ...]

    @property
    def status(self) -> int:
        """The exit status."""
        return int(any(one.result is ExperimentResult.DIFFERS for one in self.results))


async def run_experiments(
    config: PairingConfig, places: EnginePaths, *, slow: bool = False, rows: Sequence[Experiment] = EXPERIMENTS
) -> VerifyReport:
    """Run the experiments on both namespaces, and delete their queues.

    Raises:
        NamespaceUnreachableError: a namespace does not answer.
        ConfigurationError: settings that cannot be used.
    """
    async with open_namespaces(config) as namespaces:
        redactor = await _look_around(config, places, namespaces)
        record = RunRecord.begin(RECORDS, places.state)
        try:
            results = await _run_all(rows, namespaces, record, redactor, slow=slow)
        finally:
            await _tidy(namespaces, record)
        return VerifyReport(
            date=datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            paired=program_version(),
            sdk=version("azure-servicebus"),
            python=sys.version.split()[0],
            tiers={str(side): str(namespace.tier) or "unknown" for side, namespace in namespaces.items()},
            results=tuple(results),
        )


@asynccontextmanager
async def open_namespaces(config: PairingConfig) -> AsyncIterator[dict[Side, TrialNamespace]]:
    """Open clients for messaging and management of both namespaces. Raises ConfigurationError."""
    async with open_clients(config) as clients, open_admin(config.primary) as admin:
        yield {
            Side.SECONDARY: TrialNamespace(
                Side.SECONDARY, config.secondary.host, clients.secondary_admin, clients.secondary
            ),
            Side.PRIMARY: TrialNamespace(Side.PRIMARY, config.primary.host, admin, clients.primary),
        }


async def _look_around(
    config: PairingConfig, places: EnginePaths, namespaces: Mapping[Side, TrialNamespace]
) -> Redactor:
    """Check that both namespaces answer; read their tiers and names. Raises NamespaceUnreachableError."""
    names: dict[Side, list[str]] = {}
    for side, namespace in namespaces.items():
        try:
            await offered_mechanisms(Endpoint.of(namespace.client))
        except (WireError, OSError, TimeoutError) as error:
            raise NamespaceUnreachableError(
                f"the {side} namespace {namespace.host} does not answer: {error}; check [{side}] in {config.path}"
            ) from error
        info = await told(namespace.admin)
        namespace.tier = info.tier
        names[side] = [info.name]
    primary = await look_up_name(config.primary, places)
    names[Side.PRIMARY].append(primary)
    namespaces[Side.SECONDARY].backlog = queue_path(primary, 0)
    return Redactor(config, names)


async def _run_all(
    rows: Sequence[Experiment],
    namespaces: Mapping[Side, TrialNamespace],
    record: RunRecord,
    redactor: Redactor,
    *,
    slow: bool,
) -> list[ExperimentReport]:
    limit = asyncio.Semaphore(CONCURRENT)

    async def one(experiment: Experiment) -> ExperimentReport:
        async with limit:
            began = asyncio.get_running_loop().time()
            result, seen = await _outcome(experiment, namespaces, record, slow=slow)
            seconds = round(asyncio.get_running_loop().time() - began, 1)
            return ExperimentReport(experiment=experiment, result=result, seen=redactor.clean(seen), seconds=seconds)

    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(one(experiment), name=experiment.name) for experiment in rows]
    return [task.result() for task in tasks]


async def _outcome(
    experiment: Experiment, namespaces: Mapping[Side, TrialNamespace], record: RunRecord, *, slow: bool
) -> tuple[ExperimentResult, str]:
    if experiment.is_slow and not slow:
        return ExperimentResult.SKIPPED, f"takes up to {experiment.deadline / 60:.0f} minutes; --slow runs it"
    if experiment.needs_standard and namespaces[Side.SECONDARY].tier is ServiceTier.BASIC:
        return ExperimentResult.SKIPPED, "the tier Basic lacks the feature"
    try:
        async with Trial(namespaces, record) as trial:
            seen: Observation = await bounded(experiment.run(trial), experiment.deadline, "the experiment")
    except NotPermittedError as error:
        return ExperimentResult.NOT_PERMITTED, str(error)
    except SkippedError as error:
        return ExperimentResult.SKIPPED, str(error)
    except Exception as error:  # noqa: BLE001 - whatever fails is a result, and the others go on
        if kind_of(error) in CREDENTIALS:
            return ExperimentResult.NOT_PERMITTED, f"the credential was refused: {error}"
        return ExperimentResult.DIFFERS, f"the experiment failed: {type(error).__name__}: {error}"
    return (ExperimentResult.HOLDS if seen.holds else ExperimentResult.DIFFERS), seen.seen


async def _tidy(namespaces: Mapping[Side, TrialNamespace], record: RunRecord) -> None:
    """Delete the run's remaining queues, also those of requests that an interrupt cut off."""
    try:
        await remove_recorded(namespaces, record)
        for namespace in namespaces.values():
            if not namespace.refused:
                await remove_run(namespace, record.run)
    except (AzureError, OSError, TimeoutError):
        pass  # the record stays for --clean
    finally:
        record.end()


# A run's results as a table of 80 columns, and as JSON with stable keys.

WIDTH: Final = 80
NAME_CELLS, RESULT_CELLS = 22, 15


def as_lines(report: VerifyReport) -> list[str]:
    """Format as lines: a row for each experiment, then the sum."""
    lines = [line for one in report.results for line in _row(one)]
    counts = Counter(one.result for one in report.results)
    total = ", ".join(f"{counts[result]} {result}" for result in ExperimentResult if counts[result])
    versions = f"paired {report.paired}, azure-servicebus {report.sdk}, Python {report.python}, {report.date}"
    return [*lines, "", total, *wrap(versions, WIDTH)]


def _row(one: ExperimentReport) -> Iterator[str]:
    """Yield the lines of one result; of one that differs also the assumption and its reason."""
    differs = one.result is ExperimentResult.DIFFERS
    text = f"assumed: {one.experiment.assumption}; seen: {one.seen}" if differs else one.seen
    first = f"{one.experiment.name:<{NAME_CELLS}}{one.result:<{RESULT_CELLS}}"
    indent = " " * (NAME_CELLS + RESULT_CELLS)
    yield from wrap(text, WIDTH, initial_indent=first, subsequent_indent=indent, break_on_hyphens=False)
    if differs:
        why = f"why: {one.experiment.why}"
        yield from wrap(why, WIDTH, initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False)


def as_json(report: VerifyReport) -> str:
    """Format as a JSON document; keys are added to and never renamed."""
    document = {
        "date": report.date,
        "paired": report.paired,
        "azure_servicebus": report.sdk,
        "python": report.python,
        "tiers": dict(report.tiers),
        "results": [
            {
                "name": one.experiment.name,
                "assumption": one.experiment.assumption,
                "why": one.experiment.why,
                "result": str(one.result),
                "seen": one.seen,
                "seconds": one.seconds,
            }
            for one in report.results
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def run_verify(config: PairingConfig, places: EnginePaths, *, json_file: Path | None, slow: bool) -> int:
    """Run the experiments; return 0 if no result differs, else 1.

    Raises:
        ConfigurationError, NamespaceUnreachableError: the text has the remedy.
    """
    if json_file is not None:
        _write(json_file, "")  # an unwritable file is an error before the experiments, not after them
    left = sum(1 for record in past_records(RECORDS, places.state) if _has_queues(record))
    if left:
        print_lines([f"{left} killed runs may have left queues: paired verify --clean removes them"])
    try:
        report = asyncio.run(until_signalled(run_experiments(config, places, slow=slow), (signal.SIGTERM,)))
    except EndedBySignalError as error:
        return error.status
    if json_file is not None:
        _write(json_file, as_json(report))
    print_lines(as_lines(report))
    return report.status


def run_clean(config: PairingConfig, places: EnginePaths) -> int:
    """Delete the queues of killed runs; return 0 if none remains, else 1. Raises ConfigurationError."""
    deleted, remains = asyncio.run(_clean(config, places))
    print_lines([f"{deleted} queues of earlier runs deleted, {len(remains)} remain", *remains])
    return int(bool(remains))


async def _clean(config: PairingConfig, places: EnginePaths) -> tuple[int, list[str]]:
    async with open_namespaces(config) as namespaces:
        return await clean(namespaces, places.state)


def _has_queues(record: RunRecord) -> bool:
    try:
        return bool(record.entities)
    finally:
        record.end()


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror or error}") from error
