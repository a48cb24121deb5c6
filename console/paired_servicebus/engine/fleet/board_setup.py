"""The two boards of a pairing in its secondary namespace: creation, settings, rules of their own, and a check of both.

An engine with Manage creates the queues when its fleet is on; otherwise `paired fleet setup` does, once, and it makes
the rules. Management may see a queue late, so a queue that exists already is no failure.

    rule               orders          reports
    paired-operators   Send, Listen    -
    paired-engines     Listen          Send, Listen

The right to peek is Listen by the service's page, and one report says that a namespace wanted Send too. Setup finds
that out with the new key, and gives it.
"""

from __future__ import annotations

import secrets
from base64 import b64encode
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final, TypeVar

from azure.core.exceptions import AzureError, ResourceNotFoundError

from paired_servicebus.core.backlog.queue_settings import (
    LISTEN,
    MANAGE,
    MAX_DELIVERIES,
    SEND,
    AccessRule,
    QueueFacts,
    QueueWanted,
)
from paired_servicebus.core.errors import FleetBoardError
from paired_servicebus.core.fleet.fleet_documents import Board, board_path
from paired_servicebus.core.model.snapshot import Finding, FindingVerdict
from paired_servicebus.core.text.masking import masked
from paired_servicebus.core.text.untrusted_text import repeated
from paired_servicebus.pairing.management.management_port import (
    Management,
    RuleManagement,
    is_refusal,
    is_there_already,
    is_transient,
)
from paired_servicebus.pairing.runtime.deadlines import bounded

T = TypeVar("T")

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
        if found.partitioned and path in created:
            await _manage(admin.delete_queue(path), f"deleting the partitioned board {path}")
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
    return {queue.path.casefold(): queue for queue in await _manage(admin.queues(prefix), "listing the boards")}


async def _create(admin: Management, path: str) -> bool:
    """Create a board; return False if another engine was faster."""
    try:
        await _manage(admin.create_queue(path, WANTED), f"creating the board {path}")
    except FleetBoardError as error:
        if isinstance(error.__cause__, Exception) and is_there_already(error.__cause__):
            return False
        raise
    return True


async def _manage(request: Awaitable[T], task: str) -> T:
    """Await a call of management. Raises FleetBoardError: one sentence with the remedy."""
    try:
        return await bounded(request, CALL_SECONDS, task)
    except ResourceNotFoundError as error:
        raise FleetBoardError(f"{task} failed, the board is missing: run {SETUP_VERB}", is_missing=True) from error
    except (AzureError, OSError, TimeoutError, ValueError) as error:
        raise _failure(task, error) from error


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


# -- rules ------------------------------------------------------------------------------------------------------------

OPERATORS: Final = "paired-operators"
ENGINES: Final = "paired-engines"
RULES: Final[dict[Board, dict[str, frozenset[str]]]] = {
    Board.ORDERS: {OPERATORS: frozenset({SEND, LISTEN}), ENGINES: frozenset({LISTEN})},
    Board.REPORTS: {ENGINES: frozenset({SEND, LISTEN})},
}
"""The rights of each board's rules."""
OPENS: Final = "whoever has an engine's key can post junk, watches and copies on orders; orders stay signed"
"""What Send on the orders opens to engines."""

