"""Faults of a namespace as data, and the verdict on each event of a server.

A fault has a kind. It affects some entities (with everything below them) or the whole namespace, all operations or a
few. The servers request a verdict for each event and carry it out. `watch` reports changes. The owner calls `run_due`
at `next_change`.

In the JSON of the control URL `fault` and `namespace` choose kind and place; the fields of the limits are checked one
by one, then together. Answers have the same names, without unset fields.
"""

from __future__ import annotations

import json
import random
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum, StrEnum
from typing import Any, Final, TypeVar

from servicebus_amqp.server.listener import ConnectionVerdict as ConnectionVerdict

# The effect of each kind of fault on each event, and the vocabulary of the tables.


class FaultKind(StrEnum):
    """A kind of fault."""

    REFUSED = "refused"  # connections are refused; for an entity: links are detached, attaches refused
    BLACK_HOLED = "black-holed"  # input is swallowed, nothing is answered, connections stay
    UNANSWERED = "unanswered"  # messages are accepted, but not confirmed
    BUSY = "busy"  # sends and management requests are refused as "server busy"
    RESET = "reset"  # connections are accepted and reset
    HALF_OPEN = "half-open"  # existing connections stay open but dead; new ones are served
    ACKNOWLEDGEMENT_LOST = "acknowledgement-lost"  # messages are accepted; the connection breaks before the answer
    LATE = "late"  # accepted messages become visible after `delay_s`
    DETACHED = "detached"  # links are detached once, from our side, and may return
    DISCONNECTED = "disconnected"  # the same with connections
    DISABLED = "disabled"
    NOT_FOUND = "not-found"
    UNAUTHORIZED = "unauthorized"
    FULL = "full"  # sends are refused: the quota is reached
    LATENCY = "latency"  # traffic takes `delay_s` longer and keeps its order
    NODE_RESTART = "node-restart"  # the entities of one node are refused for `duration_s`, then slow for `slow_s`


class Operation(StrEnum):
    """An operation that can fail by itself."""

    ATTACH = "attach"
    SEND = "send"
    RECEIVE = "receive"
    SETTLE = "settle"
    MANAGE = "manage"  # `$management` of entities, and the management API over HTTPS
    DECLARE = "declare"  # a transaction begins
    DISCHARGE = "discharge"  # a transaction ends, by a commit or a rollback
    CONTACT = "contact"  # connections, and the tokens they need


class Direction(StrEnum):
    """A direction from the namespace's view."""

    IN = "in"
    OUT = "out"


class InjectionPoint(Enum):
    """An event that needs a verdict."""

    ATTACH = "attach"
    LIVING_LINK = "living link"  # may the link and its deliveries continue
    TRANSFER = "transfer"  # a message comes in, on a link or as a request to schedule it
    DELIVERY = "delivery"  # a locked message leaves for a receiver
    SETTLE = "settle"
    REQUEST = "request"  # any other request to `$management`
    HTTP = "http"  # a request to the management API
    TOKEN = "token"  # a token is put on `$cbs`
    DECLARE = "declare"
    DISCHARGE = "discharge"


class FaultVerdict(Enum):
    """The fate of one attach, message, outcome or request, or of a link."""

    SERVE = "serve"
    REFUSE = "refuse"  # answered: unavailable
    SWALLOW = "swallow"  # neither answered nor done
    TAKE_SILENTLY = "take silently"  # done, not answered
    BUSY = "busy"  # answered: server busy
    DISABLED = "disabled"
    NOT_FOUND = "not found"
    UNAUTHORIZED = "unauthorized"
    FULL = "full"
    DETACH = "detach"  # not done, the link is detached
    DISCONNECT = "disconnect"  # not done, the connection is closed with a reason
    RESET = "reset"  # not done, the connection is reset
    TAKE_AND_RESET = "take and reset"  # done, and the connection is reset before the answer leaves


OWN_OPERATION: Final[Mapping[InjectionPoint, frozenset[Operation]]] = {
    InjectionPoint.ATTACH: frozenset({Operation.ATTACH}),
    InjectionPoint.LIVING_LINK: frozenset(),
    InjectionPoint.TRANSFER: frozenset({Operation.SEND}),
    InjectionPoint.DELIVERY: frozenset({Operation.RECEIVE}),
    InjectionPoint.SETTLE: frozenset({Operation.SETTLE}),
    InjectionPoint.REQUEST: frozenset({Operation.MANAGE}),
    InjectionPoint.HTTP: frozenset({Operation.MANAGE}),
    InjectionPoint.TOKEN: frozenset({Operation.CONTACT}),
    InjectionPoint.DECLARE: frozenset({Operation.DECLARE}),
    InjectionPoint.DISCHARGE: frozenset({Operation.DISCHARGE}),
}
"""The operations of an event. The caller may add more: a sender's attach is a send too."""


