"""One fault: kind, targets and limits, with their validation, and its JSON of the control URL.

In JSON `fault` and `namespace` choose kind and place; the fields of the limits are checked one by one, then together.
Answers have the same names, without unset fields. The effects are in `fault_table`, the active faults in `fault_board`.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

from servicebus_sandbox.faults.fault_table import Direction, FaultKind, Operation

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

    With `client` it affects only connections with that container id, with `key` only links that a key of the rule with
    that name authorizes. Neither needs to be known yet.
    """

    id: str
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOrder:
    """A requested fault; `namespace` and `kind` are None if they are not given."""

    namespace: str | None
    kind: str | None
    entities: tuple[str, ...]
    terms: FaultTerms
    client: str | None = None
    key: str | None = None


def read_order(wanted: Mapping[str, object]) -> FaultOrder:
    """Return the order in a JSON object of FIELDS. Raises FaultError, one sentence."""
    given = {name: value for name, value in wanted.items() if value is not None or name not in _MAY_BE_NULL}
    texts = {
        name: _text(name, given[name]) for name in ("namespace", "fault", "entity", "client", "key") if name in given
    }
    entities = _texts("entities", given.get("entities", []))
    if entities and "entity" in texts:
        raise FaultError("entity and entities are both given; name one entity by the first or several by the second")
    terms = FaultTerms(**{name: read(name, given[name]) for name, read in _TERMS.items() if name in given})
    if terms.probability < 1 and terms.seed is None:
        terms = replace(terms, seed=secrets.randbelow(2**32))  # reported, so that it can be repeated
    return FaultOrder(
        namespace=texts.get("namespace"),
        kind=texts.get("fault"),
        entities=entities or ((texts["entity"],) if "entity" in texts else ()),
        terms=terms,
        client=texts.get("client"),
        key=texts.get("key"),
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
