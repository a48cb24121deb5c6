"""Faults as data: what is broken in one namespace, switched while it runs.

A fault has a kind and concerns one entity (with everything below it) or the whole namespace. `_EFFECTS` says what each
kind does at which moment; those who serve connections ask the board for a verdict at that moment and act on it. The
board keeps and judges, it acts on nothing; `watch` tells of every change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum


class FaultKind(StrEnum):
    """What can be wrong."""

    REFUSED = "refused"  # connections are reset; for an entity: links are detached, attaches refused
    BLACK_HOLED = "black-holed"  # what comes is swallowed, nothing is answered, connections stay
    UNANSWERED = "unanswered"  # messages are taken in, and nobody is told
    BUSY = "busy"  # sends and management requests are refused as "server busy"


class ConnectionVerdict(Enum):
    """What happens to a connection, new or living."""

    SERVE = "serve"
    RESET = "reset"
    SWALLOW = "swallow"


class Verdict(Enum):
    """What happens to one attach, message or request."""

    SERVE = "serve"
    REFUSE = "refuse"  # answered: unavailable
    SWALLOW = "swallow"  # neither answered nor done
    TAKE_SILENTLY = "take silently"  # done, not answered
    BUSY = "busy"  # answered: server busy


class Moment(Enum):
    """When a verdict is asked for."""

    ATTACH = "attach"
    LIVING_LINK = "living link"  # may it go on, may messages leave on it
    TRANSFER = "transfer"  # a message comes in, on a link or as a request to schedule it
    SETTLE = "settle"
    REQUEST = "request"  # any other management request


_ON_CONNECTIONS = {
    FaultKind.REFUSED: ConnectionVerdict.RESET,
    FaultKind.BLACK_HOLED: ConnectionVerdict.SWALLOW,
}
_EFFECTS: dict[tuple[FaultKind, Moment], Verdict] = {
    (FaultKind.REFUSED, Moment.ATTACH): Verdict.REFUSE,
    (FaultKind.REFUSED, Moment.LIVING_LINK): Verdict.REFUSE,
    (FaultKind.REFUSED, Moment.TRANSFER): Verdict.REFUSE,
    (FaultKind.REFUSED, Moment.SETTLE): Verdict.REFUSE,
    (FaultKind.REFUSED, Moment.REQUEST): Verdict.REFUSE,
    (FaultKind.BLACK_HOLED, Moment.ATTACH): Verdict.SWALLOW,
    (FaultKind.BLACK_HOLED, Moment.LIVING_LINK): Verdict.SWALLOW,
    (FaultKind.BLACK_HOLED, Moment.TRANSFER): Verdict.SWALLOW,
    (FaultKind.BLACK_HOLED, Moment.SETTLE): Verdict.SWALLOW,
    (FaultKind.BLACK_HOLED, Moment.REQUEST): Verdict.SWALLOW,
    (FaultKind.UNANSWERED, Moment.TRANSFER): Verdict.TAKE_SILENTLY,
    (FaultKind.BUSY, Moment.TRANSFER): Verdict.BUSY,
    (FaultKind.BUSY, Moment.REQUEST): Verdict.BUSY,
}


class FaultError(ValueError):
    """A fault that cannot be: the message names what is wrong and what is allowed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault. `entity` is a path, None for the whole namespace."""

    id: str
    kind: FaultKind
    entity: str | None = None

    def concerns(self, path: str) -> bool:
        """Whether it touches this entity, or what lies below it: subscriptions, dead letters, its management."""
        if self.entity is None:
            return True
        mine, path = self.entity.lower(), path.lower()
        return path == mine or path.startswith(mine + "/")


class FaultBoard:
    """The faults of one namespace. `entities` gives the paths that can be named, at the time it is called."""

    def __init__(self, namespace: str, entities: Callable[[], Iterable[str]]) -> None:
        self._namespace = namespace
        self._entities = entities
        self._faults: dict[str, Fault] = {}
        self._made = 0
        self._watchers: list[Callable[[], None]] = []

    def add(self, kind: str, *, entity: str | None = None) -> Fault:
        """Begin a fault. Raises FaultError naming the kinds or entities there are."""
        fault = Fault(id=f"{self._namespace}-{self._made + 1}", kind=_kind(kind), entity=self._known(entity))
        self._made += 1
        self._faults[fault.id] = fault
        self._tell()
        return fault

    def remove(self, fault_id: str) -> None:
        """End a fault. Raises FaultError for an id that is not active."""
        if fault_id not in self._faults:
            raise FaultError(f"no active fault '{fault_id}'; active are {', '.join(self._faults) or 'none'}")
        del self._faults[fault_id]
        self._tell()

    def active(self) -> list[Fault]:
        """The faults in force, oldest first."""
        return list(self._faults.values())

    def watch(self, watcher: Callable[[], None]) -> None:
        """Have `watcher` called after every change."""
        self._watchers.append(watcher)

    def connection_verdict(self) -> ConnectionVerdict:
        """For the whole namespace, whatever a connection speaks; being refused comes before being swallowed."""
        verdicts = {_ON_CONNECTIONS.get(fault.kind) for fault in self._faults.values() if fault.entity is None}
        for verdict in (ConnectionVerdict.RESET, ConnectionVerdict.SWALLOW):
            if verdict in verdicts:
                return verdict
        return ConnectionVerdict.SERVE

    def verdict(self, moment: Moment, path: str) -> Verdict:
        """What the oldest fault that bears on this moment and entity demands."""
        for fault in self._faults.values():
            effect = _EFFECTS.get((fault.kind, moment))
            if effect is not None and fault.concerns(path):
                return effect
        return Verdict.SERVE

    def _known(self, entity: str | None) -> str | None:
        if entity is None:
            return None
        known = sorted(self._entities())
        if entity.lower() not in (path.lower() for path in known):
            raise FaultError(
                f"namespace '{self._namespace}' has no entity '{entity}'; it has {', '.join(known) or 'none'}"
            )
        return entity

    def _tell(self) -> None:
        for watcher in self._watchers:
            watcher()


def _kind(text: str) -> FaultKind:
    try:
        return FaultKind(text)
    except ValueError as error:
        raise FaultError(f"unknown fault '{text}'; known are {', '.join(FaultKind)}") from error