@dataclass(frozen=True, slots=True)
class Effect:
    """The verdict on the events in `always`, and on those in `named` if the fault names their operation."""

    verdict: FaultVerdict
    always: frozenset[InjectionPoint]
    named: frozenset[InjectionPoint] = frozenset()


_A, _L, _T, _D, _S, _R, _H, _C, *_TX = InjectionPoint
_MESSAGING: Final = frozenset({_A, _L, _T, _S, _R})

EFFECTS: Final[Mapping[FaultKind, Effect]] = {
    FaultKind.REFUSED: Effect(FaultVerdict.REFUSE, _MESSAGING, frozenset({_H, *_TX})),
    FaultKind.BLACK_HOLED: Effect(FaultVerdict.SWALLOW, _MESSAGING, frozenset({_H, *_TX})),
    FaultKind.UNANSWERED: Effect(FaultVerdict.TAKE_SILENTLY, frozenset({_T}), frozenset({_S, _R, _H, *_TX})),
    FaultKind.BUSY: Effect(FaultVerdict.BUSY, frozenset({_T, _R}), frozenset({_A, _L, _S, _H, _C, *_TX})),
    FaultKind.RESET: Effect(FaultVerdict.RESET, _MESSAGING, frozenset({_D, _H, *_TX})),
    FaultKind.ACKNOWLEDGEMENT_LOST: Effect(
        FaultVerdict.TAKE_AND_RESET, frozenset({_T}), frozenset({_D, _S, _R, _H, *_TX})
    ),
    FaultKind.DETACHED: Effect(FaultVerdict.DETACH, frozenset({_L}), frozenset({_T, _D, _S, _R, *_TX})),
    FaultKind.DISCONNECTED: Effect(FaultVerdict.DISCONNECT, frozenset({_L}), frozenset({_A, _T, _D, _S, _R, *_TX})),
    FaultKind.DISABLED: Effect(FaultVerdict.DISABLED, frozenset({_A, _L, _T}), frozenset({_S, _R})),
    FaultKind.NOT_FOUND: Effect(FaultVerdict.NOT_FOUND, _MESSAGING | {_H}),
    FaultKind.UNAUTHORIZED: Effect(FaultVerdict.UNAUTHORIZED, _MESSAGING, frozenset({_H, _C})),
    FaultKind.FULL: Effect(FaultVerdict.FULL, frozenset({_T})),
}
"""Missing kinds have no verdicts: they affect only connections or latency."""

LINKS: Final = frozenset({_A, _L})
NEED_A_LINK: Final = frozenset({Operation.ATTACH, Operation.RECEIVE})
"""Operations that can only be refused with their link; messages and requests are refused one by one."""

ONE_WAY: Final[Mapping[Direction, Mapping[InjectionPoint, FaultVerdict]]] = {
    Direction.IN: {_L: FaultVerdict.SERVE},
    Direction.OUT: {_T: FaultVerdict.TAKE_SILENTLY, _S: FaultVerdict.TAKE_SILENTLY, _R: FaultVerdict.TAKE_SILENTLY},
}
"""The differences of a black hole in one direction from one in both."""

ON_CONNECTIONS: Final[Mapping[tuple[FaultKind, Direction | None], ConnectionVerdict]] = {
    (FaultKind.REFUSED, None): ConnectionVerdict.RESET,
    (FaultKind.RESET, None): ConnectionVerdict.RESET,
    (FaultKind.BLACK_HOLED, None): ConnectionVerdict.SWALLOW,
    (FaultKind.BLACK_HOLED, Direction.IN): ConnectionVerdict.DEAF,
    (FaultKind.BLACK_HOLED, Direction.OUT): ConnectionVerdict.MUTE,
    (FaultKind.HALF_OPEN, None): ConnectionVerdict.SWALLOW,
    (FaultKind.DISCONNECTED, None): ConnectionVerdict.CLOSE,
}
"""The verdict on connections by a fault of the whole namespace."""

LIVING_ONES_ALONE: Final = frozenset({FaultKind.HALF_OPEN, FaultKind.DISCONNECTED})
"""Kinds that affect only connections that are older than the fault."""


LATEST = 900.0
SLOWEST = 60.0
LONGEST = 86_400.0
LONGEST_NAME = 256
"""Characters of a container id or the name of a rule."""
_DELAYS = {FaultKind.LATE: LATEST, FaultKind.LATENCY: SLOWEST, FaultKind.NODE_RESTART: SLOWEST}
_DIRECTED = (FaultKind.BLACK_HOLED, FaultKind.LATENCY)
_ONLY_CONNECTIONS = (FaultKind.HALF_OPEN,)


