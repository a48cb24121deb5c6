"""`paired verify`: experiments on the configured namespaces, their results, and the removal of leftovers."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from textwrap import wrap
from typing import Final

from paired_servicebus.config import PairingConfig
from paired_servicebus.core.errors import ConfigurationError
from paired_servicebus.engine.instance.engine_paths import EnginePaths
from paired_servicebus.printing import print_lines
from paired_servicebus.temporary_entities.managed_namespace import EndedBySignalError, until_signalled
from paired_servicebus.temporary_entities.run_record import RunRecord, past_records
from paired_servicebus.verify.trial import ExperimentReport, ExperimentResult
from paired_servicebus.verify.verify_run import RECORDS, VerifyReport, clean, open_namespaces, run_experiments

# A run's results as a table of 80 columns, and as JSON with stable keys.

WIDTH: Final = 80
_NAME, _RESULT = 22, 15


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
    first = f"{one.experiment.name:<{_NAME}}{one.result:<{_RESULT}}"
    indent = " " * (_NAME + _RESULT)
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
