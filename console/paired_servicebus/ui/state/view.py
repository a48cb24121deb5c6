"""The state of the screen at one moment, and how news change it. Frozen values, pure functions.

A feed (feed.py) sends news; the app folds each into the View and passes the result to the open screens. The View
holds what the engine reported, never a guess, and the operator's choices (selection.py). Entities are sorted worst
first unless the operator sorts otherwise: a live order follows the news, and one that would move rows every second is
frozen, with its time in the title.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from math import inf
from types import MappingProxyType
from typing import Any, Final, Protocol, TypeVar, runtime_checkable

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetView
from paired_servicebus.core.model.gateway_view import GatewayClient, GatewayView
from paired_servicebus.core.model.message_view import MessageKind
from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.core.model.pairing_fold import PairingEntity, for_newest, pairing_of
from paired_servicebus.core.model.snapshot import NOWHERE, EntityView, Snapshot, UnusedQueue
from paired_servicebus.core.operator.alarms import REPORTED_BY_EVENTS, Alarm, alarms, begun, degrading, turned
from paired_servicebus.core.operator.fleet_sentences import ending_stage, not_answered, order_part, standing_orders
from paired_servicebus.core.series.graphs import Graphs, follow
from paired_servicebus.engine.control.protocol import Skipped
from paired_servicebus.ui.render.spans import LOOKS, QUIET
from paired_servicebus.ui.state import log_entries as event_log
from paired_servicebus.ui.state.incident_history import IncidentHistory
from paired_servicebus.ui.state.log_entries import Log

WORST_FIRST: Final = "worst first"


def is_lost(entity: EntityView) -> bool:
    """Return whether sends to it end in errors at callers."""
    return entity.refused_per_second > 0 or entity.route == NOWHERE


@dataclass(frozen=True, slots=True)
class SortOrder:
    """One way to order rows. `key`: None for the engine's own order; the smallest comes first."""

    key: Callable[[EntityView], Any] | None
    live: bool = True
    """Whether the order follows the news; otherwise it is frozen when the operator chooses it."""


def _worst(entity: EntityView) -> tuple[bool, int, bool]:
    """Return its place: lost sends, the worst state, and in it those of which engines disagree."""
    disagrees = isinstance(entity, PairingEntity) and entity.total.disagrees
    return (not is_lost(entity), -LOOKS[entity.state].weight, not disagrees)


SORTS: Final[dict[str, SortOrder]] = {
    WORST_FIRST: SortOrder(_worst),
    "name": SortOrder(lambda entity: entity.path.casefold()),
    "busiest first": SortOrder(lambda entity: -entity.sends_per_second, live=False),
    "latest change first": SortOrder(lambda entity: -entity.since),
    "as listed": SortOrder(None),
}
"""In the order in which the sort key cycles through them."""


def list_entities(
    entities: Sequence[PairingEntity], words: str, sort: str, order: Sequence[str]
) -> tuple[PairingEntity, ...]:
    """Return the entities that match the words, sorted; those not in `order` come last."""
    if words:
        wanted = words.casefold().split()
        entities = [one for one in entities if has_all(f"{one.path} {one.state}".casefold(), wanted)]
    way = SORTS[sort]
    if sort == WORST_FIRST:
        return _worst_first(entities)
    if way.key is not None and way.live:
        return tuple(sorted(entities, key=way.key))
    if order:
        places = {path: place for place, path in enumerate(order)}
        return tuple(sorted(entities, key=lambda one: places.get(one.path, len(places))))
    return tuple(entities)


def frozen_order(entities: Sequence[EntityView], sort: str) -> tuple[str, ...]:
    """Return the paths in the present order, if the sort order is frozen; () if it is live or the engine's own."""
    way = SORTS[sort]
    if way.live or way.key is None:
        return ()
    return tuple(entity.path for entity in sorted(entities, key=way.key))


