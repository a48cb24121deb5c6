"""The fold over all engines of a pairing: the one answer about its entities (SPEC.md section 12).

    pairing_of(snapshot).entities    # those of every engine; with no fleet, those of this one

This engine's figures are those of its snapshot, never of a report. Screens, verbs, metrics and alarms read the fold.
What other engines reported is as old as the latest reading of the board: `old_since` is set once that is too old.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import wraps
from itertools import chain
from typing import Any, Final, TypeVar

from paired_servicebus.core.model.entity_state import WELL, State
from paired_servicebus.core.model.fleet_view import (
    WORST_FIRST,
    FleetEngine,
    FleetEntity,
    FleetEntityState,
    FleetOrder,
    FleetStatus,
    FleetView,
)
from paired_servicebus.core.model.snapshot import NOWHERE, PRIMARY, DestinationView, EntityView, Snapshot
from paired_servicebus.core.text import untrusted_text
from paired_servicebus.core.text.number_format import join_names
from paired_servicebus.core.text.time_format import clock

MAX_NAMED: Final = 20
"""Engines named of one entity."""
MAX_CAUSES: Final = 5
MAX_NOT_WELL: Final = 10
"""Entities that an engine lists of its own."""
STATES_FIRST: Final = (*WORST_FIRST[:-2], State.HEALTHY, State.UNKNOWN)
"""As WORST_FIRST; an entity that one engine sends to with success is healthy, whoever else sends nothing to it."""
BACKLOG: Final = "backlog"
LOST_IN: Final = (State.SUSPECT, State.FAILED_OVER, State.FORCED, State.PINNED)
"""States in which a refused call is no error of a single message."""
ORDERED: Final = {"force": State.FORCED, "pin": State.PINNED}
"""The state that a standing order over the fleet makes, by its verb."""
NO_SENDS: Final = "no sends"
UNKNOWN: Final = "unknown"
UNEXPLAINED: Final = "failure"


# -- the sum over engines --------------------------------------------------------------------------------------------


def part_of(engine: str, entity: EntityView | FleetEntityState, *, has_counts: bool = True) -> FleetEntity:
    """Return a reporting engine's part of the sum.

    Args:
        has_counts: whether the sends of an EntityView are known; else, and without one, its state alone is.
    """
    began, counts = entity.first_failure_at, dict[str, Any]()
    if has_counts and isinstance(entity, EntityView):
        fails = entity.refused_per_second > 0 and (entity.state in LOST_IN or entity.sends_per_second == 0)
        counts = {name: getattr(entity, name) for name in SAME} | {
            "failing": (engine,) if fails else (),
            "failing_count": int(fails),
            "waiting": (engine,) if entity.throttled else (),
            "routes": ((_route_of(entity), 1),),
            "slow": int(entity.is_slow),
        }
    return FleetEntity(
        path=entity.path,
        states=((entity.state, 1),),
        engines=((engine, entity.state, entity.since),) if entity.state is not State.HEALTHY else (),
        first_failure_at=began,
        causes=((entity.first_failure_kind or UNEXPLAINED, 1),) if began is not None else (),
        unreported=int(not counts),
        **counts,
    )


def silent_part(path: str) -> FleetEntity:
    """Return the part of an engine that does not report."""
    return FleetEntity(path=path, states=(), silent=1, unreported=1)


def sum_parts(path: str, parts: Sequence[FleetEntity]) -> FleetEntity:
    """Return the sum of parts, or of sums; of the pings the newest one counts."""
    if len(parts) == 1:
        return parts[0]
    pings = [(one.last_ping_at, one.last_ping_good) for one in parts if one.last_ping_at is not None]
    at, is_good = max(pings, key=lambda one: one[0], default=(None, None))
    added = {name: add([getattr(one, name) for one in parts]) for name, add in _ADDED.items()}
    return FleetEntity(path=path, last_ping_at=at, last_ping_good=is_good, **added)


def _known_sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _earliest(times: Iterable[float | None]) -> float | None:
    return min((at for at in times if at is not None), default=None)


def _latest(times: Iterable[float | None]) -> float | None:
    return max((at for at in times if at is not None), default=None)


def _names(parts: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(sorted(set(chain.from_iterable(parts)))[:MAX_NAMED])


def _counts(parts: Iterable[tuple[tuple[Any, int], ...]]) -> Counter[Any]:
    total: Counter[Any] = Counter()
    for name, number in chain.from_iterable(parts):
        total[name] += number
    return total


def sum_states(parts: Iterable[tuple[tuple[State, int], ...]]) -> tuple[tuple[State, int], ...]:
    """Return the engines by state, the worst first."""
    total = _counts(parts)
    return tuple((state, total[state]) for state in STATES_FIRST if total[state])


def _unwell(parts: Iterable[tuple[tuple[str, State, float], ...]]) -> tuple[tuple[str, State, float], ...]:
    found = sorted(chain.from_iterable(parts), key=lambda one: (one[2], one[0], one[1]))
    return tuple(found[:MAX_NAMED])


_ADDED: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "states": sum_states,
    "silent": sum,
    "unreported": sum,
    "engines": _unwell,
    "first_failure_at": _earliest,
    "causes": lambda parts: tuple(_counts(parts).most_common(MAX_CAUSES)),
    "sends_per_second": _known_sum,
    "refused_per_second": _known_sum,
    "refused_in_outage": sum,
    "refused_at": _latest,
    "refused_since": _earliest,
    "failing": _names,
    "failing_count": sum,
    "throttled": sum,
    "throttled_since": _earliest,
    "unanswered_since": _earliest,
    "waiting": _names,
    "routes": lambda parts: tuple(sorted(_counts(parts).items(), key=lambda one: (-one[1], one[0]))),
    "next_ping_at": _earliest,
    "fails_over_at": _earliest,
    "held_back": _known_sum,
    "slow": sum,
}
"""How each field of a sum is made of those of its parts."""
SAME: Final = (
    "sends_per_second", "refused_per_second", "refused_in_outage", "refused_at", "refused_since", "throttled",
    "throttled_since", "unanswered_since", "next_ping_at", "fails_over_at", "last_ping_at", "last_ping_good",
)  # fmt: skip
"""The fields that an engine's view of an entity and a sum both have."""