class FaultError(ValueError):
    """An invalid fault; the message names the flaw and the valid values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultTerms:
    """The limits of a fault. Raises FaultError for an invalid value.

    Without `operations` all of its kind are affected. `probability` applies to each event, drawn from a generator with
    `seed`. The fault ends after `count` events or `duration_s` seconds of the clock. `delay_s` is the latency; `slow_s`
    is the time for which a restarted node is slow.
    """

    operations: frozenset[Operation] = frozenset()
    direction: Direction | None = None
    probability: float = 1.0
    seed: int | None = None
    count: int | None = None
    delay_s: float | None = None
    duration_s: float | None = None
    slow_s: float | None = None

    def __post_init__(self) -> None:
        _require(0 < self.probability <= 1, "probability", self.probability, "more than 0, at most 1")
        _require(self.count is None or self.count >= 1, "count", self.count, "1 or more")
        for name in ("duration_s", "slow_s"):
            value = getattr(self, name)
            _require(value is None or 0 < value <= LONGEST, name, value, f"more than 0, at most {LONGEST:g}")

    @property
    def is_certain(self) -> bool:
        """Return whether it always strikes while it lasts."""
        return self.probability == 1 and self.count is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """The client of an event: the container id of its connection, and the rules whose keys authorize its link."""

    container_id: str | None = None
    keys: frozenset[str] = frozenset()


UNKNOWN_CALLER: Final = Caller()
"""A client without container id and key: over HTTP, or before its open."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """One fault; without `entities` (paths) it affects the whole namespace. Raises FaultError.

    `id` is empty until it begins. With `client` it affects only connections with that container id, with `key` only
    links that a key of the rule with that name authorizes. Neither needs to be known yet.
    """

    id: str = ""
    kind: FaultKind
    entities: tuple[str, ...] = ()
    client: str | None = None
    key: str | None = None
    terms: FaultTerms = field(default_factory=FaultTerms)

    def __post_init__(self) -> None:
        kind, terms = self.kind, self.terms
        for name in ("client", "key"):
            value = getattr(self, name)
            _require(
                value is None or 0 < len(value) <= LONGEST_NAME,
                name,
                _shorten(value),
                f"1 to {LONGEST_NAME} characters",
            )
        if kind in _ONLY_CONNECTIONS:
            _require(self.key is None, "key", _shorten(self.key), f"nothing with '{kind}'; use client")
        most = _DELAYS.get(kind)
        if most is None:
            _require(terms.delay_s is None, "delay_s", terms.delay_s, f"nothing with '{kind}'")
        else:
            good = terms.delay_s is not None and 0 < terms.delay_s <= most
            _require(good, "delay_s", terms.delay_s, f"more than 0, at most {most:g} with '{kind}'")
        if kind not in _DIRECTED:
            _require(terms.direction is None, "direction", terms.direction, f"nothing with '{kind}'")
        if kind in _ONLY_CONNECTIONS:
            _require(not self.entities, "entity", ", ".join(self.entities), f"nothing with '{kind}'")
            _require(terms.operations <= {Operation.CONTACT}, "operations", "others", f"contact with '{kind}'")
        if kind is FaultKind.NODE_RESTART:
            self._check_restart()
        else:
            _require(terms.slow_s is None, "slow_s", terms.slow_s, f"nothing with '{kind}'")

    def _check_restart(self) -> None:
        terms = self.terms
        _require(bool(self.entities), "entities", "none", "the paths of those that the node serves")
        for name in ("duration_s", "slow_s"):
            _require(getattr(terms, name) is not None, name, "missing", f"seconds with '{self.kind}'")
        plain = terms.is_certain and not terms.operations
        _require(plain, f"'{self.kind}'", "limited", "a fault without operations, probability and count")

    @property
    def entity(self) -> str | None:
        """Return the entity, if there is exactly one."""
        return self.entities[0] if len(self.entities) == 1 else None

    @property
    def is_of_connections(self) -> bool:
        """Return whether it affects whole connections."""
        operations = self.terms.operations
        return not self.entities and self.key is None and (not operations or Operation.CONTACT in operations)

    @property
    def is_for_all(self) -> bool:
        """Return whether it affects every client."""
        return self.client is None and self.key is None

    def strikes_caller(self, caller: Caller) -> bool:
        """Return whether it affects this client."""
        return self.client in (None, caller.container_id) and (self.key is None or self.key in caller.keys)

    def concerns(self, path: str, caller: Caller = UNKNOWN_CALLER) -> bool:
        """Return whether it affects this client and this entity or anything below it.

        Below an entity are its subscriptions, dead letters and management.
        """
        if not self.strikes_caller(caller):
            return False
        if not self.entities:
            return True
        path = path.lower()
        return any(path == mine or path.startswith(mine + "/") for mine in map(str.lower, self.entities))


def _require(good: bool, name: str, value: object, allowed: str) -> None:
    if not good:
        raise FaultError(f"{name} is {value}; allowed is {allowed}")


def _shorten(value: str | None) -> str:
    return repr(value) if value is None or len(value) <= LONGEST_NAME else f"{len(value)} characters long"


Named = TypeVar("Named", bound=StrEnum)


def _text(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise FaultError(f"{name} has to be a string, not {json.dumps(value)}")
    return value


def _texts(name: str, value: object) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise FaultError(f"{name} has to be an array of strings, not {json.dumps(value)}")
    return tuple(value)


def _named(name: str, value: object, kind: type[Named]) -> Named:
    try:
        return kind(_text(name, value))
    except ValueError as error:
        if isinstance(error, FaultError):
            raise
        raise FaultError(f"{name} is '{value}'; known are {', '.join(kind)}") from error


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FaultError(f"{name} has to be a number, not {json.dumps(value)}")
    return value


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise FaultError(f"{name} has to be a whole number, not {json.dumps(value)}")
    return value


_TERMS: Final[Mapping[str, Callable[[str, object], Any]]] = {
    "operations": lambda name, value: frozenset(_named(name, each, Operation) for each in _texts(name, value)),
    "direction": lambda name, value: _named(name, value, Direction),
    "probability": _number,
    "seed": _whole,
    "count": _whole,
    "delay_s": _number,
    "duration_s": _number,
    "slow_s": _number,
}
FIELDS: Final = ("namespace", "fault", "entity", "entities", "client", "key", *_TERMS)
_MAY_BE_NULL: Final = frozenset(FIELDS) - {"namespace", "fault"}


def read_fault(wanted: Mapping[str, object]) -> Fault:
    """Return the fault in a JSON object of FIELDS, whatever its namespace. Raises FaultError, one sentence."""
    given = {name: value for name, value in wanted.items() if value is not None or name not in _MAY_BE_NULL}
    texts = {name: _text(name, given[name]) for name in ("fault", "entity", "client", "key") if name in given}
    entities = _texts("entities", given.get("entities", []))
    if entities and "entity" in texts:
        raise FaultError("entity and entities are both given; name one entity by the first or several by the second")
    terms = FaultTerms(**{name: read(name, given[name]) for name, read in _TERMS.items() if name in given})
    if terms.probability < 1 and terms.seed is None:
        terms = replace(terms, seed=secrets.randbelow(2**32))  # reported, so that it can be repeated
    if "fault" not in texts:
        raise FaultError(f"fault is missing; it is one of {', '.join(FaultKind)}")
    return Fault(
        kind=_kind(texts["fault"]),
        entities=entities or ((texts["entity"],) if "entity" in texts else ()),
        client=texts.get("client"),
        key=texts.get("key"),
        terms=terms,
    )


def describe_fault(namespace: str, fault: Fault) -> dict[str, Any]:
    """Return the fault for GET /faults."""
    described: dict[str, Any] = {
        "id": fault.id,
        "namespace": namespace,
        "entity": fault.entity,
        "fault": fault.kind.value,
    }
    if len(fault.entities) > 1:
        described["entities"] = list(fault.entities)
    described |= {name: value for name, value in (("client", fault.client), ("key", fault.key)) if value is not None}
    plain = FaultTerms()
    for each in fields(FaultTerms):
        value = getattr(fault.terms, each.name)
        if value != getattr(plain, each.name):
            described[each.name] = sorted(value) if isinstance(value, frozenset) else value
    return described


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
        self.namespace = namespace
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
        return self.begin(Fault(kind=_kind(kind), entities=paths, client=client, key=key, terms=terms or FaultTerms()))

    def begin(self, fault: Fault) -> Fault:
        """Start a fault; return it with its id. Raises FaultError for an unknown entity."""
        fault = replace(fault, id=f"{self.namespace}-{self._made + 1}", entities=self._known(fault.entities))
        self._made += 1
        self._cases[fault.id] = _Case(fault, self._clock())
        self._tell()
        return fault

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
                    f"namespace '{self.namespace}' has no entity '{path}'; it has {', '.join(known) or 'none'}"
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