def _worst_first(entities: Sequence[PairingEntity]) -> tuple[PairingEntity, ...]:
    """Return the entities sorted by `_worst`; groups are faster than sorting, and thousands are listed each second."""
    groups: dict[tuple[bool, int, bool], list[PairingEntity]] = {}
    for entity in entities:
        groups.setdefault(_worst(entity), []).append(entity)
    return tuple(entity for severe in sorted(groups) for entity in groups[severe])


def has_all(text: str, words: Sequence[str]) -> bool:
    """Return whether a text in lower case has every word, and none of those that begin with an exclamation mark."""
    return all(word[1:] not in text if word[:1] == "!" and word[1:] else word in text for word in words)


E = TypeVar("E", bound=EntityView)


def by_state(entities: Sequence[E]) -> dict[State, list[E]]:
    """Return the entities by their state, the worst first; in a state those with lost sends first."""
    lost: dict[State, list[E]] = {}
    spared: dict[State, list[E]] = {}
    for entity in entities:
        (lost if is_lost(entity) else spared).setdefault(entity.state, []).append(entity)
    states = sorted({*lost, *spared}, key=lambda state: -LOOKS[state].weight)
    return {state: [*lost.get(state, ()), *spared.get(state, ())] for state in states}


@for_newest
def groups_of(snapshot: Snapshot) -> Mapping[State, Sequence[PairingEntity]]:
    """Return the entities of the pairing by their state; see `by_state`."""
    return by_state(pairing_of(snapshot).entities)


def unused_queues(snapshot: Snapshot) -> tuple[UnusedQueue, ...]:
    """Return the unused backlog queues, those that contain messages first."""
    return tuple(sorted(snapshot.unused.queues, key=lambda one: not (one.messages or one.dead_lettered)))


# The rows of the entities' table: one each, and one for all quiet entities while another one needs attention.
#
# Folded are the healthy and the unknown whose sends reach their callers, in every engine of the fleet, unless they are
# marked or selected.

QUIET_ROWS: Final = 3
QUIET_ROWS_HIGH: Final = 12
"""Quiet entities that keep their rows, on an ordinary terminal and on a high one."""
FOLD: Final = ""
"""The name of the row that stands for the quiet entities; an entity's row has its path."""


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows from top to bottom."""

    entities: tuple[PairingEntity, ...]
    """Those with a row of their own."""
    quiet: tuple[PairingEntity, ...] = ()
    """Those that the fold stands for, shown or not; empty: there is no fold."""
    fold_at: int = 0
    """The place of the fold: so many entities are above it."""
    is_open: bool = False
    """Whether the quiet ones have rows too, below the fold."""

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each row."""
        paths = tuple(entity.path for entity in self.entities)
        return (*paths[: self.fold_at], FOLD, *paths[self.fold_at :]) if self.quiet else paths


def table_rows(listed: Sequence[PairingEntity], *, kept: Collection[str], at_most: int, is_open: bool) -> TableRows:
    """Return the rows of the listed entities, which are sorted worst first.

    Args:
        kept: paths that have a row of their own while the others are folded.
        at_most: so many quiet ones are not folded.
        is_open: whether the operator has unfolded the quiet ones.
    """
    loud = tuple(one for one in listed if needs_eyes(one))
    if not loud or len(listed) - len(loud) <= at_most:
        return TableRows(tuple(listed))
    quiet = tuple(one for one in listed if not needs_eyes(one))
    if is_open:
        return TableRows((*loud, *quiet), quiet, len(loud), is_open=True)
    own = tuple(one for one in quiet if one.path in kept)
    folded = tuple(one for one in quiet if one.path not in kept)
    return TableRows((*loud, *own), folded, len(loud) + len(own))


def needs_eyes(entity: EntityView) -> bool:
    """Return whether an entity is not quiet: by its state or by its sends, at any engine."""
    return is_lost(entity) or entity.state not in QUIET


