"""Everything the screen knows at one moment, and how news change it. Frozen values, pure functions.

A feed tells Reached, Snapshot, Records, Missed and Unreachable (feed.py); the app folds each into the View and hands
the result to whatever screens are open. Nothing here is assumed ahead of the engine: what the engine has not said is
not shown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from console.core.events import Record
from console.core.snapshot import EntityView, Snapshot
from console.ui import log as event_log
from console.ui.log import Log


class Link(StrEnum):
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


News = Reached | Snapshot | Records | Missed | Silent | Unreachable


@dataclass(frozen=True, slots=True)
class Answer:
    """What came of the operator's last act, or why it is not possible now."""

    text: str
    good: bool
    at: float
    """When it was given, seconds since the epoch: it stays until the next one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What the screen shows."""

    pairing: str
    viewer: bool = False
    """Whether this console was opened to look only."""
    engine_stays: bool = True
    """Whether the engine goes on when the person leaves; not so in a demo."""
    link: Link = Link.CONNECTING
    link_since: float = 0.0
    link_reason: str = ""
    snapshot: Snapshot | None = None
    selected: str = ""
    """Path of the entity that commands are for."""
    queue: str = ""
    """Index of the backlog queue that commands are for, where one is selected."""
    unused: str = ""
    """Path of the unused backlog queue that commands are for, where one is selected."""
    log: Log = ()
    answer: Answer | None = None
    waiting_for: str = ""
    """The command that the engine has not answered yet."""
    fits: bool = True
    """Whether the terminal is large enough for the dashboard."""

    @property
    def fresh(self) -> bool:
        """Whether the snapshot may be read as the present."""
        return self.link is Link.LIVE

    @property
    def read_only(self) -> bool:
        """Whether no command may be given from here: this console, or its engine, says so."""
        return self.viewer or (self.snapshot is not None and self.snapshot.read_only)

    @property
    def entity(self) -> EntityView | None:
        """The selected entity."""
        return self.entity_at(self.selected)

    def entity_at(self, path: str) -> EntityView | None:
        """The entity of that path; paths compare case-insensitively."""
        entities = self.snapshot.entities if self.snapshot else ()
        return next((entity for entity in entities if entity.path.casefold() == path.casefold()), None)


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
            if view.link is not Link.LIVE:
                return view
            return replace(view, link=Link.SILENT, link_since=since, link_reason="")
        case Unreachable(since, reason):
            return replace(view, link=Link.UNREACHABLE, link_since=since, link_reason=reason)


def moved_selection(view: View, steps: int) -> View:
    """The selection `steps` entities further down, stopping at both ends."""
    paths = [entity.path for entity in view.snapshot.entities] if view.snapshot else []
    if not paths:
        return view
    place = paths.index(view.selected) if view.selected in paths else 0
    return replace(view, selected=paths[max(0, min(len(paths) - 1, place + steps))])


def _with_snapshot(view: View, snapshot: Snapshot) -> View:
    paths = [entity.path for entity in snapshot.entities]
    selected = view.selected if view.selected in paths else next(iter(paths), "")
    unused = [queue.path for queue in snapshot.unused.queues]
    return replace(
        view,
        snapshot=snapshot,
        selected=selected,
        unused=view.unused if view.unused in unused else next(iter(unused), ""),
        link=Link.LIVE,
        link_reason="",
    )
