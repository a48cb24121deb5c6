"""The summary: the first lines of every page, the worst first, in any width.

Rows keep their places: the state, then its cause and failing callers, then healing, then the action. Refused sends
come first, and an alarm never replaces the states. Not here: the parts of a row (situation.py), their fit (spans.pack).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from paired_servicebus.core.backlog.backlog_totals import stranded_messages
from paired_servicebus.core.model.entity_state import DIVERTING, State
from paired_servicebus.core.model.fleet_view import FleetView
from paired_servicebus.core.model.snapshot import Snapshot, SyphonStatus
from paired_servicebus.core.operator import fleet_sentences, order_sentences
from paired_servicebus.core.text.number_format import plural
from paired_servicebus.core.text.time_format import age, clock
from paired_servicebus.ui.render.spans import BETWEEN, Part, Role, pack, shortenable
from paired_servicebus.ui.render.state_looks import LOOKS, QUIET
from paired_servicebus.ui.state import situation
from paired_servicebus.ui.state.newest import for_newest
from paired_servicebus.ui.state.row_order import by_state, groups_of
from paired_servicebus.ui.state.view import EngineLink, Page, View

REFUSED: Final = "sends are refused"
NOT_READY: Final = "not ready to fail over"
"""The engine's alarm begins so; the first row contains it already."""
NOT_USABLE: Final = "backlog not usable"
"""What the same alarm means once sends go to the backlog."""


class Level(IntEnum):
    """The severity."""

    WELL = 0
    NOTABLE = 1
    WRONG = 2
    LOST = 3
    """Sends end in errors at callers."""
    BLIND = 4
    """The engine's present state is unknown."""


@dataclass(frozen=True, slots=True)
class SummaryRow:
    """One line of the summary."""

    parts: tuple[Part, ...]
    role: Role = Role.TEXT


@dataclass(frozen=True, slots=True)
class Summary:
    """The severity, its glyph, and the rows."""

    level: Level
    glyph: str
    rows: tuple[SummaryRow, ...]
    answers: tuple[Part, ...] = ()
    """Callers, healing, action: the second row of a page with room for two."""

    @property
    def text(self) -> str:
        """All rows in full, for output without a screen."""
        return BETWEEN.join(part[0] for row in self.rows for part in row.parts if part and part[0])

    def lines(self, width: int, height: int) -> list[tuple[str, Role]]:
        """Return the first `height` rows in `width` cells, without the glyph."""
        rows = self.rows
        if height == 2 and self.answers and len(rows) > height:
            rows = (rows[0], SummaryRow(self.answers))
        return [(pack(row.parts, width), row.role) for row in rows[:height]]


@for_newest
def summary(view: View) -> Summary:
    """Return the summary of a view, or of the lost engine."""
    if view.link is EngineLink.UNREACHABLE and view.snapshot is None:
        since = clock(view.link_since)
        return _sentence(Level.NOTABLE, "○", f"no engine of {view.pairing} yet, retrying since {since}")
    if view.link is EngineLink.UNREACHABLE:
        reason = f": {view.link_reason}" if view.link_reason else ""
        return _blind(view, f"engine unreachable since {clock(view.link_since)}{_lasted(view, ' ({})')}{reason}")
    if view.link is EngineLink.SILENT:
        return _blind(view, f"engine silent{_lasted(view, ' for {}')} (connected)")
    if view.snapshot is None:
        return _sentence(Level.NOTABLE, "○", f"connecting to the engine of {view.pairing}")
    return _of_snapshot(view.snapshot, view.now, on_engines=view.page is Page.ENGINES)


def headline(view: View) -> str:
    """Return the first part of the summary."""
    return summary(view).rows[0].parts[0][0]


def window_title(view: View) -> str:
    """Return the title of the terminal's window: the glyph, the number of entities in trouble, the pairing."""
    entities = view.snapshot.entities if view.snapshot is not None else ()
    unwell = sum(entity.state not in QUIET for entity in entities) if view.link is EngineLink.LIVE else 0
    return f"{summary(view).glyph}{unwell or ''} {view.pairing}"


def _sentence(level: Level, glyph: str, text: str, *others: SummaryRow) -> Summary:
    return Summary(level, glyph, (SummaryRow((shortenable(text),)), *others))


def _blind(view: View, lost: str) -> Summary:
    """Return the reason, the age of the figures, and the last known rows in grey."""
    figures = f"; figures from {clock(view.snapshot.at)}" if view.snapshot else ""
    text = lost + figures
    if view.snapshot is None:
        return _sentence(Level.BLIND, "✗", text)
    before = _of_snapshot(view.snapshot, view.now)
    last, *others = (SummaryRow(row.parts, Role.MUTED) for row in before.rows)
    known = SummaryRow(((f"last known: {before.glyph}",), *last.parts), Role.MUTED)
    if view.link is not EngineLink.UNREACHABLE:
        return _sentence(Level.BLIND, "✗", text, known, *others)
    return _sentence(Level.BLIND, "✗", text, known, SummaryRow(_without_engine(view.snapshot)), *others)