class Page(StrEnum):
    """A page. The values are titles."""

    PAIRING = "overview"
    ENTITY = "entity"
    BACKLOG = "backlog"
    TIMELINE = "events"
    COST = "cost"
    HISTORY = "incidents"
    ENGINES = "engines"
    CLIENTS = "clients"


OwnKeys = Mapping[str, str]
"""Textual's name of the key that the operator chose, by the action's id."""
NO_KEYS: Final[OwnKeys] = MappingProxyType({})


class EngineLink(StrEnum):
    """The state of the connection to the engine."""

    CONNECTING = "connecting"
    LIVE = "live"
    SILENT = "silent"
    """Connected, but without new snapshots."""
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Reached:
    """The engine answers; its next snapshot makes the link live."""


@dataclass(frozen=True, slots=True)
class Records:
    """Events, oldest first."""

    records: Sequence[Record]


@dataclass(frozen=True, slots=True)
class Silent:
    """No snapshot since `since` (seconds since the epoch), although the connection is open."""

    since: float


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The engine is unreachable since `since`."""

    since: float
    reason: str


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another engine on this machine, by its pairing's name.

    trouble: its state in a word; empty if it is healthy. snapshot: its latest. unreachable: the reason, if it is.
    """

    name: str
    trouble: str
    snapshot: Snapshot | None = None
    unreachable: str = ""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """All other engines."""

    engines: tuple[Neighbour, ...]


