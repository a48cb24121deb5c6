"""Faults in the JSON of the control URL.

`fault` and `namespace` choose kind and place. `entity` or `entities`, `operations`, `direction`, `probability`, `seed`,
`count`, `delay_s`, `duration_s` and `slow_s` limit it. Fields are checked one by one here, together in `fault_terms`.
Answers have the same names, without unset fields.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import Any, Final, TypeVar

from servicebus_sandbox.faults.fault_table import Direction, Operation
from servicebus_sandbox.faults.fault_terms import Fault, FaultError, FaultTerms

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


def _operations(name: str, value: object) -> frozenset[Operation]:
    return frozenset(_named(name, each, Operation) for each in _texts(name, value))


def _direction(name: str, value: object) -> Direction:
    return _named(name, value, Direction)


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise FaultError(f"{name} has to be a number, not {json.dumps(value)}")
    return value


def _whole(name: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise FaultError(f"{name} has to be a whole number, not {json.dumps(value)}")
    return value


_TERMS: Final[Mapping[str, Callable[[str, object], Any]]] = {
    "operations": _operations,
    "direction": _direction,
    "probability": _number,
    "seed": _whole,
    "count": _whole,
    "delay_s": _number,
    "duration_s": _number,
    "slow_s": _number,
}
FIELDS: Final = ("namespace", "fault", "entity", "entities", *_TERMS)
_MAY_BE_NULL: Final = frozenset(FIELDS) - {"namespace", "fault"}


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultOrder:
    """A requested fault; `namespace` and `kind` are None if they are not given."""

    namespace: str | None
    kind: str | None
    entities: tuple[str, ...]
    terms: FaultTerms


def read_order(wanted: Mapping[str, object]) -> FaultOrder:
    """Return the order in a JSON object of FIELDS. Raises FaultError, one sentence."""
    given = {name: value for name, value in wanted.items() if value is not None or name not in _MAY_BE_NULL}
    texts = {name: _text(name, given[name]) for name in ("namespace", "fault", "entity") if name in given}
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
    plain = FaultTerms()
    for each in fields(FaultTerms):
        value = getattr(fault.terms, each.name)
        if value != getattr(plain, each.name):
            described[each.name] = sorted(value) if isinstance(value, frozenset) else value
    return described
