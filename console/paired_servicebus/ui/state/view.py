"""Everything the screen knows at one moment, and how news change it. Frozen values, pure functions.

A feed tells Reached, Snapshot, Records, Missed and Unreachable (feed.py); the app folds each into the View and hands
the result to whatever screens are open. Nothing here is assumed ahead of the engine: what the engine has not said is
not shown. What the person chose on a screen (page, selection, marks, filters) is here as well, and moved by selection.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, Protocol, runtime_checkable

from paired_servicebus.core.accounting.billing import Price
from paired_servicebus.core.model.pairing_events import Record
from paired_servicebus.core.model.snapshot import EntityView, Snapshot
from paired_servicebus.ui.state import log_entries as event_log
from paired_servicebus.ui.state.incident_history import HistoryNews
from paired_servicebus.ui.state.keymap import DEFAULT_KEYMAP, Keymap
from paired_servicebus.ui.state.log_entries import Log
from paired_servicebus.ui.state.row_order import WORST_FIRST, listed, unused_queues


class Page(StrEnum):
    """What fills the terminal. The values are its titles."""

    PAIRING = "pairing"
    ENTITY = "entity"
    BACKLOG = "backlog"
    TIMELINE = "timeline"
    COST = "cost"
    HISTORY = "history"
    ENGINES = "engines"


ROWLESS: Final = frozenset({Page.COST})
"""Pages without rows to select."""


class EngineLink(StrEnum):
    """How the console stands to its engine."""

    CONNECTING = "connecting"
    LIVE = "live"
    SILENT = "silent"
    """Connected, but the snapshots stopped coming."""
    UNREACHABLE = "unreachable"


@dataclass(frozen=True, slots=True)
class Reached:
    """The engine answers (again). Its next snapshot makes the screen live."""


@dataclass(frozen=True, slots=True)
class Records:
    """Events, oldest first."""

    records: Sequence[Record]


@dataclass(frozen=True, slots=True)
class Missed:
    """So many events will never be shown here."""

    count: int


@dataclass(frozen=True, slots=True)
class Silent:
    """No snapshot since `since` (seconds since the epoch), although the connection stands."""

    since: float


@dataclass(frozen=True, slots=True)
class Unreachable:
    """The engine cannot be reached since `since`, for this reason."""

    since: float
    reason: str


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Another engine of this machine: its pairing's name, and what is wrong with it in a word; empty if nothing is.

    snapshot: how it stood when it was last looked at. unreachable: why it could not be; commands don't reach it.
    """

    name: str
    trouble: str
    snapshot: Snapshot | None = None
    unreachable: str = ""


@dataclass(frozen=True, slots=True)
class Neighbours:
    """All of them."""

    engines: tuple[Neighbour, ...]


News = Reached | Snapshot | Records | Missed | Silent | Unreachable | Neighbours | HistoryNews


@dataclass(frozen=True, slots=True)
class CommandAnswer:
    """What came of the operator's last act, or why it is not possible now."""

    text: str
    good: bool
    at: float
    """When it was given, seconds since the epoch: it stays until the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """Where a person reads in the timeline."""

    filter: str = ""
    """Words that an event has to have to be listed."""
    find: str = ""
    """Words that were last looked for."""
    cursor: int | None = None
    """Number of the selected entry; None: the newest, whichever that is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the screen shows."""

    pairing: str
    viewer: bool = False
    """Whether this console was opened to look only."""
    engine_stays: bool = True
    """Whether the engine goes on when the person leaves; not so in a demo."""
    link: EngineLink = EngineLink.CONNECTING
    link_since: float = 0.0
    link_reason: str = ""
    snapshot: Snapshot | None = None
    clock: float = 0.0
    """The time of day when this was painted, seconds since the epoch, by this machine."""
    elapsed: float = 0.0
    """Seconds since the snapshot came."""
    selected: str = ""
    """Path of the entity that commands are for."""
    queue: str = ""
    """Index of the backlog queue that commands are for, where one is selected."""
    unused: str = ""
    """Path of the unused backlog queue that commands are for, where one is selected."""
    log: Log = ()
    answer: CommandAnswer | None = None
    asking: str = ""
    """The act that the engine was asked to arm and has not answered; its question opens then."""
    waiting_for: str = ""
    """The command that the engine has not answered yet."""
    legible: bool = True
    """Whether the terminal is large enough for any page, and to show what a dangerous act would do."""
    page: Page = Page.PAIRING
    on_unused: bool = False
    """Whether the backlog page's selection is among the unused queues."""
    marks: frozenset[str] = frozenset()
    """Paths of the entities that the next command is for, in place of the selected one."""
    filter: str = ""
    """Words that an entity's path or state has to have; see selection.py."""
    sort: str = WORST_FIRST
    """By what the entities are sorted; see row_order.py."""
    order: tuple[str, ...] = ()
    """Paths in the order of the moment `sorted_at`, where the way of sorting is not a live one."""
    sorted_at: float = 0.0
    story: Story = Story()
    neighbours: tuple[Neighbour, ...] = ()
    past: HistoryNews | None = None
    """What the pipeline's tables hold; None: not read yet."""
    engine: str = ""
    """The neighbour selected on the page of engines; empty: the engine that is shown."""
    chosen: frozenset[str] = frozenset()
    """Neighbours that commands are for as well."""
    outcomes: tuple[tuple[str, CommandAnswer], ...] = ()
    """What came of the last command at each engine, by name, where it was for several."""
    price: Price | None = None
    """What the person's console.toml says operations cost."""
    keys: Keymap = DEFAULT_KEYMAP
    """What it says of keys."""

    @property
    def fresh(self) -> bool:
        """Whether the snapshot may be read as the present."""
        return self.link is EngineLink.LIVE

    @property
    def now(self) -> float:
        """The present by the engine's clock, which ages and countdowns are made by; once its news stop, the moment
        that its figures are of."""
        if self.snapshot is None:
            return self.clock
        return self.snapshot.at + (self.elapsed if self.fresh else 0.0)

    @property
    def read_only(self) -> bool:
        """Whether no command may be given from here: this console, or its engine, says so."""
        return self.viewer or (self.snapshot is not None and self.snapshot.read_only)

    @property
    def listed(self) -> tuple[EntityView, ...]:
        """The entities that the filter lets through, as they are sorted."""
        return listed(self.snapshot.entities if self.snapshot else (), self.filter, self.sort, self.order)

    @property
    def marked(self) -> tuple[str, ...]:
        """The marked entities that are listed, in the order of the list."""
        return tuple(entity.path for entity in self.listed if entity.path in self.marks) if self.marks else ()

    @property
    def reach(self) -> tuple[Neighbour, ...]:
        """The neighbours that commands are for as well; one that is gone since is there, and says so."""
        here = {one.name: one for one in self.neighbours}
        gone = "no engine of that name runs here now"
        return tuple(here.get(name) or Neighbour(name, "gone", None, gone) for name in sorted(self.chosen))

    @property
    def entity(self) -> EntityView | None:
        """The selected entity."""
        return self.entity_at(self.selected)

    def entity_at(self, path: str) -> EntityView | None:
        """The entity of that path; paths compare case-insensitively."""
        entities = self.snapshot.entities if self.snapshot else ()
        return next((entity for entity in entities if entity.path.casefold() == path.casefold()), None)


