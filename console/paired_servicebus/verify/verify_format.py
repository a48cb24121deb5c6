"""A run's results as a table of 80 columns, and as JSON with stable keys."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from textwrap import wrap
from typing import Final

from paired_servicebus.verify.experiment import ExperimentReport, ExperimentResult
from paired_servicebus.verify.verify_run import VerifyReport

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
