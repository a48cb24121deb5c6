"""The summary: the first lines of every page, the worst first, in any width.

Rows keep their places: the state, then its cause and failing callers, then healing, then the action. Refused sends
come first, and an alarm never replaces the states. Not here: the fit of a row (spans.pack).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Final

from paired_servicebus.core.backlog.backlog_totals import empty_at, sum_backlog
from paired_servicebus.core.backlog.depth_readings import seconds_until
from paired_servicebus.core.model.entity_state import State
from paired_servicebus.core.model.fleet_view import FleetView
from paired_servicebus.core.model.pairing_condition import condition_of
from paired_servicebus.core.model.snapshot import EntityView, FindingVerdict, QueueView, Snapshot, SyphonStatus
from paired_servicebus.core.operator import fleet_sentences
from paired_servicebus.core.operator.alarms import (
    FLEET_PAGE,
    Alarm,
    Severity,
    advice,
    degrading,
    refused_entities,
    unroutable_entities,
)
from paired_servicebus.core.operator.why_line import failover_cause, pings_needed
from paired_servicebus.core.text.number_format import count, plural, rate, time_or_day
from paired_servicebus.core.text.time_format import age, clock, roughly, until
from paired_servicebus.ui.render.spans import BETWEEN, LOOKS, QUIET, Part, Role, name_list, pack, shortenable
from paired_servicebus.ui.state.row_order import by_state, for_newest, groups_of
from paired_servicebus.ui.state.view import EngineLink, Page, View, alarms_of

# The six answers of the summary, in this order: the state and its start, the cause, failing callers, healing, action.
#
# Each answer is a part of a line, in several wordings (spans.pack). Not here: a lost engine (summary.py).

Entities = Sequence[EntityView]
SHORTEST_CAUSE = 8


# -- whose sends are lost to callers ---------------------------------------------------------------------------------


@for_newest
def lost_entities(snapshot: Snapshot) -> Entities:
    """Return the entities whose sends fail at callers, or reach no namespace."""
    it = condition_of(snapshot)
    lost = {one.path for one in (*refused_entities(it), *unroutable_entities(it))}
    return [one for one in snapshot.entities if one.path in lost]


def has_no_route(snapshot: Snapshot, entity: EntityView) -> bool:
    """Return whether its sends can reach neither namespace."""
    return condition_of(snapshot).has_no_route(entity)


def refusal(entities: Entities, total: int, now: float) -> Part:
    """Return the part on lost sends: since when, how many, of which entities."""
    per_second, number = sum(one.refused_per_second for one in entities), sum(one.refused for one in entities)
    since = min((one.refused_since for one in entities if one.refused_since is not None), default=None)
    lasted = f" for {age(now - since)}" if since is not None else ""
    who = _whose(entities, total)
    if per_second <= 0:
        return tuple(f"NO SEND CAN BE ACCEPTED{lasted}: no namespace accepts {one}" for one in who)
    text = f"SENDS ARE BEING REFUSED: {rate(per_second)}/s{lasted}, {count(number)}"
    longer = (f"{text}{how} at callers, {one}" for how in (" errors", "") for one in who)
    return (*longer, f"{text} at callers", f"SENDS ARE REFUSED: {rate(per_second)}/s at callers{lasted}")


def _whose(entities: Entities, total: int) -> Part:
    if len(entities) == total > 1:
        return (f"all {total} entities",)
    return name_list([one.path for one in entities])


def callers(snapshot: Snapshot, now: float) -> Part:
    """Return the part on calls that fail at callers: this engine's first, otherwise those of all engines."""
    here = _callers_here(snapshot.entities, now)
    if snapshot.fleet is None or any(one.refused_per_second > 0 for one in snapshot.entities):
        return here
    return fleet_sentences.callers_part(snapshot.fleet)


def _callers_here(entities: Entities, now: float) -> Part:
    per_second, number = sum(one.refused_per_second for one in entities), sum(one.refused for one in entities)
    since = min((one.refused_since for one in entities if one.refused_since is not None), default=None)
    if per_second > 0:
        why = Counter[str]()
        for one in entities:
            why.update(dict(one.refusals))
        lasted = f" for {age(now - since)}" if since is not None else ""
        text = f"callers: {rate(per_second)}/s fail{lasted}, {count(number)} total"
        reason = why.most_common(1)[0][0] if why else ""
        return (*(shortenable(f"{text}: {reason}", least=len(text) + 8) if reason else ()), text)
    if since is not None:
        return (f"callers: the last call failed, {count(number)} errors total", f"callers: {count(number)} errors")
    if all(one.state is State.UNKNOWN for one in entities):
        before = f", {plural(number, 'error')} before" if number else ""
        return (f"callers: unknown, this engine sends nothing{before}", f"callers: no sends here{before}")
    if number:
        before = f"{plural(number, 'error')} before"
        return (
            f"callers ok: 0 refused now, {before}",
            f"callers ok, {before}",
            f"callers ok, {plural(number, 'error')}",
            "callers ok",
        )
    return ("callers ok: 0 refused", "callers ok")