def _lasted(view: View, form: str) -> str:
    """Return how long the engine is lost, in that form; empty in its first moment."""
    return form.format(age(view.clock - view.link_since)) if view.clock > view.link_since else ""


def _without_engine(snapshot: Snapshot) -> tuple[Part, ...]:
    """Return what the end of the engine means for senders, and what starts it again."""
    if not snapshot.own_process:
        inside = "it ran inside an application: look at that process"
        return ((f"{inside}; its end stops its own sends", inside),)
    if snapshot.gateway is not None:
        effect = (
            "senders through its gateway are cut off; other applications go on",
            "its gateway's senders are cut off",
        )
    else:
        effect = ("applications go on by themselves, failover too", "applications go on by themselves")
    return (("restart: paired up",), effect, ("its syphon moves nothing",))


def _of_snapshot(snapshot: Snapshot, now: float, *, on_engines: bool = False) -> Summary:
    """Return this engine's summary, with the fleet's trouble if there is some."""
    here = _of_engine(snapshot, now)
    if snapshot.fleet is None:
        return here
    return _with_orders(_with_fleet(here, snapshot.fleet, now, on_engines=on_engines), snapshot.fleet, now)


def _with_orders(found: Summary, fleet: FleetView, now: float) -> Summary:
    """Add the standing orders of the fleet: in the second row once one ends soon, and while all else is quiet."""
    standing = order_sentences.standing_orders(fleet, now)
    if not standing:
        return found
    first, *others = found.rows
    if ending := order_sentences.ending_part(fleet, now):
        alarm = SummaryRow((tuple(f"! {text}" for text in ending),), Role.FAILED_OVER)
        level = max(found.level, Level.NOTABLE)
        return Summary(level, "!" if found.level <= Level.NOTABLE else found.glyph, (first, alarm, *others))
    if found.level >= Level.WRONG:
        return found
    more = f" and {len(standing) - 1} more" if standing[1:] else ""
    text = f"{order_sentences.order_head(standing[0], now)}{more}"
    ordered = SummaryRow(((f"over the fleet: {text}", text),), Role.FORCED)
    return Summary(max(found.level, Level.NOTABLE), found.glyph, (first, ordered, *others))


def _with_fleet(here: Summary, fleet: FleetView, now: float, *, on_engines: bool) -> Summary:
    """Add the fleet: as a row before a quiet engine's rows, as a part beside the state of one in trouble."""
    bad = fleet_sentences.unwell_entities(fleet)
    if not bad:
        return here
    state = fleet_sentences.worst_state(bad[0])
    old = bool(fleet_sentences.trouble_part(fleet, now))
    counts = fleet_sentences.engines_part(fleet)
    head = tuple(f"{'as last read, ' if old else ''}{text}" for text in counts)
    which = fleet_sentences.unwell_part(fleet)
    if here.level >= Level.WRONG:
        first, *others = here.rows
        loss = fleet_sentences.loss_part(fleet) if here.level is Level.LOST else ()
        return replace(here, rows=(SummaryRow((*first.parts, loss, (*head, "")), first.role), *others))
    level = Level.WRONG if state is State.FAILED_OVER else Level.NOTABLE
    role = Role.FAILED_OVER if level is Level.WRONG else Role.SUSPECT
    rows = tuple(row for row in here.rows if row.parts != (("nothing to do",),))
    local, *others = rows
    quiet = SummaryRow((("this engine: " + local.parts[0][0],), *local.parts[1:]), local.role)
    todo = SummaryRow((("do: start with the first engine below" if on_engines else "do: see every engine (7)",),))
    top = SummaryRow((head, *((which,) if not old else ())), role)
    return Summary(level, LOOKS[state].glyph, (top, quiet, *others[:1], todo, *others[1:]))


def _of_engine(snapshot: Snapshot, now: float) -> Summary:
    groups = groups_of(snapshot)
    worst = next(iter(groups), None)
    if lost := situation.refused_entities(snapshot):
        return Summary(Level.LOST, "✗", _rows_of_loss(snapshot, lost, now), _answers(snapshot, lost, now))
    rows = _quiet(snapshot, now) if worst is None or worst in QUIET else _rows_of_states(snapshot, now)
    glyph = LOOKS[worst].glyph if worst is not None else "○"
    needs_eyes = snapshot.alarms or stranded_messages(snapshot) or _errors(snapshot)
    answers = () if worst is None or worst in QUIET else _answers(snapshot, groups[worst], now)
    return Summary(_level(snapshot, worst), "!" if needs_eyes and worst in (None, *QUIET) else glyph, rows, answers)