News = Reached | Snapshot | Graphs | Records | Skipped | Silent | Unreachable | Neighbours | IncidentHistory


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """The outcome of the operator's last command, or why it is not possible now."""

    text: str
    good: bool
    at: float
    """Seconds since the epoch."""
    shorter: tuple[str, ...] = ()
    """Shorter wordings, for narrow screens."""
    order: str = ""
    """Id of the order over the fleet whose answers it shows as they come; empty: it does not change."""
    pending: bool = False
    """Whether engines that report have not answered yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelinePosition:
    """The operator's place in the timeline."""

    filter: str = ""
    """Words that a listed event contains."""
    cursor: int | None = None
    """Number of the selected entry; None: the newest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The state of the screen."""

    pairing: str
    viewer: bool = False
    """Whether this console is read-only."""
    engine_stays: bool = True
    """Whether the engine keeps running when the operator leaves; False in a demo."""
    link: EngineLink = EngineLink.CONNECTING
    link_since: float = 0.0
    link_reason: str = ""
    answered_at: float | None = None
    """When the engine accepted the connection whose first figures are awaited; None: it has not."""
    start_steps: tuple[str, ...] = ()
    """What the program that opened this screen starts before the engine, the newest last."""
    snapshot: Snapshot | None = None
    clock: float = 0.0
    """The time of day at this paint, seconds since the epoch, by this machine."""
    elapsed: float = 0.0
    """Seconds since the snapshot arrived."""
    selected: str = ""
    """Path of the entity that commands are for."""
    queue: str = ""
    """Index of the selected backlog queue."""
    unused: str = ""
    """Path of the selected unused backlog queue."""
    graphs: Graphs | None = None
    """The engine's curves over time; None: none arrived yet."""
    log: Log = ()
    """The events, with pings folded onto the change they belong to."""
    each_log: Log = ()
    """The same with every ping."""
    each_ping: bool = False
    """Whether the screen lists every ping."""
    answer: CommandAnswer | None = None
    asking: str = ""
    """The command that the engine is arming; its dialog opens when it answers."""
    waiting_for: str = ""
    """The command that the engine has not answered yet."""
    legible: bool = True
    """Whether the terminal is large enough for a page and for the consequences of a dangerous command."""
    quiet_rows: int = QUIET_ROWS
    """Quiet entities that keep a row each beside one that is not; more are folded into one row."""
    on_fold: bool = False
    """Whether the selection is the row of the folded entities; no entity is selected then."""
    is_unfolded: bool = False
    """Whether the operator has unfolded them."""
    page: Page = Page.PAIRING
    on_unused: bool = False
    """Whether the backlog page's selection is an unused queue."""
    marks: frozenset[str] = frozenset()
    """Paths of the entities for the next command, in place of the selected one."""
    filter: str = ""
    """Words that a listed entity's path or state contains; see `list_entities`."""
    sort: str = WORST_FIRST
    """Name of the sort order; see `SORTS`."""
    order: tuple[str, ...] = ()
    """Paths in the order at `sorted_at`, if the sort order is not live."""
    sorted_at: float = 0.0
    timeline_position: TimelinePosition = TimelinePosition()
    neighbours: tuple[Neighbour, ...] = ()
    past: IncidentHistory | None = None
    """The incidents in journal and tables; None: not read yet."""
    incident_open: bool = False
    """Whether the incidents page shows the chosen incident instead of the list."""
    engine: str = ""
    """The neighbour selected on the engines page; empty: the engine on screen."""
    client: int = 0
    """Id of the selected client of the gateway."""
    chosen: frozenset[str] = frozenset()
    """Neighbours that also receive commands."""
    outcomes: tuple[tuple[str, CommandAnswer], ...] = ()
    """The outcomes of the last command by engine, if it went to several."""
    price: Price | None = None
    """The price of operations in console.toml."""
    keys: OwnKeys = field(default_factory=dict)
    """The keys in console.toml."""
    counts: Mapping[tuple[str, MessageKind], int] = field(default_factory=dict)
    """Messages by path and part, of entities that are no backlog queues."""

    @property
    def fresh(self) -> bool:
        """Whether the snapshot is current."""
        return self.link is EngineLink.LIVE

    @property
    def now(self) -> float:
        """The engine's time, for ages and countdowns; without news, the time of its last figures."""
        if self.snapshot is None:
            return self.clock
        return self.snapshot.at + (self.elapsed if self.fresh else 0.0)

    @property
    def read_only(self) -> bool:
        """Whether this console, or its engine, refuses commands."""
        return self.viewer or (self.snapshot is not None and self.snapshot.read_only)

    @property
    def entities(self) -> tuple[PairingEntity, ...]:
        """The entities over all engines; empty before the first snapshot."""
        return pairing_of(self.snapshot).entities if self.snapshot is not None else ()

    @property
    def fleet(self) -> FleetView | None:
        """The engines of other hosts; None: not known, or no fleet."""
        return self.snapshot.fleet if self.snapshot is not None else None

    @property
    def gateway(self) -> GatewayView | None:
        return self.snapshot.gateway if self.snapshot is not None else None

    @property
    def listed(self) -> tuple[PairingEntity, ...]:
        """The entities of the pairing that match the filter, sorted."""
        return _listed(self)

    @property
    def rows(self) -> TableRows:
        """The rows of the table of entities: quiet ones are folded while the worst come first and none is filtered."""
        return _rows(self)

    @property
    def events(self) -> Log:
        """The listed events: pings folded, or each."""
        return self.each_log if self.each_ping else self.log

    @property
    def clients(self) -> tuple[GatewayClient, ...]:
        """The listed clients of the gateway."""
        return self.gateway.clients if self.gateway is not None else ()

    @property
    def marked(self) -> tuple[str, ...]:
        """The marked entities that are listed, in their order."""
        return tuple(entity.path for entity in self.listed if entity.path in self.marks) if self.marks else ()

    @property
    def reach(self) -> tuple[Neighbour, ...]:
        """The neighbours that also receive commands; one that has ended is included as unreachable."""
        here = {one.name: one for one in self.neighbours}
        gone = "no engine of that name runs here now"
        return tuple(here.get(name) or Neighbour(name, "gone", None, gone) for name in sorted(self.chosen))

    @property
    def entity(self) -> PairingEntity | None:
        return self.entity_at(self.selected)

    def entity_at(self, path: str) -> PairingEntity | None:
        """Return the entity of that path over all engines; paths compare case-insensitively."""
        return next((entity for entity in self.entities if entity.path.casefold() == path.casefold()), None)