Newest = Callable[[], View]
"""Returns the newest view; a screen calls it when it is mounted."""


@runtime_checkable
class ShowsView(Protocol):
    """A screen that follows the engine while it is open."""

    def show(self, view: View) -> None:
        """Show the view."""


def told(view: View, news: News) -> View:
    """The view after the news."""
    match news:
        case Snapshot():
            return _with_snapshot(view, news)
        case Records(records):
            return replace(view, log=event_log.append(view.log, records))
        case Missed(count):
            at = view.snapshot.at if view.snapshot else view.log[-1].at if view.log else 0.0
            return replace(view, log=event_log.skipped(view.log, count, at=at))
        case Reached():
            return view
        case Silent(since):
            if view.link is not EngineLink.LIVE:
                return view
            return replace(view, link=EngineLink.SILENT, link_since=since, link_reason="")
        case HistoryNews():
            return replace(view, past=news)
        case Neighbours(engines):
            there = view.engine in [one.name for one in engines]
            return replace(view, neighbours=engines, engine=view.engine if there else "")
        case Unreachable(since, reason):
            return replace(view, link=EngineLink.UNREACHABLE, link_since=since, link_reason=reason)


def attended(view: View, name: str) -> View:
    """The view of another engine, of which nothing is known yet; who looks and how stays."""
    return View(
        pairing=name,
        viewer=view.viewer,
        engine_stays=view.engine_stays,
        legible=view.legible,
        price=view.price,
        keys=view.keys,
        chosen=view.chosen - {name},
    )


def happened(before: View, after: View) -> bool:
    """Whether something happened between the two that nobody should wait for; figures that moved are no such thing."""
    return _events(before) != _events(after)


def _events(view: View) -> tuple[object, ...]:
    of_engine: tuple[object, ...] = ()
    if (snapshot := view.snapshot) is not None:
        of_engine = (
            [(entity.path, entity.state) for entity in snapshot.entities],
            [queue.in_rotation for queue in snapshot.queues],
            (snapshot.syphon.status, snapshot.alarms, snapshot.caption, snapshot.read_only, snapshot.boot),
            snapshot.readiness is not None and snapshot.readiness.ready,
        )
    neighbours = [(one.name, one.trouble) for one in view.neighbours]
    return (view.link, view.log[-1:], view.answer, neighbours, of_engine)


def _with_snapshot(view: View, snapshot: Snapshot) -> View:
    paths = [entity.path for entity in listed(snapshot.entities, view.filter, view.sort, view.order)]
    selected = view.selected if view.selected in paths else next(iter(paths), "")
    unused = [queue.path for queue in unused_queues(snapshot)]
    marks = view.marks and view.marks.intersection(entity.path for entity in snapshot.entities)
    return replace(
        view,
        snapshot=snapshot,
        elapsed=0.0,
        selected=selected,
        unused=view.unused if view.unused in unused else next(iter(unused), ""),
        on_unused=view.on_unused and bool(unused),
        marks=marks,
        link=EngineLink.LIVE,
        link_reason="",
    )