PeekWith = Callable[[str, AccessRule], Awaitable[str]]
"""Peeks a queue with the key of a rule; returns the right that the namespace misses, or ""."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleSetup:
    """The rules of the boards. remarks: a sentence for each one that was made or widened."""

    rules: Mapping[Board, tuple[AccessRule, ...]]
    remarks: tuple[str, ...]


async def set_up_rules(admin: RuleManagement, primary: str, peek_with: PeekWith) -> RuleSetup:
    """Create the boards' own rules, and give them the rights that they lack; no right is withdrawn.

    Raises:
        FleetBoardError: no Manage, or no answer; one sentence with the remedy.
    """
    remarks = []
    for board, wanted in RULES.items():
        path = board_path(primary, board)
        present = {rule.name: rule for rule in await _read(admin, path)}
        for name, rights in wanted.items():
            before = present[name].rights if name in present else frozenset[str]()
            if rights <= before:
                continue
            key = b64encode(secrets.token_bytes(32)).decode("ascii")
            await _put(admin, path, AccessRule(name=name, rights=rights | before, key=key))
            remarks.append(f"the rule {name} of {path} gives {_listed(rights | before)}")
    path = board_path(primary, Board.ORDERS)
    engines = next(rule for rule in await _read(admin, path) if rule.name == ENGINES)
    if SEND not in engines.rights and await peek_with(path, engines) == SEND:
        await _put(admin, path, replace(engines, rights=engines.rights | {SEND}))
        remarks.append(f"this namespace wants Send for a peek, so {ENGINES} has it on {path}: {OPENS}")
    rules = {board: await _read(admin, board_path(primary, board)) for board in RULES}
    return RuleSetup(rules=rules, remarks=tuple(remarks))


async def _read(admin: RuleManagement, path: str) -> tuple[AccessRule, ...]:
    return await _manage(admin.rules(path), f"reading the rules of {path}")


async def _put(admin: RuleManagement, path: str, rule: AccessRule) -> None:
    await _manage(admin.put_rule(path, rule), f"writing the rule {rule.name} of {path}")


def _listed(rights: frozenset[str]) -> str:
    return " and ".join(sorted(rights))


def key_files(found: RuleSetup, primary: str, host: str, *, is_emulated: bool) -> dict[str, str]:
    """Return the connection strings of the rules that are for operators and engines, by the names of their files."""
    tail = ";UseDevelopmentEmulator=true" if is_emulated else ""
    return {
        f"{board}.{rule.name.removeprefix('paired-')}": (
            f"Endpoint=sb://{host}/;SharedAccessKeyName={rule.name};SharedAccessKey={rule.key}"
            f";EntityPath={board_path(primary, board)}{tail}"
        )
        for board, rules in found.rules.items()
        for rule in rules
        if rule.name in RULES[board]
    }


async def check_rights(admin: RuleManagement, primary: str, used: Mapping[str, str]) -> tuple[Finding, ...]:
    """Return what the rules of the boards and of the namespace, and this engine's keys, permit.

    WARN: it permits more than its owner needs. NO: less.

    Args:
        used: the names of the keys that [fleet] gives this engine; "" where it has none.

    Raises:
        FleetBoardError: no Manage, or no answer; one sentence with the remedy.
    """
    rules = {board: await _read(admin, board_path(primary, board)) for board in RULES}
    namespace = await _manage(admin.namespace_rules(), "reading the rules of the namespace")
    found = [one for board in RULES for one in _judge_board(board, rules[board])]
    found += [_judge_key(board, used.get(board, ""), rules[board]) for board in RULES]
    return (*found, *_judge_namespace(namespace))


def _judge_board(board: Board, rules: tuple[AccessRule, ...]) -> list[Finding]:
    present = {rule.name: rule for rule in rules}
    found = [_judge_own(board, name, present.pop(name, None)) for name in RULES[board]]
    for other in present.values():
        text = f"another rule, which gives {_listed(other.rights)}: {_opened(board, other.rights)}"
        todo = "delete it, or give its owner one of the rules above"
        found.append(Finding(what=f"{board}: {other.name}", verdict=FindingVerdict.WARN, evidence=text, todo=todo))
    return found


def _judge_own(board: Board, name: str, rule: AccessRule | None) -> Finding:
    what, wanted = f"{board}: {name}", RULES[board][name]
    if rule is None or not wanted <= rule.rights:
        lacks = wanted - (rule.rights if rule is not None else frozenset[str]())
        text = f"does not give {_listed(lacks)}" if rule is not None else f"does not exist; it gives {_listed(lacks)}"
        return Finding(what=what, verdict=FindingVerdict.NO, evidence=text, todo=f"run {SETUP_VERB}")
    if rule.rights > wanted:
        extra = rule.rights - wanted
        todo = "take it away, unless this namespace wants Send for a peek" if extra == {SEND} else "take it away"
        text = f"gives {_listed(extra)} beside {_listed(wanted)}: {_opened(board, extra)}"
        return Finding(what=what, verdict=FindingVerdict.WARN, evidence=text, todo=todo)
    return Finding(what=what, verdict=FindingVerdict.OK, evidence=f"gives {_listed(wanted)}")


def _opened(board: Board, rights: frozenset[str]) -> str:
    """Return what more rights on a board open."""
    if MANAGE in rights:
        return "its key can delete the board and change its rules"
    if SEND in rights and board is Board.ORDERS:
        return OPENS
    if SEND in rights:
        return "its key can invent engines, which the screens show as claims"
    return "its key can receive messages, which takes them from the board"


def _judge_key(board: Board, name: str, rules: tuple[AccessRule, ...]) -> Finding:
    what = f"this engine's key on {board}"
    if name in {rule.name for rule in rules}:
        return Finding(what=what, verdict=FindingVerdict.OK, evidence=f"is of the rule {name} of the queue")
    key = f"is {repeated(name)}, which is no rule of the queue" if name else "is [secondary]'s credential"
    text = f"{key}: it reaches every queue of the namespace that its rule or role permits"
    todo = f"give this engine the key of {ENGINES}: [fleet] {board} = {{ file = … }}"
    return Finding(what=what, verdict=FindingVerdict.WARN, evidence=text, todo=todo)


def _judge_namespace(rules: tuple[AccessRule, ...] | None) -> list[Finding]:
    what = "the namespace's rules"
    if rules is None:
        text = "connection strings cannot list them; each that gives Send reaches both boards"
        todo = "look in the portal, or set [secondary] management to ARM"
        return [Finding(what=what, verdict=FindingVerdict.UNKNOWN, evidence=text, todo=todo)]
    wide = [rule for rule in rules if rule.rights & {SEND, MANAGE}]
    return [
        Finding(
            what=f"the namespace: {rule.name}",
            verdict=FindingVerdict.WARN,
            evidence=f"gives {_listed(rule.rights)} on every queue, the boards included",
            todo="give its key to administrators and to applications that pair, and to nobody else",
        )
        for rule in wide
    ] or [Finding(what=what, verdict=FindingVerdict.OK, evidence="none gives Send or Manage")]