# -- what is wrong, since when, why ----------------------------------------------------------------------------------


def began_at(entities: Entities) -> float:
    """Return when the trouble began: the first failure, if it is known."""
    return min(one.first_failure_at if one.first_failure_at is not None else one.since for one in entities)


def how_many(state: State, entities: Entities, total: int) -> str:
    """Return the count of entities in a state."""
    if len(entities) == total:
        return f"all {total} entities {state}" if total > 1 else f"{entities[0].path} {state}"
    return f"{len(entities)} of {total} {state}"


def verdict(state: State, entities: Entities, total: int, now: float) -> Part:
    """Return the part on entities in the worst state, and for how long."""
    head = how_many(state, entities, total)
    if state is State.UNKNOWN:
        return (f"{head}: nothing sent to them, or not for long", head)
    lasts = age(now - began_at(entities))
    text = f"OUTAGE for {lasts}: {head}" if state is State.FAILED_OVER else f"{head} for {lasts}"
    if len(entities) == total:
        return (text,)
    return (*name_list([one.path for one in entities], before=f"{text}: "), text)


def cause(entities: Entities, now: float) -> Part:
    """Return the part on the first failure; of several causes, the most frequent comes first."""
    reasons = Counter(_reason(one) for one in entities).most_common()
    known = [one.first_failure_at for one in entities if one.first_failure_at is not None]
    first = f"first failure {time_or_day(min(known), now)}: " if known else "why: "
    if len(reasons) == 1:
        return (
            *(first + text for text in shortenable(reasons[0][0], least=SHORTEST_CAUSE)),
            *shortenable(reasons[0][0], least=SHORTEST_CAUSE, after=_since(min(known), now) if known else ""),
        )
    text = ", ".join(f"{reason} ({number})" for reason, number in reasons)
    return (first + text, f"{first}{reasons[0][0]} and {len(reasons) - 1} more", f"{first}{len(reasons)} causes")


def primary_cause(entities: Entities, now: float) -> Part:
    """Return the part on the primary's failure, with its start if there is room."""
    reason = Counter(_reason(one) for one in entities).most_common(1)[0][0]
    text, least = f"primary: {reason}", len("primary: ") + SHORTEST_CAUSE
    return (*shortenable(text, least=least, after=_since(began_at(entities), now)), *shortenable(text, least=least))


def _since(at: float, now: float) -> str:
    return f" since {time_or_day(at, now)}"


def _reason(entity: EntityView) -> str:
    if entity.state in QUIET and entity.refusals:
        return entity.refusals[0][0]
    if entity.state is State.FAILED_OVER and entity.last_ping_good is False and entity.last_ping_text:
        return entity.last_ping_text
    return failover_cause(entity.why) or _first_clause(entity)


def _first_clause(entity: EntityView) -> str:
    """Return the head of its why-line, without the time of its state, which is shown beside it."""
    head = entity.why.partition("; ")[0]
    return head if entity.state is State.FAILED_OVER else head.removesuffix(f" {clock(entity.since)}")


def why_now(entity: EntityView, now: float, *, counts_down: bool = True) -> str:
    """Return why one entity is in its state, and the next step.

    Args:
        counts_down: whether the next ping is a countdown; no, where a column beside it counts.
    """
    first = _first_clause(entity)
    if entity.state is State.SUSPECT and entity.fails_over_at is not None:
        return f"{first}; fails over {until(entity.fails_over_at, now)} unless a send succeeds"
    if entity.state is State.FAILED_OVER:
        cause = failover_cause(entity.why)
        if cause and entity.first_failure_at is not None:
            first = f"{cause} since {time_or_day(entity.first_failure_at, now)}"
        failed = entity.last_ping_good is False and (entity.last_ping_text != cause or cause not in first)
        last = f"; last ping: {entity.last_ping_text or 'failed'}" if failed else ""
        if not counts_down:
            return f"{first}{last}; home once its pings are accepted"
        due = entity.next_ping_at
        return f"{first}{last}; " + (_next_ping(due, now) if due is not None else "a ping is under way")
    return entity.why


