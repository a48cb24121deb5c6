"""The queues that a killed run left: found by its record, and by their names in both namespaces; deleted.

Only names of exactly the pattern `paired-verify-RUN-NUMBER` are touched. A queue of a living run of this machine stays.
One without a record here may belong to a run elsewhere, and stays until it is an hour old.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from azure.core.exceptions import AzureError, ResourceNotFoundError

from paired_servicebus.pairing.management.management_port import is_refusal
from paired_servicebus.pairing.runtime.deadlines import bounded
from paired_servicebus.temporary_entities.managed_namespace import MANAGING, Side
from paired_servicebus.temporary_entities.run_record import RecordKind, RunRecord, known_runs, past_records
from paired_servicebus.verify.trial import TrialNamespace

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
