"""The active faults of one namespace, switched while it runs.

A fault has a kind. It affects some entities (with everything below them) or the whole namespace, all operations or a
few. The servers request a verdict for each event and carry it out; `fault_table` has the effects of each kind. `watch`
reports changes. The owner calls `run_due` at `next_change`.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable
from typing import Any

from servicebus_sandbox.faults.fault_terms import (
    EFFECTS,
    LINKS,
    LIVING_ONES_ALONE,
    NEED_A_LINK,
    ON_CONNECTIONS,
    ONE_WAY,
    OWN_OPERATION,
    UNKNOWN_CALLER,
    Caller,
    ConnectionVerdict,
    Direction,
    Fault,
    FaultError,
    FaultKind,
    FaultOrder,
    FaultTerms,
    FaultVerdict,
    InjectionPoint,
    Operation,
)

CaseKey = tuple[str, FaultKind]
"""One phase of one fault."""

_SEND = frozenset({Operation.SEND})
_CONTACT = frozenset({Operation.CONTACT})


class _Case:
    """An active fault: its present kind, the number of its strikes, its next change."""

    def __init__(self, fault: Fault, now: float) -> None:
        terms = fault.terms
        self.fault = fault
        self.left = terms.count
        self.draw = random.Random(terms.seed).random
        self.changes_at = None if terms.duration_s is None else now + terms.duration_s
        self.kind = FaultKind.REFUSED if fault.kind is FaultKind.NODE_RESTART else fault.kind

    @property
    def key(self) -> CaseKey:
        return self.fault.id, self.kind

    @property
    def delay_s(self) -> float:
        return self.fault.terms.delay_s or 0.0

    def turn(self) -> bool:
        """Enter the phase after `changes_at`: a restarted node is slow for a while. Return False if the fault ends."""
        slow_s = self.fault.terms.slow_s
        if slow_s is None or self.changes_at is None or self.kind is FaultKind.LATENCY:
            return False
        self.kind, self.changes_at = FaultKind.LATENCY, self.changes_at + slow_s
        return True

    def slows(self, operations: frozenset[Operation], direction: Direction) -> bool:
        """Return whether it slows these operations in this direction; without a direction, in the outgoing one."""
        terms = self.fault.terms
        goes_along = (terms.direction or Direction.OUT) is direction
        return (
            self.kind is FaultKind.LATENCY
            and goes_along
            and (not terms.operations or bool(terms.operations & operations))
        )

    def strikes(self, now: Callable[[], float]) -> bool:
        """Return whether it strikes this event, and count the event."""
        if self.left == 0 or (self.fault.terms.probability < 1 and self.draw() >= self.fault.terms.probability):
            return False
        if self.left is not None:
            self.left -= 1
            if not self.left:
                self.changes_at = now()
        return True

    def effect(self, moment: InjectionPoint, operations: frozenset[Operation]) -> FaultVerdict | None:
        """Return its verdict on this event, None if it has none."""
        effect, wanted = EFFECTS.get(self.kind), self.fault.terms.operations
        if effect is None:
            return None
        moments = effect.always | effect.named if wanted else effect.always
        if moment in LINKS and moment not in effect.always:
            operations &= NEED_A_LINK
        if moment not in moments or (wanted and not wanted & operations):
            return None
        direction = self.fault.terms.direction
        return effect.verdict if direction is None else ONE_WAY[direction].get(moment, effect.verdict)


class FaultBoard:
    """The faults of one namespace. `entities` yields the present paths."""

    def __init__(
        self, namespace: str, entities: Callable[[], Iterable[str]], *, clock: Callable[[], float] = time.time
    ) -> None:
        self._namespace = namespace
        self._entities = entities
        self._clock = clock
        self._cases: dict[str, _Case] = {}
        self._made = 0
        self._watchers: list[Callable[[], None]] = []
        self.is_quiet = True

    # ------------------------------------------------------------------ beginning and ending

    def add(
        self,
        kind: str,
        *,
        entity: str | None = None,
        entities: Iterable[str] = (),
        client: str | None = None,
        key: str | None = None,
        terms: FaultTerms | None = None,
    ) -> Fault:
        """Start a fault. Raises FaultError for an unknown kind or entity, or terms that do not fit the kind.

        `client` is a container id, `key` the name of a rule; see `Fault`.
        """
        paths = (*entities, *(() if entity is None else (entity,)))
        fault = Fault(
            id=f"{self._namespace}-{self._made + 1}",
            kind=_kind(kind),
            entities=self._known(paths),
            client=client,
            key=key,
            terms=terms or FaultTerms(),
        )
        self._made += 1
        self._cases[fault.id] = _Case(fault, self._clock())
        self._tell()
        return fault

    def add_order(self, order: FaultOrder) -> Fault:
        """Start the fault of an order. Raises FaultError."""
        if order.kind is None:
            raise FaultError(f"fault is missing; it is one of {', '.join(FaultKind)}")
        return self.add(order.kind, entities=order.entities, client=order.client, key=order.key, terms=order.terms)

    def remove(self, fault_id: str) -> None:
        """End a fault. Raises FaultError for an unknown id."""
        if fault_id not in self._cases:
            raise FaultError(f"no active fault '{fault_id}'; active are {', '.join(self._cases) or 'none'}")
        del self._cases[fault_id]
        self._tell()

    def active(self) -> list[Fault]:
        """Return the active faults, oldest first."""
        return [case.fault for case in self._cases.values()]

    def watch(self, watcher: Callable[[], None]) -> None:
        """Call `watcher` after every change."""
        self._watchers.append(watcher)

    def next_change(self) -> float | None:
        """Return the time of the next `run_due` in epoch seconds."""
        return min((case.changes_at for case in self._cases.values() if case.changes_at is not None), default=None)

    def run_due(self) -> None:
        """End expired faults, and make restarted nodes slow."""
        if self.is_quiet:
            return
        now = self._clock()
        due = [case for case in self._cases.values() if case.changes_at is not None and case.changes_at <= now]
        for case in due:
            if not case.turn():
                del self._cases[case.fault.id]
        if due:
            self._tell()

    # ------------------------------------------------------------------ judging

    def verdict(
        self,
        moment: InjectionPoint,
        path: str,
        operations: frozenset[Operation] = frozenset(),
        caller: Caller = UNKNOWN_CALLER,
    ) -> FaultVerdict:
        """Return the verdict of the oldest fault that affects this event and entity, and strikes.

        `operations` are those of the event besides the injection point's.
        """
        if self.is_quiet:
            return FaultVerdict.SERVE
        operations |= OWN_OPERATION[moment]
        for case in self._cases.values():
            effect = case.effect(moment, operations)
            if effect is not None and case.fault.concerns(path, caller) and case.strikes(self._clock):
                return effect
        return FaultVerdict.SERVE

    def connection_verdict(self) -> ConnectionVerdict:
        """Return the verdict on a new connection of any protocol, by faults that always strike in both directions."""
        verdicts = {
            ON_CONNECTIONS.get((case.kind, case.fault.terms.direction), ConnectionVerdict.SERVE)
            for case in self._certain_on_connections()
            if case.kind not in LIVING_ONES_ALONE
        }
        return next(
            (each for each in (ConnectionVerdict.RESET, ConnectionVerdict.SWALLOW) if each in verdicts),
            ConnectionVerdict.SERVE,
        )

    @property
    def half_open(self) -> frozenset[str]:
        """Return the ids of faults that make connections half-open if these are older than the fault."""
        return frozenset(case.fault.id for case in self._certain_on_connections() if case.kind is FaultKind.HALF_OPEN)

    @property
    def refuses_connections(self) -> bool:
        """Return whether the port does not answer."""
        return any(case.kind is FaultKind.REFUSED for case in self._certain_on_connections())

    def _certain_on_connections(self) -> list[_Case]:
        """Return the faults that strike every connection."""
        faults = ((case, case.fault) for case in self._cases.values())
        return [case for case, it in faults if it.is_of_connections and it.is_for_all and it.terms.is_certain]

    def lateness(self, path: str, caller: Caller = UNKNOWN_CALLER) -> float:
        """Return the seconds after which an accepted message becomes visible."""
        cases = (case for case in self._cases.values() if case.kind is FaultKind.LATE)
        late = (case for case in cases if case.fault.concerns(path, caller))
        named = (case for case in late if not case.fault.terms.operations or _SEND & case.fault.terms.operations)
        return max((case.delay_s for case in named if case.strikes(self._clock)), default=0.0)

    def latency(
        self,
        path: str,
        operations: frozenset[Operation],
        direction: Direction,
        caller: Caller = UNKNOWN_CALLER,
    ) -> float:
        """Return the latency in seconds by faults that do not slow whole connections."""
        slow = (case for case in self._cases.values() if case.slows(operations, direction))
        here = (case for case in slow if not case.fault.is_of_connections and case.fault.concerns(path, caller))
        return sum(case.delay_s for case in here if case.strikes(self._clock))

    def connection_latency(self, direction: Direction, caller: Caller = UNKNOWN_CALLER) -> float:
        """Return the latency in seconds of every byte of a connection."""
        slow = (case for case in self._cases.values() if case.slows(_CONTACT, direction))
        here = (case for case in slow if case.fault.is_of_connections and case.fault.strikes_caller(caller))
        return sum(case.delay_s for case in here if case.strikes(self._clock))

    def slows(self, path: str, operations: frozenset[Operation], caller: Caller = UNKNOWN_CALLER) -> bool:
        """Return whether `latency` may be above 0 here, in either direction."""
        return any(
            case.slows(operations, direction) and not case.fault.is_of_connections and case.fault.concerns(path, caller)
            for case in self._cases.values()
            for direction in Direction
        )

    def slows_connections(self, caller: Caller = UNKNOWN_CALLER) -> bool:
        """Return whether `connection_latency` may be above 0."""
        slow = (case.fault for case in self._cases.values() if case.kind is FaultKind.LATENCY)
        return any(fault.is_of_connections and fault.strikes_caller(caller) for fault in slow)

    @property
    def knows_clients(self) -> bool:
        """Return whether a fault is for one container id or key."""
        return not all(case.fault.is_for_all for case in self._cases.values())

    # ------------------------------------------------------------------ existing connections and links

    def met_by_connection(
        self, met: dict[CaseKey, ConnectionVerdict], caller: Caller = UNKNOWN_CALLER, *, is_new: bool
    ) -> ConnectionVerdict:
        """Return the verdict on an AMQP connection. Each fault decides once; `met` keeps the verdicts.

        A fault for one client decides once its container id is known.
        """
        self._forget_past(met)
        for case in self._cases.values():
            if case.key not in met and case.fault.client in (None, caller.container_id):
                spared = not case.fault.is_of_connections or (is_new and case.kind in LIVING_ONES_ALONE)
                verdict = ON_CONNECTIONS.get((case.kind, case.fault.terms.direction))
                strikes = verdict is not None and not spared and case.strikes(self._clock)
                met[case.key] = verdict if strikes and verdict is not None else ConnectionVerdict.SERVE
        return _strongest(met.values())

    def met_by_link(
        self,
        met: dict[CaseKey, FaultVerdict],
        path: str,
        operations: frozenset[Operation],
        caller: Caller = UNKNOWN_CALLER,
        *,
        is_new: bool,
    ) -> list[FaultVerdict]:
        """Return the verdicts of faults that are new to a link; a new link was judged at its attach."""
        self._forget_past(met)
        found = []
        for case in self._cases.values():
            if case.key not in met:
                effect = None if is_new else case.effect(InjectionPoint.LIVING_LINK, operations)
                strikes = effect is not None and case.fault.concerns(path, caller) and case.strikes(self._clock)
                met[case.key] = effect if strikes and effect is not None else FaultVerdict.SERVE
                found.append(met[case.key])
        return found

    def _forget_past(self, met: dict[CaseKey, Any]) -> None:
        current = {case.key for case in self._cases.values()}
        for key in met.keys() - current:
            del met[key]

    def _known(self, paths: Iterable[str]) -> tuple[str, ...]:
        known = sorted(self._entities())
        lower = {path.lower() for path in known}
        wanted = tuple(dict.fromkeys(paths))
        for path in wanted:
            if path.lower() not in lower:
                raise FaultError(
                    f"namespace '{self._namespace}' has no entity '{path}'; it has {', '.join(known) or 'none'}"
                )
        return wanted

    def _tell(self) -> None:
        self.is_quiet = not self._cases
        for watcher in self._watchers:
            watcher()


def _strongest(verdicts: Iterable[ConnectionVerdict]) -> ConnectionVerdict:
    order = list(ConnectionVerdict)
    return max(verdicts, key=order.index, default=ConnectionVerdict.SERVE)


def _kind(text: str) -> FaultKind:
    try:
        return FaultKind(text)
    except ValueError as error:
        raise FaultError(f"unknown fault '{text}'; known are {', '.join(FaultKind)}") from error