@for_newest
def _listed(view: View) -> tuple[PairingEntity, ...]:
    return list_entities(view.entities, view.filter, view.sort, view.order)


@for_newest
def _rows(view: View) -> TableRows:
    if view.sort != WORST_FIRST or view.filter or view.snapshot is None:
        return TableRows(view.listed)
    return table_rows(
        view.listed,
        kept={*view.marks, view.selected},
        at_most=view.quiet_rows,
        is_open=view.is_unfolded,
    )


Newest = Callable[[], View]
"""Returns the newest view; a screen calls it when it is mounted."""


@runtime_checkable
class ShowsView(Protocol):
    """A screen that follows the engine while it is open."""

    def show(self, view: View) -> None:
        """Show the view."""


def apply_news(view: View, news: News) -> View:
    """Return the view after the news."""
    match news:
        case Snapshot():
            return _with_snapshot(view, news)
        case Records(records):
            me = view.fleet.me if view.fleet is not None else ""
            folded = event_log.append(view.log, records, fold=True, engine=me)
            return replace(view, log=folded, each_log=event_log.append(view.each_log, records, engine=me))
        case Skipped(count):
            at = view.snapshot.at if view.snapshot else view.log[-1].at if view.log else 0.0
            folded = event_log.append_missed(view.log, count, at=at)
            return replace(view, log=folded, each_log=event_log.append_missed(view.each_log, count, at=at))
        case Reached():
            return replace(view, answered_at=view.clock)
        case Graphs():
            return replace(view, graphs=follow(view.graphs, news))
        case Silent(since):
            if view.link is not EngineLink.LIVE:
                return view
            return replace(view, link=EngineLink.SILENT, link_since=since, link_reason="")
        case IncidentHistory():
            return replace(view, past=news)
        case Neighbours(engines):
            there = view.engine in [one.name for one in engines]
            return replace(view, neighbours=engines, engine=view.engine if there else "")
        case Unreachable(since, reason):
            return replace(view, link=EngineLink.UNREACHABLE, link_since=since, link_reason=reason, answered_at=None)


def view_of_engine(view: View, name: str) -> View:
    """Return the view of another engine, without its state yet; the operator's settings stay."""
    return View(
        pairing=name,
        viewer=view.viewer,
        engine_stays=view.engine_stays,
        legible=view.legible,
        quiet_rows=view.quiet_rows,
        price=view.price,
        keys=view.keys,
        chosen=view.chosen - {name},
    )


def needs_paint_now(before: View, after: View) -> bool:
    """Return whether something happened that must be painted immediately, not only changed figures."""
    return _events(before) != _events(after)


def _events(view: View) -> tuple[object, ...]:
    of_engine: tuple[object, ...] = ()
    if (snapshot := view.snapshot) is not None:
        of_engine = (
            [(entity.path, entity.state) for entity in pairing_of(snapshot).entities],
            [queue.in_rotation for queue in snapshot.queues],
            (
                snapshot.syphon.status,
                [(one.name, one.subject) for one in alarms_of(snapshot)],
                snapshot.caption,
                snapshot.read_only,
                snapshot.boot,
            ),
            snapshot.readiness is not None and snapshot.readiness.ready,
        )
    neighbours = [(one.name, one.trouble) for one in view.neighbours]
    newest = [(entry.number, entry.sentence) for entry in view.log[-1:]]  # pings that are folded onto it are figures
    return (view.link, newest, view.answer, neighbours, of_engine)


