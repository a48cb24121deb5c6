"""Creates the two boards of a pairing in its secondary namespace, and checks existing ones (FLEET.md section 2).

An engine with Manage creates them when its fleet is on; otherwise `paired fleet setup` does, once. Management may see a
queue late, so a queue that exists already is no failure.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from azure.core.exceptions import AzureError

from paired_servicebus.core.errors import FleetBoardError
from paired_servicebus.core.fleet.fleet_documents import Board, board_path
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.pairing.management.management_port import (
    MAX_DELIVERIES,
    Management,
    QueueFacts,
    QueueWanted,
    is_refusal,
    is_there_already,
    is_transient,
)
from paired_servicebus.pairing.runtime.deadlines import bounded

BOARD_MB: Final = 1024
BOARD_LOCK: Final = timedelta(seconds=30)
METADATA: Final = "paired fleet 1"
"""The UserMetadata of a board's queue, by which an administrator recognizes it."""
CALL_SECONDS: Final = 10.0
"""Seconds for one management call."""
SETUP_VERB: Final = "paired fleet setup"
WANTED: Final = QueueWanted(lock=BOARD_LOCK, max_size_mb=BOARD_MB, max_deliveries=MAX_DELIVERIES, metadata=METADATA)


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardSetup:
    """The result of a setup. remarks: a sentence for each setting of an existing queue that differs."""

    created: tuple[str, ...]
    existing: tuple[str, ...]
    remarks: tuple[str, ...]


async def set_up_boards(admin: Management, primary: str) -> BoardSetup:
    """Create the missing boards of a pairing, and check all of them.

    Args:
        admin: the secondary namespace's.
        primary: the primary's name in the paths of the boards.

    Raises:
        FleetBoardError: no Manage, no answer, or a queue that cannot be a board; one sentence with the remedy.
    """
    paths = [board_path(primary, board) for board in Board]
    prefix = paths[0].rpartition("/")[0] + "/"
    before = await _list(admin, prefix)
    created = [path for path in paths if path.casefold() not in before and await _create(admin, path)]
    facts = await _list(admin, prefix) if created else before
    remarks: list[str] = []
    for path in paths:
        found = facts.get(path.casefold())
        if found is None:
            continue  # management does not list it yet: it has the settings that it was created with
        if found.partitioned:
            await _undo(admin, [one for one in created if one == path])
        refusal = _refusal(found, path)
        if refusal:
            raise FleetBoardError(refusal)
        remarks += differences(found, path)
    existing = tuple(path for path in paths if path not in created)
    return BoardSetup(created=tuple(created), existing=existing, remarks=tuple(remarks))


def _refusal(queue: QueueFacts, path: str) -> str:
    """Return why a queue cannot be a board; empty if it can."""
    if queue.partitioned:
        return (
            f"{path} is partitioned, so its numbers are not one sequence and orders have none either: "
            "use a secondary namespace and a queue without partitions"
        )
    if queue.sessions:
        return f"{path} requires sessions, which a board has not: delete the queue, then run {SETUP_VERB}"
    if queue.duplicates:
        return f"{path} detects duplicates, which a board does not: delete the queue, then run {SETUP_VERB}"
    return ""


def differences(queue: QueueFacts, path: str) -> list[str]:
    """Return a sentence for each setting that differs from a created board's."""
    expected: dict[str, tuple[object, object]] = {
        "MaxSizeInMegabytes": (queue.max_size_mb, BOARD_MB),
        "MaxDeliveryCount": (queue.max_deliveries, MAX_DELIVERIES),
        "LockDuration": (queue.lock, BOARD_LOCK),
        "EnableDeadLetteringOnMessageExpiration": (queue.dead_letters_expired, False),
        "Status": (queue.status, "Active"),
        "UserMetadata": (queue.metadata, METADATA),
    }
    return [
        f"the board {path} has {name} {repeated(str(is_)) or 'empty'} instead of {should!s}"
        for name, (is_, should) in expected.items()
        if is_ != should
    ]


async def _list(admin: Management, prefix: str) -> dict[str, QueueFacts]:
    try:
        listed = await bounded(admin.queues(prefix), CALL_SECONDS, "listing the boards")
    except (AzureError, OSError, TimeoutError, ValueError) as error:
        raise _failure("listing the boards", error) from error
    return {queue.path.casefold(): queue for queue in listed}


async def _create(admin: Management, path: str) -> bool:
    """Create a board; return False if another engine was faster."""
    try:
        await bounded(admin.create_queue(path, WANTED), CALL_SECONDS, f"creating {path}")
    except (AzureError, OSError, TimeoutError, ValueError) as error:
        if is_there_already(error):
            return False
        raise _failure(f"creating the board {path}", error) from error
    return True


async def _undo(admin: Management, paths: list[str]) -> None:
    for path in paths:
        try:
            await bounded(admin.delete_queue(path), CALL_SECONDS, f"deleting {path}")
        except (AzureError, OSError, TimeoutError, ValueError) as error:
            raise _failure(f"deleting the partitioned board {path}", error) from error


def _failure(task: str, error: Exception) -> FleetBoardError:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    reason = repeated(masked(lines[0]))
    if is_refusal(error):
        return FleetBoardError(
            f"{task} was refused ({reason}): run {SETUP_VERB} once with a key or role that has Manage on the secondary"
        )
    busy = getattr(error, "status_code", None) in (429, 503)
    hint = ": try again later" if is_transient(error) else ""
    return FleetBoardError(f"{task} failed ({reason}){hint}", is_busy=busy)