def _next_ping(due: float, now: float) -> str:
    """Return its countdown; at its end in as many cells, so that the rest of the line stays in place."""
    return f"next ping {until(due, now)}" if due > now else "next ping is due"


# -- whether it heals ------------------------------------------------------------------------------------------------


def healing(snapshot: Snapshot, state: State, entities: Entities, now: float) -> Part:
    """Return the part on the end of the state, and how soon that is tried."""
    match state:
        case State.SUSPECT:
            due = [one.fails_over_at for one in entities if one.fails_over_at is not None]
            soon = until(min(due), now) if due else "soon"
            return (f"fails over {soon} unless a send succeeds", f"fails over {soon}")
        case State.FAILED_OVER:
            return _coming_home(snapshot, entities, now)
        case State.FORCED:
            return ("stays on the backlog until released", "stays until released")
        case State.PINNED:
            return ("stays on the primary until released: it does not fail over", "stays until released")
        case _:
            return ()


def _coming_home(snapshot: Snapshot, entities: Entities, now: float) -> Part:
    due = [one.next_ping_at for one in entities if one.next_ping_at is not None]
    ping = _next_ping(min(due), now) if due else "a ping is under way"
    needed = max(pings_needed(one, snapshot.policy) for one in entities)
    home = f"home after {needed} accepted"
    if all(one.missing_since is not None for one in entities):
        return ("heals when it is created again, ends when nothing sends to it", "heals when it is created again")
    if any(has_no_route(snapshot, one) for one in entities):
        short = f"heals, {ping.removeprefix('next ')}"
        either = "when either namespace answers"
        return (f"heals itself {either}; {ping}", f"heals {either}, {ping.removeprefix('next ')}", short)
    return (f"heals itself: {ping}, {home}", f"heals itself, {ping}", f"heals, {ping.removeprefix('next ')}")


# -- the backlog -----------------------------------------------------------------------------------------------------


def parked_text(snapshot: Snapshot, now: float) -> str:
    """Return the number of parked messages, with its age once it is old."""
    sums = sum_backlog(snapshot)
    if not sums.is_known:
        return "parked messages unknown" if sums.queues else "no backlog queue"
    if not sums.known:
        return f"at least {count(sums.messages)} parked"
    number = f"{count(sums.messages)} parked" if sums.messages else "nothing parked"
    if sums.known < sums.queues:
        number += f" in {sums.known} of {sums.queues} queues"
    if sums.old and sums.read_at is not None:
        return f"{number}, {age(now - sums.read_at)} old"
    return number + _trend(sums.growth if sums.messages else None)


def room(snapshot: Snapshot, now: float) -> Part:
    """Return the part on the age of the oldest parked message and when a backlog queue is full, if they are known."""
    enqueued = [one.oldest.enqueued_at for one in snapshot.queues if one.oldest.enqueued_at is not None]
    left = [one for one in map(_seconds_to_full, snapshot.queues) if one is not None]
    oldest = f"oldest parked {age(now - min(enqueued))}" if enqueued and sum_backlog(snapshot).messages else ""
    full = f"full in {roughly(min(left))}" if left else ""
    both = BETWEEN.join(text for text in (oldest, full) if text)
    return (both, oldest or full, "") if both else ()


def _seconds_to_full(queue: QueueView) -> float | None:
    if queue.size_bytes is None or not queue.limit_bytes or (queue.bytes_growth or 0.0) <= 0:
        return None
    return seconds_until(queue.size_bytes, queue.limit_bytes, queue.bytes_growth)


def _trend(growth: float | None) -> str:
    if growth is None or abs(growth) < 0.1:
        return ""
    return f" {'↑' if growth > 0 else '↓'}{rate(abs(growth))}/s"


def syphon_text(snapshot: Snapshot, now: float) -> str:
    """Return the syphon's status, and when the backlog is empty if that is known."""
    status, eta = snapshot.syphon.status, empty_at(snapshot)
    if status is SyphonStatus.OFF:
        return "syphon elsewhere" if snapshot.syphon.elsewhere else "syphon unknown"
    return f"syphon {status}, empty {until(eta, now)}" if eta is not None else f"syphon {status}"


