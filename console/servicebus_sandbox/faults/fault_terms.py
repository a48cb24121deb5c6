"""One fault: kind, targets and limits, with their validation.

The effects are in `fault_table`, the active faults in `fault_board`, the JSON in `fault_json`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from servicebus_sandbox.faults.fault_table import Direction, FaultKind, Operation

LATEST = 900.0
SLOWEST = 60.0
LONGEST = 86_400.0
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
class Fault:
    """One fault; without `entities` (paths) it affects the whole namespace. Raises FaultError."""

    id: str
    kind: FaultKind
    entities: tuple[str, ...] = ()
    terms: FaultTerms = field(default_factory=FaultTerms)

    def __post_init__(self) -> None:
        kind, terms = self.kind, self.terms
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
        return not self.entities and (not operations or Operation.CONTACT in operations)

    def concerns(self, path: str) -> bool:
        """Return whether it affects this entity or anything below it: subscriptions, dead letters, management."""
        if not self.entities:
            return True
        path = path.lower()
        return any(path == mine or path.startswith(mine + "/") for mine in map(str.lower, self.entities))


def _require(good: bool, name: str, value: object, allowed: str) -> None:
    if not good:
        raise FaultError(f"{name} is {value}; allowed is {allowed}")