def _route_of(entity: EntityView) -> str:
    """Return the kind of its route; a queue's index differs by engine."""
    if entity.state is State.UNKNOWN and entity.route != NOWHERE:
        return NO_SENDS
    return entity.route if entity.route in (PRIMARY, NOWHERE) else BACKLOG


# -- the fold --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingEntity(EntityView):
    """One entity over all engines of its pairing.

    Its state is the worst, times are the earliest of the present episode; rates, refused and waiting calls are sums.
    The counts since the start, and the latencies, are this engine's.
    """

    here: EntityView | None
    """This engine's own; None: only other engines have it."""
    total: FleetEntity
    """The sum over all engines."""

    @property
    def reporting(self) -> int:
        """Return the engines that report a state of it."""
        return sum(number for _, number in self.total.states)

    @property
    def engines(self) -> int:
        """Return the engines that have it, silent ones included."""
        return self.reporting + self.total.silent

    @property
    def is_elsewhere(self) -> bool:
        """Return whether other engines have it."""
        return self.engines > (self.here is not None)

    @property
    def in_state(self) -> int:
        """Return the engines that report its worst state."""
        return dict(self.total.states).get(self.state, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairingView:
    """A pairing over all its engines. at: the time of this engine's figures."""

    at: float
    entities: tuple[PairingEntity, ...]
    """This engine's in its order, then those of other engines."""
    fleet: FleetView | None = None
    """The fleet, with this engine as it is now, and its entities over all engines; None: other hosts are unknown."""
    old_since: float | None = None
    """The time of what other engines reported, once that is old; None: it is not, or there is no fleet."""

    @property
    def engines(self) -> tuple[FleetEngine, ...]:
        """The engines of the fleet that have not ended, this one included."""
        known = self.fleet.engines if self.fleet is not None else ()
        return tuple(one for one in known if one.status is not FleetStatus.ENDED)

    @property
    def unheard(self) -> int:
        """The number of expected engines that were never heard."""
        return max(0, (self.fleet.expected or 0) - len(self.engines)) if self.fleet is not None else 0

    @property
    def unreported(self) -> tuple[FleetEngine, ...]:
        """The other engines of which it is unknown now whether their callers' sends fail."""
        fleet = self.fleet
        others = [one for one in self.engines if fleet is not None and not fleet.is_me(one)]
        if self.old_since is not None:
            return tuple(others)
        return tuple(one for one in others if one.status is not FleetStatus.REPORTING or one.figures is None)

    @property
    def totals(self) -> tuple[FleetEntity, ...]:
        """The sums of all entities."""
        return tuple(one.total for one in self.entities)


def fold(
    entities: Sequence[EntityView], fleet: FleetView | None, at: float, held_back: Sequence[DestinationView] = ()
) -> PairingView:
    """Return the pairing over all engines; with no fleet, over this one.

    Args:
        entities: this engine's.
        at: the time of its figures.
        held_back: what its syphon holds back.
    """
    aside = {one.path.casefold(): one.set_aside for one in held_back}
    old = old_since(fleet, at) if fleet is not None else None
    known = fleet.entities if fleet is not None else ()
    theirs = {one.path.casefold(): one if old is None else _as_old(one) for one in known}
    me = fleet.me if fleet is not None else ""
    orders = fleet.orders if fleet is not None else ()
    found = [_entity(me, one, theirs.pop(one.path.casefold(), None), aside, orders) for one in entities]
    found += [_entity(me, None, one, aside, orders) for one in theirs.values()]
    if fleet is None:
        return PairingView(at=at, entities=tuple(found))
    engines = tuple(_own(one, entities, at) if fleet.is_me(one) else one for one in fleet.engines)
    over_all = replace(fleet, engines=engines, entities=tuple(one.total for one in found))
    return PairingView(at=at, entities=tuple(found), fleet=over_all, old_since=old)


def _as_old(theirs: FleetEntity) -> FleetEntity:
    """Return what stays true of an old sum: which calls fail or wait at other engines now is unknown."""
    engines = sum(number for _, number in theirs.states) + theirs.silent
    return replace(
        theirs, refused_per_second=None, refused_since=None, refused_at=None, failing=(), failing_count=0, throttled=0,
        throttled_since=None, unanswered_since=None, waiting=(), unreported=engines,
    )  # fmt: skip


def _own(engine: FleetEngine, entities: Sequence[EntityView], at: float) -> FleetEngine:
    """Return this engine as it is now, not as it reported itself."""
    figures = engine.figures
    if figures is not None:
        sends = sum(one.sends_per_second for one in entities)
        refused = sum(one.refused_per_second for one in entities)
        figures = replace(figures, at=at, sends_per_second=sends, refused_per_second=refused)
    return replace(engine, states=count_states(entities), not_well=list_unwell(entities), figures=figures)


def count_states(entities: Iterable[EntityView]) -> tuple[tuple[State, int], ...]:
    """Return an engine's entities by state, the worst first."""
    states = Counter(one.state for one in entities)
    return tuple((state, states[state]) for state in WORST_FIRST if states[state])


def list_unwell(entities: Iterable[EntityView]) -> tuple[FleetEntityState, ...]:
    """Return an engine's entities that are not well, the longest so first, at most MAX_NOT_WELL."""
    unwell = sorted((one for one in entities if one.state not in WELL), key=lambda one: one.since)
    return tuple(
        FleetEntityState(
            path=one.path,
            state=one.state,
            since=one.since,
            first_failure_at=one.first_failure_at,
            first_failure_kind=one.first_failure_kind,
        )
        for one in unwell[:MAX_NOT_WELL]
    )


def old_since(fleet: FleetView, now: float) -> float | None:
    """Return the time of the figures of other engines if it is too long ago; None: they are current.

    A board that was never read has none: then it is the time since which this is known, or now.
    """
    if fleet.read_at is None:
        return fleet.trouble_since if fleet.trouble_since is not None else now
    is_late = now - fleet.read_at > fleet.read_every + max(LATE, fleet.read_every / 9)
    return fleet.read_at if fleet.trouble or is_late else None


LATE: Final = 5.0
"""Seconds that a reading of the board may be late."""


def _entity(
    me: str,
    here: EntityView | None,
    theirs: FleetEntity | None,
    aside: Mapping[str, int],
    orders: Sequence[FleetOrder],
) -> PairingEntity:
    path = here.path if here is not None else theirs.path if theirs is not None else ""
    parts = [*([theirs] if theirs is not None else []), *([part_of(me, here)] if here is not None else [])]
    total = sum_parts(path, parts)
    if (held := aside.get(path.casefold())) is not None:
        total = replace(total, held_back=(total.held_back or 0) + held)
    own = _values(here) if here is not None else {"accepted": 0, "diverted": 0, "failed": 0}
    return PairingEntity(**own | (_over(here, total, orders) if theirs is not None else {}), here=here, total=total)


def _over(here: EntityView | None, total: FleetEntity, orders: Sequence[FleetOrder]) -> dict[str, Any]:
    """Return the values of an entity that are those of all its engines."""
    state = next((state for state, _ in total.states), State.UNKNOWN)
    is_here = here is not None and here.state is state
    began = min((since for _, one, since in total.engines if one is state), default=None)
    return {name: getattr(total, name) for name in SAME} | {
        "path": total.path,
        "state": state,
        "since": began if began is not None else here.since if here is not None else 0.0,
        "why": here.why if here is not None and is_here else _why(state, total, orders),
        "route": _route(total),
        "sends_per_second": total.sends_per_second or 0.0,
        "refused_per_second": total.refused_per_second or 0.0,
        "first_failure_at": total.first_failure_at if state not in WELL else None,
        "first_failure_kind": total.causes[0][0] if total.causes and state not in WELL else "",
        "is_slow": total.slow > 0,
    }


def _why(state: State, total: FleetEntity, orders: Sequence[FleetOrder]) -> str:
    """Return why it is in its worst state, which is that of other engines: who ordered it, or what failed."""
    path = total.path.casefold()
    ordered = (one for one in orders if one.until and ORDERED.get(one.verb) is state)
    if order := next((one for one in ordered if path in (it.casefold() for it in one.targets)), None):
        reason = f" “{untrusted_text.reason(order.why)}”" if order.why else ", no reason given"
        return f"{state} by {untrusted_text.name(order.by)} {clock(order.at)}{reason}; stays until released"
    where = f"at {join_names((name for name, one, _ in total.engines if one is state), 3)}"
    if state in WELL:
        return "sends go to the primary" if state is State.HEALTHY else "no sends at any engine"
    if total.first_failure_at is None or not total.causes:
        return f"{state} {where}"
    return f"{total.causes[0][0]} since {clock(total.first_failure_at)}; {where}"


def _route(total: FleetEntity) -> str:
    """Return the route of all engines that send to it, or how many of them take which."""
    routes = [(route, number) for route, number in total.routes if route != NO_SENDS]
    if not routes:
        return NO_SENDS if total.routes else UNKNOWN
    if len(routes) == 1:
        return routes[0][0]
    return " · ".join(f"{number} {route}" for route, number in routes)


def _values(view: EntityView) -> dict[str, Any]:
    return {name: getattr(view, name) for name in _NAMES}


_NAMES: Final = tuple(one.name for one in fields(EntityView))


A = TypeVar("A")
R = TypeVar("R")


def for_newest(answer: Callable[[A], R]) -> Callable[[A], R]:
    """Return `answer`, which keeps its answers about the two newest objects: many ask the same of one snapshot.

    The argument must not change.
    """
    newest: tuple[tuple[A, R], ...] = ()

    @wraps(answer)
    def ask(about: A) -> R:
        nonlocal newest
        for known, found in newest:
            if known is about:
                return found
        found = answer(about)
        newest = ((about, found), *newest[:1])
        return found

    return ask


@for_newest
def pairing_of(snapshot: Snapshot) -> PairingView:
    """Return the pairing over all engines that a snapshot shows.

    Two syphons of one queue may know of the same messages: none holds back more than is parked.
    """
    found = fold(snapshot.entities, snapshot.fleet, snapshot.at, snapshot.syphon.destinations)
    parked = snapshot.parked
    if parked is None or parked.known < parked.queues or sum(one.total.held_back or 0 for one in found.entities) == 0:
        return found
    most = [min(one.total.held_back or 0, parked.messages) for one in found.entities]
    bounded = tuple(
        replace(one, total=replace(one.total, held_back=held)) if held < (one.total.held_back or 0) else one
        for one, held in zip(found.entities, most, strict=True)
    )
    return replace(found, entities=bounded)