def out_of_rotation(snapshot: Snapshot, now: float) -> Part:
    """Return the part on backlog queues that accept nothing; empty if all accept."""
    out = [queue for queue in snapshot.queues if not queue.in_rotation]
    if not out:
        return ()
    known = [queue.pulled_since for queue in out if queue.pulled_since is not None]
    since = _since(min(known), now) if known else ""
    which = f"all {len(out)}" if len(out) == len(snapshot.queues) else f"{len(out)} of {len(snapshot.queues)}"
    text = f"{which} backlog queues refuse"
    reason = out[0].pulled_reason
    why = shortenable(f"{text}{since} ({reason}", least=len(text + since) + 8, after=")") if reason else ()
    return (*why, text + since, text)


def readiness_text(snapshot: Snapshot) -> str:
    """Return whether a failover would work now; empty if that was not checked."""
    found = snapshot.readiness
    if found is None:
        return ""
    warnings = len(found.of(FindingVerdict.WARN))
    return (
        "failover NOT ready (!)"
        if not found.ready
        else "failover ready" + (f", {plural(warnings, 'warning')} (!)" if warnings else "")
    )


# -- the severity, and the alarms ------------------------------------------------------------------------------------

SHOWN_BY_STATES: Final = frozenset({"failed_over", "suspect", "forced", "pinned", "calls_fail"})
"""Alarms that the rows about entities contain."""
SHOWN_IN_LOSS: Final = frozenset({"nothing_accepted", "no_route", "sends_refused", "not_ready", "backlog_refuses"})
"""Alarms that the rows about lost sends contain."""


def todo(snapshot: Snapshot) -> Part:
    """Return the part on the operator's most urgent action."""
    wanted = advice(alarms_of(snapshot))
    if wanted.startswith("nothing"):
        return (f"do: {wanted.partition(':')[0]}",)  # the rows say what happens by itself
    return tuple(f"do: {text}" for text in shortenable(wanted)) if wanted else ("nothing to do",)


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
    found = [one for one in degrading(alarms_of(snapshot)) if one.page == FLEET_PAGE and one.name != "order_ending"]
    with_fleet = _with_fleet(here, snapshot.fleet, found, now, on_engines=on_engines)
    return _with_orders(with_fleet, snapshot.fleet, now)


def _with_orders(found: Summary, fleet: FleetView, now: float) -> Summary:
    """Add the standing orders of the fleet: in the second row once one ends soon, and while all else is quiet."""
    standing = fleet_sentences.standing_orders(fleet, now)
    if not standing:
        return found
    first, *others = found.rows
    if ending := fleet_sentences.ending_part(fleet, now):
        alarm = SummaryRow((tuple(f"! {text}" for text in ending),), Role.FAILED_OVER)
        level = max(found.level, Level.NOTABLE)
        return Summary(level, "!" if found.level <= Level.NOTABLE else found.glyph, (first, alarm, *others))
    if found.level >= Level.WRONG:
        return found
    more = f" and {len(standing) - 1} more" if standing[1:] else ""
    text = f"{fleet_sentences.order_head(standing[0], now)}{more}"
    ordered = SummaryRow(((f"over the fleet: {text}", text),), Role.FORCED)
    return Summary(max(found.level, Level.NOTABLE), found.glyph, (first, ordered, *others))


def _with_fleet(here: Summary, fleet: FleetView, found: Sequence[Alarm], now: float, *, on_engines: bool) -> Summary:
    """Add the fleet: as a row before a quiet engine's rows, as a part beside the state of one in trouble."""
    bad = fleet_sentences.unwell_entities(fleet)
    if not bad:
        return _with_alarms(here, found)
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


def _with_alarms(here: Summary, found: Sequence[Alarm]) -> Summary:
    """Add the worst alarm about a fleet whose entities are well."""
    if not found:
        return here
    first, *others = here.rows
    more = f" (and {plural(len(found) - 1, 'more alarm')})" if found[1:] else ""
    row = SummaryRow((shortenable(f"! {found[0].sentence}", after=more),), Role.FAILED_OVER)
    level = max(here.level, _LEVELS[found[0].severity])
    return Summary(level, "!" if here.level is Level.WELL else here.glyph, (first, row, *others), here.answers)