def _with_snapshot(view: View, snapshot: Snapshot) -> View:
    entities = pairing_of(snapshot).entities
    if not view.order and (order := frozen_order(entities, view.sort)):  # kept from an earlier dashboard
        view = replace(view, order=order, sorted_at=snapshot.at)
    listed = list_entities(entities, view.filter, view.sort, view.order)
    paths = [entity.path for entity in listed]
    selected = view.selected if view.selected in paths else next(iter(paths), "")
    on_fold = view.on_fold and bool(replace(view, snapshot=snapshot, selected="").rows.quiet)
    unused = [queue.path for queue in unused_queues(snapshot)]
    clients = [one.id for one in snapshot.gateway.clients] if snapshot.gateway is not None else []
    marks = view.marks and view.marks.intersection(entity.path for entity in entities)
    return replace(
        _with_fleet(view, snapshot),
        snapshot=snapshot,
        elapsed=0.0,
        selected="" if on_fold else selected,
        on_fold=on_fold,
        unused=view.unused if view.unused in unused else next(iter(unused), ""),
        on_unused=view.on_unused and bool(unused),
        client=view.client if view.client in clients else next(iter(clients), 0),
        marks=marks,
        link=EngineLink.LIVE,
        link_reason="",
        answer=_answer_now(view.answer, snapshot),
    )


def _with_fleet(view: View, snapshot: Snapshot) -> View:
    """Return the view with what changed at other engines among its events."""
    if snapshot.fleet is None:
        return view
    log, each = (
        event_log.append_fleet(one, view.fleet, snapshot.fleet, snapshot.at) for one in (view.log, view.each_log)
    )
    return replace(view, log=log, each_log=each)


def follow_order(view: View, order_id: str, text: str) -> View:
    """Return the view that shows the engines' answers to an order over the fleet, until another answer."""
    answer = CommandAnswer(text, good=True, at=view.clock, order=order_id, pending=True)
    return replace(view, waiting_for="", answer=answer)


def _answer_now(answer: CommandAnswer | None, snapshot: Snapshot) -> CommandAnswer | None:
    """Return the answers of now, if they are those to an order over the fleet."""
    if answer is None or not answer.order or snapshot.fleet is None:
        return answer
    order = next((one for one in snapshot.fleet.orders if one.id == answer.order), None)
    if order is None:
        return answer
    text, *shorter = order_part(order, snapshot.at, snapshot.fleet)
    pending = bool(not_answered(order, snapshot.fleet))
    good = not order.refused
    return replace(answer, text=text, shorter=tuple(shorter), good=good, pending=pending)


def should_ring(before: View, after: View) -> bool:
    """Return whether the bell rings. Only two views are compared, so that a replayed history rings for nothing."""
    if after.link is EngineLink.UNREACHABLE and before.link in (EngineLink.LIVE, EngineLink.SILENT):
        return True
    was, now = before.snapshot, after.snapshot
    return was is not None and now is not None and was is not now and _calls(was, now)


@for_newest
def alarms_of(snapshot: Snapshot) -> tuple[Alarm, ...]:
    """Return the alarms of a snapshot, the worst first."""
    return alarms(condition_of(snapshot))


def _alarms_that_ring(snapshot: Snapshot) -> tuple[Alarm, ...]:
    return tuple(one for one in degrading(alarms(condition_of(snapshot))) if one.name not in REPORTED_BY_EVENTS)


def _ending(snapshot: Snapshot) -> set[tuple[str, float]]:
    """Return the standing orders of the fleet under an alarm, 30 and 5 minutes before their end."""
    if snapshot.fleet is None:
        return set()
    stages = ((one.id, ending_stage(one, snapshot.at)) for one in standing_orders(snapshot.fleet, snapshot.at))
    return {(order, stage) for order, stage in stages if stage < inf}


def _calls(was: Snapshot, now: Snapshot) -> bool:
    states = {entity.path: entity.state for entity in pairing_of(was).entities}
    before, after = _alarms_that_ring(was), _alarms_that_ring(now)
    return (
        any(turned(states.get(entity.path, entity.state), entity.state) for entity in pairing_of(now).entities)
        or bool(begun(before, after) or begun(after, before))
        or bool(_ending(now) - _ending(was))
    )