def _answers(snapshot: Snapshot, entities: situation.Entities, now: float) -> tuple[Part, ...]:
    """Return what a page with two rows shows under the state."""
    state, worst = next(iter(by_state(entities).items()))
    lost = bool(situation.refused_entities(snapshot))
    callers = situation.primary_cause(entities, now) if lost else situation.callers(snapshot, now)
    return (callers, situation.healing(snapshot, state, worst, now), situation.todo(snapshot, state, worst))


def _level(snapshot: Snapshot, worst: State | None) -> Level:
    stuck = snapshot.syphon.status is SyphonStatus.STUCK
    if snapshot.alarms or stuck or worst is State.FAILED_OVER:
        return Level.WRONG
    quiet = worst in QUIET and snapshot.syphon.status is not SyphonStatus.PAUSED
    well = quiet and all(queue.in_rotation for queue in snapshot.queues) and not stranded_messages(snapshot)
    return Level.WELL if well and not _errors(snapshot) else Level.NOTABLE


def _errors(snapshot: Snapshot) -> bool:
    return any(entity.refused_per_second > 0 for entity in snapshot.entities)


def _rows_of_loss(snapshot: Snapshot, lost: situation.Entities, now: float) -> tuple[SummaryRow, ...]:
    total, groups = len(snapshot.entities), by_state(lost)
    state, worst = next(iter(groups.items()))
    healing = situation.healing(snapshot, state, worst, now)
    keep = ("callers still own the messages", "")
    states = tuple((situation.how_many(other, found, total), "") for other, found in groups_of(snapshot).items())
    return (
        SummaryRow((situation.refusal(lost, total, now),), Role.STATEMENT),
        SummaryRow((situation.primary_cause(lost, now), situation.out_of_rotation(snapshot, now))),
        SummaryRow((healing, keep)),
        SummaryRow((situation.todo(snapshot, state, worst), *states, *_alarms(snapshot))),
    )


def _rows_of_states(snapshot: Snapshot, now: float) -> tuple[SummaryRow, ...]:
    total, groups = len(snapshot.entities), groups_of(snapshot)
    (state, worst), *others = groups.items()
    rest = [(f"{len(found)} {other}",) for other, found in others if other not in QUIET]
    role = Role.FAILED_OVER if _level(snapshot, state) is Level.WRONG else Role.SUSPECT
    backlog = (situation.parked_text(snapshot, now), ""), (situation.syphon_text(snapshot, now), "")
    stays = situation.stranded_text(snapshot)
    return (
        SummaryRow((situation.verdict(state, worst, total, now), *rest), role),
        SummaryRow((situation.cause(worst, now), situation.callers(snapshot, now))),
        SummaryRow((situation.healing(snapshot, state, worst, now), *backlog)),
        SummaryRow((situation.todo(snapshot, state, worst), stays, *_alarms(snapshot), situation.room(snapshot, now))),
    )


def _quiet(snapshot: Snapshot, now: float) -> tuple[SummaryRow, ...]:
    """Return the rows while no entity needs the operator; alarms come next."""
    total, groups = len(snapshot.entities), groups_of(snapshot)
    states = [situation.how_many(state, found, total) for state, found in groups.items()] or ["no entity known yet"]
    backlog = [(situation.parked_text(snapshot, now), ""), (situation.syphon_text(snapshot, now), "")]
    role = {Level.WELL: Role.HEALTHY, Level.WRONG: Role.FAILED_OVER}.get(_level(snapshot, next(iter(groups), None)))
    stays = situation.stranded_text(snapshot)
    first = SummaryRow((*((text,) for text in states), stays, *backlog), role or Role.SUSPECT)
    callers = situation.callers(snapshot, now)
    fine = SummaryRow((callers, situation.out_of_rotation(snapshot, now), (situation.readiness_text(snapshot),)))
    alarms = [SummaryRow((part,), Role.FAILED_OVER) for part in _alarms(snapshot)]
    todo = situation.todo(snapshot, None, ()) or ("nothing to do",)
    return (first, *alarms, fine, SummaryRow((todo,)))


def _alarms(snapshot: Snapshot) -> list[Part]:
    """Return the first alarm and the number of others, without those that the rows contain.

    While sends are refused, the rows contain why the backlog takes none, and the check to run.
    """
    contained = (REFUSED, NOT_READY) if situation.refused_entities(snapshot) else ()
    alarms = [alarm for alarm in snapshot.alarms if not alarm.startswith(contained)]
    if any(entity.state in DIVERTING for entity in snapshot.entities):
        alarms = [alarm.replace(NOT_READY, NOT_USABLE, 1) for alarm in alarms]
    if not alarms:
        return []
    more = f" (and {plural(len(alarms) - 1, 'more alarm')})" if alarms[1:] else ""
    return [shortenable(f"! {alarms[0]}", after=more)]