def _of_engine(snapshot: Snapshot, now: float) -> Summary:
    groups = groups_of(snapshot)
    worst = next(iter(groups), None)
    if lost := lost_entities(snapshot):
        return Summary(Level.LOST, "✗", _rows_of_loss(snapshot, lost, now), _answers(snapshot, lost, now))
    is_quiet = worst is None or worst in QUIET
    rows = _quiet(snapshot, now) if is_quiet else _rows_of_states(snapshot, now)
    glyph, level = LOOKS[worst].glyph if worst is not None else "○", _level(snapshot)
    answers = () if worst is None or is_quiet else _answers(snapshot, groups[worst], now)
    return Summary(level, "!" if level is not Level.WELL and is_quiet else glyph, rows, answers)


def _answers(snapshot: Snapshot, entities: Entities, now: float) -> tuple[Part, ...]:
    """Return what a page with two rows shows under the state."""
    state, worst = next(iter(by_state(entities).items()))
    lost = bool(lost_entities(snapshot))
    first = primary_cause(entities, now) if lost else callers(snapshot, now)
    return (first, healing(snapshot, state, worst, now), todo(snapshot))


def _level(snapshot: Snapshot) -> Level:
    """Return the level of the worst alarm of this engine."""
    found = [alarm.severity for alarm in alarms_of(snapshot) if alarm.page != FLEET_PAGE]
    return _LEVELS[found[0]] if found else Level.WELL


_LEVELS: Final = {Severity.CRITICAL: Level.WRONG, Severity.WARNING: Level.NOTABLE, Severity.NOTICE: Level.WELL}


def _rows_of_loss(snapshot: Snapshot, lost: Entities, now: float) -> tuple[SummaryRow, ...]:
    total, groups = len(snapshot.entities), by_state(lost)
    state, worst = next(iter(groups.items()))
    back = healing(snapshot, state, worst, now)
    keep = ("callers still own the messages", "")
    states = tuple((how_many(other, found, total), "") for other, found in groups_of(snapshot).items())
    return (
        SummaryRow((refusal(lost, total, now),), Role.STATEMENT),
        SummaryRow((primary_cause(lost, now), out_of_rotation(snapshot, now))),
        SummaryRow((back, keep)),
        SummaryRow((todo(snapshot), *states, *_alarms(snapshot))),
    )


def _rows_of_states(snapshot: Snapshot, now: float) -> tuple[SummaryRow, ...]:
    total, groups = len(snapshot.entities), groups_of(snapshot)
    (state, worst), *others = groups.items()
    rest = [(f"{len(found)} {other}",) for other, found in others if other not in QUIET]
    role = Role.FAILED_OVER if _level(snapshot) is Level.WRONG else Role.SUSPECT
    backlog = (parked_text(snapshot, now), ""), (syphon_text(snapshot, now), "")
    return (
        SummaryRow((verdict(state, worst, total, now), *rest), role),
        SummaryRow((cause(worst, now), callers(snapshot, now))),
        SummaryRow((healing(snapshot, state, worst, now), *backlog)),
        SummaryRow((todo(snapshot), *_alarms(snapshot), room(snapshot, now))),
    )


def _quiet(snapshot: Snapshot, now: float) -> tuple[SummaryRow, ...]:
    """Return the rows while no entity needs the operator; alarms come next."""
    total, groups = len(snapshot.entities), groups_of(snapshot)
    states = [how_many(state, found, total) for state, found in groups.items()] or ["no entity known yet"]
    backlog = [(parked_text(snapshot, now), ""), (syphon_text(snapshot, now), "")]
    role = {Level.WELL: Role.HEALTHY, Level.WRONG: Role.FAILED_OVER}.get(_level(snapshot), Role.SUSPECT)
    first = SummaryRow((*((text,) for text in states), *backlog), role)
    fine = SummaryRow((callers(snapshot, now), (readiness_text(snapshot),)))
    alarms = [SummaryRow((part,), Role.FAILED_OVER) for part in _alarms(snapshot)]
    return (first, *alarms, fine, SummaryRow((todo(snapshot),)))


def _alarms(snapshot: Snapshot) -> list[Part]:
    """Return the worst alarm and the number of others, without those that the rows contain."""
    contained = SHOWN_BY_STATES | (SHOWN_IN_LOSS if lost_entities(snapshot) else frozenset())
    missing = {one.path for one in snapshot.entities if one.missing_since is not None}
    found = [
        alarm.sentence
        for alarm in degrading(alarms_of(snapshot))
        if alarm.name not in contained and alarm.page != FLEET_PAGE and alarm.subject not in missing
    ]
    if not found:
        return []
    more = f" (and {plural(len(found) - 1, 'more alarm')})" if found[1:] else ""
    return [shortenable(f"! {found[0]}", after=more)]
